// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_LAYOUT_OPTIONS_H
#define PENSTOCK_STAGES_LAYOUT_OPTIONS_H
/*
 * Options for running a plan, and a summary of the memory that this takes. Any
 * thread may read them.
 */
#include "stages/device/device.h"
#include "stages/optim/loss_scale.h"
#include "stages/optim/optim.h"
#include "stages/sched/sched.h"
#include "stages/split/plan.h"

struct pst_flight;
struct pst_rates;

/* Writes one model input of one microbatch to dst, contiguous, with the dtype
 * and shape of plan->inputs[input]. Called on every rank whose stages use that
 * input. */
typedef enum pst_status (*pst_fill_fn)(void *ctx, uint64_t step,
                                       unsigned microbatch, unsigned input,
                                       void *dst, struct pst_diag *diag);
/* Memory of the caller with an input of one microbatch. */
struct pst_lent {
    const void *data; /* its first element */
    /* copied: the rank copies the input from there, by these strides; else the
     * input is contiguous and aligned, and kernels read it in place. */
    bool copied;
    struct pst_meta meta;
};
/* Sets *ret to the caller's memory with the bytes that pst_fill_fn would write;
 * the reader's device must be able to read it. in_place: kernels can read the
 * bytes there; on the host each element must then be aligned to its size,
 * elsewhere the first one to PST_DEVICE_ALIGN. Without in_place, *ret must be
 * copied. False: the caller has no such memory, and the input is filled. Any
 * thread, several at a time; called once for each input that is read. */
typedef bool (*pst_lend_fn)(void *ctx, const struct pst_device_memory *reader,
                            bool in_place, unsigned microbatch, unsigned input,
                            struct pst_lent *ret);

/* Sets ret to the weights of a step's microbatches for gradients and losses;
 * they need not sum to 1. Called on rank 0 only. */
typedef enum pst_status (*pst_weigh_fn)(void *ctx, uint64_t step, double *ret,
                                        struct pst_diag *diag);

/* The parts of a parameter's state that are sharded: each of R replicas holds
 * an R-th of them. The choice does not change results. */
enum pst_sharing {
    PST_SHARING_NONE,
    /* optimizer states and the f32 values and gradients that an update reads */
    PST_SHARING_ZERO1,
    PST_SHARING_ZERO2, /* also gradients, reduced in each microbatch */
    PST_SHARING_ZERO3, /* also values, gathered where they are used */
};
/* Returns "none", "zero1", ... */
const char *pst_sharing_word(enum pst_sharing shard);

