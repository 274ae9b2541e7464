// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_LAYOUT_OPTIONS_H
#define PENSTOCK_STAGES_LAYOUT_OPTIONS_H
/*
 * How a plan is to be run, and what that takes of memory: the input and the
 * summary of everything that is decided before there is memory. Any thread may
 * read them.
 */
#include "stages/device/device.h"
#include "stages/optim/optim.h"
#include "stages/sched/sched.h"
#include "stages/split/plan.h"

struct pst_flight;
struct pst_rates;

/* Fills one model input for one microbatch: meta of plan->inputs[input],
 * contiguous. Called on every rank whose stages use that input. */
typedef enum pst_status (*pst_fill_fn)(void *ctx, uint64_t step,
                                       unsigned microbatch, unsigned input,
                                       void *dst, struct pst_diag *diag);

/* Weights of the microbatches of a step, by which gradients and losses count;
 * they need not add up to 1. Called on rank 0 only. */
typedef enum pst_status (*pst_weigh_fn)(void *ctx, uint64_t step, double *ret,
                                        struct pst_diag *diag);

/* What each of R replicas has of the parameters, an R-th instead of all. The
 * numbers are the same. */
enum pst_sharing {
    PST_SHARING_NONE,
    PST_SHARING_ZERO1, /* states of the optimizer, and what an update reads */
    PST_SHARING_ZERO2, /* gradients too: they are summed in each microbatch */
    PST_SHARING_ZERO3, /* values too: they are gathered where they are used */
};
/* "none", "zero1", ... */
const char *pst_sharing_word(enum pst_sharing shard);

struct pst_exec_options {
    const char *schedule;
    const char *place;     /* "STAGE=RANK,..."; NULL: as the schedule has it */
    unsigned ranks;        /* of a pipeline */
    unsigned replicas;     /* of the pipeline; 0 means 1 */
    unsigned microbatches; /* of a step: replicas share them */
    /* The plan bound to one row less (stages/split/bind/bind.h), which the last
     * n_tail microbatches of a step have; NULL: all have the plan's. */
    struct pst_plan *tail;
    unsigned n_tail;
    bool scatter;       /* rank 0 alone is asked for inputs, it sends them */
    bool weigh_equal;   /* microbatches count alike, not by their rows */
    pst_weigh_fn weigh; /* or as this says in each step; may be NULL */
    void *weigh_ctx;
    bool train;        /* false: forward only */
    bool keep_outputs; /* user outputs of a step can be read after it */
    bool grad_norm;    /* computed also without clipping: one more pass */
    bool check_grads;  /* the same; a gradient that is not finite is a fault */
    unsigned threads;  /* of the kernel pool; 0: cores / ranks of this host */
    /* Ranks of one process run on a thread each; else the caller's thread runs
     * them in turn. The bits are the same. */
    bool side_by_side;
    uint64_t seed;
    double watchdog; /* seconds that a step may wait for a peer; 0: for ever */
    bool bf16;       /* products of f32 round their factors to bf16 */
    /* What the backward makes again instead of keeping it
     * (stages/compile/recompute.h), or "auto" (stages/tune/choose.h); NULL:
     * nothing. */
    const char *recompute;
    /* Where microbatches wait for their backward whose stash the arena has no
     * slots for: "ram", "disk:FOLDER" (stages/layout/memory/spill.h);
     * NULL: all have slots. */
    const char *stash;
    unsigned stash_keep; /* slots of each stage then, 2 at least; 0: 2, or with
                            a memory limit as many as fit */
    enum pst_sharing shard; /* of one replica: nothing is */
    /* The same by parameters (stages/tune/sharing.h); NULL: all alike. */
    const char *shard_by; /* or "auto" (stages/tune/choose.h) */
    bool shard_rows;      /* what is shared is divided by rows of parameters */
    bool gather_bf16;     /* values of zero3 travel, and are read, as bf16 */
    /* Groups of parameters whose values are asked for ahead of their use. */
    unsigned unshard_window;
    struct pst_optim_options optim;
    const struct pst_rates *rates; /* by which costs are estimated, the same on
                                      all ranks; NULL: pst_rates_reference */
    const char *costs;             /* file of measured ones; NULL: estimates */
    double memory_limit;           /* bytes that a rank may have; 0: any */
    const struct pst_device *device; /* that has memory and kernels; NULL: the
                                        processor */
    /* A step that fails may leave buffers half changed: nobody goes on behind
     * it. Then no copies of them are made before it. */
    bool no_undo;
    /* Where each rank records what it does (watch/flight.h), by its number,
     * NULL for those of other processes; borrowed. NULL: nowhere. */
    struct pst_flight *const *flights;
    bool overcommit; /* arenas may be larger than the memory that is left */
    bool verify;     /* programs are checked, as debug builds do */
};

/* Bytes of one rank's arena by use; the parts add up to arena. */
struct pst_memory {
    size_t arena;
    size_t params, grads, optim, buffers;
    size_t gathered;    /* of what replicas share: whole while it is used */
    size_t prepared;    /* made of parameters and constants alone */
    size_t stash;       /* kept from forward to backward, all microbatches */
    size_t messages;    /* inputs, outputs and gradients on their way */
    size_t for_w;       /* part of these two: held until W */
    size_t workspace;   /* within one action */
    size_t outputs;     /* kept user outputs and losses */
    unsigned in_flight; /* most microbatches held by one stage at a time */
    /* No memory: bytes that a step copies, since they cannot be written where
     * they are, or so that a step that fails can be undone. */
    size_t copied;
    /* Besides the arena, by options.stash: bytes that wait there at most, and
     * that a step copies, there and back. */
    size_t outside, moved;
};

/* The arena, and what waits in memory besides. */
size_t pst_memory_of_host(const struct pst_memory *memory,
                          const struct pst_exec_options *options);

/* Replaces what is 0 or NULL by its default: replicas, threads, device; the
 * schedule of a plan that is not trained. */
void pst_exec_fill(struct pst_exec_options *options);
/* Kernel threads of each rank, if options say 0: its share of the cores. */
unsigned pst_exec_threads(const struct pst_exec_options *options);

#endif
