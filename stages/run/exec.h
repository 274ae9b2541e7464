// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_EXEC_H
#define PENSTOCK_STAGES_RUN_EXEC_H
/*
 * An engine runs a plan on the ranks that this process holds: all of
 * them with transport "self", one with "mpi". Exec thread only.
 *
 * pst_engine_new plans every byte, chooses every kernel, allocates one arena
 * per rank and loads parameters; a step allocates nothing.
 *
 * Every function marked COLLECTIVE is called by all ranks in the same order
 * with the same arguments.
 */
#include "stages/files/checkpoint.h"
#include "stages/layout/options.h"
#include "stages/net/transport.h"
#include "stages/run/watch/pulse.h"

struct pst_engine;

/* COLLECTIVE. Borrows plan and transport, which has
 * ranks * replicas ranks, until freed. Checks that all ranks
 * have the same plan digest and options (PST_ERR_MISMATCH). Returns owned. */
enum pst_status pst_engine_new(struct pst_plan *plan,
                               struct pst_transport *transport,
                               const struct pst_exec_options *options,
                               struct pst_engine **ret,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* Waits for threads of ranks (pst_engine_is_stuck). */
void pst_engine_free(struct pst_engine *engine);
/* After a step that failed: has a rank of this process not come out of it?
 * Nothing that its thread may read can be freed then, neither the engine nor
 * what it was given: the process has to end. NULL is accepted. */
bool pst_engine_is_stuck(const struct pst_engine *engine);

/* What it recomputes, "none" if nothing; "auto" is what it stands for. */
const char *pst_engine_recompute(const struct pst_engine *engine);
/* Where its stash waits, "none": in the arena. */
const char *pst_engine_stash_place(const struct pst_engine *engine);
/* What replicas share: nothing, if there is but one. */
enum pst_sharing pst_engine_shard(const struct pst_engine *engine);
/* Of the first replica. */
const struct pst_schedule *pst_engine_schedule(const struct pst_engine *engine);
/* Of local rank `local` (0 .. n-1; mpi: only 0). */
unsigned pst_engine_n_local(const struct pst_engine *engine);
struct pst_memory pst_engine_memory(const struct pst_engine *engine,
                                    unsigned local);
/* What --stash has moved in all steps so far; between steps. */
struct pst_stash_totals {
    uint64_t bytes_out, bytes_in;
    double waited; /* seconds in which actions waited for copies */
};
struct pst_stash_totals pst_engine_stash(const struct pst_engine *engine,
                                         unsigned local);
/* Highest byte of the arena that a step touched; equals memory.arena. */
size_t pst_engine_high_water(const struct pst_engine *engine, unsigned local);

/* Seconds of one rank in the last step, by what it was doing. */
struct pst_times {
    double step;
    double forward, backward, optim;
    double wait_recv;  /* waiting for a message */
    double wait_other; /* agreement at the end, send slots, reductions */
};

struct pst_step_result {
    double loss;          /* mean over microbatches with their weights */
    const double *losses; /* microbatches entries; borrowed until next step */
    double grad_norm;     /* before clipping; of the whole model */
    double lr;
    bool applied;    /* false: a fault; nothing was changed on any rank */
    bool diverged;   /* the fault is a loss or gradient that is not finite */
    bool no_targets; /* because nothing in the step counts: the data alone */
    /* The update of that step, which was the one before, left elements as they
     * were, which would not be finite; 0: it did not. What is to be told of it,
     * borrowed until the next step. */
    uint64_t stayed_step;
    const char *stayed_text;
    /* Of a fault: the microbatch of the step that it was found in; -1: in none.
     * backward: it is a gradient. */
    int microbatch;
    bool backward;
    unsigned control;       /* what ranks asked for, agreed by all */
    struct pst_times times; /* of local rank 0 */
    double bubble;          /* share of times.step without forward, backward and
                               optimizer, mean over ranks */
};

/*
 * COLLECTIVE. One step: forward, backward, reductions, agreement, optimizer
 * (if options.train and the optimizer is not none). `step` counts from 0 and
 * keys data, rate and random numbers. `control` of all ranks together comes
 * back on all ranks in the result, also with PST_ERR_RANGE (else 0): commands
 * take effect at the same boundary everywhere. A fault (index out of range, a
 * loss that is not finite if the optimizer would use it ...) on any rank:
 * PST_ERR_RANGE on all ranks, text names the step (counted from 1 for people),
 * rank, stage, microbatch, operator; nothing was applied. A peer that owes a
 * message for longer than the watchdog allows: PST_ERR_PEER that names it; the
 * engine can only be freed.
 */
enum pst_status pst_engine_step(struct pst_engine *engine, uint64_t step,
                                pst_fill_fn fill, void *fill_ctx,
                                unsigned control, struct pst_step_result *ret,
                                struct pst_diag *diag) PST_MUST_CHECK;

/* COLLECTIVE, after the last step: what no step has told. PST_ERR_RANGE: its
 * update left elements as they were, which would not be finite. */
enum pst_status pst_engine_check_update(struct pst_engine *engine,
                                        struct pst_diag *diag) PST_MUST_CHECK;

/*
 * COLLECTIVE. Makes a step again that was not applied because a number was not
 * finite (`of`), and changes nothing. *ret: where the first such number came
 * from; "" if that cannot be seen. *ret_microbatch: its microbatch, or that of
 * `of`.
 */
enum pst_status pst_engine_trace(struct pst_engine *engine, uint64_t step,
                                 pst_fill_fn fill, void *fill_ctx,
                                 const struct pst_step_result *of,
                                 struct pst_str *ret, int *ret_microbatch,
                                 struct pst_diag *diag) PST_MUST_CHECK;

/* On rank 0: what a rank of the job has told of the step that was made last,
 * but for its optimizer; the microbatches that it had. */
struct pst_times pst_engine_reported(const struct pst_engine *engine,
                                     unsigned rank, unsigned *ret_microbatches);

/* COLLECTIVE. Rank 0 writes the dump. first: right after the
 * first step (loss, losses, output.I, grad.FQN are kept in memory until
 * final: pass the handle on); final adds param.FQN and buffer.FQN and writes.
 */
struct pst_dump;
enum pst_status pst_engine_dump_first(struct pst_engine *engine,
                                      struct pst_dump **ret,
                                      struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pst_engine_dump_final(struct pst_engine *engine,
                                      struct pst_dump *dump, const char *path,
                                      struct pst_diag *diag) PST_MUST_CHECK;
/* After how many steps of all runs: the first call says which step the file's
 * losses, outputs and gradients are of, the last one that of parameters and
 * buffers. Both go into its metadata, "step" and "last_step". */
void pst_dump_set_step(struct pst_dump *dump, uint64_t step);
void pst_dump_free(struct pst_dump *dump);

/* What is known of a state besides itself. */
struct pst_save_note {
    const char *next_fault; /* of the step after it, which was not applied */
    bool diverged;          /* that makes it bad (files/checkpoint.h) */
    uint64_t changes;       /* of the model, in all of the run */
    const char *options;    /* as in files/checkpoint.h; NULL: not known */
    /* PST_CHECKPOINT_REASON bytes, for what makes the checkpoint that was saved
     * a bad one, on all ranks; "": it is good. NULL: nobody asks. */
    char *ret_bad;
    struct pst_data_place place; /* of the next step */
};

/* COLLECTIVE. Rank-local shards, then the manifest on rank 0. `step` = number
 * of finished steps. note NULL: nothing is known. A trained parameter, a state
 * of the optimizer or a changed buffer that is not finite makes it bad.
 * PST_ERR_DENIED: it would replace one that is to stay (pst_checkpoint_commit).
 * PST_ERR_INTERNAL: copies of a parameter are not equal any
 * more; nothing was written, and the run is worth nothing. */
enum pst_status pst_engine_save(struct pst_engine *engine, const char *dir,
                                uint64_t step, unsigned keep,
                                const struct pst_save_note *note,
                                struct pst_diag *diag) PST_MUST_CHECK;

/* Which checkpoint; the first four are the same on all ranks. */
struct pst_load_choice {
    const char *dir;
    const char *fallback; /* other folder; the newer of the two; may be NULL */
    uint64_t step;        /* or PST_CHECKPOINT_LATEST: the newest good one */
    bool any_model; /* that has the same tensors, if the engine does not train
                     */
    /* On rank 0, for what another export of the model does otherwise; may be
     * NULL. */
    struct pst_str *differs;
    pst_checkpoint_tell_fn skipped; /* on rank 0; may be NULL */
    void *ctx;
};

/* COLLECTIVE. Loads a checkpoint of the same model (run/state/match.h); *ret:
 * what its manifest says (on rank 0; step, changes and place on all);
 * *ret_fallback: it is in the fallback (may be NULL). Errors: those of
 * pst_checkpoint_open. */
enum pst_status pst_engine_load(struct pst_engine *engine,
                                const struct pst_load_choice *choice,
                                struct pst_checkpoint_info *ret,
                                bool *ret_fallback,
                                struct pst_diag *diag) PST_MUST_CHECK;

/* Tensors of which several ranks have copies that steps keep equal: parameters
 * and buffers of replicas, parameters that stages share. */
struct pst_copies {
    unsigned tensors;  /* whole on each of their ranks */
    unsigned in_parts; /* each replica has a share: nothing to compare */
    uint64_t bytes;    /* of the whole ones, once */
};
struct pst_copies pst_engine_copies(const struct pst_engine *engine);
/* How the message begins of copies that differ. */
#define PST_COPIES_TEXT "copies differ"
/* COLLECTIVE. Compares their values by hashes, between steps; `step` counts
 * finished ones. PST_ERR_INTERNAL, on all ranks: it names the first tensor that
 * differs, the rank that is not like most (with two: both) and its stage; the
 * state is worth nothing. */
enum pst_status pst_engine_compare_copies(struct pst_engine *engine,
                                          uint64_t step,
                                          struct pst_diag *diag) PST_MUST_CHECK;

/* Is its value where it is used only, each replica having a part of it? */
bool pst_engine_has_parts(const struct pst_engine *engine, unsigned param);
/* The value that a rank of this process has of plan->params[param], contiguous,
 * to dst; PST_ERR_NOT_FOUND if none of them has it, or it has a part of it
 * alone. Between steps. */
enum pst_status pst_engine_read_param(const struct pst_engine *engine,
                                      unsigned param, void *dst,
                                      struct pst_diag *diag) PST_MUST_CHECK;
/* COLLECTIVE. The same to dst on rank 0, from whoever has it. dst NULL
 * elsewhere. Between steps. */
enum pst_status pst_engine_fetch_param(struct pst_engine *engine,
                                       unsigned param, void *dst,
                                       struct pst_diag *diag) PST_MUST_CHECK;
/* COLLECTIVE. Parameters and buffers as they are now, to an engine of the same
 * model on the same ranks that does not train; what replicas share may be
 * divided otherwise there, or whole. Between steps. */
enum pst_status pst_engine_show(struct pst_engine *to,
                                const struct pst_engine *from,
                                struct pst_diag *diag) PST_MUST_CHECK;
/* What a plan that was made of the engine's begins with: the value of
 * plan->params[param] that this process has, of a plan whose parameters are
 * numbered alike; the plan's own where it has none; zeros where replicas have
 * a part each, which pst_engine_show and pst_engine_adopt give. */
enum pst_status pst_engine_read_start(const struct pst_engine *engine,
                                      struct pst_plan *plan, unsigned param,
                                      void *dst,
                                      struct pst_diag *diag) PST_MUST_CHECK;

/* `old` gives the name that the parameter `fqn` had, NULL if it begins anew. */
typedef const char *(*pst_old_name_fn)(void *ctx, const char *fqn);
struct pst_adoption {
    pst_old_name_fn states; /* of the optimizer */
    pst_old_name_fn values; /* of what replicas share in one of the engines; all
                               others have theirs already */
    /* Elements of such a value on their way, once each; may be NULL. */
    void (*convert)(void *ctx, const char *fqn, float *data, int64_t n);
    void *ctx;
};
/* COLLECTIVE. What both engines have on a rank goes from one to the other.
 * Between steps, of ranks with the same numbers. */
enum pst_status pst_engine_adopt(struct pst_engine *to,
                                 const struct pst_engine *from,
                                 const struct pst_adoption *how,
                                 struct pst_diag *diag) PST_MUST_CHECK;
/* COLLECTIVE. The value of a parameter of which replicas have parts, to dst on
 * all ranks. */
enum pst_status pst_engine_gather_param(struct pst_engine *engine,
                                        unsigned param, void *dst,
                                        struct pst_diag *diag) PST_MUST_CHECK;

/* COLLECTIVE. Copies user output i (index in plan->outputs), microbatches
 * joined along the dimension of their rows (scalars stacked), to dst on rank 0;
 * needs keep_outputs. dst NULL elsewhere. */
enum pst_status pst_engine_output(struct pst_engine *engine, unsigned i,
                                  void *dst,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* What it is of then: *ret_dim is the dimension that is joined. *ret_rows: it
 * has something for each row there. */
enum pst_status pst_engine_output_meta(const struct pst_engine *engine,
                                       unsigned i, struct pst_meta *ret,
                                       unsigned *ret_dim, bool *ret_rows,
                                       struct pst_diag *diag) PST_MUST_CHECK;

/* COLLECTIVE. Rank 0's bytes (at most 64 KiB) to all; idle is called while
 * waiting, and the processor is given up between looks. For commands. */
enum pst_status pst_engine_broadcast(struct pst_transport *transport, void *buf,
                                     size_t size, pst_idle_fn idle, void *ctx,
                                     struct pst_diag *diag) PST_MUST_CHECK;

/* Names of the kernels chosen, for `show --kernels`. */
void pst_engine_print_kernels(const struct pst_engine *engine,
                              struct pst_str *out);

#endif
