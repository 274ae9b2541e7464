// SPDX-License-Identifier: Apache-2.0
/* Classifies a node by its target string. */
#include "stages/base/str.h"
#include "stages/frontend/import/import.h"
#include "stages/frontend/import/nodes.h"
#include "stages/frontend/import/regions/regions.h"
#include "stages/graph/oprow.h"
#include "stages/ops/core/op.h"

#include <string.h>

#define HOP "higher_order."

/* Assertions on numbers: for sizes they are checked while importing, for data
 * in each step. */
static const struct {
    const char *name;
    enum pst_target_kind kind;
} number_asserts[] = {
    {"aten._assert_scalar.default", PST_TARGET_ASSERT},
    {"aten.sym_constrain_range.default", PST_TARGET_RANGE},
    {"aten.sym_constrain_range_for_size.default", PST_TARGET_RANGE_OF_SIZE},
};

/* Operators that read a number from a tensor. */
static const char *const number_reads[] = {
    "aten.item.default",
    "aten._local_scalar_dense.default",
};

/* Operators imported as other ones. */
static const char *const same_as[][2] = {
    {"aten.detach_.default", "aten.detach.default"},
    {"aten.lift_fresh.default", "aten.alias.default"},
    {"aten.resize_.default", "penstock.shrink_.default"},
};

/* Operators of sharded modules on storages. */
static const struct {
    const char *name;
    enum pst_target_kind kind;
} storages[] = {
    {"inductor.resize_storage_bytes_.default", PST_TARGET_RESIZE},
    {"fsdp.copy_.default", PST_TARGET_FILL},
    {"aten._foreach_copy_.default", PST_TARGET_FILL},
};

const char pst_import_unbacked[] = "sizes and numbers that depend on data";

/* Operators on sizes: only present if a shape is dynamic. */
static const char *const size_prefixes[] = {
    "_operator.",
    "math.",
    "torch.sym_",
    "torch._sym_",
    "aten.sym_size",
    "aten.sym_stride",
    "aten.sym_numel.",
    "aten.sym_storage_offset",
    "aten.sym_is_contiguous.",
};

/* Python's arithmetic on numbers, and the same operators on tensors. */
static const char *const arithmetic[][2] = {
    {"_operator.ge", "aten.ge.Tensor"},
    {"_operator.gt", "aten.gt.Tensor"},
    {"_operator.le", "aten.le.Tensor"},
    {"_operator.lt", "aten.lt.Tensor"},
    {"_operator.eq", "aten.eq.Tensor"},
    {"_operator.ne", "aten.ne.Tensor"},
    {"_operator.add", "aten.add.Tensor"},
    {"_operator.sub", "aten.sub.Tensor"},
    {"_operator.mul", "aten.mul.Tensor"},
    {"_operator.truediv", "aten.div.Tensor"},
    {"_operator.floordiv", "aten.floor_divide.default"},
    {"_operator.mod", "aten.remainder.Tensor"},
    {"_operator.and_", "aten.bitwise_and.Tensor"},
    {"_operator.or_", "aten.bitwise_or.Tensor"},
    {"_operator.neg", "aten.neg.default"},
    {"_operator.not_", "aten.logical_not.default"},
    {"torch.sym_not", "aten.logical_not.default"},
    {"torch.sym_max", "aten.maximum.default"},
    {"torch.sym_min", "aten.minimum.default"},
};

/* Operators that show whether the model was in training mode. */
static const struct {
    const char *prefix;
    enum pst_mode_sign sign;
} signs[] = {
    {"aten.dropout", PST_SIGN_DROPOUT},
    {"aten.native_dropout.", PST_SIGN_NATIVE_DROPOUT},
    {"aten._batch_norm_with_update.", PST_SIGN_TRAINS},
    {"aten._batch_norm_with_update_functional.", PST_SIGN_TRAINS},
    {"aten._native_batch_norm_legit_no_training.", PST_SIGN_EVALUATES},
    {"aten._batch_norm_no_update.", PST_SIGN_EVALUATES},
};

