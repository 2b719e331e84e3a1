/* The C SDK for policies: say which slots the policy serves, include this file, write the hooks, build one `.wasm`.
 *
 *     #define PM_NAME "first-fit"
 *     #define PM_VERSION "0.1.0"
 *     #define PM_ROUTE
 *     #include "pointsman.h"
 *
 *     static pm_decision pm_pick(const pm_request *ask)
 *     {
 *         for (uint32_t at = 0; at < pm_cluster->count; at++)
 *             if (pm_fits(&pm_cluster->chains[at], ask->reserve))
 *                 return pm_dispatch(pm_cluster->chains[at].id);
 *         return pm_queue();
 *     }
 *
 * Life of a policy: `init` once per instance, then for every decision the events since the last one and the question
 * itself. Calls never overlap. There is no clock, no randomness and no I/O: time and random bits are fields of the
 * question, so that every decision can be replayed. Static variables of the policy are its memory, and start at zero.
 *
 * To be defined before this file is included, in the one source file of a policy:
 *
 *     PM_NAME, PM_VERSION              text in quotes, 64 bytes at most
 *     PM_ROUTE, PM_BATCH, PM_CACHE     the slots, at least one; each brings hooks that must be written
 *     PM_WITH_...                      a hook that is written, too; each is declared below with its default
 *     PM_STATE_SCHEMA                  names the layout of the bytes of `pm_save`; text in quotes
 *     PM_METRICS                       the figures, a list of pm_metric
 *     PM_CHAINS_MAX                    most chains of a cluster that the policy can serve
 *
 * The file has the types and the view of the cluster, then helpers, then hooks, and last the exports: what the contract
 * (wit/policy/policy.wit) becomes in a core module by the component model's canonical ABI.
 *
 * Memory: what a call brings lies in an arena that is forgotten when the call ends, and what it returns lies in static
 * memory. So nothing is ever freed, and nothing leaks. */
#ifndef POINTSMAN_H
#define POINTSMAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifndef __wasm32__
#error "policies are built for WebAssembly: clang --target=wasm32, or zig cc -target wasm32-freestanding"
#endif
#ifndef __wasm_bulk_memory__
#error "build with -mbulk-memory, or the compiler calls memcpy and memset, which are in no library here"
#endif
#if !defined(PM_NAME) || !defined(PM_VERSION)
#error "define PM_NAME and PM_VERSION before pointsman.h is included"
#endif
#if !defined(PM_ROUTE) && !defined(PM_BATCH) && !defined(PM_CACHE)
#error "define PM_ROUTE, PM_BATCH or PM_CACHE, the slots that the policy serves, before pointsman.h is included"
#endif
#ifndef PM_STATE_SCHEMA
#define PM_STATE_SCHEMA ""
#endif
#ifndef PM_CHAINS_MAX
#define PM_CHAINS_MAX 512 /* as many as a server has */
#endif

/* The largest windows that the host shows; of a larger one only the front is passed on. */
#define PM_WAITING_MAX 64
#define PM_READY_MAX 256
#define PM_IDLE_MAX 64
#define PM_FORMATS_MAX 64

/* The answer of `pm_pull` that leaves the room empty. */
#define PM_NONE UINT32_MAX

/* A layout that the contract fixes. The host reads and writes these places. */
#define PM__AT(type, field, place) _Static_assert(offsetof(type, field) == (place), #type "." #field " moved")
#define PM__SIZE(type, bytes) _Static_assert(sizeof(type) == (bytes), #type " has another size")

/* ---- Texts, bytes, sorting -------------------------------------------------------------------------------------- */

/* Text in UTF-8. Texts that a policy hands out must be valid UTF-8, or the call counts as a fault. */
typedef struct {
    const char *text;
    uint32_t len;
} pm_str;
PM__AT(pm_str, len, 4);
PM__SIZE(pm_str, 8);

/* A literal as a pm_str; may stand in a static initializer. */
#define PM_STR(literal) { (literal), sizeof(literal) - 1 }

typedef struct {
    const uint8_t *at;
    uint32_t len;
} pm_bytes;
PM__SIZE(pm_bytes, 8);

static inline pm_str pm_str_of(const char *text)
{
    uint32_t len = 0;
    while (text[len])
        len++;
    return (pm_str){ text, len };
}

static inline bool pm_str_equal(pm_str one, pm_str other)
{
    if (one.len != other.len)
        return false;
    for (uint32_t at = 0; at < one.len; at++)
        if (one.text[at] != other.text[at])
            return false;
    return true;
}

/* Text that is put together in memory of the caller's. What does not fit is cut off, never in the middle of a
 * character, and what comes after it is left out. */
typedef struct {
    char *room;
    uint32_t bytes, len;
    bool full;
} pm_text;

static inline pm_text pm_text_in(char *room, uint32_t bytes)
{
    return (pm_text){ room, bytes, 0, false };
}

static inline void pm_add_str(pm_text *to, pm_str more)
{
    uint32_t left = to->full ? 0 : to->bytes - to->len;
    uint32_t len = more.len;
    if (len > left) {
        to->full = true;
        /* The byte after the cut must begin a character. */
        for (len = left; len > 0 && ((uint8_t)more.text[len] & 0xc0) == 0x80;)
            len--;
    }
    for (uint32_t at = 0; at < len; at++)
        to->room[to->len + at] = more.text[at];
    to->len += len;
}

