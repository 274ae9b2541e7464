// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/plugin/check_rows.h"

#include <ctype.h>
#include <string.h>

#include "stages/ops/plugin/dtype.h"

/* longest text of a version */
#define MAX_VERSION 100

const struct penstock_op *pst_plugin_op_at(const struct penstock_plugin *given,
                                           size_t i)
{
    return (const void *)((const char *)given->ops + i * given->ops->size);
}

const struct penstock_kernel *pst_plugin_kernel_at(const struct penstock_op *op,
                                                   size_t i)
{
    return (const void *)((const char *)op->kernels + i * op->kernels->size);
}

uint32_t pst_plugin_op_flags(const struct penstock_op *op)
{
    return op->size >= offsetof(struct penstock_op, flags) + sizeof(op->flags)
               ? op->flags
               : 0;
}

/* Checks the size that a struct states: it must be at least `least`, the size
 * in the first version of the header, and equal to `first`, the size of the
 * array's first element. Bytes after `mine`, our own size, are members of a
 * newer header and must be zero. */
static enum pst_status check_size(const char *what, const void *object,
                                  size_t least, size_t mine, size_t first,
                                  struct pst_diag *diag)
{
    const size_t *size = object;
    const unsigned char *bytes = object;

    if (*size < least || *size > 4096 || *size % sizeof(void *) != 0 ||
        *size != first)
        return pst_diag_set(diag, PST_E_PLUGIN_ABI,
                            "a %s states a size of %zu bytes, not %zu", what,
                            *size, *size < least ? mine : first);
    for (size_t i = mine; i < *size; i++)
        if (bytes[i] != 0)
            return pst_diag_set(diag, PST_E_PLUGIN_ABI,
                                "a %s uses a member that this version does "
                                "not have",
                                what);
    return PST_OK;
}

static enum pst_status fail_incomplete(const struct penstock_op *op,
                                       const char *what, struct pst_diag *diag)
{
    return pst_diag_set(diag, PST_E_PLUGIN_INCOMPLETE, "%.100s: %s", op->schema,
                        what);
}

static enum pst_status check_kernel(const struct penstock_op *op, size_t i,
                                    struct pst_diag *diag)
{
    const struct penstock_kernel *k = pst_plugin_kernel_at(op, i);
    enum pst_status status = check_size("struct penstock_kernel", k, sizeof(*k),
                                        sizeof(*k), op->kernels->size, diag);
    enum pst_dtype dtype;

    if (status != PST_OK)
        return status;
    if (k->run == NULL)
        return fail_incomplete(op, "a kernel has no function run", diag);
    if (k->dtypes == NULL || k->n_dtypes == 0 || k->n_dtypes > 64)
        return fail_incomplete(op, "a kernel has no dtypes, or too many", diag);
    if (k->flags & ~(uint32_t)PENSTOCK_STRIDED)
        return fail_incomplete(op, "a kernel has an unknown flag", diag);
    for (size_t d = 0; d < k->n_dtypes; d++)
        if (!pst_dtype_from_dl(k->dtypes[d], &dtype))
            return fail_incomplete(
                op, "a kernel has a dtype that is not supported", diag);
    return PST_OK;
}

static enum pst_status check_op(const struct penstock_plugin *given, size_t i,
                                struct pst_diag *diag)
{
    const struct penstock_op *op = pst_plugin_op_at(given, i);
    enum pst_status status = check_size("struct penstock_op", op,
                                        offsetof(struct penstock_op, flags),
                                        sizeof(*op), given->ops->size, diag);

    if (status != PST_OK)
        return status;
    if (op->schema == NULL)
        return pst_diag_set(diag, PST_E_PLUGIN_INCOMPLETE,
                            "operator %zu has no schema (NULL)", i);
    if (pst_plugin_op_flags(op) & ~(uint32_t)PENSTOCK_RANDOM)
        return fail_incomplete(op, "it has an unknown flag", diag);
    if (op->kernels == NULL || op->n_kernels == 0)
        return fail_incomplete(op, "it has no kernel", diag);
    if (op->n_kernels > PST_PLUGIN_MAX_KERNELS)
        return fail_incomplete(op, "it has too many kernels", diag);
    for (size_t k = 0; k < op->n_kernels && status == PST_OK; k++)
        status = check_kernel(op, k, diag);
    return status;
}

/* True if torch.library allows the name for a namespace. */
static bool is_name(const char *name)
{
    if (!isalpha((unsigned char)name[0]) && name[0] != '_')
        return false;
    for (size_t i = 0; name[i] != '\0'; i++)
        if ((!isalnum((unsigned char)name[i]) && name[i] != '_') || i >= 60)
            return false;
    return true;
}

