// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_EXEC_H
#define PENSTOCK_STAGES_RUN_EXEC_H
/*
 * An engine runs a plan on the ranks of this process: all ranks with transport
 * "self", one with "mpi". Exec thread only.
 *
 * pst_engine_new plans every byte, chooses every kernel, allocates one arena
 * per rank and loads parameters; a step allocates nothing.
 *
 * Every function marked COLLECTIVE must be called by all ranks in the same
 * order with the same arguments.
 */
#include "stages/files/checkpoint/checkpoint.h"
#include "stages/layout/options.h"
#include "stages/net/transport.h"
#include "stages/run/watch/pulse.h"

struct pst_engine;
struct pst_hosted_list; /* stages/compile/hosted.h */

/* COLLECTIVE. Borrows plan and transport, which has ranks * replicas ranks,
 * until freed. Checks that all ranks have the same plan digest and options
 * (PST_ERR_MISMATCH). Returns owned. */
enum pst_status pst_engine_new(struct pst_plan *plan,
                               struct pst_transport *transport,
                               const struct pst_exec_options *options,
                               struct pst_engine **ret,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* Joins the threads of ranks, so it must not be called while
 * pst_engine_is_stuck. NULL is accepted. */
void pst_engine_free(struct pst_engine *engine);
/* Between steps, on all ranks: sets the number of microbatches of the next
 * steps. Parameters, optimizer states and the reports of the last step stay.
 * PST_ERR_USAGE: the number is not in options.counts. */
enum pst_status pst_engine_set_microbatches(
    struct pst_engine *engine, unsigned microbatches,
    struct pst_diag *diag) PST_MUST_CHECK;
/* Sets options.watchdog, which may differ between ranks, for later steps. */
void pst_engine_set_watchdog(struct pst_engine *engine, double seconds);
/* After a step that failed: true if the thread of a local rank has not returned
 * from it. Neither the engine nor its arguments can be freed then, since the
 * thread may read them: the process has to exit. NULL is accepted. */
bool pst_engine_is_stuck(const struct pst_engine *engine);

/* Returns the value of --recompute, with "auto" resolved; "none": nothing is
 * recomputed. */
const char *pst_engine_recompute(const struct pst_engine *engine);
/* Returns the location of the stash (--stash); "none": it is in the arena. */
const char *pst_engine_stash_place(const struct pst_engine *engine);
/* Returns the highest sharding mode of the parameters (--shard). */
enum pst_sharing pst_engine_shard(const struct pst_engine *engine);
/* Returns the schedule of the first replica, with the number of microbatches in
 * use. */
const struct pst_schedule *pst_engine_schedule(const struct pst_engine *engine);
/* Returns the number of ranks in this process; mpi: 1. The argument `local` of
 * other functions is the index of one of them. */
unsigned pst_engine_n_local(const struct pst_engine *engine);
/* Returns the processors, as Linux numbers them, that the *ret_n kernel threads
 * of local rank i are bound to; NULL: they are not bound. */
const unsigned *pst_engine_processors(const struct pst_engine *engine,
                                      unsigned i, unsigned *ret_n);
/* Returns the memory of a local rank, for the number of microbatches that needs
 * most memory. */
struct pst_memory pst_engine_memory(const struct pst_engine *engine,
                                    unsigned local);
/* Adds to `list` the kernel calls of a local rank that its device leaves to the
 * host. */
enum pst_status pst_engine_list_hosted(const struct pst_engine *engine,
                                       unsigned local,
                                       struct pst_hosted_list *list,
                                       struct pst_diag *diag) PST_MUST_CHECK;
/* Traffic of --stash in all steps so far; read it between steps. */
struct pst_stash_totals {
    uint64_t bytes_out, bytes_in;
    double waited; /* seconds in which actions waited for copies */
};
struct pst_stash_totals pst_engine_stash(const struct pst_engine *engine,
                                         unsigned local);
/* Recordings that a rank's device has made (struct pst_recorder), of actions
 * that compute or copy. */
struct pst_recorded {
    unsigned actions;  /* actions of a step */
    unsigned replayed; /* actions that are replayed completely */
    unsigned partly;   /* actions that are replayed in part */
    uint64_t nodes;    /* kernels and copies of a step that are replayed */
    double seconds;    /* time of recording */
    /* Why recording failed, for the first action that could not be recorded;
     * "": none failed. */
    char why[256];
};
/* Returns the number of ranks with which a local rank exchanges messages from
 * device to device. *ret_why: why it cannot do so with some rank of another
 * process of this host, as far as this rank knows; "": nothing was refused. */
unsigned pst_engine_peers(const struct pst_engine *engine, unsigned local,
                          const char **ret_why);
/* Returns what a local rank replays; all 0 if its device records nothing. */
struct pst_recorded pst_engine_recorded(const struct pst_engine *engine,
                                        unsigned local);
/* Sets numbers of the optimizer and its groups, such as learning rates, to
 * those of the options, from the next step on. apply false: only checks them.
 * PST_ERR_USAGE: other optimizer states would be needed. After an error nothing
 * has changed. */
enum pst_status pst_engine_retune(struct pst_engine *engine,
                                  const struct pst_exec_options *options,
                                  bool apply,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* Returns the end of the part of the arena that steps touched, in bytes; equals
 * memory.arena. */
size_t pst_engine_high_water(const struct pst_engine *engine, unsigned local);

/* Time of one rank in the last step by activity, in seconds. */
struct pst_times {
    double step;
    double forward, backward, optim;
    double wait_recv;  /* waiting for values and gradients of other ranks */
    double wait_other; /* waiting for decisions, sends and reductions */
    double wait_data;  /* part of forward: `fill` of local ranks */
};

struct pst_step_result {
    double loss;          /* weighted mean over microbatches */
    const double *losses; /* one per microbatch; borrowed until the next step */
    double grad_norm; /* norm of all gradients of the model before clipping */
    double lr;
    bool applied;      /* false: nothing was changed on any rank */
    double loss_scale; /* 1: the loss is not scaled */
    /* The step was not applied, but this is no fault: a gradient is not
     * finite, and the loss scale is halved. The text names the gradient;
     * borrowed until the next step. */
    bool overflow;
    const char *overflow_text;
    uint64_t overflows; /* such steps in the whole run */
    bool diverged;      /* the fault is a loss or gradient that is not finite */
    /* The loss is not finite because no target of the step counts: only the
     * data is at fault. */
    bool no_targets;
    /* The previous step, counted from 1, if its update skipped elements that
     * would have become non-finite; 0: it skipped none. The text reports them;
     * borrowed until the next step. */
    uint64_t stayed_step;
    const char *stayed_text;
    /* The microbatch of the step in which the fault is; -1: none.
     * backward: the fault is in a gradient. */
    int microbatch;
    bool backward;
    bool spiked;      /* the fault is a loss or norm above pst_engine_limit */
    unsigned control; /* bits of the `control` arguments of all ranks */
    struct pst_times times; /* times of local rank 0 */
    /* Share of times.step in which a rank runs no forward, backward or
     * optimizer; mean over ranks. */
    double bubble;
};

/*
 * COLLECTIVE. One step: forward, backward, reductions, agreement, optimizer (if
 * options.train and the optimizer is not none). `step` counts from 0 and keys
 * data, learning rate and random numbers. The result has the union of all
 * ranks' `control` on all ranks, also with PST_ERR_RANGE (0 with other errors):
 * commands take effect at the same step boundary everywhere. A fault on any
 * rank (index out of range, a loss that is not finite if the optimizer would
 * use it ...): PST_ERR_RANGE on all ranks, with step (counted from 1), rank,
 * stage, microbatch and operator in the text; nothing is applied. A message
 * that is overdue beyond the watchdog's limit: PST_ERR_PEER that names the
 * peer; the engine can then only be freed.
 */
enum pst_status pst_engine_step(struct pst_engine *engine, uint64_t step,
                                pst_fill_fn fill, void *fill_ctx,
                                unsigned control, struct pst_step_result *ret,
                                struct pst_diag *diag) PST_MUST_CHECK;

/*
 * COLLECTIVE. A step of training in two parts: pst_engine_backward computes the
 * gradients, and leaves parameters and optimizer states as they are; buffers
 * get their new values. Errors are those of pst_engine_step. Afterwards
 * pst_engine_update applies the optimizer, once, with these gradients, which
 * must be those of the engine's last step; it fails only if messages do. Both
 * together compute the same bits as pst_engine_step. *ret_norm: norm of all
 * gradients before clipping, as in pst_step_result.
 *
 * pst_engine_write_grad, between the two, sets the gradient of
 * plan->params[param] from src, contiguous, or adds src to it. Every rank calls
 * it with the same bytes. The update then computes the norms again, and clips
 * by them. PST_ERR_RANGE: an element would not be finite; nothing has changed.
 */
enum pst_status pst_engine_backward(struct pst_engine *engine, uint64_t step,
                                    pst_fill_fn fill, void *fill_ctx,
                                    struct pst_step_result *ret,
                                    struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pst_engine_update(struct pst_engine *engine, double *ret_norm,
                                  struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pst_engine_write_grad(struct pst_engine *engine, unsigned param,
                                      const void *src, bool add,
                                      struct pst_diag *diag) PST_MUST_CHECK;

/* Later steps whose loss is above `loss`, or whose norm of all gradients is
 * above `norm`, are not applied: PST_ERR_RANGE with result.spiked. Infinite,
 * the initial value: no limit. Rank 0 decides. */
void pst_engine_limit(struct pst_engine *engine, double loss, double norm);

/* Lets the next step read inputs of local ranks in place, where `lend` returns
 * them; that memory must stay as it is during the step. Other inputs are
 * filled. Needs options.lends_inputs. */
void pst_engine_lend(struct pst_engine *engine, pst_lend_fn lend, void *ctx);

/* Makes the next step fail on all ranks with the error `why`; the step changes
 * nothing. A rank calls this if it cannot take part in a step that the others
 * have begun. why->error is not PST_E_NONE. */
void pst_engine_refuse(struct pst_engine *engine, const struct pst_diag *why);

/* COLLECTIVE, between steps. Checks the last update now, instead of in the next
 * step, which then does not report its faults again. PST_ERR_RANGE: the update
 * skipped elements that would have become non-finite. */
enum pst_status pst_engine_check_update(struct pst_engine *engine,
                                        struct pst_diag *diag) PST_MUST_CHECK;

/*
 * COLLECTIVE. Reruns a step that was not applied because a value was not
 * finite; changes nothing. of: the result of that step. Appends to *ret where
 * the first such value came from, or nothing if that is unknown.
 * *ret_microbatch: the microbatch of that value; if unknown, the one in `of`.
 */
enum pst_status pst_engine_trace(struct pst_engine *engine, uint64_t step,
                                 pst_fill_fn fill, void *fill_ctx,
                                 const struct pst_step_result *of,
                                 struct pst_str *ret, int *ret_microbatch,
                                 struct pst_diag *diag) PST_MUST_CHECK;

/* Returns, on rank 0, the times that a rank of the job reported for the last
 * step, without its optimizer. *ret_microbatches: its number of microbatches.
 */
struct pst_times pst_engine_reported(const struct pst_engine *engine,
                                     unsigned rank, unsigned *ret_microbatches);

/* COLLECTIVE, after a step of training: copies the gradient of
 * plan->params[param], the weighted sum over its microbatches before clipping,
 * to dst on rank 0, contiguous; zero if the loss does not depend on it. dst
 * NULL elsewhere. */
enum pst_status pst_engine_fetch_grad(struct pst_engine *engine, unsigned param,
                                      void *dst,
                                      struct pst_diag *diag) PST_MUST_CHECK;

/* COLLECTIVE, after a step of training: copies the gradient of plan->inputs[i],
 * which the plan wants (pst_plan_keep_gradients), to dst on rank 0: contiguous,
 * with the rows of all microbatches, weighted as the loss is; of an input that
 * is not divided, the sum over the microbatches. dst is aligned to the size of
 * an element, and undefined after an error; NULL elsewhere. */
enum pst_status pst_engine_fetch_input_grad(
    struct pst_engine *engine, unsigned input, void *dst,
    struct pst_diag *diag) PST_MUST_CHECK;

/* COLLECTIVE. pst_engine_dump_first, called right after the first step, copies
 * loss, losses, output.I and grad.FQN to memory and sets *ret (owned) for
 * pst_engine_dump_final, which adds param.FQN and buffer.FQN; rank 0 writes the
 * file. */
struct pst_dump;
enum pst_status pst_engine_dump_first(struct pst_engine *engine,
                                      struct pst_dump **ret,
                                      struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pst_engine_dump_final(struct pst_engine *engine,
                                      struct pst_dump *dump, const char *path,
                                      struct pst_diag *diag) PST_MUST_CHECK;
/* Sets a step in the metadata of the dump's file. `step`: number of steps of
 * all runs so far. The first call sets "step", which belongs to losses, outputs
 * and gradients; the last call sets "last_step", which belongs to parameters
 * and buffers. */
void pst_dump_set_step(struct pst_dump *dump, uint64_t step);
void pst_dump_free(struct pst_dump *dump);

#define PST_SAVE_MORE 512

/* Metadata of a checkpoint. */
struct pst_save_note {
    /* fault of the step after the saved ones, which was not applied; or NULL */
    const char *next_fault;
    bool diverged;    /* marks the checkpoint as bad (files/checkpoint.h) */
    uint64_t changes; /* number of changes of the model in the whole run */
    uint64_t course;  /* number of the run's course (lineage.h) */
    const char *run;  /* name of the run (owner.h); NULL: unknown */
    /* options of the run (pst_checkpoint_info.options); NULL: unknown */
    const char *options;
    char more[PST_SAVE_MORE]; /* lines that follow options */
    /* Buffer of PST_CHECKPOINT_REASON bytes for the reason that the saved
     * checkpoint is bad, on all ranks; "": it is good. May be NULL. */
    char *ret_bad;
    struct pst_data_place place; /* data position of the next step */
};

/* COLLECTIVE. Writes rank-local shards, then the manifest on rank 0. `step` =
 * number of finished steps. note may be NULL. The checkpoint is bad if a
 * trained parameter, an optimizer state or a changed buffer is not finite.
 * PST_ERR_DENIED: it would replace a checkpoint that must be kept
 * (pst_checkpoint_commit). PST_ERR_INTERNAL: copies of a parameter differ;
 * nothing is written, and the run is corrupt. */
enum pst_status pst_engine_save(struct pst_engine *engine, const char *dir,
                                uint64_t step, unsigned keep,
                                const struct pst_save_note *note,
                                struct pst_diag *diag) PST_MUST_CHECK;

/* Selects a checkpoint; the first four members are the same on all ranks. */
struct pst_load_choice {
    const char *dir;
    /* Second folder, used if its checkpoint is newer; may be NULL. */
    const char *fallback;
    uint64_t step; /* PST_CHECKPOINT_LATEST: the newest good one */
    /* Accept any model with the same tensors, if the engine does not train. */
    bool any_model;
    /* Load the averages of parameters (--ema) in place of their values, where
     * there are averages; an error if there are none at all. Whether set or
     * not, an average that an optimizer keeps itself is loaded in place of the
     * value, unless this engine's optimizer keeps it, too (state/average.h). */
    bool averaged;
    /* Receives, on rank 0, a description of how this model differs from the
     * export that wrote the checkpoint; may be NULL. */
    struct pst_str *differs;
    /* Set to true when this rank begins to change its state; may be NULL. */
    bool *begun;
    /* On rank 0: the checkpoints of both folders that may be loaded; NULL:
     * any. */
    const struct pst_checkpoint_lineage *lineage;
    /* Called, on rank 0, for each checkpoint that is skipped; may be NULL. */
    pst_checkpoint_report_fn skipped;
    void *ctx;
};

/* COLLECTIVE. Loads a checkpoint of the same model (run/state/match.h). *ret:
 * its manifest (on rank 0; step, changes and place on all ranks);
 * *ret_fallback: true if it is from the fallback folder (may be NULL). If a job
 * removes the newest one at the same time, the next one is taken. Errors: those
 * of pst_checkpoint_open. */
enum pst_status pst_engine_load(struct pst_engine *engine,
                                const struct pst_load_choice *choice,
                                struct pst_checkpoint_info *ret,
                                bool *ret_fallback,
                                struct pst_diag *diag) PST_MUST_CHECK;

/* Tensors with copies on several ranks, which steps keep equal: parameters and
 * buffers of replicas, parameters that stages share. */
struct pst_copies {
    unsigned tensors;  /* tensors with a whole copy on each of their ranks */
    unsigned in_parts; /* tensors sharded over replicas: nothing to compare */
    uint64_t bytes;    /* bytes of `tensors`, one copy of each */
};
struct pst_copies pst_engine_copies(const struct pst_engine *engine);
/* Prefix of the message about copies that differ. */
#define PST_COPIES_TEXT "copies differ"
/* COLLECTIVE. Compares the copies by hashes, between steps; `step` counts
 * finished ones. PST_ERR_INTERNAL, on all ranks: names the first tensor that
 * differs, the rank in the minority (with two: both) and its stage; the state
 * is corrupt. */
enum pst_status pst_engine_compare_copies(struct pst_engine *engine,
                                          uint64_t step,
                                          struct pst_diag *diag) PST_MUST_CHECK;

/* True if the parameter is sharded over replicas, so that its whole value
 * exists only while it is used. */
bool pst_engine_has_parts(const struct pst_engine *engine, unsigned param);
/* Copies plan->params[param] from a local rank to dst, contiguous.
 * PST_ERR_NOT_FOUND if no local rank has it, or only a shard of it. Between
 * steps. */
enum pst_status pst_engine_read_param(const struct pst_engine *engine,
                                      unsigned param, void *dst,
                                      struct pst_diag *diag) PST_MUST_CHECK;
/* COLLECTIVE. Copies plan->params[param] to dst on rank 0 from the rank that
 * has it. dst NULL elsewhere. Between steps. */
enum pst_status pst_engine_fetch_param(struct pst_engine *engine,
                                       unsigned param, void *dst,
                                       struct pst_diag *diag) PST_MUST_CHECK;
/* Sets plan->params[param] from src, contiguous, on the local ranks that have
 * it, or their shards of it. Every rank must call it with the same bytes.
 * States of the optimizer stay. Between steps. */
enum pst_status pst_engine_write_param(struct pst_engine *engine,
                                       unsigned param, const void *src,
                                       struct pst_diag *diag) PST_MUST_CHECK;
/* COLLECTIVE. Copies the current parameters and buffers to an engine of the
 * same model on the same ranks that does not train; the two engines may shard
 * them differently. An average that an optimizer keeps itself replaces its
 * parameter (state/average.h). Between steps. While `from` does not change,
 * later calls copy only buffers. `to` must be freed before `from`. */
enum pst_status pst_engine_copy_values(struct pst_engine *to,
                                       const struct pst_engine *from,
                                       struct pst_diag *diag) PST_MUST_CHECK;
/* Lets `to` read, from now on, parameters and buffers of `from` in place if
 * this process has them in memory and `to` does not write them.
 * pst_engine_copy_values, which is still called before each step of `to`, then
 * copies the others. `to` must be freed before `from`. */
enum pst_status pst_engine_borrow_values(struct pst_engine *to,
                                         const struct pst_engine *from,
                                         struct pst_diag *diag) PST_MUST_CHECK;
/* Copies to dst the value with which a parameter starts in an engine for
 * `plan`. `plan` is derived from this engine's plan and has the same parameter
 * numbers. The value is the one in this process, or the plan's if this process
 * has none. It is zero if the parameter is sharded over replicas, since
 * pst_engine_copy_values and pst_engine_copy_state set it later. */
enum pst_status pst_engine_read_start(const struct pst_engine *engine,
                                      struct pst_plan *plan, unsigned param,
                                      void *dst,
                                      struct pst_diag *diag) PST_MUST_CHECK;

/* Returns the previous name of parameter `fqn`, or NULL if it is new. */
typedef const char *(*pst_old_name_fn)(void *ctx, const char *fqn);
struct pst_adoption {
    /* returns the name of the parameter whose optimizer states `fqn` continues
     */
    pst_old_name_fn states;
    /* returns the name of the parameter whose value `fqn` continues, if that is
     * sharded in either engine */
    pst_old_name_fn values;
    /* Converts elements of such a value while it is moved, each one once; may
     * be NULL. */
    void (*convert)(void *ctx, const char *fqn, float *data, int64_t n);
    void *ctx;
};
/* COLLECTIVE. Copies from `from` to `to` the state that both engines have.
 * Between steps; both engines have the same rank numbers. */
enum pst_status pst_engine_copy_state(struct pst_engine *to,
                                      const struct pst_engine *from,
                                      const struct pst_adoption *how,
                                      struct pst_diag *diag) PST_MUST_CHECK;
/* Appends the names of parameters that both engines train, but with different
 * optimizers, so that their optimizer states start anew in `to`: "'a', 'b' and
 * 3 more". */
void pst_engine_list_renewed(struct pst_engine *to,
                             const struct pst_engine *from,
                             const struct pst_adoption *how,
                             struct pst_str *out);
/* COLLECTIVE. Gathers a parameter that is sharded over replicas to dst on all
 * ranks. */
enum pst_status pst_engine_gather_param(struct pst_engine *engine,
                                        unsigned param, void *dst,
                                        struct pst_diag *diag) PST_MUST_CHECK;

/* COLLECTIVE. Copies user output i (index in plan->outputs) to dst on rank 0,
 * with microbatches concatenated along the row dimension (scalars stacked);
 * needs keep_outputs. dst NULL elsewhere. */
enum pst_status pst_engine_output(struct pst_engine *engine, unsigned i,
                                  void *dst,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* Sets *ret to the meta of the tensor that pst_engine_output copies, and
 * *ret_dim to the concatenated dimension. *ret_rows: true if that dimension has
 * an entry for each row of the batch. */
enum pst_status pst_engine_output_meta(const struct pst_engine *engine,
                                       unsigned i, struct pst_meta *ret,
                                       unsigned *ret_dim, bool *ret_rows,
                                       struct pst_diag *diag) PST_MUST_CHECK;

/* COLLECTIVE. Broadcasts rank 0's bytes, such as commands: one message for each
 * rank. idle is called while waiting, and the processor is yielded between
 * polls. */
enum pst_status pst_engine_broadcast(struct pst_transport *transport, void *buf,
                                     size_t size, pst_idle_fn idle, void *ctx,
                                     struct pst_diag *diag) PST_MUST_CHECK;

/* COLLECTIVE. Returns on all ranks the status and text of the first rank, by
 * number, whose `status` is a failure; PST_OK if there is none. */
enum pst_status pst_transport_agree(struct pst_transport *transport,
                                    enum pst_status status,
                                    struct pst_diag *diag) PST_MUST_CHECK;

/* Appends the names of the chosen kernels, for `show --kernels`. */
void pst_engine_print_kernels(const struct pst_engine *engine,
                              struct pst_str *out);

#endif