static inline void pm_add(pm_text *to, const char *more)
{
    pm_add_str(to, pm_str_of(more));
}

static inline void pm_add_number(pm_text *to, uint64_t number)
{
    char digits[20];
    uint32_t at = sizeof digits;
    do
        digits[--at] = (char)('0' + number % 10);
    while (number /= 10);
    pm_add_str(to, (pm_str){ digits + at, (uint32_t)sizeof digits - at });
}

static inline pm_str pm_text_str(const pm_text *text)
{
    return (pm_str){ text->room, text->len };
}

/* Sorts numbers, the smallest first. To sort other things, put the key into the upper bits and the index below it. */
static inline void pm_sort(uint64_t *numbers, uint32_t count)
{
    /* A heap with the largest in front, then the front to the back, and so on. */
    for (uint32_t root = count / 2, end = count; end > 1;) {
        uint64_t sinking;
        if (root > 0) {
            sinking = numbers[--root];
        } else {
            sinking = numbers[--end];
            numbers[end] = numbers[0];
        }
        uint32_t at = root;
        for (uint32_t child; (child = 2 * at + 1) < end; at = child) {
            if (child + 1 < end && numbers[child + 1] > numbers[child])
                child++;
            if (numbers[child] <= sinking)
                break;
            numbers[at] = numbers[child];
        }
        numbers[at] = sinking;
    }
}

/* ---- The host: lines and figures for the operator --------------------------------------------------------------- */

typedef enum { PM_DEBUG, PM_INFO, PM_WARN, PM_ERROR } pm_level;

#define PM__IMPORT(name) __attribute__((import_module("pointsman:policy/host@0.1.0"), import_name(name)))
PM__IMPORT("log") void pm__host_log(uint32_t level, const char *text, uint32_t len);
PM__IMPORT("count") void pm__host_count(uint32_t id, uint64_t by);
PM__IMPORT("gauge") void pm__host_gauge(uint32_t id, double value);

/* Sends one line to the host's log. The host cuts long lines and drops lines above its rate; never log per decision. */
static inline void pm_log_str(pm_level level, pm_str line)
{
    pm__host_log(level, line.text, line.len);
}

static inline void pm_log(pm_level level, const char *line)
{
    pm_log_str(level, pm_str_of(line));
}

/* Adds to the counter that PM_METRICS declares under `id`. */
static inline void pm_count(uint32_t id, uint64_t by)
{
    pm__host_count(id, by);
}

/* Sets the gauge that PM_METRICS declares under `id`. */
static inline void pm_gauge(uint32_t id, double value)
{
    pm__host_gauge(id, value);
}

/* Ends the instance. The host decides with its builtin, shows `why` and builds a fresh instance. */
static inline _Noreturn void pm_panic(const char *why)
{
    pm_log(PM_ERROR, why);
    __builtin_trap();
}

/* ---- The cluster ------------------------------------------------------------------------------------------------ */

/* One chain: a path of stages that together hold the whole model. */
typedef struct {
    uint32_t id;
    uint32_t capacity;    /* jobs that may run at once */
    uint32_t busy;        /* jobs that run now */
    uint32_t free_tokens; /* KV tokens that can still be reserved */
    bool open;            /* false while it drains: takes no new job */
    uint64_t service;     /* smoothed time of a whole job in microseconds, 0 until one has finished */
} pm_chain;
/* A chain of a snapshot is laid out in the same way, so it is copied as it is. */
PM__AT(pm_chain, capacity, 4);
PM__AT(pm_chain, busy, 8);
PM__AT(pm_chain, free_tokens, 12);
PM__AT(pm_chain, open, 16);
PM__AT(pm_chain, service, 24);
PM__SIZE(pm_chain, 32);

/* All chains and the length of the central queue, at one point in the host's stream of events. */
typedef struct {
    uint64_t epoch;  /* chain ids mean something within one epoch only */
    uint64_t seq;    /* the last event that is folded in */
    uint32_t queued; /* requests in the central queue */
    uint32_t count;  /* of `chains` */
    pm_chain chains[PM_CHAINS_MAX]; /* ascending by id */
} pm_view;

static pm_view pm__view;

/* The cluster as the policy knows it: from the snapshot, and in the `route` slot with all events folded in. */
static const pm_view *const pm_cluster = &pm__view;

/* Whether a job that reserves so many KV tokens could start here now. The host refuses a dispatch to a chain for which
 * this is false. */
static inline bool pm_fits(const pm_chain *chain, uint32_t reserve)
{
    return chain->open && chain->busy < chain->capacity && reserve <= chain->free_tokens;
}

static inline pm_chain *pm__find(uint32_t id)
{
    /* Ids are dense as a rule, so the id is the index; a gap costs a binary search. */
    if (id < pm__view.count && pm__view.chains[id].id == id)
        return &pm__view.chains[id];
    uint32_t from = 0, to = pm__view.count;
    while (from < to) {
        uint32_t middle = from + (to - from) / 2;
        if (pm__view.chains[middle].id == id)
            return &pm__view.chains[middle];
        if (pm__view.chains[middle].id < id)
            from = middle + 1;
        else
            to = middle;
    }
    return NULL;
}

/* The chain with this id, NULL if there is none in this epoch. */
static inline const pm_chain *pm_find(uint32_t id)
{
    return pm__find(id);
}

