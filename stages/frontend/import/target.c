// SPDX-License-Identifier: Apache-2.0
/* What the target string of a node means. */
#include "stages/frontend/import/import.h"
#include "stages/graph/oprow.h"
#include "stages/ops/op.h"

#include <string.h>

#define HOP "higher_order."

/* Facts on numbers: of sizes they are checked while importing, of data in each
 * step. */
static const char *const number_asserts[] = {
    "aten._assert_scalar.default",
    "aten.sym_constrain_range.default",
    "aten.sym_constrain_range_for_size.default",
};

/* Names that differ from what they do. */
static const char *const same_as[][2] = {
    {"aten.detach_.default", "aten.detach.default"},
    {"aten.lift_fresh.default", "aten.alias.default"},
    {"aten.resize_.default", "penstock.shrink_.default"},
};

const char pst_import_unbacked[] = "sizes and numbers that depend on data";

/* Operators on sizes: there are none unless a shape is dynamic. */
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

const json_t *pst_import_arg(const json_t *node, const char *name,
                             const char *tag)
{
    size_t i;
    json_t *input;

    json_array_foreach(json_object_get(node, "inputs"), i, input)
    {
        const char *n = json_string_value(json_object_get(input, "name"));

        if (n != NULL && strcmp(n, name) == 0)
            return json_object_get(json_object_get(input, "arg"), tag);
    }
    return NULL;
}

static bool is_number(const json_t *node, const char *name)
{
    return pst_import_arg(node, name, "as_sym_int") != NULL ||
           pst_import_arg(node, name, "as_sym_float") != NULL ||
           pst_import_arg(node, name, "as_sym_bool") != NULL ||
           pst_import_arg(node, name, "as_int") != NULL ||
           pst_import_arg(node, name, "as_float") != NULL ||
           pst_import_arg(node, name, "as_bool") != NULL;
}

/* "aten.add.Tensor" -> "aten.add.Scalar", "aten.div.Tensor_mode" ->
 * "aten.div.Scalar_mode"; false if the overload is no Tensor one. */
static bool scalar_name(const char *name, char *out, size_t size)
{
    const char *overload = strrchr(name, '.');

    if (overload == NULL || strncmp(overload, ".Tensor", 7) != 0)
        return false;
    return (size_t)snprintf(out, size, "%.*s.Scalar%s", (int)(overload - name),
                            name, overload + 7) < size;
}

/* Row or twins of `name`. */
static bool find_row(const char *name, struct pst_target *ret)
{
    ret->op = pst_op_find(name);
    ret->kind = PST_TARGET_OP;
    /* A twin may have another overload than the one that is refused. */
    if (ret->op == NULL && pst_op_refusal(name) == NULL) {
        ret->op = pst_functional_twin(name);
        ret->kind = PST_TARGET_INPLACE;
    }
    if (ret->op == NULL) {
        ret->op = pst_out_twin(name);
        ret->kind = PST_TARGET_OUT;
    }
    return ret->op != NULL;
}

static struct pst_target refuse(const char *name, unsigned tier,
                                const char *reason)
{
    return (struct pst_target){PST_TARGET_NONE, name, NULL, reason, tier};
}

/* What has neither a row nor a meaning to the importer. */
static struct pst_target unsupported(const char *name)
{
    const char *reason = pst_op_refusal(name);

    if (reason != NULL)
        return refuse(name, 3, reason);
    if (pst_has_prefix(name, "torch._functorch."))
        return refuse(
            name, 0,
            "vmap and jvp regions (run_decompositions() removes them)");
    return refuse(name, 0, "unknown operators");
}

static struct pst_target higher_order(const json_t *node, const char *name)
{
    struct pst_target t = {.name = name};

    if (strcmp(name, HOP "wrap_with_set_grad_enabled") == 0) {
        t.kind = PST_TARGET_SET_GRAD;
        return t;
    }
    if (strcmp(name, HOP "wrap_with_autocast") == 0) {
        enum pst_dtype dtype;
        bool enabled;

        if (!pst_import_autocast_mode(node, &enabled, &dtype))
            return refuse(name, 2,
                          "autocast regions of other devices or dtypes "
                          "(export without autocast)");
        t.kind = PST_TARGET_AUTOCAST;
        return t;
    }
    if (strcmp(name, HOP "cond") == 0) {
        t.kind = PST_TARGET_COND;
        return t;
    }
    return unsupported(name);
}

/* Rows for complex operands; in-place forms have none. */
static struct pst_target complex_target(const json_t *node, const char *name)
{
    struct pst_target t = {.kind = PST_TARGET_OP, .name = name, .pairs = true};
    char scalar[256];

    if (is_number(node, "other") && scalar_name(name, scalar, sizeof(scalar)))
        t.op = pst_import_complex_row(scalar);
    else
        t.op = pst_import_complex_row(name);
    if (t.op != NULL)
        return t;
    return pst_op_find(name) != NULL ? refuse(name, 2, "complex numbers")
                                     : unsupported(name);
}

struct pst_target pst_import_target(const json_t *node, const json_t *metas)
{
    const char *name = json_string_value(json_object_get(node, "target"));
    struct pst_target t = {0};
    char scalar[256];

    if (name == NULL)
        return refuse("?", 0, "nodes without a target");
    if (pst_has_prefix(name, "torch.ops."))
        name += strlen("torch.ops.");
    t.name = name;
    if (pst_has_prefix(name, HOP))
        return higher_order(node, name);
    for (size_t i = 0; i < PST_COUNT(number_asserts); i++)
        if (strcmp(name, number_asserts[i]) == 0)
            t.kind = PST_TARGET_ASSERT;
    for (size_t i = 0; i < PST_COUNT(size_prefixes); i++)
        if (pst_has_prefix(name, size_prefixes[i]))
            t.kind = PST_TARGET_SIZE;
    if (t.kind == PST_TARGET_ASSERT || t.kind == PST_TARGET_SIZE)
        return t;
    /* Ours, for our own nodes only. */
    if (pst_has_prefix(name, "penstock.") || pst_has_prefix(name, "complex.") ||
        pst_has_prefix(name, "from_real."))
        return unsupported(name);
    if (strcmp(name, "aten._assert_tensor_metadata.default") == 0) {
        t.kind = PST_TARGET_METADATA;
        t.op = pst_op_find(name);
        return t;
    }
    if (pst_import_complex(node, metas))
        return complex_target(node, name);
    if (pst_has_prefix(name, "aten.to.") ||
        strcmp(name, "aten.type_as.default") == 0) {
        t.kind = PST_TARGET_CONVERT;
        t.op = pst_op_find(name);
        return t.op != NULL ? t : unsupported(name);
    }
    for (size_t i = 0; i < PST_COUNT(same_as); i++)
        if (strcmp(name, same_as[i][0]) == 0 && find_row(same_as[i][1], &t))
            return t;
    if (is_number(node, "other") && scalar_name(name, scalar, sizeof(scalar)) &&
        find_row(scalar, &t))
        return t;
    if (find_row(name, &t))
        return t;
    return unsupported(name);
}
