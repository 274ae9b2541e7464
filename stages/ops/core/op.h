// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CORE_OP_H
#define PENSTOCK_STAGES_OPS_CORE_OP_H
/*
 * One row per operator: schema, inference, gradient. Kernels stand in tables of
 * devices. Rows are constant; ops.def lists them, and who names one in code
 * includes rows.h.
 *
 * A row never writes its inputs: in-place forms ("add_.Tensor") have no rows,
 * the pass "functionalise" runs the functional twin and rebinds the target.
 * Operators that PyTorch lacks (backward kernels) are in namespace "penstock".
 */
#include "stages/base/host/cpu.h"
#include "stages/base/host/pool.h"
#include "stages/base/rng.h"
#include "stages/device/device.h"
#include "stages/graph/build.h"
#include "stages/graph/oprow.h"
#include "stages/ops/core/fault.h"

/* --- inference ---------------------------------------------------------- */

/* struct pst_infer stands in stages/graph/oprow.h. */

/* PST_ERR_SHAPE with one sentence that names both shapes, or PST_OK. */
typedef enum pst_status (*pst_infer_fn)(struct pst_infer *c);

/* Meta of tensor argument i (its k-th for lists); NULL if it is None. */
static inline const struct pst_meta *pst_infer_in(const struct pst_infer *c,
                                                  unsigned i)
{
    return c->args[i].kind == PST_ARG_VALUE ? &c->args[i].value->meta : NULL;
}
enum pst_status pst_infer_same_as_0(struct pst_infer *c);

/* --- execution ---------------------------------------------------------- */

/* data points at the first element (offset applied). NULL data: absent
 * optional tensor. Outputs never overlap inputs unless the kernel allows it
 * with PST_K_INPLACE_0. The meta is the graph's, or of whoever made the call.
 */
struct pst_operand {
    void *data;
    const struct pst_meta *meta; /* NULL: absent */
};

#define PST_MAX_OPERANDS 1024 /* of a call, and results */

/* Everything a kernel sees. The compiler makes one of each node, a template
 * without addresses; a launch runs a copy with addresses, pool, fault, random
 * key and accumulate filled in. */
struct pst_call {
    struct pst_operand *in; /* tensor arguments in schema order, one entry for
                               Tensor and Tensor?, n entries for lists */
    struct pst_operand *out;
    unsigned n_in, n_out;
    const struct pst_arg *args; /* schema order; VALUEs there are metas only */
    void *scratch;              /* 64-byte aligned */
    size_t scratch_size;        /* what the kernel's scratch() asked for */
    struct pst_pool *pool;      /* may be NULL */
    struct pst_fault *fault;    /* memory of the device; NULL: not asked for */
    uint32_t site;              /* which launch of the rank; a fault names it */
    struct pst_rng_key rng;
    bool accumulate; /* out[0] += result (kernels with PST_K_ACCUMULATE) */
    bool bf16;       /* products may round factors of f32 to bf16 */
    const struct pst_kernel *inner; /* of a device's adapter, else NULL */
};

void pst_call_fault_set(const struct pst_call *c, enum pst_fault_code code,
                        const union pst_fault_number *numbers);
/* pst_call_fault(c, PST_FAULT_INDEX_RANGE, {.i = at}, {.i = size}): a number
 * for each that the text has (fault.def); {0} if it has none. */
#define pst_call_fault(c, code, ...)                                           \
    pst_call_fault_set(                                                        \
        c, code,                                                               \
        (const union pst_fault_number[PST_FAULT_NUMBERS]){__VA_ARGS__})

enum pst_kernel_flags {
    PST_K_ACCUMULATE = 1, /* honours call->accumulate */
    PST_K_STRIDED = 2,    /* inputs of any strides; else all contiguous */
    PST_K_INPLACE_0 = 4,  /* out[0] may be in[0]'s memory exactly (same size
                             and dtype, both contiguous) */
    PST_K_INPLACE_1 = 8,
    PST_K_COPIES = 16, /* in[0] with other elements here and there: if out[0]
                          is not its memory, all of it is copied */
};

