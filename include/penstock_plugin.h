/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PENSTOCK_INCLUDE_PENSTOCK_PLUGIN_H
#define PENSTOCK_INCLUDE_PENSTOCK_PLUGIN_H
/*
 * Operators that users add (docs/plugins.md).
 *
 * A plugin is a shared library that exports penstock_plugin(), which describes
 * operators: schema, shapes of the results, gradient, and kernels for the CPU.
 * `--plugin FILE.so` adds them to a command; a program that contains a plugin
 * passes it to penstock_op_register (penstock.h).
 *
 * A plugin does not link against penstock: its functions get structs with all
 * data and functions that they may use. All that a plugin describes must be
 * constant and valid until the process ends; plugins are not unloaded.
 *
 * Threads: several ranks of a process may infer shapes and run kernels at the
 * same time, so functions must use no state except their argument.
 *
 * Determinism: a kernel must give the same bits for the same inputs, for any
 * number of threads, any addresses and any earlier calls.
 *
 * Versions: structs begin with their size, which the side that makes them sets
 * (.size = sizeof(struct penstock_op)). Later headers add members at the end.
 */
#include <dlpack/dlpack.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PENSTOCK_PLUGIN_ABI 1

/* Maximum numbers of dimensions of a tensor, arguments of an operator, tensors
 * among the arguments or results of one call, and bytes of a reason with its
 * NUL. */
#define PENSTOCK_MAX_DIMS    8
#define PENSTOCK_MAX_ARGS    64
#define PENSTOCK_MAX_TENSORS 64
#define PENSTOCK_MAX_REASON  200

/* Code of bool in DLDataType (8 bits), which early versions of dlpack.h lack.
 */
#ifndef PENSTOCK_DL_BOOL
#define PENSTOCK_DL_BOOL 6
#endif

#if defined(__GNUC__)
#define PENSTOCK_PLUGIN_EXPORT __attribute__((visibility("default")))
#else
#define PENSTOCK_PLUGIN_EXPORT
#endif

/* --- arguments ------------------------------------------------------------ */

/*
 * A size of a tensor, and the rule by which it is computed from the sizes that
 * the exported model leaves free (torch.export.Dim). Copy the whole struct to
 * give a result that size; use compute() for other sizes. A symbol of 0 means
 * that the rule is unknown: the model then only runs with its exported sizes.
 */
struct penstock_size {
    int64_t value;
    uint64_t symbol;
};
/* Symbol of a size that does not depend on a free size: {3, PENSTOCK_FIXED}. */
#define PENSTOCK_FIXED 1

enum penstock_arg_kind {
    PENSTOCK_ARG_NONE = 0,    /* an optional argument that is None */
    PENSTOCK_ARG_TENSOR = 1,  /* in[first] */
    PENSTOCK_ARG_TENSORS = 2, /* in[first] to in[first + n - 1] */
    PENSTOCK_ARG_BOOL = 3,    /* i: 0 or 1 */
    PENSTOCK_ARG_INT = 4,     /* i */
    PENSTOCK_ARG_INTS = 5,    /* ints */
    PENSTOCK_ARG_FLOAT = 6,   /* f */
    PENSTOCK_ARG_FLOATS = 7,  /* floats */
    PENSTOCK_ARG_BOOLS = 8,   /* bools: bytes that are 0 or 1 */
    PENSTOCK_ARG_STRING = 9,  /* text */
    PENSTOCK_ARG_DTYPE = 10   /* dtype */
};

/* Value of an argument; there is one for each argument of the schema, in its
 * order, with defaults filled in. An argument of type float has kind FLOAT; a
 * Scalar has the kind of its value: BOOL, INT or FLOAT. Pointers are valid
 * during the call. */
struct penstock_arg {
    int32_t kind;  /* enum penstock_arg_kind */
    int32_t first; /* TENSOR, TENSORS: index in `in` */
    size_t n;      /* number of tensors, or of items of a list */
    union {
        int64_t i;
        double f;
        const int64_t *ints;
        const double *floats;
        const uint8_t *bools;
        const char *text;
        DLDataType dtype;
    };
    /* INT, INTS in inference: the same numbers with their symbols; NULL in
     * kernels. */
    const struct penstock_size *sizes;
};

/* --- shapes --------------------------------------------------------------- */

struct penstock_meta {
    DLDataType dtype;
    int32_t ndim; /* -1: an optional tensor that is None */
    struct penstock_size shape[PENSTOCK_MAX_DIMS];
};

enum penstock_compute {
    PENSTOCK_ADD = 0,
    PENSTOCK_SUB = 1,
    PENSTOCK_MUL = 2,
    PENSTOCK_DIV = 3, /* rounded down; b > 0 */
    PENSTOCK_MIN = 4,
    PENSTOCK_MAX = 5
};