/* Of the chains that can take a job of `reserve` KV tokens now, the one with the smallest key; of equals, the one with
 * the lowest id; NULL if none can. Inlined together with `key`. */
__attribute__((always_inline)) static inline const pm_chain *pm_best_fit(uint32_t reserve,
                                                                         uint64_t (*key)(const pm_chain *))
{
    const pm_chain *chain = pm__view.chains, *end = chain + pm__view.count;
    while (chain < end && !pm_fits(chain, reserve))
        chain++;
    if (chain == end)
        return NULL;
    const pm_chain *best = chain;
    uint64_t lowest = key(chain);
    /* Unrolled: a guest pays for every turn of a loop. */
#pragma clang loop unroll_count(8)
    for (chain++; chain < end; chain++) {
        /* The key first: on most chains that comparison alone settles it. */
        uint64_t it = key(chain);
        if (it < lowest && pm_fits(chain, reserve)) {
            best = chain;
            lowest = it;
        }
    }
    return best;
}

/* ---- Life: descriptor, start, state ------------------------------------------------------------------------------ */

typedef enum { PM_COUNTER, PM_GAUGE } pm_metric_kind;

/* A figure that the policy keeps in the host's metrics, 16 at most:
 *     #define PM_METRICS { 0, PM_COUNTER, PM_STR("jumped"), PM_STR("Requests that went ahead of others.") }  */
typedef struct {
    uint32_t id;   /* the policy's own number for it */
    uint8_t kind;  /* pm_metric_kind */
    pm_str name;   /* lower case letters, digits and `_` */
    pm_str help;   /* one line for people */
} pm_metric;
PM__AT(pm_metric, kind, 4);
PM__AT(pm_metric, name, 8);
PM__AT(pm_metric, help, 16);
PM__SIZE(pm_metric, 24);

/* How `pm_init` ended. */
typedef struct {
    enum { PM_OK, PM_BAD_CONFIG, PM_UNSUPPORTED, PM_INTERNAL } kind;
    pm_str why;
} pm_start;

static inline pm_start pm_ok(void)
{
    return (pm_start){ PM_OK, PM_STR("") };
}

/* A setting that is unknown or out of range. `why` must stay where it is: a literal, or text in static memory. */
static inline pm_start pm_bad_config(const char *why)
{
    return (pm_start){ PM_BAD_CONFIG, pm_str_of(why) };
}

/* The configuration is right, but the policy can not serve this cluster. */
static inline pm_start pm_unsupported(const char *why)
{
    return (pm_start){ PM_UNSUPPORTED, pm_str_of(why) };
}

/* Anything else. */
static inline pm_start pm_internal(const char *why)
{
    return (pm_start){ PM_INTERNAL, pm_str_of(why) };
}

/* A setting of the policy: a whole number, or, when the range is 0 to 1, also true or false. */
typedef struct {
    const char *name;
    uint64_t from, to;
    uint64_t value; /* the default before, the setting after */
    bool given;
} pm_knob;

static char pm__why[256];

static inline pm_start pm__bad(const char *before, pm_str what, const char *after)
{
    pm_text why = pm_text_in(pm__why, sizeof pm__why);
    pm_add(&why, before);
    pm_add_str(&why, what);
    pm_add(&why, after);
    return (pm_start){ PM_BAD_CONFIG, pm_text_str(&why) };
}

/* Settings from 0 to 1 are switches. */
static inline bool pm__is_switch(const pm_knob *knob)
{
    return knob->from == 0 && knob->to == 1;
}

static inline pm_start pm__bad_range(const pm_knob *knob)
{
    pm_text why = pm_text_in(pm__why, sizeof pm__why);
    pm_add(&why, "setting \"");
    pm_add(&why, knob->name);
    pm_add(&why, "\" must be a whole number from ");
    pm_add_number(&why, knob->from);
    pm_add(&why, " to ");
    pm_add_number(&why, knob->to);
    if (pm__is_switch(knob))
        pm_add(&why, ", or true or false");
    return (pm_start){ PM_BAD_CONFIG, pm_text_str(&why) };
}

/* The next character that is no white space, 0 at the end. */
static inline char pm__peek(pm_str *rest)
{
    while (rest->len > 0) {
        char next = *rest->text;
        if (next != ' ' && next != '\t' && next != '\n' && next != '\r')
            return next;
        rest->text++;
        rest->len--;
    }
    return 0;
}

/* Takes this character, after white space, if it is the next one. */
static inline bool pm__take(pm_str *rest, char wanted)
{
    if (!wanted || pm__peek(rest) != wanted)
        return false;
    rest->text++;
    rest->len--;
    return true;
}

/* Takes everything up to one of `ends`, or all that is left. */
static inline pm_str pm__until(pm_str *rest, const char *ends)
{
    pm_str word = { rest->text, 0 };
    for (; rest->len > 0; rest->text++, rest->len--, word.len++)
        for (const char *end = ends; *end; end++)
            if (*rest->text == *end)
                return word;
    return word;
}

