// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_COMMON_SETUP_H
#define PENSTOCK_DAEMON_COMMON_SETUP_H
/*
 * Converts options to arguments of the library, for the exec thread and for
 * commands of penstock that run a plan in their own process. Stateless.
 */
#include "daemon/common/config.h"
#include "stages/files/data.h"
#include "stages/run/data/mean.h"
#include "stages/run/exec.h"
#include "stages/split/bind/bind.h"

/* Text that a rank of `penstock run` prints when it was asked to end by a
 * signal; its rank number follows. */
#define PSTD_ASKED_TEXT "asked to end: rank "

/* Returns the index of this process among those of its host, as set by the
 * launcher, else its rank among `size`. */
unsigned pstd_local_rank(unsigned rank, unsigned size);
/* Returns the number of processes on this host, as set by the launcher, else
 * `size`. */
unsigned pstd_local_size(unsigned size);
/* Refuses a ramp of --microbatches, which only training has. what: "a served
 * model". */
enum pst_status pstd_refuse_ramp(const struct pstd_config *config,
                                 const char *what,
                                 struct pst_diag *diag) PST_MUST_CHECK;
/* Returns --watchdog in seconds, or its default. Without --watchdog, the limit
 * of a step is later computed from measured steps (stages/run/watch/pace.h). */
double pstd_watchdog(const struct pstd_config *config);
/* Converts config to options of the executor; borrows its texts. train false:
 * no optimizer. If --microbatches is a ramp, takes its first number; the caller
 * sets options->counts. */
enum pst_status pstd_exec_options(const struct pstd_config *config,
                                  unsigned ranks, bool train,
                                  struct pst_exec_options *ret,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* rate.c: sets the learning rate's schedule in `options`, where `lr` must be
 * set. */
enum pst_status pstd_rate_options(const struct pstd_config *config,
                                  struct pst_optim_options *options,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* Sets the plan and the number of tail microbatches in `options`; borrows
 * batch. */
void pstd_set_batch(struct pst_exec_options *options,
                    const struct pst_batch *batch);
/* Decides if ranks of one process take turns in one thread, and sets
 * options->side_by_side: they do if the work of a stage on a microbatch is
 * hardly longer than waking another thread up and back. */
enum pst_status pstd_set_side_by_side(const struct pst_plan *plan,
                                      struct pst_exec_options *options,
                                      struct pst_diag *diag) PST_MUST_CHECK;
/* Makes the plans of a step's microbatches, by --microbatch-size or --batch,
 * with the first number of microbatches; stores --chunk in plan. Borrows plan
 * until pst_batch_fini. */
enum pst_status pstd_open_batch(const struct pstd_config *config,
                                struct pst_plan *plan, struct pst_batch *ret,
                                struct pst_diag *diag) PST_MUST_CHECK;
/* Refuses to train a plan whose gradients differ from PyTorch's, unless
 * --accept-lost-backward is given. A plan without loss is accepted. */
enum pst_status pstd_check_backward(const struct pstd_config *config,
                                    const struct pst_plan *plan,
                                    struct pst_diag *diag) PST_MUST_CHECK;
/* Opens --data for the inputs of these plans. compare: refuses integers beyond
 * the model's embedding rows or classes; only one rank needs to do that.
 * Returns owned. */
enum pst_status pstd_open_data(const struct pstd_config *config,
                               const struct pst_batch *batch, bool compare,
                               struct pst_data **ret,
                               struct pst_diag *diag) PST_MUST_CHECK;

/* Opens --data for an evaluation. Each microbatch has the rows of the plan;
 * rows at the end of the file that do not fill a microbatch are dropped. A tail
 * microbatch in `batch` is ignored. */
enum pst_status pstd_open_eval_data(const struct pstd_config *config,
                                    const struct pst_batch *batch, bool compare,
                                    struct pst_data **ret,
                                    struct pst_diag *diag) PST_MUST_CHECK;
/* Returns the weights of an evaluation's mean, by --microbatch-weights. If the
 * loss can ignore targets, targets are counted even without that option:
 * otherwise the mean would depend on how the rows are divided. */
enum pst_mean_by pstd_mean_by(const struct pstd_config *config);

/* outputs.c: refuses an output option (PSTD_OPT_WRITTEN) whose file is read by
 * this command or job, or belongs to a plan or a checkpoint, and would be
 * lost. */
enum pst_status pstd_check_outputs(const struct pstd_config *config,
                                   struct pst_diag *diag) PST_MUST_CHECK;
/* places.c: refuses an output option, --log-dir or --tensorboard with a path
 * that the run will use for checkpoints, in the folder --checkpoint or
 * --checkpoint-fallback. pstd_check_outputs includes this. */
enum pst_status pstd_check_places(const struct pstd_config *config,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* places.c: refuses a --log-dir that is the checkpoint folder of another run,
 * whose history would be lost. */
enum pst_status pstd_check_log_dir(const struct pstd_config *config,
                                   struct pst_diag *diag) PST_MUST_CHECK;
/* outputs.c: PST_ERR_IO if a file that the run writes at its end, or after a
 * fault, cannot be made because of its folder. Call on rank 0 before the folder
 * of checkpoints is made. */
enum pst_status pstd_check_folders(const struct pstd_config *config,
                                   struct pst_diag *diag) PST_MUST_CHECK;

/*
 * model/tokens.c: counts the tokens of one step, 0 if there are none. Tokens
 * are the elements of the first integer input of rank 2 or more that is used in
 * an embedding lookup. In a model without such an input, they are the elements
 * of the first input of rank 2 with integers of more than a byte, since images
 * and byte masks are not tokens. Traverses the graphs: do not call it in each
 * step.
 */
uint64_t pstd_count_tokens(const struct pst_batch *batch);
/* Returns the floating-point operations of one training step. */
double pstd_count_flops(const struct pst_batch *batch);

/* Appends the stages of each rank: "0-1;2-3". */
void pstd_print_placement(const struct pst_schedule *sched,
                          struct pst_str *out);
/* Appends the stages of a rank of the job, taken from the text made by
 * pstd_print_placement, which is the same for each replica; "-" if it has none.
 */
void pstd_print_stages(const char *placement, unsigned rank,
                       struct pst_str *out);

/* Return the peak and the current resident memory of this process in bytes; 0:
 * unknown. */
uint64_t pstd_peak_rss(void);
uint64_t pstd_rss(void);

/* Returns the size of the arenas of all ranks in this process, in bytes. */
size_t pstd_planned_bytes(const struct pst_engine *engine);

#endif
