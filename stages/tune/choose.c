// SPDX-License-Identifier: Apache-2.0
#include "stages/tune/choose.h"

#include <string.h>

#include "stages/base/str.h"
#include "stages/compile/recompute.h"
#include "stages/sched/simulate.h"
#include "stages/tune/counts.h"
#include "stages/tune/estimate.h"

static const char *const words[] = {
    "none", "attention", "block", "block,attention", "full", "full,block"};
/* Recompute modes for schedules that split the backward. */
static const char *const split_words[] = {"block,twice", "full,twice"};

/* Minimum number of slots of a stage (stages/layout/memory/spill.h). */
#define LEAST_SLOTS 2

static bool is_word(const char *word, const char *text)
{
    return word != NULL && strcmp(word, text) == 0;
}

/* --- one choice ----------------------------------------------------------- */

static const char *word_or_null(const char *word)
{
    return is_word(word, "none") ? NULL : word;
}

static void apply_choice(const struct pst_choice *c, struct pst_exec_options *o)
{
    o->recompute = word_or_null(c->recompute);
    o->shard_by = word_or_null(c->shard);
    o->stash = word_or_null(c->stash);
    if (o->stash != NULL && o->stash_keep == 0)
        o->stash_keep = LEAST_SLOTS;
}

static bool is_split_word(const char *word)
{
    for (size_t k = 0; k < PST_COUNT(split_words); k++)
        if (is_word(word, split_words[k]))
            return true;
    return false;
}

static bool splits_backward(const struct pst_schedule *sched)
{
    for (unsigned r = 0; r < sched->n_ranks; r++)
        for (size_t i = 0; i < sched->ranks[r].n; i++)
            if (sched->ranks[r].at[i].kind == PST_ACT_W)
                return true;
    return false;
}

/* Makes the schedule and computes its memory as pst_exec_schedule does, for
 * options without "auto". */
static enum pst_status plan_memory(struct pst_plan *plan,
                                   const struct pst_exec_options *o,
                                   struct pst_memory *memory,
                                   struct pst_schedule **ret,
                                   struct pst_diag *diag)
{
    struct pst_grid grid;
    enum pst_status status = pst_grid_init(&grid, plan, o, diag);

    if (status == PST_OK && memory != NULL)
        status = pst_grid_measure(&grid, memory, diag);
    pst_joint_free_cached(plan);
    if (status == PST_OK) {
        *ret = grid.sched;
        grid.sched = NULL;
    }
    pst_grid_fini(&grid);
    return status;
}

static enum pst_status measure_choice(struct pst_plan *plan,
                                      const struct pst_exec_options *o,
                                      struct pst_memory *memory,
                                      struct pst_choice *ret,
                                      struct pst_diag *diag)
{
    struct pst_schedule *sched = NULL;
    struct pst_costs costs = {0};
    struct pst_sim sim = {0};
    enum pst_status status = plan_memory(plan, o, memory, &sched, diag);

    if (status == PST_OK && is_split_word(ret->recompute) &&
        !splits_backward(sched)) {
        /* "twice" does nothing without W, but its time would be estimated */
        pst_schedule_free(sched);
        return PST_OK;
    }
    if (status == PST_OK)
        status = pst_plan_costs(plan, o, &costs, diag);
    if (status == PST_OK)
        status = pst_schedule_simulate(sched, &costs, &sim, diag);
    if (status == PST_OK) {
        ret->possible = true;
        ret->step = sim.step;
        ret->peak = 0;
        for (unsigned k = 0; k < o->ranks; k++) {
            const size_t bytes = pst_memory_of_host(&memory[k], o);

            if (bytes > ret->peak) {
                ret->peak = bytes;
                ret->rank = k;
            }
        }
    }
    pst_sim_fini(&sim);
    pst_costs_fini(&costs);
    pst_schedule_free(sched);
    return status;
}

/* Fills in the results of a choice. The memory limit is used only by schedule
 * "auto"; if none of its schedules fits, the choice is measured without a
 * limit. is_asked: the options allow only this choice, so it is an error if it
 * is impossible. */
static enum pst_status evaluate_choice(struct pst_plan *plan,
                                       const struct pst_exec_options *options,
                                       struct pst_memory *memory, bool is_asked,
                                       struct pst_choice *ret,
                                       struct pst_diag *diag)
{
    struct pst_exec_options o = *options;
    struct pst_diag why;
    enum pst_status status;

    pst_diag_init(&why);
    apply_choice(ret, &o);
    if (!is_asked && pst_recompute_check(plan, o.recompute, &why) != PST_OK)
        return PST_OK; /* impossible: the model has no such part */
    status = measure_choice(plan, &o, memory, ret, &why);
    if (status == PST_ERR_USAGE && o.memory_limit > 0) {
        o.memory_limit = 0;
        status = measure_choice(plan, &o, memory, ret, &why);
    }
    if (status == PST_ERR_USAGE && !is_asked)
        return PST_OK; /* impossible: microbatches cannot be divided for it */
    if (status != PST_OK)
        return pst_diag_pass(diag, &why, "%s", why.text);
    ret->fits = options->memory_limit <= 0 ||
                (double)ret->peak <= options->memory_limit;
    return PST_OK;
}

