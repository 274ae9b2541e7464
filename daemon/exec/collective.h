// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_EXEC_COLLECTIVE_H
#define PENSTOCK_DAEMON_EXEC_COLLECTIVE_H
/*
 * What the exec thread knows of its job, and what all ranks of it do together.
 * Exec thread.
 */
#include "daemon/mailbox.h"
#include "stages/run/exec.h"
#include "stages/split/bind/bind.h"

struct pstd_changed;

struct pstd_executor {
    struct pstd_mailbox *mailbox;
    struct pst_transport *transport;
    struct pst_pulse *pulse;
    unsigned rank;  /* of this process */
    unsigned size;  /* processes */
    unsigned ranks; /* of the job: more than size with transport self */
    struct pst_plan *plan;
    struct pst_batch batch;       /* plans of the last run's microbatches */
    struct pst_engine *engine;    /* of the last run, or NULL */
    struct pstd_changed *changed; /* the run has another plan; or NULL */
    char *engine_options;         /* that it was made with, as text */
    struct pst_flight **flights;  /* of all ranks, ours are there; or NULL */
    uint64_t runs;
    uint64_t base_rss; /* bytes of the process before it had a model */
    bool stopping;
    bool agreed; /* all ranks know of the failure that ends the job */
};

/* COLLECTIVE. The first rank's failure becomes everybody's. Fails with
 * PST_ERR_PEER if the ranks cannot talk any more. */
enum pst_status pstd_agree(struct pstd_executor *w, enum pst_status status,
                           struct pst_diag *diag) PST_MUST_CHECK;
/* COLLECTIVE. Rank 0's bytes to all. */
enum pst_status pstd_broadcast(struct pstd_executor *w, void *data, size_t size,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* COLLECTIVE. size bytes of each process to rank 0's array `all`. */
enum pst_status pstd_gather(struct pstd_executor *w, const void *mine,
                            size_t size, void *all,
                            struct pst_diag *diag) PST_MUST_CHECK;
/* COLLECTIVE. The next order, the same on all ranks; data by pst_free. */
enum pst_status pstd_next_order(struct pstd_executor *w, struct pstd_order *ret,
                                struct pst_diag *diag) PST_MUST_CHECK;
/* COLLECTIVE. The same without waiting: kind NONE if there is none. */
enum pst_status pstd_pending_order(struct pstd_executor *w,
                                   struct pstd_order *ret,
                                   struct pst_diag *diag) PST_MUST_CHECK;

/* Rank 0: that another rank was asked to stop, into the log. */
void pstd_emit_stop(struct pstd_executor *w);

#endif