static inline bool pm__value(const pm_knob *knob, pm_str word, uint64_t *value)
{
    if (pm__is_switch(knob) && (pm_str_equal(word, pm_str_of("true")) || pm_str_equal(word, pm_str_of("false")))) {
        *value = word.len == 4;
        return true;
    }
    uint64_t number = 0;
    for (uint32_t at = 0; at < word.len; at++) {
        uint32_t digit = (uint32_t)(uint8_t)word.text[at] - '0';
        /* No helper of the compiler for overflow: on 64 bits it calls a library. */
        if (digit > 9 || number > UINT64_MAX / 10 || number * 10 > UINT64_MAX - digit)
            return false;
        number = number * 10 + digit;
    }
    bool plain = word.len > 0 && (word.len == 1 || *word.text != '0');
    *value = number;
    return plain && number >= knob->from && number <= knob->to;
}

/* Reads a configuration: empty, or one flat JSON object whose names are among `knobs`. Strict, so that a slip of the
 * operator is refused at once and by name. */
static inline pm_start pm_knobs(pm_str config, pm_knob *knobs, uint32_t count)
{
    const pm_start shape = pm_bad_config("the configuration must be empty or a JSON object of numbers, true and false");
    if (!pm__peek(&config))
        return pm_ok();
    if (!pm__take(&config, '{'))
        return shape;
    bool empty = pm__take(&config, '}');
    while (!empty) {
        if (!pm__take(&config, '"'))
            return shape;
        pm_str name = pm__until(&config, "\"");
        pm_knob *knob = NULL;
        for (uint32_t at = 0; at < count && !knob; at++)
            if (pm_str_equal(name, pm_str_of(knobs[at].name)))
                knob = &knobs[at];
        if (!pm__take(&config, '"') || !pm__take(&config, ':'))
            return shape;
        if (!knob)
            return pm__bad("unknown setting \"", name, "\"");
        if (knob->given)
            return pm__bad("setting \"", name, "\" is given twice");
        pm__peek(&config);
        if (!pm__value(knob, pm__until(&config, " \t\r\n,}"), &knob->value))
            return pm__bad_range(knob);
        knob->given = true;
        if (pm__take(&config, '}'))
            break;
        if (!pm__take(&config, ','))
            return shape;
    }
    return pm__peek(&config) ? shape : pm_ok();
}

/* Accepts only an empty configuration: for policies that have no settings. */
static inline pm_start pm_no_knobs(pm_str config)
{
    pm_start start = pm_knobs(config, NULL, 0);
    return start.kind == PM_OK ? start
                               : pm_bad_config("this policy has no settings; leave its configuration empty or {}");
}

/* Starts the policy. `config` is the operator's JSON, empty for none, and gone after the call. The default refuses
 * settings. */
#ifdef PM_WITH_INIT
static pm_start pm_init(pm_str config);
#endif

/* Takes over what the outgoing policy saved, right after `pm_init`. The bytes may come from any policy: check `schema`,
 * distrust `bytes`, and leave the state as it is when in doubt. Both are gone after the call. The default ignores
 * them. */
#ifdef PM_WITH_RESTORE
static void pm_restore(pm_str schema, pm_bytes bytes);
#endif

/* The state to hand to the next policy in this slot, in static memory, laid out as PM_STATE_SCHEMA says; 64 KiB at
 * most. NULL bytes, the default, save nothing. */
#ifdef PM_WITH_SAVE
static pm_bytes pm_save(void);
#endif

/* The state for people, as JSON, in static memory; 64 KiB at most. The default is {}. */
#ifdef PM_WITH_DUMP
static pm_str pm_dump(void);
#endif

/* ---- Slot `route`: where a request goes ------------------------------------------------------------------------- */
#ifdef PM_ROUTE

/* Where does this request go? */
typedef struct {
    uint64_t now;      /* microseconds on the host's clock */
    uint64_t rnd;      /* fresh random bits, the same again in a replay */
    uint32_t tenant;   /* opaque number */
    uint32_t class;    /* priority class, 0 the default */
    uint32_t prompt;   /* tokens */
    uint32_t reserve;  /* KV tokens that will be reserved: prompt and most new ones */
    uint64_t deadline; /* time by which an answer is wanted, 0 for none */
    uint64_t session;  /* hash of the session, 0 for none */
    uint32_t hints;    /* bits; ignore those that you do not know */
} pm_request;

/* How much of the prompt a chain already holds. One word of the contract: the low half is in front. */
typedef struct {
    uint32_t tokens;
    uint32_t chain;
} pm_overlap;
PM__SIZE(pm_overlap, 8);

/* This chain has room: which waiting request takes it? */
typedef struct {
    uint64_t now;
    uint64_t rnd;
    uint32_t chain;
} pm_room;

/* One waiting request. Four words of the contract. */
typedef struct {
    uint64_t id;
    uint32_t class;
    uint32_t tenant;
    uint32_t reserve;
    uint32_t prompt;
    uint64_t waited; /* microseconds */
} pm_waiting;
PM__AT(pm_waiting, tenant, 12);
PM__AT(pm_waiting, prompt, 20);
PM__SIZE(pm_waiting, 32);

/* The answer to a pm_request: the packed word of the contract. Advice: the host checks it, and decides itself when it
 * can not be followed. */
typedef uint64_t pm_decision;

/* Reserve on this chain and run there. */
static inline pm_decision pm_dispatch(uint32_t chain)
{
    return chain;
}

/* Wait in the central queue until a chain has room and `pm_pull` chooses this request. */
static inline pm_decision pm_queue(void)
{
    return (uint64_t)1 << 60;
}

