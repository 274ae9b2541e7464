// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_RESULT_H
#define PENSTOCK_DAEMON_RESULT_H
/* The result of a run, for clients that ask. Goes from the exec thread to the
 * loop with the note of the run's end. */
#include "daemon/common/trace.h"
#include "stages/run/exec.h"
#include "stages/run/measure.h"

/* Results of one rank, summed over the steps of a run. Plain bytes: they are
 * sent as they are. */
struct pstd_rank_result {
    char stages[64];
    uint64_t peak_rss, base_rss; /* peak; memory without a model */
    uint64_t planned, high_water;
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
    double *losses; /* losses of the last n_losses steps */
    size_t n_losses;
    /* Median and 99th percentile of the newest n_losses steps, without the
     * first two. NAN: there was none. */
    double step_s, step_p99_s;
    uint64_t first_step_us;
    double gflops, mfu, bubble, tok_s;
    uint64_t checkpoint_step;
    uint64_t best_step; /* step of the best evaluation; 0: none was finite */
    double best_loss;
    bool enough; /* over before its goal: they did not get better */
    struct pstd_rank_result *ranks;
    size_t n_ranks;
    struct pstd_trace *trace; /* NULL: none */
};

void pstd_result_free(struct pstd_result *result);

#endif
