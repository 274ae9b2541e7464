// SPDX-License-Identifier: Apache-2.0
#include "stages/tune/counts.h"

#include <strings.h>

#include "stages/base/str.h"
#include "stages/sched/generate.h"

/* Returns the index of the largest number of microbatches. */
static unsigned find_most(const struct pst_exec_options *o)
{
    unsigned most = 0;

    for (unsigned i = 1; i < o->n_counts; i++)
        if (o->counts[i] > o->counts[most])
            most = i;
    return most;
}

static enum pst_status init_grid(struct pst_grids *g, unsigned i,
                                 struct pst_plan *plan,
                                 const struct pst_exec_options *options,
                                 const char *place, struct pst_diag *diag)
{
    struct pst_exec_options o = *options;
    enum pst_status status;

    if (o.n_counts > 0)
        o.microbatches = o.counts[i];
    if (place != NULL)
        o.place = place;
    status = pst_grid_init(&g->at[i], plan, &o, diag);
    if (status != PST_OK)
        pst_grids_prefix_error(g, i, diag);
    return status;
}

/* Checks that each stage is on the same rank with the i-th and with the k-th
 * number of microbatches. */
static enum pst_status compare(const struct pst_grids *g, unsigned i,
                               unsigned k, struct pst_diag *diag)
{
    const struct pst_schedule *a = g->at[i].sched, *b = g->at[k].sched;

    for (unsigned s = 0; s < a->n_stages; s++)
        if (a->rank_of[s] != b->rank_of[s])
            return pst_diag_set(
                diag, PST_E_RUN_RAMP,
                "schedule %s puts stage %u on rank %d with %u microbatches, "
                "and on rank %d with %u: say with --place where stages are",
                b->name, s, a->rank_of[s], g->at[i].options.microbatches,
                b->rank_of[s], g->at[k].options.microbatches);
    return PST_OK;
}

static void find_splits(struct pst_grids *g, const struct pst_schedule *sched)
{
    for (unsigned r = 0; sched != NULL && r < sched->n_ranks; r++)
        for (size_t i = 0; i < sched->ranks[r].n; i++) {
            const struct pst_action *a = &sched->ranks[r].at[i];

            if (a->kind == PST_ACT_I)
                g->splits[a->stage] = true;
        }
}

/* Makes the grids of all numbers of microbatches but the largest one, number
 * `most`, whose grid must exist. */
static enum pst_status init_other_grids(struct pst_grids *g, unsigned most,
                                        struct pst_plan *plan,
                                        const struct pst_exec_options *options,
                                        struct pst_diag *diag)
{
    const struct pst_schedule *sched = g->at[most].sched;
    const bool chooses =
        options->train && strcasecmp(options->schedule, "auto") == 0;
    struct pst_str place = {0};
    enum pst_status status = PST_OK;

    if (chooses)
        pst_sched_print_place(sched, &place);
    if (place.failed)
        status = pst_diag_nomem(diag, place.len);
    for (unsigned i = 0; i < g->n && status == PST_OK; i++) {
        if (i == most)
            continue;
        status = init_grid(g, i, plan, options, place.text, diag);
        if (status == PST_OK)
            status = compare(g, most, i, diag);
    }
    pst_str_fini(&place);
    return status;
}

enum pst_status pst_grids_init(struct pst_grids *g, struct pst_plan *plan,
                               const struct pst_exec_options *options,
                               struct pst_diag *diag)
{
    const unsigned most = find_most(options);
    enum pst_status status;

    *g = (struct pst_grids){.n = PST_MAX(options->n_counts, 1u)};
    g->at = pst_calloc(PST_TAG_EXEC, g->n, sizeof(*g->at));
    g->splits =
        pst_calloc(PST_TAG_EXEC, plan->stages.n + 1, sizeof(*g->splits));
    if (g->at == NULL || g->splits == NULL)
        return pst_diag_nomem(diag, g->n * sizeof(*g->at));
    if (g->n > 1 && options->tail != NULL)
        return pst_diag_set(diag, PST_E_RUN_RAMP,
                            "the rows of a step cannot be given if its number "
                            "of microbatches changes");
    status = init_grid(g, most, plan, options, NULL, diag);
    if (status == PST_OK && g->n > 1)
        status = init_other_grids(g, most, plan, options, diag);
    for (unsigned i = 0; i < g->n && status == PST_OK && g->n > 1; i++) {
        find_splits(g, g->at[i].sched);
        find_splits(g, g->at[i].short_sched);
        g->at[i].splits = g->splits;
    }
    return status;
}

void pst_grids_fini(struct pst_grids *g)
{
    for (unsigned i = 0; g->at != NULL && i < g->n; i++)
        pst_grid_fini(&g->at[i]);
    pst_free(g->at);
    pst_free(g->splits);
    *g = (struct pst_grids){0};
}

unsigned pst_grids_find(const struct pst_grids *g, unsigned microbatches)
{
    unsigned i = 0;

    while (i < g->n && g->at[i].options.microbatches != microbatches)
        i++;
    return i;
}

/* True if the cause may be the number of microbatches. The words of an option,
 * for instance, are wrong with each number. */
static bool depends_on_count(enum pst_error error)
{
    static const enum pst_error errors[] = {
        PST_E_SCHEDULE_COUNTS,   PST_E_SCHEDULE_CSV,
        PST_E_SCHEDULE_STUCK,    PST_E_SCHEDULE_MEMORY,
        PST_E_SCHEDULE_REPLICAS, PST_E_SCHEDULE_BUFFER_ORDER,
        PST_E_SCHEDULE_LIMITS,   PST_E_SHARD_UNEQUAL,
        PST_E_MEMORY_TOO_LARGE,  PST_E_INTERNAL_BUG,
    };

    for (size_t i = 0; i < PST_COUNT(errors); i++)
        if (errors[i] == error)
            return true;
    return false;
}

void pst_grids_prefix_error(const struct pst_grids *g, unsigned i,
                            struct pst_diag *diag)
{
    const unsigned n = g->at[i].options.microbatches;

    if (g->n > 1 && depends_on_count(diag->error))
        pst_diag_prefix(diag, "with %u microbatch%s", n, n == 1 ? "" : "es");
}
