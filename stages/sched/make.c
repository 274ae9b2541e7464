// SPDX-License-Identifier: Apache-2.0
#include "stages/sched/generate.h"

#include <string.h>

/* Far above any use, far below what overflows an index or a tag. */
#define MAX_MICROBATCHES (1u << 20)
#define MAX_STAGES       4096u

static const struct pst_sched_row rows[] = {
#define PST_SCHED(function, name, summary)                                     \
    {name, summary, pst_sched_generate_##function},
#include "stages/sched/scheds.def"
#undef PST_SCHED
};

const struct pst_sched_row *pst_sched_rows(size_t *ret_n)
{
    *ret_n = PST_COUNT(rows);
    return rows;
}

static enum pst_status find_row(const char *name,
                                const struct pst_sched_row **ret,
                                struct pst_diag *diag)
{
    const char *names[PST_COUNT(rows)];
    struct pst_str text = {0};
    int near;

    for (size_t i = 0; i < PST_COUNT(rows); i++) {
        names[i] = rows[i].name;
        if (name && strcmp(name, rows[i].name) == 0) {
            *ret = &rows[i];
            return PST_OK;
        }
    }
    for (size_t i = 0; i < PST_COUNT(rows); i++)
        pst_str_addf(&text, "%s%s", i ? ", " : "", rows[i].name);
    near = name ? pst_nearest(name, names, PST_COUNT(names)) : -1;
    (void)pst_diag_set(
        diag, PST_ERR_USAGE, "unknown schedule \"%s\"%s%s%s; there are: %s",
        name ? name : "", near < 0 ? "" : " (did you mean ",
        near < 0 ? "" : names[near], near < 0 ? "" : "?)", pst_str_text(&text));
    pst_str_fini(&text);
    return PST_ERR_USAGE;
}

static enum pst_status check_options(const struct pst_schedule_options *o,
                                     struct pst_diag *diag)
{
    if (o->ranks < 1 || o->stages < 1 || o->microbatches < 1)
        return pst_diag_set(diag, PST_ERR_CONFIG,
                            "a schedule needs at least one rank, one stage "
                            "and one microbatch, not %u, %u and %u",
                            o->ranks, o->stages, o->microbatches);
    if (o->microbatches > MAX_MICROBATCHES || o->stages > MAX_STAGES)
        return pst_diag_set(diag, PST_ERR_CONFIG,
                            "%u microbatches and %u stages are too many; the "
                            "limits are %u and %u",
                            o->microbatches, o->stages, MAX_MICROBATCHES,
                            MAX_STAGES);
    if (o->ranks > o->stages)
        return pst_diag_set(
            diag, PST_ERR_CONFIG,
            "%u ranks are more than the %u stage%s of the plan: split into "
            "more stages, or let the other ranks run copies of the pipeline "
            "on other data (data parallelism, R x P ranks)",
            o->ranks, o->stages, o->stages == 1 ? "" : "s");
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
    /* A wrong name is refused for inference too. */
    if (status == PST_OK && (options->train || options->name))
        status = find_row(options->name, &row, diag);
    if (status != PST_OK)
        return status;

    sched = pst_calloc(PST_TAG_PLAN, 1, sizeof(*sched));
    if (!sched)
        return pst_diag_nomem(diag, sizeof(*sched));
    sched->name = options->train ? row->name : "inference";
    sched->n_ranks = options->ranks;
    sched->n_stages = options->stages;
    sched->n_microbatches = options->microbatches;
    sched->train = options->train;
    sched->rank_of =
        pst_calloc(PST_TAG_PLAN, options->stages, sizeof(*sched->rank_of));
    sched->ranks =
        pst_calloc(PST_TAG_PLAN, options->ranks, sizeof(*sched->ranks));
    if (!sched->rank_of || !sched->ranks)
        status = pst_diag_nomem(diag, options->stages * sizeof(int));
    if (status == PST_OK)
        status = pst_sched_place(options->stages, options->ranks,
                                 options->costs, sched->rank_of, diag);
    if (status == PST_OK)
        status = options->train ? row->generate(sched, diag)
                                : pst_sched_generate_inference(sched, diag);
    if (status != PST_OK) {
        pst_schedule_free(sched);
        return status;
    }
    *ret = sched;
    return PST_OK;
}

void pst_schedule_free(struct pst_schedule *sched)
{
    if (!sched)
        return;
    for (unsigned r = 0; sched->ranks && r < sched->n_ranks; r++)
        pst_vec_fini(&sched->ranks[r]);
    pst_free(sched->ranks);
    pst_free(sched->rank_of);
    pst_free(sched);
}

static enum pst_status add(struct pst_schedule *sched, unsigned rank,
                           enum pst_action_kind kind, unsigned stage,
                           unsigned microbatch, struct pst_diag *diag)
{
    const struct pst_action action = {kind, (int)stage, (int)microbatch,
                                      -1,   -1,         -1};

    if (!pst_vec_push(PST_TAG_PLAN, &sched->ranks[rank], action))
        return pst_diag_nomem(diag, sizeof(action));
    return PST_OK;
}

enum pst_status pst_sched_add_forward(struct pst_schedule *sched, unsigned rank,
                                      unsigned microbatch,
                                      struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    for (unsigned s = 0; s < sched->n_stages && status == PST_OK; s++)
        if (sched->rank_of[s] == (int)rank)
            status = add(sched, rank, PST_ACT_F, s, microbatch, diag);
    return status;
}

enum pst_status pst_sched_add_backward(struct pst_schedule *sched,
                                       unsigned rank, unsigned microbatch,
                                       struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    for (unsigned s = sched->n_stages; s-- > 0 && status == PST_OK;)
        if (sched->rank_of[s] == (int)rank)
            status = add(sched, rank, PST_ACT_B, s, microbatch, diag);
    return status;
}
