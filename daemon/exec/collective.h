// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_EXEC_COLLECTIVE_H
#define PENSTOCK_DAEMON_EXEC_COLLECTIVE_H
/*
 * State of the exec thread, and the collective operations of a job's ranks.
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
    unsigned rank;  /* rank of this process; with transport self 0 */
    unsigned size;  /* number of processes */
    unsigned ranks; /* ranks of the job; with transport self more than size */
    const struct pst_device *device; /* device that this process uses */
    unsigned ordinal;                /* index of the device among its kind */
    struct pst_plan *plan;
    struct pst_batch batch;    /* plans of the last run's microbatches */
    struct pst_engine *engine; /* engine of the last run; NULL: none */
    /* Plan of a run with a changed model; or NULL. */
    struct pstd_changed *changed;
    char *engine_options; /* options that `engine` was made with, as text */
    struct pst_flight **flights; /* flight recorders by rank, those of local
                                    ranks only; or NULL */
    uint64_t runs;               /* number of runs that have begun */
    /* Resident bytes of the process before it loaded a model. */
    uint64_t base_rss;
    bool begun;    /* one of the runs has reached its first step */
    bool stopping; /* the job ends after the current run */
    bool agreed;   /* all ranks have the same failure, which ends the job */
};

/* COLLECTIVE. status: that of this rank. Returns the failure of the lowest
 * failed rank, or PST_OK, on all ranks; PST_ERR_PEER if communication fails. */
enum pst_status pstd_agree_status(struct pstd_executor *w,
                                  enum pst_status status,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* COLLECTIVE. Sends rank 0's bytes to all. */
enum pst_status pstd_broadcast(struct pstd_executor *w, void *data, size_t size,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* COLLECTIVE. Gathers size bytes of each process in rank 0's array `all`. */
enum pst_status pstd_gather(struct pstd_executor *w, const void *mine,
                            size_t size, void *all,
                            struct pst_diag *diag) PST_MUST_CHECK;
/* COLLECTIVE. Waits for the next order, the same on all ranks; free its data
 * with pst_free. words: the control words that count as orders
 * (pstd_mailbox_wait_order). */
enum pst_status pstd_next_order(struct pstd_executor *w, unsigned words,
                                struct pstd_order *ret,
                                struct pst_diag *diag) PST_MUST_CHECK;
/* COLLECTIVE. Returns the next order or stop without waiting; its kind is NONE
 * if there is none. */
enum pst_status pstd_pending_order(struct pstd_executor *w,
                                   struct pstd_order *ret,
                                   struct pst_diag *diag) PST_MUST_CHECK;

/* Sets the device that this process uses (executor.c). */
void pstd_set_device(const struct pstd_executor *w,
                     struct pst_exec_options *options);

/* Rank 0: emits the event that another rank was asked to stop. */
void pstd_emit_stop(struct pstd_executor *w);

#endif