struct pst_exec_options {
    const char *schedule;
    /* placement of stages, "STAGE=RANK,..."; NULL: the schedule decides */
    const char *place;
    unsigned ranks;        /* ranks of a pipeline */
    unsigned replicas;     /* copies of the pipeline; 0 means 1 */
    unsigned microbatches; /* per step, over all replicas */
    /* All numbers of microbatches that steps of an engine may have, different
     * from each other; `microbatches` is one of them. n_counts 0: only
     * `microbatches`. */
    const unsigned *counts;
    unsigned n_counts;
    /* The plan bound to one row less (stages/split/bind/bind.h), for the last
     * n_tail microbatches of a step; NULL: all have the plan's rows. */
    struct pst_plan *tail;
    unsigned n_tail;
    bool scatter;       /* rank 0 alone fills inputs and sends them */
    bool weigh_equal;   /* microbatches have equal weights, not by rows */
    pst_weigh_fn weigh; /* weights of each step; may be NULL */
    void *weigh_ctx;
    bool train;        /* false: forward only */
    bool keep_outputs; /* user outputs of a step can be read after it */
    bool grad_norm;    /* compute the norm also if gradients are not clipped */
    /* compute the norm; a gradient that is not finite is a fault */
    bool check_grads;
    unsigned threads; /* threads of each rank's kernel pool; 0: its share of
                         the cores */
    /* Bind each kernel thread to a processor of its own. ranks_here: number of
     * ranks on this host (0: only those of this process); the threads of this
     * process come after those of the first `before_here` of them. */
    bool bind;
    unsigned before_here, ranks_here;
    /* Run the ranks of one process on a thread each; else the caller's thread
     * runs them in turn. Results are the same. */
    bool side_by_side;
    uint64_t seed;
    double watchdog; /* seconds that a step may wait for a peer; 0: no limit */
    bool bf16;       /* round operands of f32 matmuls to bf16 */
    /* Compute the logits of a language model whole, not by chunks
     * (stages/passes/heads.h). */
    bool whole_logits;
    bool no_chains; /* run elementwise nodes one by one (compile/chains/) */
    /* Activations that the backward recomputes instead of keeping them
     * (stages/compile/recompute.h), or "auto" (stages/tune/choose.h); NULL:
     * none. */
    const char *recompute;
    /* Location of the stash of microbatches for which the arena has no slots:
     * "ram", "disk:FOLDER" (stages/layout/memory/spill.h); NULL: all have
     * slots. */
    const char *stash;
    /* Slots of each stage if `stash` is set, at least 2; 0: as many as fit into
     * memory_limit, 2 without a limit. */
    unsigned stash_keep;
    enum pst_sharing shard; /* with one replica nothing is sharded */
    /* Sharding by parameter (stages/tune/sharing.h), or "auto"
     * (stages/tune/choose.h); NULL: `shard` for all. */
    const char *shard_by;
    bool shard_rows;  /* shards consist of whole rows of parameters */
    bool gather_bf16; /* values of zero3 are sent and read as bf16 */
    /* Number of parameter groups whose values are gathered ahead of their use.
     */
    unsigned unshard_window;
    struct pst_optim_options optim;
    struct pst_loss_scale loss_scale; /* multiplies the loss; {0}: none */
    /* Rules that give some parameters optimizer options of their own
     * (stages/layout/groups/groups.h); NULL: none. */
    const char *groups;
    /* terms (groups.h) of the parameters without weight decay; NULL: none */
    const char *no_decay;
    /* Rates for cost estimates, the same on all ranks; NULL:
     * pst_rates_reference. */
    const struct pst_rates *rates;
    const char *costs;   /* file of measured costs; NULL: estimates */
    double memory_limit; /* bytes of each rank; 0: no limit */
    const struct pst_device *device; /* NULL: the CPU */
    unsigned ordinal; /* number of the device among those of its kind */
    /* Text of --device, with the devices of all ranks; NULL: all have `device`.
     * Ranks compare it, since kinds of devices differ in the last bits. */
    const char *devices;
    /* Inputs may be lent for a step (pst_engine_lend), on devices whose memory
     * is the host's, or that read memory of the caller (struct pst_guest). */
    bool lends_inputs;
    bool no_fallback; /* refuse plans that leave calls to the host */
    /* Do not copy buffers before a step. A failed step may leave them half
     * changed, so the engine must not be used after it. */
    bool no_undo;
    /* Flight recorders by the rank's number (watch/flight.h), NULL for ranks of
     * other processes; borrowed. NULL: none. */
    struct pst_flight *const *flights;
    bool overcommit; /* arenas may exceed the memory that is left */
    bool verify;     /* verify programs, as debug builds do */
    bool no_graphs;  /* launch kernels one by one, without recordings */
    bool tf32;       /* round operands of f32 matmuls to TF32 */
};

/* Bytes of one rank's arena by use; the parts add up to arena. */
struct pst_memory {
    size_t arena;
    size_t params, grads, optim, buffers;
    /* whole values and gradients of sharded parameters, while they are used */
    size_t gathered;
    size_t prepared; /* values computed from parameters and constants alone */
    size_t stash;    /* kept from forward to backward, all microbatches */
    size_t messages; /* inputs, outputs and gradients in transfer */
    /* part of stash and messages that is held until W */
    size_t for_w;
    size_t workspace;   /* scratch within one action */
    size_t outputs;     /* kept user outputs, losses, gradients of inputs */
    unsigned in_flight; /* maximum number of microbatches held by one stage */
    /* Bytes that a step copies (not memory): because values cannot be written
     * in place, or so that a failed step can be undone. */
    size_t copied;
    /* With options.stash: maximum bytes of the stash that are kept outside of
     * the arena, and bytes that a step copies out and back. */
    size_t outside, moved;
};

/* Returns the bytes of the host's memory that the rank takes: the arena, and
 * the stash outside of it unless that is on disk. */
size_t pst_memory_of_host(const struct pst_memory *memory,
                          const struct pst_exec_options *options);

/* Sets replicas, threads and device to their defaults where they are 0 or NULL,
 * and without training the schedule to "gpipe". */
void pst_exec_fill(struct pst_exec_options *options);
/* Returns the kernel threads of each rank; by default its share of the cores.
 */
unsigned pst_exec_threads(const struct pst_exec_options *options);

#endif