#define PST_D(name) (1u << PST_##name) /* bit of a dtype mask */
#define PST_D_ANY   ((1u << PST_N_DTYPES) - 1)
#define PST_D_FLOAT (PST_D(F32) | PST_D(F64) | PST_D(BF16) | PST_D(F16))

/*
 * What a kernel would rather read than an input as it is. Whoever plans a
 * program makes the form once for all that read it, for parameters once a
 * step, gives it in the input's place, and chooses a kernel again: that one
 * takes the form, and its result has the same bits.
 */
enum pst_form {
    PST_FORM_OWN,
    PST_FORM_BF16, /* rounded; sizes and strides stay */
    /* Rounded to bf16 too, but f32 (penstock.round_bf16): where products of
     * f32 are the faster ones. A node that has it in all such places is planned
     * as one whose call does not round. */
    PST_FORM_ROUNDED,
    /* Rounded and laid out for products (penstock.tiles), a matrix as it is or
     * transposed. Given to what is computed once a step; a kernel that wants
     * it can read PST_FORM_BF16 too. */
    PST_FORM_TILES,
    PST_FORM_TILES_T,
};

struct pst_kernel {
    const char *name;
    enum pst_isa isa;
    unsigned dtypes; /* mask: dtype of in[0], or of out[0] without inputs */
    unsigned flags;
    /* NULL: everything. Must not depend on data. Metas, args, flags only. */
    bool (*supports)(const struct pst_call *c);
    /* Bytes of scratch; NULL: none. */
    size_t (*scratch)(const struct pst_call *c, unsigned threads);
    void (*run)(const struct pst_call *c);
    double tolerance; /* against the reference, relative to the largest value */
    /* Of input i (as in call->in); NULL: all as they are. */
    enum pst_form (*form)(const struct pst_call *c, unsigned i);
};

/* --- gradient ----------------------------------------------------------- */

/* A vjp builds nodes with pst_emit(&v->build, ...). Gradient values have the
 * shape and dtype of what they are gradients of. */
struct pst_vjp {
    struct pst_build build;
    const struct pst_node *node;
    struct pst_value *const *grads; /* of each result; NULL: none reaches it */
    const bool *needs;      /* flat tensor index (as call->in): wanted */
    struct pst_value **ret; /* flat tensor index; NULL: no gradient */
};

typedef enum pst_status (*pst_vjp_fn)(struct pst_vjp *v);
/* Declared not differentiable: integers, comparisons, factories. */
enum pst_status pst_vjp_none(struct pst_vjp *v);

/* Value of argument i (schema order), NULL if None. */
static inline struct pst_value *pst_vjp_in(const struct pst_vjp *v, unsigned i)
{
    return v->node->args[i].kind == PST_ARG_VALUE ? v->node->args[i].value
                                                  : NULL;
}
static inline struct pst_value *pst_vjp_out(const struct pst_vjp *v, unsigned i)
{
    return v->node->outs[i];
}
/* Sums g over broadcast dimensions to the shape of `like`, converts dtype. */
struct pst_value *pst_vjp_sum_to(struct pst_vjp *v, struct pst_value *g,
                                 const struct pst_meta *like);

/* --- rewrites ----------------------------------------------------------- */

/*
 * An operator that is a composition of others has a rewrite instead of
 * inference, gradient and kernels: it never becomes a node. The function emits
 * nodes of other rows and sets outs. What the operator writes though its schema
 * says nothing (running statistics) goes to writes: the importer commits it
 * through the functionaliser.
 */
struct pst_rewrite {
    const struct pst_op *op;
    struct pst_build *build;
    const struct pst_schema *schema;
    const struct pst_arg *args; /* schema order, coerced, defaults filled */
    struct pst_value *outs[PST_MAX_OUTS]; /* NULL: a result that is None */
    unsigned n_outs;                      /* preset to schema->n_returns */
    /* New contents of tensor argument i, NULL: it is not written. */
    struct pst_value *writes[PST_MAX_WRITES];
};
typedef enum pst_status (*pst_rewrite_fn)(struct pst_rewrite *w);