/* Refuse. The code is the policy's own and is shown to the operator. */
static inline pm_decision pm_reject(uint32_t code)
{
    return (uint64_t)2 << 60 | code;
}

/* Ask again after this many microseconds; the host waits one second at most. */
static inline pm_decision pm_defer(uint32_t micros)
{
    return (uint64_t)3 << 60 | micros;
}

/* Decides where a new request goes. */
static pm_decision pm_pick(const pm_request *ask);

/* As `pm_pick`, asked instead of it: the policy then needs `prefix-overlap`. `overlap` names the chains that hold the
 * beginning of the prompt, ascending by id. */
#ifdef PM_WITH_AFFINE
static pm_decision pm_pick_affine(const pm_request *ask, const pm_overlap *overlap, uint32_t count);
#endif

/* Chooses one of those that wait, in order of arrival, for the room on a chain: an index, or PM_NONE. The default takes
 * the first that fits. */
#ifdef PM_WITH_PULL
static uint32_t pm_pull(const pm_room *room, const pm_waiting *waiting, uint32_t count);
#endif

/* Is told of one change; `pm_cluster` has it already. `chain` is NULL for PM_QUEUED. By default nobody is told. */
typedef enum { PM_BUSY = 1, PM_FREE_TOKENS, PM_QUEUED, PM_SERVICE, PM_OPEN } pm_event;
#ifdef PM_WITH_EVENT
static void pm_on_event(pm_event kind, const pm_chain *chain);
#endif

/* The scores behind the decision that would be taken now: calls `pm_score` for each chain that was considered. For
 * people, never on the live path. By default there are none. */
#ifdef PM_WITH_TRACE
static void pm_trace(const pm_request *ask, const pm_overlap *overlap, uint32_t count);
#endif

typedef struct {
    uint32_t chain;
    double score;
} pm__candidate;
PM__AT(pm__candidate, score, 8);
PM__SIZE(pm__candidate, 16);

static pm__candidate pm__scores[PM_CHAINS_MAX];
static uint32_t pm__score_count;

/* What a chain is worth; the lowest score is the best. */
static inline void pm_score(uint32_t chain, double score)
{
    if (pm__score_count < PM_CHAINS_MAX)
        pm__scores[pm__score_count++] = (pm__candidate){ chain, score };
}

#endif

/* ---- Slot `batch`: what runs in the next micro-batch ------------------------------------------------------------ */
#ifdef PM_BATCH

/* What runs in the next micro-batch of this chain? */
typedef struct {
    uint64_t now;
    uint64_t rnd;
    uint32_t chain;
    uint32_t token_budget; /* tokens of prompts that it may hold, all sequences together */
    uint32_t in_flight;    /* micro-batches that are at work on the chain */
} pm_step_ask;

/* A sequence that is ready to run. Eight words of the contract. */
typedef struct {
    uint64_t id;
    uint32_t class;
    uint32_t tenant;
    uint32_t reserve;  /* tokens that it has at the end at most */
    uint32_t prompt;   /* tokens */
    uint32_t pending;  /* tokens that it can run now: 1 when it decodes, else the rest of its prompt */
    uint32_t computed; /* tokens whose keys and values are there */
    uint64_t waited;   /* microseconds since it arrived */
    uint64_t deadline; /* 0 for none */
    uint32_t passed;   /* micro-batches in a row in which it was passed over */
    uint32_t generated; /* new tokens so far */
    uint64_t reserved;
} pm_ready;
PM__AT(pm_ready, tenant, 12);
PM__AT(pm_ready, prompt, 20);
PM__AT(pm_ready, computed, 28);
PM__AT(pm_ready, waited, 32);
PM__AT(pm_ready, deadline, 40);
PM__AT(pm_ready, generated, 52);
PM__SIZE(pm_ready, 64);

/* Whether its prompt has been computed. */
static inline bool pm_decodes(const pm_ready *ready)
{
    return ready->computed >= ready->prompt;
}

/* Says by `pm_run`, `pm_run_at_most` and `pm_hold` what the next micro-batch does otherwise than without a policy.
 * `ready` has those that decode first, each group with those that are next in turn in front. */
static void pm_step(const pm_step_ask *ask, const pm_ready *ready, uint32_t count);

/* Is told what a tenant was served since the last time, on all chains together. By default nobody is told. */
#ifdef PM_WITH_SERVED
static void pm_on_served(uint32_t tenant, uint32_t prompt_tokens, uint32_t new_tokens);
#endif

static uint64_t pm__plan[PM_READY_MAX];
static uint32_t pm__plan_len;

static inline void pm__name(uint32_t verb, uint32_t tokens, uint32_t index)
{
    if (pm__plan_len < PM_READY_MAX)
        pm__plan[pm__plan_len++] = (uint64_t)(verb << 24 | tokens) << 32 | index;
}

/* Runs as much of this sequence as the budget allows. Those that are to run come first, in the order in which they are
 * named. Name none twice, here or below. */
static inline void pm_run(uint32_t index)
{
    pm__name(1, 0, index);
}

/* Runs so many tokens of this sequence at most, and at least one. */
static inline void pm_run_at_most(uint32_t index, uint32_t tokens)
{
    const uint32_t max = (1 << 24) - 1;
    pm__name(1, tokens == 0 ? 1 : tokens < max ? tokens : max, index);
}

