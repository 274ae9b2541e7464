// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CORE_OP_H
#define PENSTOCK_STAGES_OPS_CORE_OP_H
/*
 * One row per operator: schema, inference, gradient. Kernels are in tables of
 * devices. Rows are constant; ops.def lists them, and code that names one
 * includes rows.h.
 *
 * No operator but accumulate_grad writes its inputs: in-place variants
 * ("add_.Tensor") have no rows, since the pass "functionalise" runs the
 * functional variant and rebinds the target. Operators that PyTorch lacks
 * (backward kernels) are in namespace "penstock".
 */
#include "stages/base/host/cpu.h"
#include "stages/base/host/pool.h"
#include "stages/base/rng.h"
#include "stages/device/device.h"
#include "stages/graph/build.h"
#include "stages/graph/oprow.h"
#include "stages/ops/core/fault.h"

/* --- inference ---------------------------------------------------------- */

/* struct pst_infer is in stages/graph/oprow.h. */

/* Returns PST_OK, or PST_ERR_SHAPE with one sentence that names both shapes. */
typedef enum pst_status (*pst_infer_fn)(struct pst_infer *c);

/* Returns the meta of tensor argument i; NULL if it is None. */
static inline const struct pst_meta *pst_infer_in(const struct pst_infer *c,
                                                  unsigned i)
{
    return c->args[i].kind == PST_ARG_VALUE ? &c->args[i].value->meta : NULL;
}
enum pst_status pst_infer_same_as_0(struct pst_infer *c);

/* --- execution ---------------------------------------------------------- */

/* data points at the first element (offset applied); NULL: an absent optional
 * tensor. Outputs never overlap inputs unless the kernel has PST_K_INPLACE_0.
 * The meta is the graph's, or belongs to the caller. */
struct pst_operand {
    void *data;
    const struct pst_meta *meta; /* NULL: absent */
};

/* maximum number of operands, and of results, of a call */
#define PST_MAX_OPERANDS 1024

/* All inputs of a kernel. The compiler makes one per node, as a template
 * without addresses; a launch runs a copy with addresses, pool, fault, random
 * key and accumulate filled in. */
struct pst_call {
    struct pst_operand *in; /* tensor arguments in schema order, one entry for
                               Tensor and Tensor?, n entries for lists */
    struct pst_operand *out;
    unsigned n_in, n_out;
    /* in schema order; of tensors only the metas are used */
    const struct pst_arg *args;
    void *scratch;           /* 64-byte aligned */
    size_t scratch_size;     /* bytes requested by the kernel's scratch() */
    struct pst_pool *pool;   /* may be NULL */
    struct pst_fault *fault; /* in device memory; NULL: not reported */
    uint32_t site;           /* number of the launch in the rank, for faults */
    struct pst_rng_key rng;
    bool accumulate;   /* out[0] += result (kernels with PST_K_ACCUMULATE) */
    bool bf16;         /* matmuls may round f32 operands to bf16 */
    bool tf32;         /* matmuls may round f32 operands to TF32 */
    const void *owner; /* the chosen kernel's owner, or data of the device's
                          adapter; else NULL */
    void *stream;      /* the device's queue, set by the launch; NULL on the
                        * host */
    const struct pst_chain *chain; /* the node's; NULL: none */
};

void pst_call_fault_set(const struct pst_call *c, enum pst_fault_code code,
                        const union pst_fault_number *numbers);
/* pst_call_fault(c, PST_FAULT_INDEX_RANGE, {.i = at}, {.i = size}): one number
 * per placeholder of the text (fault.def); {0} if it has none. */
#define pst_call_fault(c, code, ...)                                           \
    pst_call_fault_set(                                                        \
        c, code,                                                               \
        (const union pst_fault_number[PST_FAULT_NUMBERS]){__VA_ARGS__})

enum pst_kernel_flags {
    PST_K_ACCUMULATE = 1, /* honours call->accumulate */
    PST_K_STRIDED = 2,    /* accepts inputs with any strides; kernels without it
                             get contiguous ones */
    PST_K_INPLACE_0 = 4,  /* out[0] may be exactly in[0]'s memory (same size and
                             dtype, both contiguous) */
    PST_K_INPLACE_1 = 8,
    PST_K_COPIES = 16, /* result: in[0] with some elements changed; if out[0] is
                          other memory, in[0] is copied there first */
    PST_K_QUEUED = 32, /* run() enqueues on call->stream; operands are device
                          addresses */
    PST_K_COMPILES = 64, /* a library compiles code in the first calls */
    /* reads the step's number from the device's memory, so that a recorded
     * call of an operator with PST_OP_RANDOM can be replayed in another step
     * (struct pst_recorder) */
    PST_K_REPLAYS = 128,
    /* Each element of the only result depends only on the operands' elements at
     * the same index, so a part of a call gives the same bits as the whole. The
     * kernel reports no faults. */
    PST_K_ELEMENTWISE = 256,
};

#define PST_D(name) (1u << PST_##name) /* bit of a dtype mask */
#define PST_D_ANY   ((1u << PST_N_DTYPES) - 1)
#define PST_D_FLOAT (PST_D(F32) | PST_D(F64) | PST_D(BF16) | PST_D(F16))

