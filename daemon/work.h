// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_WORK_H
#define PENSTOCK_DAEMON_WORK_H
/*
 * What the exec thread does: it opens the transport, loads the plan, waits for
 * orders and runs them. Exec thread only, but for struct pstd_result, which
 * goes to the loop with the note of its run's end.
 */
#include "daemon/common/trace.h"
#include "daemon/worker.h"
#include "stages/run/exec.h"
#include "stages/run/measure.h"
#include "stages/split/bind/bind.h"

/* Of one rank; sums over the steps of a run. Plain bytes: it is sent. */
struct pstd_rank_result {
    char stages[64];
    uint64_t peak_rss, planned, high_water;
    struct pst_times sums;
    double step;              /* seconds of one step of median length, */
    struct pst_shares shares; /* and what this rank did in it */
};

struct pstd_result {
    uint64_t run;
    bool stopped; /* before its goal, on request */
    struct pst_diag diag;
    uint64_t first_step, steps;
    double loss;
    double *losses; /* of the last n_losses steps */
    size_t n_losses;
    double step_s; /* median without the first two */
    uint64_t first_step_us;
    double gflops, bubble, tok_s;
    uint64_t checkpoint_step;
    struct pstd_rank_result *ranks;
    size_t n_ranks;
    struct pstd_trace *trace; /* NULL: none */
};

void pstd_result_free(struct pstd_result *result);

struct pstd_work {
    struct pstd_worker *worker;
    struct pst_transport *transport;
    struct pst_pulse *pulse;
    unsigned rank;  /* of this process */
    unsigned size;  /* processes */
    unsigned ranks; /* of the job: more than size with transport self */
    struct pst_plan *plan;
    struct pst_batch batch; /* plans of the last run's microbatches */
    struct pst_crew *crew;  /* of the last run, or NULL */
    char *crew_options;     /* that it was made with, as text */
    uint64_t runs;
    bool stopping;
};

/* The exec thread from its start to its end. */
void pstd_work(struct pstd_worker *worker);

/* COLLECTIVE. The first rank's failure becomes everybody's. Fails with
 * PST_ERR_PEER if the ranks cannot talk any more. */
enum pst_status pstd_agree(struct pstd_work *w, enum pst_status status,
                           struct pst_diag *diag) PST_MUST_CHECK;
/* COLLECTIVE. size bytes of each process to rank 0's array `all`. */
enum pst_status pstd_gather(struct pstd_work *w, const void *mine, size_t size,
                            void *all, struct pst_diag *diag) PST_MUST_CHECK;
/* COLLECTIVE. The next order, the same on all ranks; data by pst_free. */
enum pst_status pstd_next_order(struct pstd_work *w, struct pstd_order *ret,
                                struct pst_diag *diag) PST_MUST_CHECK;

/* COLLECTIVE (alike.c). What all ranks must have alike; a difference is
 * PST_ERR_MISMATCH on all: program and options; then the plan; then the data
 * that each of them reads. */
enum pst_status pstd_compare_start(struct pstd_work *w,
                                   struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pstd_compare_plan(struct pstd_work *w,
                                  struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pstd_compare_data(struct pstd_work *w, const char *path,
                                  struct pst_diag *diag) PST_MUST_CHECK;

/* Rank 0: that another rank was asked to stop, into the log. */
void pstd_tell_stop(struct pstd_work *w);

/* COLLECTIVE (train.c). One run from its options to its result. PST_OK also
 * if the run failed in a way that leaves the daemon sound: the result says so.
 */
enum pst_status pstd_train(struct pstd_work *w, const struct pstd_order *order,
                           struct pst_diag *diag) PST_MUST_CHECK;

#endif
