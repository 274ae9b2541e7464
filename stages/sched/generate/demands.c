// SPDX-License-Identifier: Apache-2.0
/* Checks the numbers of ranks, stages and microbatches that generators require,
 * and reports the cost of numbers that do not divide evenly. */
#include "stages/base/plural.h"
#include "stages/sched/generate.h"
#include "stages/sched/simulate.h"

/* Schedules with more (stage, microbatch) pairs than this are explained without
 * a simulation. */
#define MAX_SIMULATED 65536u

/* Returns the number of rounds. If it does not divide the number of
 * microbatches, some rounds have one microbatch more than others. */
static unsigned rounds_of(unsigned microbatches, unsigned ranks)
{
    return PST_MAX(1, microbatches / ranks);
}

static bool is_even(unsigned microbatches, unsigned ranks)
{
    return microbatches % rounds_of(microbatches, ranks) == 0;
}

/* Returns the first number of microbatches from n on, in steps of `step`, whose
 * rounds are all equal. */
static unsigned nearest_even(unsigned n, unsigned ranks, int step)
{
    while (!is_even(n, ranks))
        n = (unsigned)((int)n + step);
    return n;
}

static enum pst_status check_stages(const struct pst_sched_row *row,
                                    const struct pst_schedule_options *o,
                                    struct pst_diag *diag)
{
    const unsigned want = row->per_rank * o->ranks;

    if (!row->per_rank || o->stages == want)
        return PST_OK;
    if (o->stages % row->per_rank)
        return pst_diag_set(diag, PST_E_SCHEDULE_COUNTS,
                            "schedule %s needs exactly %u stages on each rank, "
                            "but there are %u stages for %u rank%s: split into "
                            "%u stages",
                            row->name, row->per_rank, o->stages, o->ranks,
                            pst_plural(o->ranks), want);
    return pst_diag_set(diag, PST_E_SCHEDULE_COUNTS,
                        "schedule %s needs exactly %u stages on each rank, but "
                        "there are %u stages for %u rank%s: split into %u "
                        "stages, or take %u rank%s",
                        row->name, row->per_rank, o->stages, o->ranks,
                        pst_plural(o->ranks), want, o->stages / row->per_rank,
                        pst_plural(o->stages / row->per_rank));
}

/* For the option `exact`: refuses numbers that PyTorch refuses although the
 * generator supports them. */
static enum pst_status check_exact(const struct pst_sched_row *row,
                                   const struct pst_schedule_options *o,
                                   struct pst_diag *diag)
{
    const unsigned n = o->microbatches;

    if (row->place == PST_PLACE_GROUPS && o->stages != o->ranks)
        return pst_diag_set(diag, PST_E_SCHEDULE_COUNTS,
                            "schedule %s, exact: one stage on each rank, not "
                            "%u on %u",
                            row->name, o->stages, o->ranks);
    if (o->stages % o->ranks != 0)
        return pst_diag_set(
            diag, PST_E_SCHEDULE_COUNTS,
            "schedule %s, exact: %u stages are not a multiple of "
            "%u ranks",
            row->name, o->stages, o->ranks);
    if (row->exact == PST_EXACT_STAGES && n < o->stages)
        return pst_diag_set(diag, PST_E_SCHEDULE_COUNTS,
                            "schedule %s, exact: %u microbatches are fewer "
                            "than %u stages",
                            row->name, n, o->stages);
    if (row->exact == PST_EXACT_ROUNDS && !is_even(n, o->ranks))
        return pst_diag_set(
            diag, PST_E_SCHEDULE_COUNTS,
            "schedule %s, exact: %u microbatches are not "
            "a multiple of %u rounds; the nearest are %u and %u",
            row->name, n, rounds_of(n, o->ranks), nearest_even(n, o->ranks, -1),
            nearest_even(n, o->ranks, 1));
    return PST_OK;
}

enum pst_status pst_sched_check_demands(
    const struct pst_sched_row *row, const struct pst_schedule_options *options,
    struct pst_diag *diag)
{
    const struct pst_schedule_options *o = options;
    enum pst_status status;