/* Leaves this sequence out of the micro-batch. Not all may be held while nothing is in flight. */
static inline void pm_hold(uint32_t index)
{
    pm__name(2, 0, index);
}

#endif

/* ---- Slot `cache`: what is given up, and how it is stored ------------------------------------------------------- */
#ifdef PM_CACHE

/* Which cached prefixes of this chain are given up? */
typedef struct {
    uint64_t now;
    uint64_t rnd;
    uint32_t chain;
    uint32_t need_blocks; /* blocks that must become free */
    uint32_t free_blocks; /* blocks that are free */
} pm_evict;

/* The end of a cached prefix that nobody uses. Four words of the contract. */
typedef struct {
    uint32_t depth;    /* tokens from the beginning of the sequence to this end */
    uint32_t tenant;
    uint64_t last_use; /* on a clock that counts the sequences that have left the chain */
    uint64_t hits;     /* sequences that were started on it */
    uint64_t reserved;
} pm_idle;
PM__AT(pm_idle, last_use, 8);
PM__SIZE(pm_idle, 32);

/* In which format are the keys and values of a new request stored? */
typedef struct {
    uint32_t tenant;
    uint32_t class;
    uint32_t prompt;
    uint32_t reserve;
    uint32_t pressure_milli; /* the part of the chain's memory that is reserved, in thousandths */
} pm_new_sequence;

/* A way to store keys and values. One word of the contract. */
typedef struct {
    uint32_t token_bytes;
    uint32_t code; /* wit/events.md lists them */
} pm_offer;
PM__SIZE(pm_offer, 8);

/* Names those that go by `pm_give_up`, the first to go first: at least one, none twice. `idle` has the least recently
 * used first. */
static void pm_victims(const pm_evict *ask, const pm_idle *idle, uint32_t count);

/* The index of the format that a new request's keys and values have; `offers` has the most precise first. The default
 * takes that. */
#ifdef PM_WITH_FORMAT
static uint32_t pm_format(const pm_new_sequence *ask, const pm_offer *offers, uint32_t count);
#endif

static uint32_t pm__gone[PM_IDLE_MAX];
static uint32_t pm__gone_count;

/* Gives up the prefix with this index. */
static inline void pm_give_up(uint32_t index)
{
    if (pm__gone_count < PM_IDLE_MAX)
        pm__gone[pm__gone_count++] = index;
}

#endif

/* ---- Exports: nothing below is for policies --------------------------------------------------------------------- */

#define PM__EXPORT(name) __attribute__((export_name(name), used, visibility("hidden")))
#define PM__LIFECYCLE(name) PM__EXPORT("pointsman:policy/lifecycle@0.1.0#" name)

/* The first byte behind the stack and the static variables; the linker knows it. */
extern uint8_t __heap_base;
/* Where the arena ends, 0 while it is empty. */
static uintptr_t pm__arena_end;

/* The arguments of the call that ends here are no longer needed. */
static inline void pm__forget(void)
{
    pm__arena_end = 0;
}

/* Called by the host for memory that a call's lists and texts are copied to, before the call. */
PM__EXPORT("cabi_realloc") void *pm__realloc(uint8_t *old, uint32_t old_bytes, uint32_t align, uint32_t bytes)
{
    const uint32_t page = 64 << 10;
    if (align == 0 || (align & (align - 1)) != 0)
        __builtin_trap();
    uint64_t end = pm__arena_end ? pm__arena_end : (uintptr_t)&__heap_base;
    /* What was handed out last can grow where it is. */
    bool last = old_bytes > 0 && (uint64_t)(uintptr_t)old + old_bytes == end && ((uintptr_t)old & (align - 1)) == 0;
    uint64_t start = last ? (uintptr_t)old : (end + align - 1) & ~(uint64_t)(align - 1);
    end = start + bytes;
    uint64_t have = (uint64_t)__builtin_wasm_memory_size(0) * page;
    if (end > UINT32_MAX)
        __builtin_trap();
    /* The host sees a refusal to grow, too, and says so. */
    if (end > have && __builtin_wasm_memory_grow(0, (uint32_t)((end - have + page - 1) / page)) == SIZE_MAX)
        __builtin_trap();
    pm__arena_end = (uintptr_t)end;
    uint8_t *new = (uint8_t *)(uintptr_t)start;
    if (new != old && old_bytes > 0)
        __builtin_memmove(new, old, old_bytes < bytes ? old_bytes : bytes);
    return new;
}

#ifdef PM_METRICS
static const pm_metric pm__metrics[] = { PM_METRICS };
_Static_assert(sizeof pm__metrics <= 16 * sizeof(pm_metric), "a policy has 16 figures at most");
#define PM__METRICS pm__metrics, sizeof pm__metrics / sizeof *pm__metrics
#else
#define PM__METRICS NULL, 0
#endif
#ifdef PM_WITH_AFFINE
#define PM__NEEDS 1 /* prefix-overlap */
#else
#define PM__NEEDS 0
#endif
_Static_assert(sizeof(PM_NAME) > 1 && sizeof(PM_NAME) <= 65, "PM_NAME has 1 to 64 bytes");
_Static_assert(sizeof(PM_VERSION) > 1 && sizeof(PM_VERSION) <= 65, "PM_VERSION has 1 to 64 bytes");
_Static_assert(sizeof(PM_STATE_SCHEMA) <= 65, "PM_STATE_SCHEMA has 64 bytes at most");

