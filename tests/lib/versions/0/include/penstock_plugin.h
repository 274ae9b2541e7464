/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PENSTOCK_INCLUDE_PENSTOCK_PLUGIN_H
#define PENSTOCK_INCLUDE_PENSTOCK_PLUGIN_H
/*
 * Operators of one's own (docs/plugins.md).
 *
 * A plugin is a shared library that exports penstock_plugin(), which describes
 * operators: schema, shapes of the results, gradient, and kernels for the CPU.
 * `--plugin FILE.so` makes a command know them; a program that contains a
 * plugin gives it to penstock_op_register (penstock.h).
 *
 * A plugin links against nothing of penstock: it gets structs with all data
 * and functions that it may use. What it describes is constant and stays valid
 * until the process ends; plugins are not unloaded.
 *
 * Threads: several ranks of a process may infer shapes and run kernels at the
 * same time, so functions use no state but that of their argument.
 *
 * Determinism: a kernel gives the same bits for the same inputs, whatever the
 * number of threads, the addresses and earlier calls.
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

/* Most dimensions of a tensor, arguments of an operator, tensors among the
 * arguments or results of one call, and bytes of a reason with its NUL. */
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
 * A size of a tensor, and the rule by which it follows from the sizes that the
 * exported model leaves free (torch.export.Dim). Copy the whole struct to give
 * a result that size; compute() makes other ones. A symbol of 0 says that the
 * rule is unknown: the model then keeps its exported sizes.
 */
struct penstock_size {
    int64_t value;
    uint64_t symbol;
};
/* Symbol of a size that depends on no free size: {3, PENSTOCK_FIXED}. */
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

/* An argument, one for each of the schema, in its order and with its defaults.
 * float has kind FLOAT; Scalar has the kind of its value: BOOL, INT or FLOAT.
 * Pointers are valid during the call. */
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
    /* INT, INTS of an inference: the same numbers with their symbols; NULL in
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
    /* Results, which inference sets: dtype, ndim and shape. They begin as
     * copies of the first tensor. Results are contiguous. */
    struct penstock_meta *out;
    size_t n_out;
    /* Returns the size a op b, with the rule for free sizes. */
    struct penstock_size (*compute)(const struct penstock_shapes *shapes,
                                    enum penstock_compute op,
                                    struct penstock_size a,
                                    struct penstock_size b);
    /* Why inference failed: a sentence without a full stop; may stay empty. */
    char reason[PENSTOCK_MAX_REASON];
    const void *host; /* penstock's */
};

/* --- kernels -------------------------------------------------------------- */

/* One execution. byte_offset is 0, and device is the CPU. */
struct penstock_kernel_call {
    size_t size;
    const struct penstock_arg *args;
    size_t n_args;
    /* Tensors of all arguments, in order, to read only: contiguous, unless the
     * kernel has PENSTOCK_STRIDED. An optional tensor that is None has ndim 0
     * and data NULL. strides are never NULL, in elements. */
    const DLTensor *in;
    size_t n_in;
    /* Results, contiguous, which the kernel writes completely. They overlap
     * neither each other nor an input. No result is without elements. */
    const DLTensor *out;
    size_t n_out;
    void *scratch; /* scratch() bytes, aligned to 64, not initialised */
    size_t scratch_bytes;
    /* Calls fn for pieces that cover [0, n), on the threads of the rank, and
     * returns when all are done. Their number and bounds vary with --threads:
     * each item must be computed alone, so that the bits stay the same. */
    void (*parallel_for)(const struct penstock_kernel_call *call, size_t n,
                         void (*fn)(void *ctx, size_t begin, size_t end),
                         void *ctx);
    /* PENSTOCK_MAX_REASON bytes for why run() fails; may stay empty. */
    char *reason;
    const void *host; /* penstock's */
};

enum penstock_kernel_flags {
    PENSTOCK_STRIDED = 1 /* accepts inputs with any strides, 0 included */
};

struct penstock_kernel {
    size_t size;
    /* Dtypes of the first tensor argument that the kernel supports; without
     * one, those of the first result. */
    const DLDataType *dtypes;
    size_t n_dtypes;
    uint32_t flags; /* enum penstock_kernel_flags */
    /* Returns the bytes of scratch, which depend on shapes and arguments
     * alone: data pointers are NULL here. NULL: none. */
    size_t (*scratch)(const struct penstock_kernel_call *call);
    /* Returns 0, or a number that the message names: the step then fails, and
     * changes nothing. */
    int (*run)(const struct penstock_kernel_call *call);
};

/* --- operators ------------------------------------------------------------ */

struct penstock_op {
    size_t size;
    /* As in torch.library: "mylib::scale(Tensor x, float factor) -> Tensor".
     * Results are tensors, at least one. No argument is written, and no result
     * shares memory with an argument. */
    const char *schema;
    /* Sets dtypes and shapes of the results; nonzero: the arguments do not fit
     * the operator. It must not depend on symbols. NULL: all results have dtype
     * and shape of the first tensor. */
    int (*infer)(struct penstock_shapes *shapes);
    /* Formula of the gradients (docs/plugins.md): "x: mylib::scale(grad,
     * factor)". NULL: unknown, so that training through the operator is
     * refused. "": the results do not depend on the arguments in a
     * differentiable way, and gradients end there. */
    const char *gradient;
    /* At least one. The first that has the dtype is used. A kernel of f32 also
     * serves bf16 and f16, converted, if no other one has them. */
    const struct penstock_kernel *kernels;
    size_t n_kernels;
    /* Returns the floating-point operations of one execution, for estimates.
     * NULL: one for each element of the first result. */
    double (*flops)(const struct penstock_shapes *shapes);
};

struct penstock_plugin {
    size_t size;
    uint32_t abi; /* PENSTOCK_PLUGIN_ABI */
    /* Namespace of all its operators: "mylib". */
    const char *name;
    /* Any text; plans and checkpoints record it. */
    const char *version;
    const struct penstock_op *ops;
    size_t n_ops;
};

/* The plugin exports this function. */
PENSTOCK_PLUGIN_EXPORT const struct penstock_plugin *penstock_plugin(void);

#ifdef __cplusplus
}
#endif
#endif
