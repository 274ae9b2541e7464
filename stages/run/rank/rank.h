// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_RANK_RANK_H
#define PENSTOCK_STAGES_RUN_RANK_RANK_H
/*
 * One rank of an engine. Its components are in whole.h; other code gets only
 * the components that it needs: constant ones (stages/layout/) and those that
 * change in a step (step/). Exec thread, or the rank's own thread in a step.
 */
#include "stages/run/exec.h"

struct pst_actions;
struct pst_decision;
struct pst_device_memory;
struct pst_flight;
struct pst_layout;
struct pst_message;
struct pst_programs;
struct pst_rank;
struct pst_rank_device;
struct pst_rank_role;
struct pst_ring;
struct pst_stayed;
struct pst_trace_order;

/* --- life ----------------------------------------------------------------- */

/* Plans the rank. The role is copied. lent: as for pst_rank_plan_init. */
enum pst_status pst_rank_new(const struct pst_rank_role *role,
                             struct pst_programs *lent, struct pst_rank **ret,
                             struct pst_diag *diag) PST_MUST_CHECK;
void pst_rank_free(struct pst_rank *r);
/* Binds messages and instructions to the arena of an open device. Borrows
 * transport and device. */
enum pst_status pst_rank_start(struct pst_rank *r,
                               struct pst_transport *transport,
                               struct pst_rank_device *device,
                               struct pst_diag *diag) PST_MUST_CHECK;

/* Between steps: continues after the last step of `from`, the same rank with
 * another number of microbatches, in the same arena. */
void pst_rank_continue_from(struct pst_rank *r, struct pst_rank *from);

/* Sets `peers` of the rank's struct pst_traffic; borrowed. */
void pst_rank_set_peers(struct pst_rank *r,
                        const struct pst_device_memory *const *peers);
/* True if the rank should be advanced again soon, without waiting for the
 * transport (pst_traffic_polls). */
bool pst_rank_polls(const struct pst_rank *r);

/* --- a step --------------------------------------------------------------- */

/* Sets the diag that receives faults of the step; borrowed until the next call.
 */
void pst_rank_set_diag(struct pst_rank *r, struct pst_diag *diag);
/* Begins a step. trace: what to check in a step that is rerun; NULL for an
 * ordinary step. */
void pst_rank_begin(struct pst_rank *r, uint64_t step, pst_fill_fn fill,
                    void *fill_ctx, unsigned control,
                    const struct pst_trace_order *trace);
/* Lets the step that was begun read inputs in place (pst_engine_lend). */
void pst_rank_lend(struct pst_rank *r, pst_lend_fn lend, void *ctx);
/* Lets the step that was begun end without an update. pst_rank_resume, called
 * when that step has ended and is applied, begins its update; pst_rank_advance
 * continues it. new_grads: gradients were set since, so that the ranks report
 * their squares and decide again. */
void pst_rank_hold(struct pst_rank *r);
void pst_rank_resume(struct pst_rank *r, bool new_grads);
/* Records a fault of the step that was found before its first action. */
void pst_rank_note_fault(struct pst_rank *r, enum pst_error error,
                         const char *text);
/* Returns the error of a step whose input could not be filled: I/O errors and a
 * caller's cancellation stay, any other error becomes PST_E_OP_DATA. */
static inline enum pst_error pst_rank_input_error(const struct pst_diag *why)
{
    return why->status == PST_ERR_IO || why->status == PST_ERR_CANCELLED
               ? why->error
               : PST_E_OP_DATA;
}
/* Continues the step. PST_AGAIN: it waits for a peer; PST_OK: it is over, and
 * the decision is available. */
enum pst_status pst_rank_advance(struct pst_rank *r) PST_MUST_CHECK;
bool pst_rank_is_done(const struct pst_rank *r);
/* Returns the number of kernels, actions and messages so far. Any thread. */
uint64_t pst_rank_moves(const struct pst_rank *r);
/* Returns the decision of the last step. */
const struct pst_decision *pst_rank_decision(const struct pst_rank *r);
/* Returns why the step is not applied; "" if it is. */
const char *pst_rank_decision_text(const struct pst_rank *r);
/* Returns a sentence about elements that the previous update skipped; "" if
 * none. */
const char *pst_rank_decision_stayed(struct pst_rank *r);
struct pst_times pst_rank_times(const struct pst_rank *r);
/* Returns the elements that the newest update skipped, unless a step has
 * reported them already. No later step reports them. */
struct pst_stayed pst_rank_take_stayed(struct pst_rank *r);
/* Returns the times and the number of microbatches that a rank of the job has
 * reported; r must be rank 0. */
struct pst_times pst_rank_reported(const struct pst_rank *r, unsigned rank,
                                   unsigned *ret_microbatches);

/* --- waiting (describe.c) ------------------------------------------------- */

/* Returns a message that the rank waits for, NULL if there is none. */
const struct pst_message *pst_rank_waits_for(const struct pst_rank *r);
/* Prints "rank 1 waits to run 2F3 (...)". */
void pst_rank_describe(const struct pst_rank *r, struct pst_str *out);
/* Describes a rank that is running. Any thread. */
void pst_rank_describe_running(const struct pst_rank *r, struct pst_str *out);

/* --- components ----------------------------------------------------------- */

const struct pst_rank_role *pst_rank_role(const struct pst_rank *r);
/* Between steps: sets the optimizer's numbers and groups to those of the
 * options. */
void pst_rank_retune(struct pst_rank *r,
                     const struct pst_exec_options *options);
const struct pst_layout *pst_rank_layout(const struct pst_rank *r);
const struct pst_memory *pst_rank_memory(const struct pst_rank *r);
/* Returns the traffic of --stash in all steps so far; call between steps. */
struct pst_stash_totals pst_rank_stash(const struct pst_rank *r);
/* Returns what the rank replays; call between steps. */
struct pst_recorded pst_rank_recorded(const struct pst_rank *r);
const struct pst_actions *pst_rank_actions(const struct pst_rank *r);
/* Returns the times of the last steps. The newest step has no time of its
 * update before pst_rank_await. */
const struct pst_ring *pst_rank_step_times(const struct pst_rank *r);
/* Waits until the device has finished the newest step; call between steps. */
void pst_rank_await(struct pst_rank *r);
struct pst_rank_device *pst_rank_device(struct pst_rank *r);
/* Marks values that are computed once from parameters as outdated, and drops
 * the report of elements that the newest update skipped; call after writing
 * parameters. */
void pst_rank_params_changed(struct pst_rank *r);

#endif