/* Argument of inference. */
struct penstock_shapes {
    size_t size;
    const struct penstock_arg *args;
    size_t n_args;
    const struct penstock_meta *in; /* tensors of all arguments, in order */
    size_t n_in;
    /* Results: inference sets dtype, ndim and shape. They are initially copies
     * of the first tensor. Results are contiguous. */
    struct penstock_meta *out;
    /* Number of results. If the result is Tensor[], inference sets it to 1 ...
     * PENSTOCK_MAX_TENSORS; it is initially 0. */
    size_t n_out;
    /* Returns the size `a op b`, with its rule. */
    struct penstock_size (*compute)(const struct penstock_shapes *shapes,
                                    enum penstock_compute op,
                                    struct penstock_size a,
                                    struct penstock_size b);
    /* Set by a failed inference: the reason, a sentence without a full stop;
     * may stay empty. */
    char reason[PENSTOCK_MAX_REASON];
    const void *host; /* penstock's */
};

/* --- kernels -------------------------------------------------------------- */

/* One execution of an operator. All tensors have byte_offset 0 and are on the
 * CPU. */
struct penstock_kernel_call {
    size_t size;
    const struct penstock_arg *args;
    size_t n_args;
    /* Tensors of all arguments, in order, read-only. They are contiguous,
     * unless the kernel has PENSTOCK_STRIDED. An optional tensor that is None
     * has ndim 0 and data NULL. strides are in elements, and never NULL. */
    const DLTensor *in;
    size_t n_in;
    /* Results, contiguous; the kernel must write all elements. They overlap
     * neither each other nor an input, and none is empty. */
    const DLTensor *out;
    size_t n_out;
    void *scratch; /* scratch() bytes, aligned to 64, not initialised */
    size_t scratch_bytes;
    /* Calls fn for ranges that cover [0, n), on the threads of the rank, and
     * returns when all are done. Number and bounds of the ranges vary with
     * --threads, so each item must be computed independently of its range. */
    void (*parallel_for)(const struct penstock_kernel_call *call, size_t n,
                         void (*fn)(void *ctx, size_t begin, size_t end),
                         void *ctx);
    /* PENSTOCK_MAX_REASON bytes for the reason why run() fails; may stay empty.
     */
    char *reason;
    const void *host; /* penstock's */
    /* Operators with PENSTOCK_RANDOM: a stream of Philox4x32-10 numbers, like
     * at::Philox4_32(seed, subsequence, block) and curand_init. The stream
     * depends on the seed of the run, step, microbatch and operator alone, not
     * on the cut, threads or schedule. philox() returns four independent 32-bit
     * numbers, always the same for one block; any thread may call it. Other
     * operators: 0 and NULL. */
    uint64_t seed, subsequence;
    void (*philox)(const struct penstock_kernel_call *call, uint64_t block,
                   uint32_t ret[4]);
};

enum penstock_kernel_flags {
    PENSTOCK_STRIDED = 1 /* accepts inputs with any strides, 0 included */
};

struct penstock_kernel {
    size_t size;
    /* Dtypes of the first tensor argument that the kernel supports; if there is
     * no tensor argument, dtypes of the first result. */
    const DLDataType *dtypes;
    size_t n_dtypes;
    uint32_t flags; /* enum penstock_kernel_flags */
    /* Returns the bytes of scratch, which depend on shapes and arguments
     * alone: data pointers are NULL here. NULL: none. */
    size_t (*scratch)(const struct penstock_kernel_call *call);
    /* Returns 0, or another number, which the error message contains: the step
     * then fails, and changes nothing. */
    int (*run)(const struct penstock_kernel_call *call);
};

/* --- operators ------------------------------------------------------------ */

enum penstock_op_flags {
    /* The operator's kernels draw random numbers from the stream of their call.
     * Random operators in the formula of its gradient draw from the same
     * stream. */
    PENSTOCK_RANDOM = 1
};

struct penstock_op {
    size_t size;
    /* Schema as in torch.library: "mylib::scale(Tensor x, float factor) ->
     * Tensor". Results are at least one Tensor, or one Tensor[]. Operators must
     * not write arguments, and results must not share memory with arguments. */
    const char *schema;
    /* Sets dtypes and shapes of the results; nonzero: the arguments do not fit
     * the operator. Must not depend on symbols. NULL: all results have dtype
     * and shape of the first tensor. */
    int (*infer)(struct penstock_shapes *shapes);
    /* Formula of the gradients (docs/plugins.md): "x: mylib::scale(grad,
     * factor)". NULL: unknown, so that training through the operator is
     * refused. "": the results do not depend on the arguments in a
     * differentiable way, and gradients end there. */
    const char *gradient;
    /* At least one kernel. The first kernel that supports the dtype is used. If
     * none supports bf16 or f16, a kernel of f32 is used on converted tensors.
     */
    const struct penstock_kernel *kernels;
    size_t n_kernels;
    /* Returns the number of floating-point operations of one execution, for
     * estimates. NULL: one operation for each element of the first result. */
    double (*flops)(const struct penstock_shapes *shapes);
    uint32_t flags; /* enum penstock_op_flags */
};

struct penstock_plugin {
    size_t size;
    uint32_t abi; /* PENSTOCK_PLUGIN_ABI */
    /* Namespace of all operators of the plugin: "mylib". */
    const char *name;
    /* Any text; plans and checkpoints record it. */
    const char *version;
    const struct penstock_op *ops;
    size_t n_ops;
};

/* Each plugin exports this function. */
PENSTOCK_PLUGIN_EXPORT const struct penstock_plugin *penstock_plugin(void);

#ifdef __cplusplus
}
#endif
#endif
