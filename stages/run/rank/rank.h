// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_RANK_RANK_H
#define PENSTOCK_STAGES_RUN_RANK_RANK_H
/*
 * One rank of an engine. It is made of parts (whole.h), of which others see
 * those that they ask for: what is fixed (plan/), what moves (step/). Exec
 * thread, or the rank's own in a step.
 */
#include "stages/run/exec.h"

struct pst_actions;
struct pst_decision;
struct pst_flight;
struct pst_layout;
struct pst_message;
struct pst_rank;
struct pst_rank_device;
struct pst_rank_role;
struct pst_ring;
struct pst_stayed;
struct pst_trace_order;

/* --- life ----------------------------------------------------------------- */

/* Plans; allocates no arena. The role is copied. */
enum pst_status pst_rank_new(const struct pst_rank_role *role,
                             struct pst_rank **ret,
                             struct pst_diag *diag) PST_MUST_CHECK;
void pst_rank_free(struct pst_rank *r);
/* Allocates the arena, loads parameters, binds messages. Borrows transport and
 * pool. */
enum pst_status pst_rank_start(struct pst_rank *r,
                               struct pst_transport *transport,
                               struct pst_pool *pool,
                               struct pst_diag *diag) PST_MUST_CHECK;

/* --- a step --------------------------------------------------------------- */

/* Where faults of the step go to; borrowed until the next call. */
void pst_rank_set_diag(struct pst_rank *r, struct pst_diag *diag);
/* trace: what the step is made again for, NULL: it is an ordinary one. */
void pst_rank_begin(struct pst_rank *r, uint64_t step, pst_fill_fn fill,
                    void *fill_ctx, unsigned control,
                    const struct pst_trace_order *trace);
/* The step has a fault from its begin on. */
void pst_rank_note_fault(struct pst_rank *r, enum pst_error error,
                         const char *text);
/* PST_AGAIN: waits for a peer; PST_OK: the step is over, decision is there. */
enum pst_status pst_rank_advance(struct pst_rank *r) PST_MUST_CHECK;
bool pst_rank_is_done(const struct pst_rank *r);
/* Kernels, actions and messages so far. Any thread. */
uint64_t pst_rank_moves(const struct pst_rank *r);
/* Of the last step. */
const struct pst_decision *pst_rank_decision(const struct pst_rank *r);
/* Why it is not applied; "" if it is. */
const char *pst_rank_decision_text(const struct pst_rank *r);
/* What the update before left as it was; "" if nothing. */
const char *pst_rank_decision_stayed(struct pst_rank *r);
struct pst_times pst_rank_times(const struct pst_rank *r);
/* What its newest update left as it was, if no step has reported it. */
struct pst_stayed pst_rank_stayed(struct pst_rank *r);
/* The same of any rank of the job, as rank 0, which r is, has heard of it; its
 * microbatches. */
struct pst_times pst_rank_reported(const struct pst_rank *r, unsigned rank,
                                   unsigned *ret_microbatches);

/* --- who waits (describe.c) ----------------------------------------------- */

/* A message that the rank waits for, NULL if it waits for none. */
const struct pst_message *pst_rank_waits_for(const struct pst_rank *r);
/* Where it records what it does; NULL: nowhere. */
struct pst_flight *pst_rank_flight(const struct pst_rank *r);
/* What it has begun is over, or (PST_AGAIN) waits for a message. */
void pst_rank_record(const struct pst_rank *r, struct pst_flight *f,
                     enum pst_status status);
/* "rank 1 waits to run 2F3 (...)". */
void pst_rank_describe(const struct pst_rank *r, struct pst_str *out);
/* The same of one that runs: any thread. */
void pst_rank_describe_running(const struct pst_rank *r, struct pst_str *out);

/* --- parts ---------------------------------------------------------------- */

const struct pst_rank_role *pst_rank_role(const struct pst_rank *r);
const struct pst_layout *pst_rank_layout(const struct pst_rank *r);
const struct pst_memory *pst_rank_memory(const struct pst_rank *r);
/* Of all steps; between steps. */
struct pst_stash_totals pst_rank_stash(const struct pst_rank *r);
const struct pst_actions *pst_rank_actions(const struct pst_rank *r);
/* Call pst_rank_await first if the newest step is to have its update. */
const struct pst_ring *pst_rank_ring(const struct pst_rank *r);
/* Between steps: waits until the device has done all of the newest one. */
void pst_rank_await(struct pst_rank *r);
struct pst_rank_device *pst_rank_device(struct pst_rank *r);
/* Somebody has written parameters: what is made of them once a step is to be
 * made again. */
void pst_rank_params_changed(struct pst_rank *r);

#endif