/* --- rows --------------------------------------------------------------- */

enum pst_op_flags {
    PST_OP_VIEW = 1,        /* results alias in[0] always: never executed */
    PST_OP_EFFECT = 2,      /* kept though nothing uses it (asserts) */
    PST_OP_MARKER = 4,      /* pippy::_pipe_split */
    PST_OP_RANDOM = 8,      /* reads call->rng */
    PST_OP_MAYBE_VIEW = 16, /* aliases where infer says so, else copies */
    PST_OP_STORAGE = 32,    /* reads `self` in the order of its storage */
    /* Dropout and its like: an argument (train, training, dropout_p) says
     * whether the model trains, and model.eval() turns it off (mode.h). */
    PST_OP_DROPOUT = 64,
    /* Its nodes keep the name that the file has for them, for messages. */
    PST_OP_ORIGIN = 128,
    /* --dtype bf16 rounds its factors. */
    PST_OP_PRODUCT = 256,
    /* Its gradient moves or changes single elements and adds up none if it is
     * a view or all shapes are alike: strides make no difference to the bits
     * then. */
    PST_OP_PASSES_ON = 512,
};

struct pst_op {
    const char *schema;
    unsigned flags;
    pst_infer_fn infer;
    pst_vjp_fn vjp;         /* never NULL */
    pst_rewrite_fn rewrite; /* then there is nothing else but the schema */
    const char *formula;    /* of vjp or rewrite: stages/ops/formula/ */
    /* Floating-point operations of one execution; NULL: numel of result 0. */
    double (*flops)(const struct pst_node *node);
};

/* What "cpu" has for an operator: the best kernel first, the portable
 * reference, which takes everything that the row allows, last. */
#define PST_CPU_KERNELS(id, array)                                             \
    const struct pst_kernels pst_cpu_kernels_##id = {                          \
        (array), (unsigned)PST_COUNT(array)}

/* --- registry ----------------------------------------------------------- */

/* Parses all schemas; call once before anything else (idempotent, thread
 * safe after the first return). */
enum pst_status pst_registry_init(struct pst_diag *diag) PST_MUST_CHECK;
unsigned pst_registry_count(void);
const struct pst_op *pst_registry_at(unsigned i);
/* The family of a row: a folder below stages/ops/, one address for all rows of
 * it. "" if it is no row of the registry. */
const char *pst_op_family(const struct pst_op *op);
/* Does it run kernels, on whatever device? Views, markers and compositions do
 * not. */
bool pst_op_runs(const struct pst_op *op);
/* What a device has for it: {0} if nothing. */
struct pst_kernels pst_op_kernels(const struct pst_device *device,
                                  const struct pst_op *op);
/* The last one of pst_device_cpu; NULL if it runs none. */
const struct pst_kernel *pst_op_reference(const struct pst_op *op);
/* Other names of rows; false if there are fewer. */
bool pst_registry_alias(unsigned i, const char **ret_name,
                        const char **ret_row);
/* Why an operator that has no row will get none ("sparse"); NULL if nothing
 * is known of it. Names as in "aten.fft_fft.default". */
const char *pst_op_refusal(const char *name);
/* pst_op_schema and pst_op_find stand in stages/graph/oprow.h. */
bool pst_kernel_fits(const struct pst_kernel *kernel,
                     const struct pst_call *call, enum pst_isa isa);
/* Best kernel of a device that the ISA has and that supports the call, or
 * NULL. The result may lack PST_K_STRIDED: then the caller makes inputs
 * contiguous. `forced` (may be NULL) names a kernel to take if it is possible.
 */
const struct pst_kernel *pst_kernel_find(const struct pst_device *device,
                                         const struct pst_op *op,
                                         struct pst_call *call,
                                         enum pst_isa isa, const char *forced);
/* Of pst_device_cpu. */
const struct pst_kernel *pst_kernel_choose(const struct pst_op *op,
                                           struct pst_call *call,
                                           enum pst_isa isa,
                                           const char *forced);
double pst_node_flops(const struct pst_node *node);

#endif
