// SPDX-License-Identifier: Apache-2.0
#include "stages/sched/generate.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Maximum number of (stage, microbatch) pairs: far above any use, and it limits
 * lists to less than 2^32 actions. */
#define MAX_FORWARDS (1u << 28)

static const struct pst_sched_row rows[] = {
#define PST_SCHED(function, name, torch, place, per_rank, fills, any_place,    \
                  trains, exact, summary)                                      \
    {name,                                                                     \
     torch,                                                                    \
     summary,                                                                  \
     PST_PLACE_##place,                                                        \
     per_rank,                                                                 \
     fills,                                                                    \
     any_place,                                                                \
     trains,                                                                   \
     PST_EXACT_##exact,                                                        \
     pst_sched_generate_##function},
#include "stages/sched/scheds.def"
#undef PST_SCHED
};

const struct pst_sched_row *pst_sched_rows(size_t *ret_n)
{
    *ret_n = PST_COUNT(rows);
    return rows;
}

/* Reports an unknown name; the error lists the valid ones. */
static enum pst_status refuse_name(const char *name, struct pst_diag *diag)
{
    const char *names[PST_COUNT(rows)];
    struct pst_str text = {0};
    size_t n = 0;
    int near;

    for (size_t i = 0; i < PST_COUNT(rows); i++) {
        if (!rows[i].trains)
            continue;
        pst_str_addf(&text, "%s, ", rows[i].name);
        names[n++] = rows[i].name;
    }
    near = name ? pst_nearest(name, names, n) : -1;
    (void)pst_diag_set(diag, PST_E_SCHEDULE_UNKNOWN,
                       "unknown schedule \"%s\"%s%s%s; there are: %scsv:FILE",
                       name ? name : "", near < 0 ? "" : " (did you mean ",
                       near < 0 ? "" : names[near], near < 0 ? "" : "?)",
                       pst_str_text(&text));
    pst_str_fini(&text);
    return PST_ERR_USAGE;
}

enum pst_status pst_sched_find_row(const char *name,
                                   const struct pst_sched_row **ret,
                                   struct pst_diag *diag)
{
    for (size_t i = 0; i < PST_COUNT(rows); i++) {
        if (name && (strcasecmp(name, rows[i].name) == 0 ||
                     (rows[i].torch && strcasecmp(name, rows[i].torch) == 0))) {
            *ret = &rows[i];
            return PST_OK;
        }
    }
    return refuse_name(name, diag);
}

static enum pst_status check_options(const struct pst_schedule_options *o,
                                     struct pst_diag *diag)
{
    if (o->ranks < 1 || o->stages < 1 || o->microbatches < 1)
        return pst_diag_set(diag, PST_E_SCHEDULE_COUNTS,
                            "a schedule needs at least one rank, one stage "
                            "and one microbatch, not %u, %u and %u",
                            o->ranks, o->stages, o->microbatches);
    if (o->microbatches > PST_MAX_MICROBATCHES || o->stages > PST_MAX_STAGES)
        return pst_diag_set(diag, PST_E_SCHEDULE_COUNTS,
                            "%u microbatches and %u stages are too many; the "
                            "limits are %u and %u",
                            o->microbatches, o->stages, PST_MAX_MICROBATCHES,
                            PST_MAX_STAGES);
    if ((uint64_t)o->microbatches * o->stages > MAX_FORWARDS)
        return pst_diag_set(diag, PST_E_SCHEDULE_COUNTS,
                            "%u microbatches of %u stages are too many: the "
                            "limit is %u forwards",
                            o->microbatches, o->stages, MAX_FORWARDS);
    if (o->ranks > o->stages)
        return pst_diag_set(
            diag, PST_E_SCHEDULE_COUNTS,
            "%u ranks are more than the %u stage%s of the plan: split into "
            "more stages, or let the other ranks run copies of the pipeline "
            "on other data (data parallelism, R x P ranks)",
            o->ranks, o->stages, o->stages == 1 ? "" : "s");
    return PST_OK;
}

static enum pst_status fill_schedule(struct pst_schedule *sched,
                                     const struct pst_sched_row *row,
                                     const struct pst_schedule_options *o,
                                     struct pst_diag *diag)
{
    enum pst_status status;

    if (o->place)
        status = pst_sched_parse_place(o->place, o->stages, o->ranks,
                                       sched->rank_of, diag);
    else
        status = pst_schedule_place(row->place, o->stages, o->ranks, o->costs,
                                    sched->rank_of, diag);
    sched->asked = o;
    if (status == PST_OK)
        status = row->generate(sched, diag);
    sched->asked = NULL;
    return status;
}