/* True if the argument with that name is a number, not a tensor. */
static bool is_number(const struct pst_doc_node *node, const char *name)
{
    for (unsigned i = 0; i < node->n_inputs; i++) {
        const struct pst_doc_arg *arg = &node->inputs[i].arg;

        if (strcmp(node->inputs[i].name, name) == 0)
            return pst_doc_is_number(arg) || arg->kind == PST_DOC_INT ||
                   arg->kind == PST_DOC_FLOAT || arg->kind == PST_DOC_BOOL;
    }
    return false;
}

/* Replaces a Tensor overload by the Scalar one: "aten.add.Tensor" ->
 * "aten.add.Scalar", "aten.div.Tensor_mode" -> "aten.div.Scalar_mode". False if
 * the name has no Tensor overload. */
static bool scalar_name(const char *name, char *out, size_t size)
{
    const char *overload = strrchr(name, '.');

    if (overload == NULL || strncmp(overload, ".Tensor", 7) != 0)
        return false;
    return (size_t)pst_format(out, size, "%.*s.Scalar%s",
                              (int)(overload - name), name,
                              overload + 7) < size;
}

/* Finds the row of `name`; for an in-place or `out` variant, the row of the
 * functional operator. */
static bool find_row(const char *name, struct pst_target *ret)
{
    ret->op = pst_op_find(name);
    ret->kind = PST_TARGET_OP;
    /* Rejected names are skipped: their variants could have another overload.
     */
    if (ret->op == NULL && pst_op_refusal(name) == NULL) {
        ret->op = pst_functional_variant(name);
        ret->kind = PST_TARGET_INPLACE;
    }
    if (ret->op == NULL) {
        ret->op = pst_out_variant(name);
        ret->kind = PST_TARGET_OUT;
    }
    return ret->op != NULL;
}

static struct pst_target refuse_target(const char *name, unsigned tier,
                                       const char *reason)
{
    return (struct pst_target){
        .kind = PST_TARGET_NONE, .name = name, .reason = reason, .tier = tier};
}

/* Classifies an operator that is not supported. */
static struct pst_target refuse_unsupported(const char *name)
{
    const char *reason = pst_op_refusal(name);

    if (reason != NULL)
        return refuse_target(name, 3, reason);
    return refuse_target(name, 0, "unknown operators");
}

/* Operators that select one sub-graph, or run one several times. */
static const struct {
    const char *name;
    enum pst_target_kind kind;
} control[] = {
    {HOP "cond", PST_TARGET_COND},
    {HOP "scan", PST_TARGET_SCAN},
    {HOP "map_impl", PST_TARGET_MAP},
    {HOP "while_loop", PST_TARGET_WHILE},
};

static struct pst_target higher_order(const struct pst_doc_node *node,
                                      const char *name)
{
    struct pst_target t = {.name = name};

    if (strcmp(name, HOP "wrap_with_set_grad_enabled") == 0) {
        t.kind = PST_TARGET_SET_GRAD;
        return t;
    }
    if (strcmp(name, HOP "tag_activation_checkpoint") == 0) {
        t.kind = PST_TARGET_CHECKPOINT;
        return t;
    }
    if (strcmp(name, HOP "wrap_with_autocast") == 0) {
        enum pst_autocast_lists lists;
        enum pst_dtype dtype;

        if (!pst_import_autocast_mode(node, &lists, &dtype))
            return refuse_target(name, 2,
                                 "autocast regions of other devices or dtypes "
                                 "(export without autocast)");
        t.kind = PST_TARGET_AUTOCAST;
        return t;
    }
    /* This operator marks the beginning and end of a module with a kept
     * signature; PyTorch does not remove it from sub-graphs. */
    if (strcmp(name, HOP "_export_tracepoint") == 0) {
        t.kind = PST_TARGET_SAME;
        return t;
    }
    for (size_t i = 0; i < PST_COUNT(control); i++)
        if (strcmp(name, control[i].name) == 0) {
            t.kind = control[i].kind;
            return t;
        }
    return refuse_unsupported(name);
}

