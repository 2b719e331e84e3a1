/* Shortest prompt first: of the prompts that are ready, those with the fewest tokens left to compute go first.
 *
 * A bound keeps long prompts from waiting for ever: whoever has been passed over `passed_max` times in a row goes
 * before all others. Those that decode are not named: they go before prompts anyway, and all of them run. */
#define PM_NAME "batch-shortest-c"
#define PM_VERSION "0.1.0"
#define PM_BATCH
#define PM_WITH_INIT
#include "pointsman.h"

/* After 64 micro-batches the host itself runs a sequence first; to wait for longer is no choice. */
static pm_knob knobs[] = { { .name = "passed_max", .from = 1, .to = 64, .value = 32 } };

static pm_start pm_init(pm_str config)
{
    return pm_knobs(config, knobs, 1);
}

static void pm_step(const pm_step_ask *ask, const pm_ready *ready, uint32_t count)
{
    /* What is left of each prompt, and behind it the index, so that of equals the first goes first. */
    static uint64_t order[PM_READY_MAX];
    uint32_t prompts = 0;
    (void)ask;
    for (uint32_t at = 0; at < count; at++) {
        const pm_ready *it = &ready[at];
        uint64_t left = it->passed >= knobs[0].value ? 0 : (uint64_t)it->pending + 1;
        if (!pm_decodes(it))
            order[prompts++] = left << 8 | at;
    }
    pm_sort(order, prompts);
    /* Whoever comes last in the usual order anyway need not be named. */
    uint32_t named = prompts > 0 ? prompts - 1 : 0;
    while (named > 0 && (order[named - 1] & 0xff) < (order[named] & 0xff))
        named--;
    for (uint32_t at = 0; at < named; at++)
        pm_run(order[at] & 0xff);
}
_Static_assert(PM_READY_MAX <= 256, "an index has eight bits");