/*
 * Preferred layout of an operand; the compiler inserts one shared conversion,
 * for parameters once per step. It then passes the converted operand and
 * selects a kernel again; that kernel accepts the layout and gives a result
 * with the same bits.
 */
enum pst_form {
    PST_FORM_OWN,
    PST_FORM_BF16, /* rounded to bf16; sizes and strides are kept */
    /* Rounded to bf16 but stored as f32 (penstock.round_bf16), where f32
     * matmuls are faster. If all operands of a node for which the kernel
     * prefers this layout have it, the node's call does not round. */
    PST_FORM_ROUNDED,
    /* Rounded and packed for the device's matmuls (penstock.tiles), from a
     * matrix or its transpose. Used for operands computed once per step; a
     * kernel that prefers it also accepts PST_FORM_BF16. */
    PST_FORM_PACKED,
    PST_FORM_PACKED_T,
    /* The kernel does not read this optional operand: the compiler removes it
     * from the node, so that nothing is kept for it. */
    PST_FORM_NONE,
    /* The operand's strides do not change the bits of the results: the kernel
     * may read a copy with other strides that is stored for other readers, so
     * that the operand itself need not be stored. */
    PST_FORM_ANY,
};

struct pst_kernel {
    const char *name;
    enum pst_isa isa;
    unsigned dtypes; /* mask of accepted dtypes of in[0]; of out[0] without
                      * inputs */
    unsigned flags;
    /* True if the kernel supports the call; NULL: all calls. Must depend on
     * metas, args and flags only, not on data. */
    bool (*supports)(const struct pst_call *c);
    /* Returns the bytes of scratch; NULL: none. */
    size_t (*scratch)(const struct pst_call *c, unsigned threads);
    void (*run)(const struct pst_call *c);
    /* allowed difference from the reference, relative to the largest value */
    double tolerance;
    /* Returns the preferred layout of input i (as in call->in); NULL: no
     * preference. */
    enum pst_form (*form)(const struct pst_call *c, unsigned i);
    const void *owner; /* data of a kernel that was added at run time */
};

/* --- gradient ----------------------------------------------------------- */

/* A vjp builds nodes with pst_emit(&v->build, ...). A gradient has the shape
 * and dtype of its value. */
struct pst_vjp {
    struct pst_build build;
    const struct pst_node *node;
    struct pst_value *const
        *grads;             /* per result; NULL: no gradient reaches it */
    const bool *needs;      /* per flat tensor index (as call->in): true if a
                             * gradient is wanted */
    struct pst_value **ret; /* per flat tensor index; NULL: no gradient */
};

typedef enum pst_status (*pst_vjp_fn)(struct pst_vjp *v);
/* The vjp of operators that are not differentiable: integers, comparisons,
 * factories. */
enum pst_status pst_vjp_none(struct pst_vjp *v);

/* Returns the value of argument i (schema order); NULL if it is None. */
static inline struct pst_value *pst_vjp_in(const struct pst_vjp *v, unsigned i)
{
    return v->node->args[i].kind == PST_ARG_VALUE ? v->node->args[i].value
                                                  : NULL;
}
static inline struct pst_value *pst_vjp_out(const struct pst_vjp *v, unsigned i)
{
    return v->node->outs[i];
}
/* Sums g over broadcast dimensions to the shape of `like`, and converts its
 * dtype. */
struct pst_value *pst_vjp_sum_to(struct pst_vjp *v, struct pst_value *g,
                                 const struct pst_meta *like);

/* --- rewrites ----------------------------------------------------------- */

/*
 * An operator that is a composition has a rewrite instead of inference,
 * gradient and kernels: it never becomes a node. The function emits nodes of
 * other rows and sets outs. Tensors that the operator writes although its
 * schema does not say so (running statistics) go to writes: the importer
 * commits them through the functionaliser.
 */
struct pst_rewrite {
    const struct pst_op *op;
    struct pst_build *build;
    const struct pst_schema *schema;
    const struct pst_arg *args; /* schema order, coerced, defaults filled */
    struct pst_value *outs[PST_MAX_OUTS]; /* NULL: this result is None */
    unsigned n_outs;                      /* preset to schema->n_returns */
    /* New contents of tensor argument i; NULL: it is not written. */
    struct pst_value *writes[PST_MAX_WRITES];
};
typedef enum pst_status (*pst_rewrite_fn)(struct pst_rewrite *w);

/* --- rows --------------------------------------------------------------- */

