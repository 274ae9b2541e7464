// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_TRAIN_H
#define PENSTOCK_DAEMON_TRAIN_H
/* A run at work: train.c runs it, result.c sums it up. Exec thread. */
#include "daemon/work.h"
#include "stages/archive/data.h"

#define PSTD_MAX_LOSSES 10000 /* kept for the result, newest ones */

/* Sums over steps. */
struct pstd_sums {
    uint64_t done;
    double seconds, bubble;
    struct pst_times times;
};

struct pstd_session {
    struct pstd_work *w;
    struct pstd_config config;
    struct pst_exec_options options;
    struct pst_data *data;
    struct pst_tokens *tokens; /* or NULL */
    struct pst_dump *dump;
    struct pstd_result *result; /* rings are filled on all ranks */
    double *times;              /* ring beside result->losses */
    uint64_t done;              /* steps of this run */
    uint64_t step;              /* finished steps of all runs */
    uint64_t saved;             /* newest checkpoint; UINT64_MAX: none */
    struct pstd_sums sums;      /* of this run */
    struct pstd_sums told;      /* what they were at the last event */
    double last_event;          /* when */
};

/* COLLECTIVE. Numbers of the finished run into the result. */
enum pst_status pstd_session_conclude(struct pstd_session *s,
                                      struct pst_diag *diag) PST_MUST_CHECK;
/* COLLECTIVE. A trace of the newest steps: for the loop, at once. */
enum pst_status pstd_session_trace(struct pstd_session *s,
                                   struct pst_diag *diag) PST_MUST_CHECK;
/* COLLECTIVE. A trace into the result; --write-costs. */
enum pst_status pstd_session_measure(struct pstd_session *s,
                                     struct pst_diag *diag) PST_MUST_CHECK;
/* Gives the result to the loop. */
void pstd_session_tell_end(struct pstd_session *s);

#endif