enum pst_status pst_sched_new(const struct pst_schedule_options *options,
                              struct pst_schedule **ret, struct pst_diag *diag)
{
    struct pst_schedule *sched = pst_calloc(PST_TAG_PLAN, 1, sizeof(*sched));

    if (!sched)
        return pst_diag_nomem(diag, sizeof(*sched));
    sched->name = "";
    sched->n_ranks = options->ranks;
    sched->n_stages = options->stages;
    sched->n_microbatches = options->microbatches;
    sched->train = options->train;
    sched->idle = options->idle;
    sched->rank_of =
        pst_calloc(PST_TAG_PLAN, options->stages, sizeof(*sched->rank_of));
    sched->ranks =
        pst_calloc(PST_TAG_PLAN, options->ranks, sizeof(*sched->ranks));
    if (!sched->rank_of || !sched->ranks) {
        pst_schedule_free(sched);
        return pst_diag_nomem(diag, options->stages * sizeof(int));
    }
    *ret = sched;
    return PST_OK;
}

enum pst_status pst_schedule_make(const struct pst_schedule_options *options,
                                  struct pst_schedule **ret,
                                  struct pst_diag *diag)
{
    const struct pst_sched_row *row = NULL;
    struct pst_schedule *sched;
    enum pst_status status;

    status = check_options(options, diag);
    if (status == PST_OK && options->name &&
        strncasecmp(options->name, "csv:", 4) == 0)
        return pst_sched_read_csv(options->name + 4, options, ret, diag);
    /* An invalid name is refused for inference, too. */
    if (status == PST_OK && (options->train || options->name))
        status = pst_sched_find_row(options->name, &row, diag);
    if (status != PST_OK)
        return status;

    if (!options->train)
        status = pst_sched_find_row("inference", &row, diag);
    if (status == PST_OK)
        status = pst_sched_check_demands(row, options, diag);
    if (status != PST_OK)
        return status;

    status = pst_sched_new(options, &sched, diag);
    if (status != PST_OK)
        return status;
    sched->name = row->name;
    status = fill_schedule(sched, row, options, diag);
    if (status != PST_OK) {
        pst_schedule_free(sched);
        return status;
    }
    *ret = sched;
    return PST_OK;
}

enum pst_status pst_schedule_copy(const struct pst_schedule *sched,
                                  struct pst_schedule **ret,
                                  struct pst_diag *diag)
{
    const struct pst_schedule_options like = {.ranks = sched->n_ranks,
                                              .stages = sched->n_stages};
    struct pst_schedule *copy;
    enum pst_status status = pst_sched_new(&like, &copy, diag);
    int *rank_of;

    if (status != PST_OK)
        return status;
    rank_of = copy->rank_of;
    memcpy(rank_of, sched->rank_of, sched->n_stages * sizeof(*rank_of));
    for (unsigned r = 0; r < sched->n_ranks; r++) {
        const size_t n = sched->ranks[r].n;

        if (!pst_vec_reserve(PST_TAG_PLAN, &copy->ranks[r], n)) {
            pst_schedule_free(copy);
            return pst_diag_nomem(diag, n * sizeof(struct pst_action));
        }
        if (n > 0)
            memcpy(copy->ranks[r].at, sched->ranks[r].at,
                   n * sizeof(struct pst_action));
        copy->ranks[r].n = n;
    }
    copy->name = sched->name;
    copy->n_microbatches = sched->n_microbatches;
    copy->train = sched->train;
    copy->idle = sched->idle;
    copy->lines = sched->lines;
    copy->messages = sched->messages;
    copy->lowered = sched->lowered;
    copy->n_deferred = sched->n_deferred;
    *ret = copy;
    return PST_OK;
}

void pst_schedule_free(struct pst_schedule *sched)
{
    if (!sched)
        return;
    for (unsigned r = 0; sched->ranks && r < sched->n_ranks; r++)
        pst_vec_fini(&sched->ranks[r]);
    for (unsigned r = 0; sched->copies && r < sched->n_ranks; r++)
        pst_vec_fini(&sched->copies[r]);
    pst_free(sched->ranks);
    pst_free(sched->copies);
    pst_free(sched->rank_of);
    for (size_t i = 0; i < sched->candidates.n; i++)
        pst_free(sched->candidates.at[i].note);
    pst_vec_fini(&sched->candidates);
    pst_free(sched);
}
