// SPDX-License-Identifier: Apache-2.0
#include "daemon/ctl/flight/blame.h"

#include "daemon/ctl/print.h"

#include <stdlib.h>

#include "stages/sched/sched.h"

/* A waiting rank polls much more often. A rank that has not polled for so many
 * seconds hangs. */
#define STILL_S 1.0

/* Object of a rank's wait, after "waits for"; indexed by enum pst_rank_phase
 * from DRAIN on. "it" in a text is the step. */
static const char *const waited_for[] = {
    "",
    "messages at its end",
    "its report",
    "reports of the others",
    "the decision on it",
    "its update",
    "what other replicas have updated",
    "values of transmitted parameters",
};

const struct pst_flight_record *pstctl_newest_record(
    const struct pst_flight_log *log)
{
    return log->n > 0 ? &log->at[log->n - 1] : NULL;
}

/* Returns the rank that the rank of this log waits for; -1: none. */
static int awaited_rank(const struct pst_flight_log *log)
{
    const struct pst_flight_record *r = pstctl_newest_record(log);

    return r != NULL && r->end == 0 ? r->peer : -1;
}

static double last_activity(const struct pst_flight_record *r)
{
    return PST_MAX(r->begin, PST_MAX(r->end, r->last_poll));
}

/* Returns the seconds for which a waiting rank has not polled, while other
 * ranks have recorded something; 0: it polls. */
static double seconds_without_poll(const struct pst_flight_log *logs,
                                   unsigned ranks, int rank)
{
    const struct pst_flight_record *r = pstctl_newest_record(&logs[rank]);
    double newest = 0;

    if (r->last_poll == 0) /* written by a version without this field */
        return 0;
    for (unsigned i = 0; i < ranks; i++)
        if (logs[i].n > 0)
            newest =
                PST_MAX(newest, last_activity(pstctl_newest_record(&logs[i])));
    newest -= last_activity(r);
    return newest > STILL_S ? newest : 0;
}

/* Returns another rank that waits for this one; -1: none. */
static int find_waiter(const struct pst_flight_log *logs, unsigned ranks,
                       int rank)
{
    for (unsigned i = 0; i < ranks; i++)
        if ((int)i != rank && awaited_rank(&logs[i]) == rank)
            return (int)i;
    return -1;
}

/* Returns the rank that has waited for the longest time; -1: no rank waits. The
 * search for the cause begins there. */
static int find_longest_waiter(const struct pst_flight_log *logs,
                               unsigned ranks)
{
    int found = -1;

    for (unsigned i = 0; i < ranks; i++)
        if (awaited_rank(&logs[i]) >= 0 &&
            (found < 0 || pstctl_newest_record(&logs[i])->begin <
                              pstctl_newest_record(&logs[found])->begin))
            found = (int)i;
    return found;
}

struct pstctl_blamed pstctl_find_blamed(const struct pst_flight_log *logs,
                                        unsigned ranks)
{
    struct pstctl_blamed v = {.rank = find_longest_waiter(logs, ranks),
                              .waiter = -1};

    if (v.rank < 0)
        return v;
    /* After as many waits as there are ranks, any cycle has been completed. */
    for (unsigned i = 0; i <= ranks; i++) {
        const int next = awaited_rank(&logs[v.rank]);

        if (next < 0 || next >= (int)ranks)
            break;
        v.idle_s = seconds_without_poll(logs, ranks, v.rank);
        if (v.idle_s > 0)
            break;
        v.waiter = v.rank;
        v.rank = next;
        v.cycle = i == ranks;
    }
    if (v.waiter < 0 && v.idle_s > 0)
        v.waiter = find_waiter(logs, ranks, v.rank);
    v.missing = logs[v.rank].n == 0;
    return v;
}

void pstctl_print_record(const struct pst_flight_record *r, struct pst_str *out)
{
    if (r->kind < PST_N_ACTIONS && r->kind < PST_FLIGHT_END) {
        if (r->stage >= 0)
            pst_str_addf(out, "%d", (int)r->stage);
        pst_str_add(out, pst_action_word((enum pst_action_kind)r->kind));
        if (r->microbatch >= 0)
            pst_str_addf(out, "%d", (int)r->microbatch);
    } else if (r->kind >= PST_FLIGHT_END &&
               r->kind - PST_FLIGHT_END < (int)PST_COUNT(waited_for)) {
        pst_str_add(out, waited_for[r->kind - PST_FLIGHT_END]);
    } else {
        pst_str_add(out, "?");
    }
    pst_str_addf(out, " of step %llu", (unsigned long long)r->step + 1);
}

void pstctl_print_blamed(const struct pstctl_blamed *v,
                         const struct pst_flight_log *logs, struct pst_str *out)
{
    const struct pst_flight_record *last, *wait;

    if (v->rank < 0) {
        pst_str_add(out, "no rank waits for another");
        return;
    }
    wait = v->waiter >= 0 ? pstctl_newest_record(&logs[v->waiter]) : NULL;
    last = pstctl_newest_record(&logs[v->rank]);
    if (v->cycle) {
        pst_str_addf(out, "rank %d and rank %d wait for each other in the end",
                     v->rank, v->waiter);
        return;
    }
    pst_str_addf(out, "rank %d has not %s", v->rank,
                 wait != NULL && wait->sends ? "taken" : "sent");
    if (wait != NULL) {
        pst_str_addf(out, " what rank %d %s ", v->waiter,
                     wait->sends ? "sends it for" : "waits for in");
        pstctl_print_record(wait, out);
    }
    if (last == NULL) {
        pst_str_add(out, "; there is no record of it");
    } else {
        pst_str_addf(out, "; it %s ", last->end > 0 ? "did last" : "is in");
        pstctl_print_record(last, out);
    }
    if (v->idle_s > 0) {
        pst_str_add(out, ", and has looked for no message in the last ");
        pstctl_duration(v->idle_s, out);
    }
}
