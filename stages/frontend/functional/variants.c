// SPDX-License-Identifier: Apache-2.0
/* Functional variants of in-place and `out` operators, by name:
 * "aten.add_.Tensor" writes what "aten.add.Tensor" returns,
 * "aten.__iand__.Tensor" what "aten.__and__" returns, and "aten.div.out" writes
 * to `out` what "aten.div.Tensor" returns. */
#include "stages/frontend/functional/functionalise.h"
#include "stages/graph/oprow.h"

#include <stdio.h>
#include <string.h>

#define MAX_NAME 128

/* The parts of "aten.add_.Tensor". */
struct parts {
    char space[MAX_NAME], op[MAX_NAME], overload[MAX_NAME];
};

static bool split_name(const char *name, struct parts *ret)
{
    const char *dot = strchr(name, '.');
    const char *last = dot == NULL ? NULL : strchr(dot + 1, '.');

    if (last == NULL || strlen(name) >= MAX_NAME)
        return false;
    snprintf(ret->space, MAX_NAME, "%.*s", (int)(dot - name), name);
    snprintf(ret->op, MAX_NAME, "%.*s", (int)(last - dot - 1), dot + 1);
    snprintf(ret->overload, MAX_NAME, "%s", last + 1);
    return true;
}

/* Removes the mark of an in-place operator; false if there is none. */
static bool strip_mark(struct parts *ret)
{
    const size_t n = strlen(ret->op);

    if (pst_has_prefix(ret->op, "__i") && pst_has_suffix(ret->op, "__")) {
        memmove(ret->op + 2, ret->op + 3, n - 2);
        return true;
    }
    if (n < 2 || ret->op[n - 1] != '_' || ret->op[n - 2] == '_')
        return false;
    ret->op[n - 1] = '\0';
    return true;
}

static const struct pst_op *find_op(const struct parts *parts,
                                    const char *overload)
{
    char name[3 * MAX_NAME];
    const struct pst_op *op;
    const struct pst_schema *schema;

    snprintf(name, sizeof(name), "%s.%s.%s", parts->space, parts->op, overload);
    op = pst_op_find(name);
    schema = op != NULL ? pst_op_schema(op) : NULL;
    if (schema == NULL || schema->n_args == 0 || schema->n_returns != 1 ||
        schema->args[0].type != PST_TYPE_TENSOR)
        return NULL;
    return op;
}

const struct pst_op *pst_functional_variant(const char *name)
{
    struct parts parts;
    char scalar[MAX_NAME + 16];
    const struct pst_op *op;

    if (!split_name(name, &parts) || !strip_mark(&parts))
        return NULL;
    op = find_op(&parts, parts.overload);
    /* aten.pow_.Scalar writes what aten.pow.Tensor_Scalar returns. */
    snprintf(scalar, sizeof(scalar), "Tensor_%s", parts.overload);
    if (op == NULL)
        op = find_op(&parts, scalar);
    if (op == NULL)
        op = find_op(&parts, "default");
    if (op == NULL && strcmp(parts.overload, "default") == 0)
        op = find_op(&parts, "Tensor");
    if (op == NULL && strcmp(parts.overload, "default") == 0)
        op = find_op(&parts, "Scalar");
    return op;
}

const struct pst_op *pst_out_variant(const char *name)
{
    struct parts parts;
    const struct pst_op *op;
    size_t n;

    if (!split_name(name, &parts))
        return NULL;
    if (strcmp(parts.overload, "out") == 0) {
        op = find_op(&parts, "default");
        return op != NULL ? op : find_op(&parts, "Tensor");
    }
    if (!pst_has_suffix(parts.overload, "_out"))
        return NULL;
    n = strlen(parts.overload);
    parts.overload[n - strlen("_out")] = '\0';
    return find_op(&parts, parts.overload);
}
