// SPDX-License-Identifier: Apache-2.0
/* Binds arguments of the document to those of an operator. */
#include "stages/base/str.h"
#include "stages/frontend/import/import.h"
#include "stages/ops/core/infer.h"
#include "stages/ops/core/op.h"
#include "stages/ops/core/rows.h"

#include <string.h>

struct source {
    struct pst_import *import;
    struct pst_scope *scope;
    const struct pst_doc_node *node; /* node to bind arguments of, or NULL */
    const char *where;               /* name of the argument in messages */
    bool raw;      /* bind values as named, not their newest versions */
    bool written;  /* the argument is written by the operator */
    bool promotes; /* pst_import_pairs turns numbers into pairs */
};

/* Rounds a parameter that is kept in a larger dtype to the file's dtype. */
static struct pst_value *round_param(const struct source *s,
                                     struct pst_value *v)
{
    const struct pst_weight *w;

    if (v == NULL || v->kind != PST_VALUE_PARAM || s->written)
        return v;
    w = pst_model_weight(s->import->model, v->fqn);
    if (w == NULL || w->meta.dtype == v->meta.dtype)
        return v;
    return pst_emit(&s->import->build, &pst_op__to_copy,
                    PST_ARGS(pst_v(v), pst_dtype_arg(w->meta.dtype)));
}

static enum pst_status find_value(const struct source *s, const char *name,
                                  struct pst_value **ret)
{
    struct pst_value *v = pst_map_get(&s->scope->values, name);

    if (v == NULL && pst_map_has(&s->scope->lanes, name))
        return pst_diag_set(s->import->diag, PST_E_OP_NOT_SUPPORTED,
                            "%s: not supported: \"%s\" is a forward-mode "
                            "derivative (jvp)",
                            s->where, name);
    if (v == NULL)
        return pst_diag_set(s->import->diag, PST_E_PT2_INCONSISTENT,
                            "%s: there is no value \"%s\" at this place",
                            s->where, name);
    if (!s->raw) {
        v = pst_functionalise_read(s->import->functional, v);
        if (v == NULL)
            return s->import->build.status != PST_OK
                       ? s->import->build.status
                       : pst_diag_set(s->import->diag, PST_E_INTERNAL_BUG,
                                      "%s: \"%s\" cannot be read", s->where,
                                      name);
    }
    *ret = round_param(s, v);
    return *ret == NULL ? s->import->build.status : PST_OK;
}

static enum pst_status read_values(const struct source *s,
                                   const struct pst_doc_arg *arg,
                                   struct pst_arg *ret)
{
    enum pst_status status = PST_OK;
    struct pst_value **values;

    values = pst_arena_calloc(&s->import->build.graph->arena, arg->n,
                              sizeof(void *));
    if (values == NULL)
        return pst_diag_nomem(s->import->diag, arg->n * sizeof(void *));
    for (unsigned i = 0; i < arg->n && status == PST_OK; i++)
        if (arg->names[i] != NULL)
            status = find_value(s, arg->names[i], &values[i]);
    *ret = pst_values(values, arg->n);
    return status;
}

static enum pst_status read_number(const struct source *s,
                                   const struct pst_doc_number *x,
                                   struct pst_arg *ret)
{
    switch (x->kind) {
    case PST_DOC_NUMBER_INT:
        *ret = pst_i(x->i);
        return PST_OK;
    case PST_DOC_NUMBER_FLOAT:
        *ret = pst_f(x->f);
        return PST_OK;
    case PST_DOC_NUMBER_BOOL:
        *ret = pst_b(x->b);
        return PST_OK;
    case PST_DOC_NUMBER_NAME:
        return pst_import_symbol(s->import, s->scope, x->name, s->where, ret);
    case PST_DOC_NUMBER_EXPR:
        break;
    }
    return pst_diag_set(s->import->diag, PST_E_INTERNAL_BUG,
                        "%s: an expression among the arguments", s->where);
}

/* Reads a list of integers and names of integers. */
static enum pst_status read_ints(const struct source *s,
                                 const struct pst_doc_arg *list,
                                 struct pst_arg *ret)
{
    struct pst_arena *arena = &s->import->build.graph->arena;
    int64_t *ints = pst_arena_calloc(arena, list->n, sizeof(*ints));
    const char **exprs = pst_arena_calloc(arena, list->n, sizeof(*exprs));
    bool any = false;