/* Namespaces of PyTorch and of penstock. */
static bool is_reserved(const char *name)
{
    static const char *const names[] = {"aten",         "prims", "prim",
                                        "penstock",     "pippy", "complex",
                                        "higher_order", "torch", "_operator"};

    for (size_t i = 0; i < PST_COUNT(names); i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

static enum pst_status check_name(const struct penstock_plugin *given,
                                  struct pst_diag *diag)
{
    if (given->name == NULL || !is_name(given->name))
        return pst_diag_set(diag, PST_E_PLUGIN_INCOMPLETE,
                            "the name \"%.60s\" is no namespace: letters, "
                            "digits and _, at most 60",
                            given->name != NULL ? given->name : "");
    if (is_reserved(given->name))
        return pst_diag_set(diag, PST_E_PLUGIN_NAME,
                            "the namespace %s is not free for plugins",
                            given->name);
    if (given->version == NULL || strlen(given->version) > MAX_VERSION ||
        strpbrk(given->version, "\n\r\t") != NULL)
        return pst_diag_set(diag, PST_E_PLUGIN_INCOMPLETE,
                            "the version is NULL, longer than %d bytes, or has "
                            "several lines",
                            MAX_VERSION);
    return PST_OK;
}

enum pst_status pst_plugin_check(const struct penstock_plugin *given,
                                 struct pst_diag *diag)
{
    enum pst_status status;

    if (given == NULL)
        return pst_diag_set(diag, PST_E_PLUGIN_INCOMPLETE,
                            "penstock_plugin() returns NULL");
    status = check_size("struct penstock_plugin", given, sizeof(*given),
                        sizeof(*given), given->size, diag);
    if (status != PST_OK)
        return status;
    if (given->abi != PENSTOCK_PLUGIN_ABI)
        return pst_diag_set(diag, PST_E_PLUGIN_ABI,
                            "the plugin has ABI %u, this version has %d",
                            given->abi, PENSTOCK_PLUGIN_ABI);
    status = check_name(given, diag);
    if (status != PST_OK)
        return status;
    if (given->ops == NULL || given->n_ops == 0 ||
        given->n_ops > PST_PLUGIN_MAX_OPS)
        return pst_diag_set(diag, PST_E_PLUGIN_INCOMPLETE,
                            "the plugin has no operators, or more than %d",
                            PST_PLUGIN_MAX_OPS);
    for (size_t i = 0; i < given->n_ops && status == PST_OK; i++)
        status = check_op(given, i, diag);
    return status;
}

static enum pst_status fail_schema(const struct penstock_op *op,
                                   const char *why, struct pst_diag *diag)
{
    return pst_diag_set(diag, PST_E_PLUGIN_SCHEMA, "schema \"%.200s\": %s",
                        op->schema, why);
}

enum pst_status pst_plugin_check_schema(const struct penstock_plugin *given,
                                        const struct penstock_op *op,
                                        const struct pst_schema *schema,
                                        struct pst_diag *diag)
{
    const size_t n = strlen(given->name);
    bool tensor = false;

    if (strncmp(schema->name, given->name, n) != 0 || schema->name[n] != '.')
        return fail_schema(op, "its namespace is not the plugin's name", diag);
    if (schema->n_args > PENSTOCK_MAX_ARGS)
        return fail_schema(op, "it has too many arguments", diag);
    if (schema->n_returns == 0 || schema->n_returns > PENSTOCK_MAX_TENSORS)
        return fail_schema(op, "it has no result, or too many", diag);
    if (schema->list_return && op->infer == NULL)
        return fail_schema(op, "with a list of results it needs infer", diag);
    for (unsigned i = 0; i < schema->n_args; i++) {
        if (schema->args[i].written || schema->args[i].shared)
            return fail_schema(op,
                               "no argument may be written or shared with a "
                               "result (Tensor(a!))",
                               diag);
        if (pst_schema_arg(schema, schema->args[i].name) != (int)i)
            return fail_schema(op, "two arguments have one name", diag);
        if (schema->args[i].type == PST_TYPE_IGNORED)
            return fail_schema(op,
                               "it has an argument of a type that plugins "
                               "cannot use",
                               diag);
        tensor = tensor || (schema->args[i].type == PST_TYPE_TENSOR &&
                            !schema->args[i].optional);
    }
    if (schema->shares_result)
        return fail_schema(op, "no result may share memory with an argument",
                           diag);
    if (!tensor && op->infer == NULL)
        return fail_schema(op, "without a tensor argument it needs infer",
                           diag);
    return PST_OK;
}
