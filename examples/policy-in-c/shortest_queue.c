/* Join the shortest queue: a request goes to the chain that runs the fewest jobs.
 *
 * Decides exactly as the policy route-jsq does, which is written in Rust. */
#define PM_NAME "route-jsq-c"
#define PM_VERSION "0.1.0"
#define PM_ROUTE
#define PM_WITH_TRACE
#include "pointsman.h"

static uint64_t jobs(const pm_chain *chain)
{
    return chain->busy;
}

static pm_decision pm_pick(const pm_request *ask)
{
    /* Whoever comes while others wait, waits behind them: a small request must not overtake for ever. */
    if (pm_cluster->queued > 0)
        return pm_queue();
    const pm_chain *shortest = pm_best_fit(ask->reserve, jobs);
    return shortest ? pm_dispatch(shortest->id) : pm_queue();
}

/* The jobs of each chain that fits. */
static void pm_trace(const pm_request *ask, const pm_overlap *overlap, uint32_t count)
{
    (void)overlap, (void)count;
    for (uint32_t at = 0; at < pm_cluster->count; at++) {
        const pm_chain *chain = &pm_cluster->chains[at];
        if (pm_cluster->queued == 0 && pm_fits(chain, ask->reserve))
            pm_score(chain->id, chain->busy);
    }
}