typedef struct {
    pm_str name, version, state_schema;
    uint8_t needs;
    const pm_metric *metrics;
    uint32_t metric_count;
} pm__descriptor;
PM__AT(pm__descriptor, needs, 24);
PM__AT(pm__descriptor, metrics, 28);
PM__SIZE(pm__descriptor, 36);

PM__LIFECYCLE("describe") const pm__descriptor *pm__describe(void)
{
    static const pm__descriptor descriptor = {
        PM_STR(PM_NAME), PM_STR(PM_VERSION), PM_STR(PM_STATE_SCHEMA), PM__NEEDS, PM__METRICS,
    };
    return &descriptor;
}

/* result<_, failure> */
typedef struct {
    uint8_t failed;
    uint8_t failure __attribute__((aligned(4)));
    pm_str why;
} pm__started;
PM__AT(pm__started, failure, 4);
PM__AT(pm__started, why, 8);
PM__SIZE(pm__started, 16);

static inline pm_start pm__start(pm_str config, const pm_chain *chains, uint32_t count)
{
    if (count > PM_CHAINS_MAX)
        return pm_unsupported("the cluster has more chains than this policy was built for (PM_CHAINS_MAX)");
    for (uint32_t at = 0; at < count; at++)
        pm__view.chains[at] = chains[at];
    pm__view.count = count;
#ifdef PM_WITH_INIT
    return pm_init(config);
#else
    return pm_no_knobs(config);
#endif
}

PM__LIFECYCLE("init")
const pm__started *pm__init(const char *config, uint32_t config_len, uint64_t epoch, uint64_t seq,
                            const pm_chain *chains, uint32_t count, uint32_t queued, uint32_t has_previous,
                            const char *schema, uint32_t schema_len, uint64_t saved_seq, const uint8_t *bytes,
                            uint32_t bytes_len)
{
    static pm__started started;
    (void)saved_seq;
    pm__view.epoch = epoch;
    pm__view.seq = seq;
    pm__view.queued = queued;
    pm_start start = pm__start((pm_str){ config, config_len }, chains, count);
#ifdef PM_WITH_RESTORE
    if (start.kind == PM_OK && has_previous)
        pm_restore((pm_str){ schema, schema_len }, (pm_bytes){ bytes, bytes_len });
#else
    (void)has_previous, (void)schema, (void)schema_len, (void)bytes, (void)bytes_len;
#endif
    started.failed = start.kind != PM_OK;
    started.failure = (uint8_t)(started.failed ? start.kind - PM_BAD_CONFIG : 0);
    started.why = start.why;
    pm__forget();
    return &started;
}

/* option<saved> */
typedef struct {
    uint8_t some;
    pm_str schema __attribute__((aligned(8)));
    uint64_t seq;
    pm_bytes bytes;
} pm__saved;
PM__AT(pm__saved, schema, 8);
PM__AT(pm__saved, seq, 16);
PM__AT(pm__saved, bytes, 24);
PM__SIZE(pm__saved, 32);

PM__LIFECYCLE("save") const pm__saved *pm__save(void)
{
    static pm__saved saved = { 0, PM_STR(PM_STATE_SCHEMA), 0, { NULL, 0 } };
#ifdef PM_WITH_SAVE
    saved.seq = pm__view.seq;
    saved.bytes = pm_save();
    saved.some = saved.bytes.at != NULL;
#endif
    return &saved;
}

PM__LIFECYCLE("dump") const pm_str *pm__dump(void)
{
    static pm_str dump = PM_STR("{}");
#ifdef PM_WITH_DUMP
    dump = pm_dump();
#endif
    return &dump;
}

/* list<T>, as an answer */
typedef struct {
    const void *at;
    uint32_t len;
} pm__list;
PM__SIZE(pm__list, 8);

/* Two words of the contract. */
typedef struct {
    uint32_t id;
    uint32_t kind; /* the kind is in the upper eight bits, the rest is reserved */
    uint64_t value;
} pm__change;
PM__SIZE(pm__change, 16);

static inline uint32_t pm__at_most(uint32_t count, uint32_t max)
{
    return count < max ? count : max;
}

#ifdef PM_ROUTE
#define PM__ROUTE(name) PM__EXPORT("pointsman:policy/route@0.1.0#" name)

static inline void pm__fold(const pm__change *change)
{
    uint32_t kind = change->kind >> 24;
    uint32_t value = change->value < UINT32_MAX ? (uint32_t)change->value : UINT32_MAX;
    /* Kinds that are not known yet, and chains that the view does not have, are passed over. */
    if (kind < PM_BUSY || kind > PM_OPEN)
        return;
    pm_chain *chain = kind == PM_QUEUED ? NULL : pm__find(change->id);
    if (kind == PM_QUEUED)
        pm__view.queued = value;
    else if (!chain)
        return;
    else if (kind == PM_BUSY)
        chain->busy = value;
    else if (kind == PM_FREE_TOKENS)
        chain->free_tokens = value;
    else if (kind == PM_SERVICE)
        chain->service = change->value;
    else
        chain->open = change->value != 0;
#ifdef PM_WITH_EVENT
    pm_on_event((pm_event)kind, chain);
#endif
}

PM__ROUTE("apply") void pm__route_apply(uint64_t seq, const pm__change *changes, uint32_t words)
{
    for (uint32_t at = 0; at < words / 2; at++)
        pm__fold(&changes[at]);
    pm__view.seq = seq;
    pm__forget();
}

