// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_RESULT_H
#define PENSTOCK_DAEMON_RESULT_H
/* The result of a run, for clients that ask. Goes from the exec thread to the
 * loop with the note of the run's end. */
#include "daemon/common/trace.h"
#include "stages/run/exec.h"
#include "stages/run/measure.h"

/* Results of one rank, summed over the steps of a run. It contains no pointers,
 * since ranks send it as bytes. */
struct pstd_rank_result {
    char stages[64];
    /* Resident bytes: the peak, and before the model was loaded. */
    uint64_t peak_rss, base_rss;
    /* Bytes of the arena: planned, and up to the end of what steps touched. */
    uint64_t planned, high_water;
    /* times of all steps; 0 on ranks other than the first one of a process */
    struct pst_times sums;
    double step;              /* seconds of the step that was measured */
    struct pst_shares shares; /* seconds of the measured step, by activity */
};

/* Size of the id of a run, with the NUL. */
#define PSTD_RUN_ID 33

struct pstd_result {
    uint64_t run;
    char run_id[PSTD_RUN_ID]; /* set by the loop */
    bool stopped; /* the run was stopped on request before its last step */
    struct pst_diag diag;
    uint64_t first_step, steps; /* step before the run; last finished step */
    double loss;                /* loss of the last step */
    double *losses;             /* losses of the last n_losses steps */
    size_t n_losses;
    /* Seconds of a step: median and 99th percentile of the last n_losses steps,
     * without the first two of these. NAN: there was no step. */
    double step_s, step_p99_s;
    uint64_t first_step_us; /* time of the first step, since 1970 UTC */
    /* gflops: FLOPs of forward and backward / time / 1e9. mfu: see exec/peak.h.
     * bubble: share of the steps' time in which ranks were idle. tok_s: tokens
     * per second. */
    double gflops, mfu, bubble, tok_s;
    uint64_t checkpoint_step; /* step of the newest good checkpoint; 0: none */
    uint64_t best_step; /* step of the best evaluation; 0: none was finite */
    double best_loss;
    /* --keep-best: step of the best evaluation if its checkpoint could not be
     * saved, so that another one, or none, counts as the best; 0: none. */
    uint64_t best_lost_step;
    /* Why the history lacks steps, since a folder could not be written; no
     * error if it lacks none. */
    struct pst_diag history_lost;
    bool enough; /* early stop: evaluations no longer improved */
    struct pstd_rank_result *ranks;
    size_t n_ranks;
    struct pstd_trace *trace; /* timelines of the measured step; NULL: none */
};

void pstd_result_free(struct pstd_result *result);

#endif