enum pst_op_flags {
    PST_OP_VIEW = 1,        /* results always alias in[0]: never executed */
    PST_OP_EFFECT = 2,      /* kept even if unused (asserts) */
    PST_OP_MARKER = 4,      /* pippy::_pipe_split */
    PST_OP_RANDOM = 8,      /* reads call->rng */
    PST_OP_MAYBE_VIEW = 16, /* aliases if infer says so, else copies */
    PST_OP_STORAGE = 32,    /* depends on the storage order of `self` */
    /* Dropout and similar: an argument (train, training, dropout_p) is set
     * while the model trains, and model.eval() clears it (mode.h). */
    PST_OP_DROPOUT = 64,
    /* Nodes of the operator keep their names in the file, for messages. */
    PST_OP_ORIGIN = 128,
    /* --dtype bf16 rounds its operands. */
    PST_OP_PRODUCT = 256,
    /* The gradient is computed without sums, by moving or changing single
     * elements, if the operator is a view or all shapes are equal: the strides
     * of its operands then do not change its bits. */
    PST_OP_PASSES_ON = 512,
    /* Nodes of the operator are made by the compiler only, from other nodes. */
    PST_OP_COMPILED = 1024,
    /* Computing a result again takes no longer than storing and loading it. */
    PST_OP_CHEAP = 2048,
};

typedef void (*pst_op_sizes_fn)(struct pst_build *build, struct pst_node *node);

struct pst_op {
    const char *schema;
    unsigned flags;
    pst_infer_fn infer;
    pst_vjp_fn vjp;         /* never NULL */
    pst_rewrite_fn rewrite; /* if set, all else but the schema is unused */
    const char *formula;    /* formula of vjp or rewrite: stages/ops/formula/ */
    /* Returns floating-point operations of one execution; NULL: numel of result
     * 0. */
    double (*flops)(const struct pst_node *node);
    /* Sets, for a row added at run time, the expressions of the results' sizes
     * (pst_op_sizes). */
    pst_op_sizes_fn sizes;
};

/* Kernels of device "cpu" for an operator: the best one first; last the
 * portable reference, which supports all calls that the row allows. */
#define PST_CPU_KERNELS(id, array)                                             \
    const struct pst_kernels pst_cpu_kernels_##id = {                          \
        (array), (unsigned)PST_COUNT(array)}

/* --- registry ----------------------------------------------------------- */

/* Parses all schemas; call once before anything else (idempotent, thread safe
 * after the first return). */
enum pst_status pst_registry_init(struct pst_diag *diag) PST_MUST_CHECK;
/* Initialises the registry, like pst_registry_init, and counts the caller until
 * it calls pst_registry_release. The last release frees the schemas; no graph
 * may exist then. Rows added at run time stay. Any thread. */
enum pst_status pst_registry_hold(struct pst_diag *diag) PST_MUST_CHECK;
void pst_registry_release(void);

/* A row that is added at run time, with its kernels of device "cpu". Other
 * devices run them on the host. */
struct pst_op_added {
    const struct pst_op *op;
    const struct pst_schema *schema; /* op->schema, parsed */
    struct pst_kernels kernels;
    const char *family;
    struct pst_op_added *next; /* the registry's */
};
/* Adds n rows, which stay valid until the process ends. Their names must be
 * free (PST_E_PLUGIN_NAME); after an error none is added. Any thread; other
 * threads may look up rows at the same time. */
enum pst_status pst_registry_add(struct pst_op_added *rows, unsigned n,
                                 struct pst_diag *diag) PST_MUST_CHECK;
unsigned pst_registry_count(void);
const struct pst_op *pst_registry_at(unsigned i);
/* Returns the family of a row, a folder below stages/ops/; the address is the
 * same for all rows of a family. "" if it is not a registered row. */
const char *pst_op_family(const struct pst_op *op);
/* True if the operator runs kernels on some device; views, markers and
 * compositions do not. */
bool pst_op_runs(const struct pst_op *op);
/* Returns the kernels of a device, or else of its fallback; {0} if there are
 * none. */
struct pst_kernels pst_op_kernels(const struct pst_device *device,
                                  const struct pst_op *op);
/* Returns the last kernel of pst_device_cpu; NULL if there is none. */
const struct pst_kernel *pst_op_reference(const struct pst_op *op);
/* Returns alias i and its row; false if there are fewer. */
bool pst_registry_alias(unsigned i, const char **ret_name,
                        const char **ret_row);
/* Returns the reason why an operator without a row is unsupported ("sparse");
 * NULL if it is unknown. Names as in "aten.fft_fft.default". */
const char *pst_op_refusal(const char *name);
/* pst_op_schema and pst_op_find are in stages/graph/oprow.h. */
bool pst_kernel_fits(const struct pst_kernel *kernel,
                     const struct pst_call *call, enum pst_isa isa);
/* Returns the best kernel of a device, or else of its fallback, that the ISA
 * allows and that supports the call, or NULL. It may lack PST_K_STRIDED: then
 * the caller makes inputs contiguous. `forced` (may be NULL) names a kernel to
 * prefer. */
const struct pst_kernel *pst_kernel_find(const struct pst_device *device,
                                         const struct pst_op *op,
                                         struct pst_call *call,
                                         enum pst_isa isa, const char *forced);
/* Returns the best kernel of pst_device_cpu, by the same rules. */
const struct pst_kernel *pst_kernel_choose(const struct pst_op *op,
                                           struct pst_call *call,
                                           enum pst_isa isa,
                                           const char *forced);
double pst_node_flops(const struct pst_node *node);

#endif