/* True for operators that ignore imaginary parts when their result is real. */
static bool drops_imaginary_parts(const char *name)
{
    static const char *const names[] = {
        "aten.copy_.",      "aten.copy.",      "aten.to.",
        "aten._to_copy.",   "aten.type_as.",   "aten.zeros_like.",
        "aten.empty_like.", "aten.ones_like.", "aten.full_like.",
        "aten.new_zeros.",  "aten.new_empty.", "aten.new_ones.",
        "aten.new_full."};

    for (size_t i = 0; i < PST_COUNT(names); i++)
        if (pst_has_prefix(name, names[i]))
            return true;
    return false;
}

/* Finds the row of stages/ops/complex/ for pairs, also for an in-place or `out`
 * variant. */
static bool find_complex_row(const char *name, struct pst_target *ret)
{
    const struct pst_op *functional = NULL;

    ret->kind = PST_TARGET_OP;
    ret->op = pst_import_complex_row(name, &ret->mover);
    if (ret->op == NULL && pst_op_find(name) == NULL) {
        functional = pst_functional_variant(name);
        ret->kind = PST_TARGET_INPLACE;
        if (functional == NULL) {
            functional = pst_out_variant(name);
            ret->kind = PST_TARGET_OUT;
        }
    }
    if (functional != NULL)
        ret->op = pst_import_complex_row(pst_op_schema(functional)->name,
                                         &ret->mover);
    return ret->op != NULL;
}

/* Returns the name by which the node's operator is looked up: that of an equal
 * operator (same_as), or of the overload for numbers if the node has a number
 * where the file's overload has a tensor; otherwise its own. */
static const char *name_for_numbers(const struct pst_doc_node *node,
                                    const char *name, char *text, size_t size)
{
    for (size_t i = 0; i < PST_COUNT(same_as); i++)
        if (strcmp(name, same_as[i][0]) == 0)
            return same_as[i][1];
    if (is_number(node, "other") && scalar_name(name, text, size))
        return text;
    if (strcmp(name, "aten.pow.Tensor_Scalar") == 0 &&
        pst_doc_arg(node, "exponent", PST_DOC_COMPLEX) != NULL)
        return "aten.pow.Tensor_Tensor";
    return name;
}

/* Classifies a node with complex operands. */
static struct pst_target complex_target(const struct pst_doc_node *node,
                                        const struct pst_doc_graph *graph,
                                        const char *name)
{
    struct pst_target t = {.name = name, .pairs = true};
    const struct pst_doc_arg *self = pst_doc_arg(node, "self", PST_DOC_TENSOR);
    const bool into_real =
        node->n_outputs > 0 && !pst_import_is_complex(graph, &node->outputs[0]);
    char text[256];

    t.real_parts = into_real && drops_imaginary_parts(name);
    if (t.real_parts && find_row(name, &t))
        return t;
    if (find_complex_row(name_for_numbers(node, name, text, sizeof(text)),
                         &t)) {
        t.promotes = !pst_has_prefix(pst_op_schema(t.op)->name, "from_real.");
        if (t.kind != PST_TARGET_INPLACE ||
            (self != NULL && pst_import_is_complex(graph, self)))
            return t;
    }
    find_row(name, &t);
    return t.op != NULL ? refuse_target(name, 2, "complex numbers")
                        : refuse_unsupported(name);
}

/* Classifies a node on numbers; false if the node is none. */
static bool number_target(const char *name, struct pst_target *ret)
{
    for (size_t i = 0; i < PST_COUNT(number_asserts); i++)
        if (strcmp(name, number_asserts[i].name) == 0) {
            ret->kind = number_asserts[i].kind;
            return true;
        }
    for (size_t i = 0; i < PST_COUNT(size_prefixes); i++) {
        if (!pst_has_prefix(name, size_prefixes[i]))
            continue;
        ret->kind = PST_TARGET_SIZE;
        for (size_t k = 0; k < PST_COUNT(arithmetic); k++)
            if (strcmp(name, arithmetic[k][0]) == 0)
                ret->op = pst_op_find(arithmetic[k][1]);
        return true;
    }
    return false;
}