/* --- all choices ---------------------------------------------------------- */

/* The values of one option that choices may have. */
struct dimension {
    const char *at[12];
    unsigned n;
};

/* False for schedules that never split the backward. Other schedules are made,
 * and then judged by splits_backward: naming them here only saves that time. */
static bool may_split(const struct pst_exec_options *o)
{
    return !is_word(o->schedule, "gpipe") && !is_word(o->schedule, "1f1b");
}

static struct dimension list_recomputes(const struct pst_plan *plan,
                                        const struct pst_exec_options *o,
                                        bool all)
{
    struct dimension ret = {{"none"}, 1};

    if (all || is_word(o->recompute, "auto")) {
        for (; ret.n < PST_COUNT(words); ret.n++)
            ret.at[ret.n] = words[ret.n];
        for (size_t k = 0; k < PST_COUNT(split_words) && may_split(o); k++)
            ret.at[ret.n++] = split_words[k];
        if (pst_recompute_default(plan) != NULL)
            ret.at[ret.n++] = pst_recompute_default(plan);
    } else if (o->recompute != NULL) {
        ret.at[0] = o->recompute;
    }
    return ret;
}

static struct dimension list_shards(const struct pst_exec_options *o, bool all)
{
    struct dimension ret = {{"none"}, 1};

    if (o->replicas > 1 && (all || is_word(o->shard_by, "auto")))
        for (int s = PST_SHARING_ZERO1; s <= PST_SHARING_ZERO3; s++)
            ret.at[ret.n++] = pst_sharing_word((enum pst_sharing)s);
    else if (o->shard_by != NULL && !is_word(o->shard_by, "auto"))
        ret.at[0] = o->shard_by;
    return ret;
}

static struct dimension list_stashes(const struct pst_exec_options *o, bool all)
{
    struct dimension ret = {{"none"}, 1};

    if (o->stash != NULL && (all || o->stash_keep == 0))
        ret.at[ret.n++] = o->stash;
    else if (o->stash != NULL)
        ret.at[0] = o->stash;
    return ret;
}

enum pst_status pst_exec_choices(struct pst_plan *plan,
                                 const struct pst_exec_options *options,
                                 bool all, struct pst_choices *ret,
                                 struct pst_diag *diag)
{
    struct pst_memory *memory =
        pst_calloc(PST_TAG_EXEC, options->ranks + 1, sizeof(*memory));
    const struct dimension a = list_stashes(options, all),
                           b = list_shards(options, all);
    const struct dimension c = list_recomputes(plan, options, all);
    const unsigned n = a.n * b.n * c.n;
    enum pst_status status = PST_OK;

    *ret = (struct pst_choices){0};
    if (memory == NULL ||
        !pst_vec_reserve(PST_TAG_EXEC, &ret->all, (size_t)n)) {
        pst_free(memory);
        return pst_diag_nomem(diag, options->ranks * sizeof(*memory));
    }
    for (unsigned i = 0; i < n && status == PST_OK; i++) {
        struct pst_choice *choice = &ret->all.at[ret->all.n++];

        *choice = (struct pst_choice){.recompute = c.at[i % c.n],
                                      .shard = b.at[i / c.n % b.n],
                                      .stash = a.at[i / c.n / b.n]};
        status = evaluate_choice(plan, options, memory, n == 1, choice, diag);
    }
    pst_free(memory);
    if (status != PST_OK)
        pst_choices_fini(ret);
    return status;
}

void pst_choices_fini(struct pst_choices *choices)
{
    pst_vec_fini(&choices->all);
}

void pst_choice_print(const struct pst_choice *c, struct pst_str *out)
{
    const char *const parts[] = {c->recompute, c->shard,
                                 is_word(c->stash, "none") ? "none" : "stash"};
    const size_t before = out->len;

    for (size_t i = 0; i < PST_COUNT(parts); i++)
        if (!is_word(parts[i], "none"))
            pst_str_addf(out, "%s%s", out->len > before ? " + " : "", parts[i]);
    if (out->len == before)
        pst_str_add(out, "none");
}

/* --- the best ------------------------------------------------------------- */

/* A choice that differs in sharding or stash is faster only if its step takes
 * less than this share of the time: estimates have an error. */
#define MARGIN 0.98

static bool is_faster(const struct pst_choice *c, const struct pst_choice *best)
{
    const bool alike = c->shard == best->shard && c->stash == best->stash;

    return c->step < (alike ? 1 : MARGIN) * best->step;
}

static const struct pst_choice *find_best(const struct pst_choices *choices)
{
    const struct pst_choice *best = NULL, *least = NULL;

    for (size_t i = 0; i < choices->all.n; i++) {
        const struct pst_choice *c = &choices->all.at[i];

        if (c->possible && (least == NULL || c->peak < least->peak))
            least = c;
        if (c->possible && c->fits && (best == NULL || is_faster(c, best)))
            best = c;
    }
    return best != NULL ? best : least;
}

