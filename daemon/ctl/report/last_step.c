// SPDX-License-Identifier: Apache-2.0
/* Finds the newest step that all ranks have recorded completely. */
#include "daemon/ctl/report/last_step.h"

#include <stdio.h>

#include "stages/base/alloc.h"
#include "stages/base/str.h"
#include "stages/run/watch/flight.h"

struct records {
    struct pst_flight_log logs[PSTCTL_STORY_RANKS];
    unsigned n;
};

static bool is_action(const struct pst_flight_record *r)
{
    return r->kind < PST_FLIGHT_END && r->end >= r->begin && r->end > 0 &&
           pst_span_of_action((enum pst_action_kind)r->kind) < PST_N_SPANS;
}

/* True for a record of a backward pass. Evaluations, whose steps are numbered
 * separately, have no backward passes. */
static bool is_backward(const struct pst_flight_record *r)
{
    return is_action(r) && (r->kind == PST_ACT_B || r->kind == PST_ACT_I ||
                            r->kind == PST_ACT_W);
}

/* Finds the newest step below `below` that this rank has finished; a record of
 * a later step shows that it has. */
static bool find_newest(const struct pst_flight_log *log, uint64_t below,
                        uint64_t *ret)
{
    bool later = false, found = false;
    uint64_t step = 0;

    for (size_t i = log->n; i-- > 0 && !found;) {
        const struct pst_flight_record *r = &log->at[i];

        if (!is_backward(r))
            continue;
        if (later && r->step != step && r->step < below)
            found = true;
        step = r->step;
        later = true;
    }
    if (found)
        *ret = step;
    return found;
}

static enum pst_status add_actions(const struct pst_flight_log *log,
                                   uint64_t step, double begin,
                                   struct pst_timeline *t,
                                   struct pst_diag *diag)
{
    for (size_t i = 0; i < log->n; i++) {
        const struct pst_flight_record *r = &log->at[i];

        if (r->step != step || !is_action(r) || r->begin < begin)
            continue;
        if (!pst_timeline_add(t, (int)log->rank,
                              pst_span_of_action((enum pst_action_kind)r->kind),
                              r->stage, r->microbatch, r->begin - begin,
                              r->end - begin))
            return pst_diag_nomem(diag, sizeof(struct pst_span));
        t->step = PST_MAX(t->step, r->end - begin);
    }
    return PST_OK;
}

/* Returns the time at which the rank began the step; 0: not recorded. Goes back
 * from the step's last backward, through records of the same step, to the first
 * action. */
static double find_begin(const struct pst_flight_log *log, uint64_t step)
{
    double first = 0;
    size_t i = log->n;

    while (i-- > 0 && !(log->at[i].step == step && is_backward(&log->at[i])))
        ;
    for (; i < log->n && log->at[i].step == step; i--) {
        if (is_action(&log->at[i]))
            first = log->at[i].begin;
        if (i == 0)
            break;
    }
    return first;
}

static enum pst_status make_timeline(const struct records *all,
                                     struct pstctl_story *story,
                                     struct pst_diag *diag)
{
    uint64_t step = UINT64_MAX - 1;
    double begin = 0;
    enum pst_status status = PST_OK;

    for (unsigned i = 0; i < all->n; i++) {
        uint64_t of_rank;

        if (!find_newest(&all->logs[i], step + 1, &of_rank))
            return PST_OK;
        step = PST_MIN(step, of_rank);
    }
    for (unsigned i = 0; i < all->n; i++) {
        const double of_rank = find_begin(&all->logs[i], step);

        if (of_rank <= 0)
            return PST_OK;
        begin = i == 0 ? of_rank : PST_MIN(begin, of_rank);
    }
    story->timeline = (struct pst_timeline){
        .name = "recorded", .n_ranks = all->n, .waits = true};
    story->timeline_step = step + 1;
    for (unsigned i = 0; i < all->n && status == PST_OK; i++)
        status =
            add_actions(&all->logs[i], step, begin, &story->timeline, diag);
    return status;
}

enum pst_status pstctl_steps_read(const char *dir, struct pstctl_story *story,
                                  struct pst_diag *diag)
{
    struct records *all = pst_calloc(PST_TAG_CLIENT, 1, sizeof(*all));
    bool whole = story->ranks > 0;
    enum pst_status status;

    if (all == NULL)
        return pst_diag_nomem(diag, sizeof(*all));
    for (; whole && all->n < story->ranks; all->n++) {
        struct pst_flight_log *log = &all->logs[all->n];
        struct pst_str path = {0};

        pst_str_addf(&path, "%s/rank-%u" PST_FLIGHT_SUFFIX, dir, all->n);
        whole = !path.failed && pst_flight_read(path.text, log, NULL) == PST_OK;
        pst_str_fini(&path);
        if (!whole)
            break;
        whole = log->rank == all->n;
    }
    status = whole ? make_timeline(all, story, diag) : PST_OK;
    for (unsigned i = 0; i < PSTCTL_STORY_RANKS; i++)
        pst_free(all->logs[i].at);
    pst_free(all);
    return status;
}