/* True if the argument is a tensor of one dimension. */
static bool is_vector(const struct pst_doc_node *node,
                      const struct pst_doc_graph *graph, const char *name)
{
    const struct pst_doc_arg *arg = pst_doc_arg(node, name, PST_DOC_TENSOR);
    const struct pst_doc_tensor *t =
        arg != NULL && graph != NULL ? pst_doc_tensor(graph, arg->name) : NULL;

    return t != NULL && t->rank == 1;
}

/* Classifies all other nodes: operators with rows, their variants, and unknown
 * operators. */
static struct pst_target row_target(const struct pst_doc_node *node,
                                    const struct pst_doc_graph *graph,
                                    const char *name)
{
    struct pst_target t = {.name = name};
    char scalar[256];

    if (strcmp(name, "aten.linear.default") == 0 &&
        is_vector(node, graph, "weight") &&
        find_row("penstock.linear_vector.default", &t))
        return t;

    for (size_t i = 0; i < PST_COUNT(same_as); i++)
        if (strcmp(name, same_as[i][0]) == 0 && find_row(same_as[i][1], &t))
            return t;
    if (is_number(node, "other") && scalar_name(name, scalar, sizeof(scalar)) &&
        find_row(scalar, &t))
        return t;
    return find_row(name, &t) ? t : refuse_unsupported(name);
}

static struct pst_target find_target(const struct pst_doc_node *node,
                                     const struct pst_doc_graph *graph)
{
    const char *name = node->target, *reason;
    struct pst_target t = {.name = name};

    if (strcmp(name, "?") == 0)
        return refuse_target(name, 0, "nodes without a target");
    if (pst_has_prefix(name, HOP))
        return higher_order(node, name);
    if (number_target(name, &t))
        return t;
    t.kind = pst_import_functorch_kind(node, &reason);
    if (t.kind != PST_TARGET_NONE)
        return t;
    if (reason != NULL)
        return refuse_target(name, 2, reason);
    for (size_t i = 0; i < PST_COUNT(storages); i++)
        if (strcmp(name, storages[i].name) == 0) {
            t.kind = storages[i].kind;
            return t;
        }
    t.kind = pst_import_collective_kind(node);
    if (t.kind == PST_TARGET_NONE)
        return refuse_target(name, 2, pst_import_several);
    if (t.kind != PST_TARGET_OP)
        return t;
    /* These namespaces are reserved for our own nodes. */
    if (pst_has_prefix(name, "penstock.") || pst_has_prefix(name, "complex.") ||
        pst_has_prefix(name, "from_real."))
        return refuse_unsupported(name);
    if (strcmp(name, "aten._assert_tensor_metadata.default") == 0) {
        t.kind = PST_TARGET_METADATA;
        t.op = pst_op_find(name);
        return t;
    }
    if (graph != NULL && pst_import_complex(node, graph))
        return complex_target(node, graph, name);
    if (pst_has_prefix(name, "aten.to.") ||
        strcmp(name, "aten.type_as.default") == 0) {
        t.kind = PST_TARGET_CONVERT;
        t.op = pst_op_find(name);
        return t.op != NULL ? t : refuse_unsupported(name);
    }
    return row_target(node, graph, name);
}

struct pst_target pst_import_target(const struct pst_doc_node *node,
                                    const struct pst_doc_graph *graph)
{
    struct pst_target t = find_target(node, graph);

    for (size_t i = 0; i < PST_COUNT(signs); i++)
        if (pst_has_prefix(t.name, signs[i].prefix))
            t.sign = signs[i].sign;
    for (size_t i = 0; i < PST_COUNT(number_reads); i++)
        t.reads_number = t.reads_number || strcmp(t.name, number_reads[i]) == 0;
    return t;
}