/* Sets stash_keep to the largest number of slots that fits, since more slots
 * mean fewer copies. */
static enum pst_status find_stash_slots(struct pst_plan *plan,
                                        struct pst_exec_options *o,
                                        struct pst_diag *diag)
{
    const unsigned share =
        (o->microbatches + o->replicas - 1) / PST_MAX(o->replicas, 1);
    unsigned low = LEAST_SLOTS, high = PST_MAX(share, LEAST_SLOTS);
    struct pst_memory *memory =
        pst_calloc(PST_TAG_EXEC, o->ranks + 1, sizeof(*memory));
    enum pst_status status = PST_OK;

    if (memory == NULL)
        return pst_diag_nomem(diag, o->ranks * sizeof(*memory));
    while (low < high && status == PST_OK) {
        struct pst_choice c = {
            .recompute = o->recompute, .shard = o->shard_by, .stash = o->stash};

        o->stash_keep = low + (high - low + 1) / 2;
        status = evaluate_choice(plan, o, memory, true, &c, diag);
        if (c.possible && c.fits)
            low = o->stash_keep;
        else
            high = o->stash_keep - 1;
    }
    o->stash_keep = low;
    pst_free(memory);
    return status;
}

/* Sets the open options to the best choice for the largest number of
 * microbatches, which needs most memory. */
static enum pst_status apply_best(struct pst_plan *plan,
                                  struct pst_exec_options *options,
                                  struct pst_diag *diag)
{
    const unsigned microbatches = options->microbatches;
    struct pst_choices choices;
    const struct pst_choice *best;
    enum pst_status status;

    options->microbatches = pst_most_microbatches(options);
    status = pst_exec_choices(plan, options, false, &choices, diag);
    if (status != PST_OK)
        return status;
    best = find_best(&choices);
    if (best == NULL) { /* none is possible: pst_grid_init reports why */
        options->recompute =
            is_word(options->recompute, "auto") ? NULL : options->recompute;
        options->shard_by =
            is_word(options->shard_by, "auto") ? NULL : options->shard_by;
    } else {
        const bool counts = options->stash_keep == 0;

        apply_choice(best, options);
        if (options->stash != NULL && counts && best->fits)
            status = find_stash_slots(plan, options, diag);
    }
    pst_choices_fini(&choices);
    options->microbatches = microbatches;
    return status;
}

enum pst_status pst_exec_choose(struct pst_plan *plan,
                                struct pst_exec_options *options,
                                struct pst_diag *diag)
{
    const bool is_open = is_word(options->recompute, "auto") ||
                         is_word(options->shard_by, "auto") ||
                         (options->stash != NULL && options->stash_keep == 0);

    pst_exec_fill(options);
    if (is_open && options->train && options->memory_limit > 0)
        return apply_best(plan, options, diag);
    if (is_word(options->recompute, "auto"))
        options->recompute =
            options->train ? pst_recompute_default(plan) : NULL;
    if (is_word(options->shard_by, "auto"))
        options->shard_by = NULL;
    return PST_OK;
}

enum pst_status pst_exec_schedule(struct pst_plan *plan,
                                  const struct pst_exec_options *options,
                                  struct pst_memory *memory,
                                  struct pst_schedule **ret,
                                  struct pst_diag *diag)
{
    struct pst_exec_options o = *options;
    const enum pst_status status = pst_exec_choose(plan, &o, diag);

    return status == PST_OK ? plan_memory(plan, &o, memory, ret, diag) : status;
}

enum pst_status pst_exec_schedules(struct pst_plan *plan,
                                   const struct pst_exec_options *options,
                                   struct pst_memory *memory,
                                   struct pst_schedule **ret,
                                   struct pst_diag *diag)
{
    struct pst_exec_options o = *options;
    struct pst_grids grids = {0};
    enum pst_status status = pst_exec_choose(plan, &o, diag);

    if (status == PST_OK)
        status = pst_grids_init(&grids, plan, &o, diag);
    for (unsigned i = 0; i < grids.n && status == PST_OK; i++) {
        status =
            pst_grid_measure(&grids.at[i], memory + (size_t)i * o.ranks, diag);
        if (status != PST_OK)
            pst_grids_prefix_error(&grids, i, diag);
    }
    pst_joint_free_cached(plan);
    for (unsigned i = 0; i < grids.n && status == PST_OK; i++) {
        ret[i] = grids.at[i].sched;
        grids.at[i].sched = NULL;
    }
    pst_grids_fini(&grids);
    return status;
}

enum pst_status pst_exec_plan(struct pst_plan *plan,
                              const struct pst_exec_options *options,
                              struct pst_memory *memory, struct pst_diag *diag)
{
    struct pst_schedule *sched;
    enum pst_status status =
        pst_exec_schedule(plan, options, memory, &sched, diag);

    if (status == PST_OK)
        pst_schedule_free(sched);
    return status;
}