    if (ints == NULL || exprs == NULL)
        return pst_diag_nomem(s->import->diag, list->n * sizeof(*ints));
    for (unsigned i = 0; i < list->n; i++) {
        struct pst_arg arg = {0};
        enum pst_status status = read_number(s, &list->numbers[i], &arg);

        if (status != PST_OK)
            return status;
        if (arg.kind != PST_ARG_INT)
            return pst_diag_set(s->import->diag, PST_E_PT2_INCONSISTENT,
                                "%s: \"%s\" is not an integer", s->where,
                                list->numbers[i].name);
        ints[i] = arg.i;
        exprs[i] = arg.exprs != NULL ? arg.exprs[0] : NULL;
        any = any || exprs[i] != NULL;
    }
    *ret = pst_ints(ints, list->n);
    ret->exprs = any ? exprs : NULL;
    return PST_OK;
}

static enum pst_status read_floats(const struct source *s,
                                   const struct pst_doc_arg *list,
                                   struct pst_arg *ret)
{
    double *floats = pst_arena_calloc(&s->import->build.graph->arena, list->n,
                                      sizeof(*floats));

    if (floats == NULL)
        return pst_diag_nomem(s->import->diag, list->n * sizeof(*floats));
    for (unsigned i = 0; i < list->n; i++)
        floats[i] = list->numbers[i].f;
    *ret = (struct pst_arg){
        .kind = PST_ARG_FLOATS, .n = list->n, .floats = floats};
    return PST_OK;
}

static enum pst_status read_bools(const struct source *s,
                                  const struct pst_doc_arg *list,
                                  struct pst_arg *ret)
{
    bool *bools = pst_arena_calloc(&s->import->build.graph->arena, list->n,
                                   sizeof(*bools));

    if (bools == NULL)
        return pst_diag_nomem(s->import->diag, list->n * sizeof(*bools));
    for (unsigned i = 0; i < list->n; i++)
        bools[i] = list->numbers[i].b;
    *ret =
        (struct pst_arg){.kind = PST_ARG_BOOLS, .n = list->n, .bools = bools};
    return PST_OK;
}

static enum pst_status read_dtype(const struct source *s, int64_t code,
                                  struct pst_arg *ret)
{
    enum pst_dtype dtype;

    if (!pst_doc_is_complex(code, &dtype) && !pst_dtype_from_pt2(code, &dtype))
        return pst_diag_set(s->import->diag, PST_E_PT2_DTYPE,
                            "%s: dtype %s is not supported", s->where,
                            pst_doc_dtype_name(code));
    *ret = pst_dtype_arg(dtype);
    return PST_OK;
}

static enum pst_status read_arg(const struct source *s,
                                const struct pst_doc_arg *arg,
                                struct pst_arg *ret)
{
    *ret = pst_none();
    switch (arg->kind) {
    case PST_DOC_NONE:
        return PST_OK;
    case PST_DOC_TENSOR:
        ret->kind = PST_ARG_VALUE;
        return find_value(s, arg->name, &ret->value);
    case PST_DOC_TENSORS:
    case PST_DOC_OPTIONAL_TENSORS:
        return read_values(s, arg, ret);
    case PST_DOC_INT:
    case PST_DOC_FLOAT:
    case PST_DOC_BOOL:
    case PST_DOC_SYM_INT:
    case PST_DOC_SYM_FLOAT:
    case PST_DOC_SYM_BOOL:
        return read_number(s, &arg->number, ret);
    case PST_DOC_INTS:
    case PST_DOC_SYM_INTS:
        return read_ints(s, arg, ret);
    case PST_DOC_FLOATS:
        return read_floats(s, arg, ret);
    case PST_DOC_BOOLS:
        return read_bools(s, arg, ret);
    case PST_DOC_STRING:
        *ret = pst_text(arg->name);
        return PST_OK;
    case PST_DOC_SCALAR_TYPE:
        return read_dtype(s, arg->code, ret);
    case PST_DOC_LAYOUT:
        if (arg->code != 7)
            return pst_diag_set(s->import->diag, PST_E_PT2_LAYOUT,
                                "%s: only strided tensors are supported",
                                s->where);
        ret->kind = PST_ARG_IGNORED;
        return PST_OK;
    case PST_DOC_MEMORY_FORMAT:
    case PST_DOC_DEVICE:
        ret->kind = PST_ARG_IGNORED;
        return PST_OK;
    case PST_DOC_COMPLEX:
        if (s->promotes)
            return PST_OK;
        break;
    case PST_DOC_GRAPH:
    case PST_DOC_OPERATOR:
    case PST_DOC_OTHER:
        break;
    }
    return pst_diag_set(s->import->diag, PST_E_MODEL_ARGUMENT_KIND,
                        "%s: an argument of the kind \"%s\" is not supported",
                        s->where, arg->tag);
}

enum pst_status pst_import_value(struct pst_import *import,
                                 struct pst_scope *scope,
                                 const struct pst_doc_arg *arg,
                                 const char *where, struct pst_arg *ret)
{
    const struct source s = {.import = import, .scope = scope, .where = where};

    return read_arg(&s, arg, ret);
}