/* The arguments that the questions about a request have in common, and the question that they make. */
#define PM__REQUEST                                                                                                    \
    uint64_t seq, uint64_t now, uint64_t rnd, uint32_t tenant, uint32_t class, uint32_t prompt, uint32_t reserve,      \
        uint64_t deadline, uint64_t session, uint32_t hints
#define PM__ASK                                                                                                        \
    ((void)seq, (pm_request){ now, rnd, tenant, class, prompt, reserve, deadline, session, hints })

PM__ROUTE("pick") pm_decision pm__pick(PM__REQUEST)
{
    const pm_request ask = PM__ASK;
    return pm_pick(&ask);
}

PM__ROUTE("pick-affine") pm_decision pm__pick_affine(PM__REQUEST, const pm_overlap *overlap, uint32_t count)
{
    const pm_request ask = PM__ASK;
#ifdef PM_WITH_AFFINE
    pm_decision decision = pm_pick_affine(&ask, overlap, pm__at_most(count, PM_CHAINS_MAX));
#else
    (void)overlap, (void)count;
    pm_decision decision = pm_pick(&ask);
#endif
    pm__forget();
    return decision;
}

PM__ROUTE("pull")
uint32_t pm__pull(uint64_t seq, uint64_t now, uint64_t rnd, uint32_t chain, const pm_waiting *waiting, uint32_t words)
{
    uint32_t count = pm__at_most(words / 4, PM_WAITING_MAX);
    (void)seq;
#ifdef PM_WITH_PULL
    const pm_room room = { now, rnd, chain };
    uint32_t choice = pm_pull(&room, waiting, count);
#else
    (void)now, (void)rnd;
    const pm_chain *it = pm__find(chain);
    uint32_t choice = 0;
    while (it && choice < count && !pm_fits(it, waiting[choice].reserve))
        choice++;
    if (!it || choice == count)
        choice = PM_NONE;
#endif
    pm__forget();
    return choice;
}

PM__ROUTE("trace") const pm__list *pm__trace(PM__REQUEST, const pm_overlap *overlap, uint32_t count)
{
    static pm__list scores = { pm__scores, 0 };
    const pm_request ask = PM__ASK;
    pm__score_count = 0;
#ifdef PM_WITH_TRACE
    pm_trace(&ask, overlap, pm__at_most(count, PM_CHAINS_MAX));
#else
    (void)ask, (void)overlap, (void)count;
#endif
    scores.len = pm__score_count;
    pm__forget();
    return &scores;
}
#endif

#ifdef PM_BATCH
#define PM__BATCH(name) PM__EXPORT("pointsman:policy/batch@0.1.0#" name)

PM__BATCH("apply") void pm__batch_apply(uint64_t seq, const pm__change *changes, uint32_t words)
{
#ifdef PM_WITH_SERVED
    const uint32_t served = 1;
    for (uint32_t at = 0; at < words / 2; at++)
        if (changes[at].kind >> 24 == served)
            pm_on_served(changes[at].id, (uint32_t)(changes[at].value >> 32), (uint32_t)changes[at].value);
#else
    (void)changes, (void)words;
#endif
    pm__view.seq = seq;
    pm__forget();
}

PM__BATCH("step")
const pm__list *pm__step(uint64_t seq, uint64_t now, uint64_t rnd, uint32_t chain, uint32_t token_budget,
                         uint32_t in_flight, const pm_ready *ready, uint32_t words)
{
    static pm__list plan = { pm__plan, 0 };
    const pm_step_ask ask = { now, rnd, chain, token_budget, in_flight };
    (void)seq;
    pm__plan_len = 0;
    pm_step(&ask, ready, pm__at_most(words / 8, PM_READY_MAX));
    plan.len = pm__plan_len;
    pm__forget();
    return &plan;
}
#endif

#ifdef PM_CACHE
#define PM__CACHE(name) PM__EXPORT("pointsman:policy/cache@0.1.0#" name)

PM__CACHE("victims")
const pm__list *pm__victims(uint64_t seq, uint64_t now, uint64_t rnd, uint32_t chain, uint32_t need_blocks,
                            uint32_t free_blocks, const pm_idle *idle, uint32_t words)
{
    static pm__list gone = { pm__gone, 0 };
    const pm_evict ask = { now, rnd, chain, need_blocks, free_blocks };
    (void)seq;
    pm__gone_count = 0;
    pm_victims(&ask, idle, pm__at_most(words / 4, PM_IDLE_MAX));
    gone.len = pm__gone_count;
    pm__forget();
    return &gone;
}

PM__CACHE("format")
uint32_t pm__format(uint32_t tenant, uint32_t class, uint32_t prompt, uint32_t reserve, uint32_t pressure_milli,
                    const pm_offer *offers, uint32_t count)
{
#ifdef PM_WITH_FORMAT
    const pm_new_sequence ask = { tenant, class, prompt, reserve, pressure_milli };
    uint32_t choice = pm_format(&ask, offers, pm__at_most(count, PM_FORMATS_MAX));
#else
    (void)tenant, (void)class, (void)prompt, (void)reserve, (void)pressure_milli, (void)offers, (void)count;
    uint32_t choice = 0;
#endif
    pm__forget();
    return choice;
}
#endif

#endif