    if (o->train && !row->trains)
        return pst_diag_set(diag, PST_E_SCHEDULE_COUNTS,
                            "schedule %s runs forward only and trains nothing",
                            row->name);
    status = check_stages(row, o, diag);
    if (status != PST_OK)
        return status;
    if (row->fills && o->microbatches < o->stages)
        return pst_diag_set(diag, PST_E_SCHEDULE_COUNTS,
                            "schedule %s needs at least as many microbatches "
                            "as stages, but there are %u for %u stages: take "
                            "%u, or schedule zb-v, which takes any number",
                            row->name, o->microbatches, o->stages, o->stages);
    if (o->place && !row->any_place)
        return pst_diag_set(diag, PST_E_SCHEDULE_PLACE,
                            "schedule %s places its stages itself: leave "
                            "--place out",
                            row->name);
    return o->exact ? check_exact(row, o, diag) : PST_OK;
}

/* --- explanations --------------------------------------------------------- */

/* Appends ", bubble 15.8 %", simulated with F, I and W of cost 1 everywhere and
 * free messages. */
static enum pst_status add_bubble(const struct pst_schedule *sched,
                                  struct pst_str *out, struct pst_diag *diag)
{
    struct pst_costs costs;
    struct pst_sim sim;
    enum pst_status status = pst_costs_init(&costs, sched->n_stages, diag);

    if (status != PST_OK)
        return status;
    for (unsigned s = 0; s < sched->n_stages; s++)
        costs.stages[s].seconds = (struct pst_seconds){1, 1, 1};
    status = pst_schedule_simulate(sched, &costs, &sim, diag);
    if (status == PST_OK) {
        pst_str_addf(out, ", bubble %.1f %%", 100 * sim.bubble);
        pst_sim_fini(&sim);
    }
    pst_costs_fini(&costs);
    return status;
}

/* Appends the bubble of the same options with another number of
 * microbatches. */
static enum pst_status add_bubble_of(const struct pst_schedule_options *o,
                                     unsigned microbatches, struct pst_str *out,
                                     struct pst_diag *diag)
{
    struct pst_schedule_options other = *o;
    struct pst_schedule *sched = NULL;
    enum pst_status status;

    other.microbatches = microbatches;
    if ((uint64_t)microbatches * o->stages > MAX_SIMULATED)
        return PST_OK;
    status = pst_schedule_make(&other, &sched, diag);
    if (status == PST_OK)
        status = add_bubble(sched, out, diag);
    pst_schedule_free(sched);
    return status;
}

static enum pst_status explain_rounds(const struct pst_schedule_options *o,
                                      struct pst_str *out,
                                      struct pst_diag *diag)
{
    const unsigned n = o->microbatches, rounds = rounds_of(n, o->ranks);
    enum pst_status status;

    pst_str_addf(out, "%u microbatches make %u rounds of %u and %u", n, rounds,
                 n / rounds + 1, n / rounds);
    status = add_bubble_of(o, n, out, diag);
    for (int step = -1; step <= 1 && status == PST_OK; step += 2) {
        const unsigned other = nearest_even(n, o->ranks, step);

        pst_str_addf(out, "; with %u", other);
        status = add_bubble_of(o, other, out, diag);
    }
    return status;
}

enum pst_status pst_schedule_explain(const struct pst_schedule *sched,
                                     const struct pst_schedule_options *options,
                                     struct pst_str *out, struct pst_diag *diag)
{
    const struct pst_schedule_options *o = options;
    const struct pst_sched_row *row;

    if (!o->train || !o->name ||
        pst_sched_find_row(o->name, &row, NULL) != PST_OK)
        return PST_OK;
    if (row->any_place && row->exact != PST_EXACT_ANY &&
        !pst_sched_is_placed(sched, row->place)) {
        pst_str_addf(out,
                     "the stages are not where %s has them, so the order "
                     "was found by playing a step",
                     row->name);
        return add_bubble_of(o, o->microbatches, out, diag);
    }
    if (row->place == PST_PLACE_LOOP && o->stages % o->ranks)
        pst_str_addf(out, "%u stages on %u ranks: some have %u, others %u",
                     o->stages, o->ranks, o->stages / o->ranks + 1,
                     o->stages / o->ranks);
    if (row->exact != PST_EXACT_ROUNDS || is_even(o->microbatches, o->ranks))
        return PST_OK;
    if (out->len)
        pst_str_add(out, "; ");
    return explain_rounds(o, out, diag);
}