/* Turns numbers into tensors where the operator takes tensors. As in PyTorch,
 * such a number does not raise the dtype within its category (integers,
 * floats). */
static enum pst_status wrap_numbers(struct pst_import *import,
                                    const struct pst_schema *schema,
                                    struct pst_arg *args)
{
    enum pst_dtype dtype = PST_N_DTYPES;

    for (unsigned i = 0; i < schema->n_args; i++) {
        const struct pst_arg *a = &args[i];

        if (schema->args[i].type != PST_TYPE_TENSOR ||
            (a->kind != PST_ARG_INT && a->kind != PST_ARG_FLOAT &&
             a->kind != PST_ARG_BOOL))
            continue;
        if (dtype == PST_N_DTYPES)
            dtype = pst_result_type(args, schema->n_args);
        args[i] = pst_v(pst_emit(&import->build, &pst_op_scalar_tensor,
                                 PST_ARGS(*a, pst_dtype_arg(dtype))));
        if (import->build.status != PST_OK)
            return import->build.status;
    }
    return PST_OK;
}

int pst_import_find_arg(const struct pst_schema *schema, const char *name)
{
    static const char *const same[][2] = {
        {"self", "input"}, {"axis0", "dim0"}, {"axis1", "dim1"}};
    int i = pst_schema_arg(schema, name);

    for (size_t k = 0; k < PST_COUNT(same) && i < 0; k++)
        if (strcmp(name, same[k][0]) == 0)
            i = pst_schema_arg(schema, same[k][1]);
    return i;
}

/* True if the argument is a number that the program reads from a tensor. */
static bool is_read(const struct source *s, const struct pst_doc_arg *arg)
{
    const char *name = pst_doc_number_name(arg);

    return name != NULL && !pst_import_knows_number(s->import, s->scope, name);
}

/* Binds one argument, which must be in the schema. */
static enum pst_status bind_arg(const struct source *s,
                                const struct pst_schema *schema,
                                const struct pst_doc_input *input,
                                struct pst_arg *args, bool *given)
{
    const char *name = input->name;
    struct source at = *s;
    char where[160];
    int i;

    i = pst_import_find_arg(schema, name);
    if (i < 0)
        return pst_diag_set(s->import->diag, PST_E_OP_ARGUMENT,
                            "%s has no argument \"%s\"", schema->name, name);
    if (given[i])
        return pst_diag_set(s->import->diag, PST_E_OP_ARGUMENT,
                            "%s: argument \"%s\" is given twice", schema->name,
                            name);
    given[i] = true;
    (void)pst_format(where, sizeof(where), "argument \"%s\"", name);
    at.where = where;
    at.written = s->raw && i == 0;
    if (schema->args[i].type == PST_TYPE_TENSOR && is_read(s, &input->arg)) {
        args[i] =
            pst_v(pst_import_number(s->import, s->scope, s->node, &input->arg));
        return s->import->build.status;
    }
    return read_arg(&at, &input->arg, &args[i]);
}

enum pst_status pst_import_bind(struct pst_import *import,
                                struct pst_scope *scope,
                                const struct pst_doc_node *node,
                                const struct pst_target *target, bool raw,
                                struct pst_arg **ret)
{
    const struct pst_schema *schema = pst_op_schema(target->op);
    const struct source s = {.import = import,
                             .scope = scope,
                             .node = node,
                             .where = target->name,
                             .raw = raw,
                             .promotes = target->promotes};
    struct pst_arena *arena = &import->build.graph->arena;
    struct pst_arg *args =
        pst_arena_calloc(arena, schema->n_args, sizeof(*args));
    bool *given = pst_arena_calloc(arena, schema->n_args, sizeof(*given));
    enum pst_status status = PST_OK;

    if (args == NULL || given == NULL)
        return pst_diag_nomem(import->diag, schema->n_args * sizeof(*args));
    for (unsigned k = 0; k < node->n_inputs && status == PST_OK; k++)
        /* import_out() writes `out`. */
        if (target->kind != PST_TARGET_OUT ||
            strcmp(node->inputs[k].name, "out") != 0)
            status = bind_arg(&s, schema, &node->inputs[k], args, given);
    for (unsigned i = 0; i < schema->n_args && status == PST_OK; i++) {
        if (given[i])
            continue;
        if (!schema->args[i].has_default)
            return pst_diag_set(import->diag, PST_E_OP_ARGUMENT,
                                "%s: argument \"%s\" is missing", schema->name,
                                schema->args[i].name);
        args[i] = schema->args[i].def;
    }
    if (status == PST_OK && !target->promotes)
        status = wrap_numbers(import, schema, args);
    if (status == PST_OK)
        *ret = args;
    return status;
}
