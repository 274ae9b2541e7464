// SPDX-License-Identifier: Apache-2.0
/* Arguments of the document to arguments of a row. */
#include "stages/frontend/import/import.h"
#include "stages/ops/infer.h"

#include <string.h>

/* The union's payload at work. */
struct source {
    struct pst_import *import;
    struct pst_scope *scope;
    const char *where; /* names the argument in messages */
    bool raw;          /* values as they stand, not their newest version */
    bool written;      /* the argument that an in-place operator writes */
};

static enum pst_status wrong(const struct source *s, const char *tag)
{
    return pst_diag_set(s->import->diag, PST_ERR_INPUT,
                        "%s: \"%s\" holds something else than it says",
                        s->where, tag);
}

/* A parameter that is kept wider than the file has it, as the file has it. */
static struct pst_value *narrowed(const struct source *s, struct pst_value *v)
{
    const struct pst_weight *w;

    if (v == NULL || v->kind != PST_VALUE_PARAM || s->written)
        return v;
    w = pst_model_weight(s->import->model, v->fqn);
    if (w == NULL || w->meta.dtype == v->meta.dtype)
        return v;
    return pst_emit(&s->import->build, pst_op_find("aten._to_copy.default"),
                    PST_ARGS(pst_v(v), pst_dtype_arg(w->meta.dtype)));
}

static enum pst_status find_value(const struct source *s, const json_t *json,
                                  struct pst_value **ret)
{
    const char *name = json_string_value(json_object_get(json, "name"));
    struct pst_value *v;

    if (name == NULL)
        return wrong(s, "as_tensor");
    v = pst_map_get(&s->scope->values, name);
    if (v == NULL)
        return pst_diag_set(s->import->diag, PST_ERR_INPUT,
                            "%s: there is no value \"%s\" at this place",
                            s->where, name);
    if (!s->raw) {
        v = pst_functionalise_read(s->import->functional, v);
        if (v == NULL)
            return s->import->build.status != PST_OK
                       ? s->import->build.status
                       : pst_diag_set(s->import->diag, PST_ERR_INTERNAL,
                                      "%s: \"%s\" cannot be read", s->where,
                                      name);
    }
    *ret = narrowed(s, v);
    return *ret == NULL ? s->import->build.status : PST_OK;
}

static enum pst_status read_values(const struct source *s, const json_t *list,
                                   bool optional, struct pst_arg *ret)
{
    const size_t n = json_array_size(list);
    struct pst_value **values;

    values =
        pst_arena_calloc(&s->import->build.graph->arena, n, sizeof(void *));
    if (values == NULL)
        return pst_diag_nomem(s->import->diag, n * sizeof(void *));
    for (size_t i = 0; i < n; i++) {
        const json_t *item = json_array_get(list, i);
        enum pst_status status;

        if (optional) {
            if (json_object_get(item, "as_none") != NULL)
                continue;
            item = json_object_get(item, "as_tensor");
        }
        status = find_value(s, item, &values[i]);
        if (status != PST_OK)
            return status;
    }
    *ret = pst_values(values, (unsigned)n);
    return PST_OK;
}

/* Integers, or a mixture of names and integers without names. */
static enum pst_status read_ints(const struct source *s, const json_t *list,
                                 struct pst_arg *ret)
{
    struct pst_arena *arena = &s->import->build.graph->arena;
    const size_t n = json_array_size(list);
    int64_t *ints = pst_arena_calloc(arena, n, sizeof(*ints));
    const char **exprs = pst_arena_calloc(arena, n, sizeof(*exprs));
    bool any = false;

    if (ints == NULL || exprs == NULL)
        return pst_diag_nomem(s->import->diag, n * sizeof(*ints));
    for (size_t i = 0; i < n; i++) {
        const json_t *item = json_array_get(list, i);
        const json_t *name = json_object_get(item, "as_name");
        struct pst_arg arg = {0};
        enum pst_status status;

        if (name == NULL && pst_json_static_int(item, &ints[i]))
            continue;
        if (!json_is_string(name))
            return wrong(s, "as_ints");
        status = pst_import_symbol(s->import, s->scope, json_string_value(name),
                                   s->where, &arg);
        if (status != PST_OK)
            return status;
        if (arg.kind != PST_ARG_INT)
            return wrong(s, "as_ints");
        ints[i] = arg.i;
        exprs[i] = arg.exprs != NULL ? arg.exprs[0] : NULL;
        any = any || exprs[i] != NULL;
    }
    *ret = pst_ints(ints, (unsigned)n);
    ret->exprs = any ? exprs : NULL;
    return PST_OK;
}

static enum pst_status read_floats(const struct source *s, const json_t *list,
                                   struct pst_arg *ret)
{
    const size_t n = json_array_size(list);
    double *floats =
        pst_arena_calloc(&s->import->build.graph->arena, n, sizeof(*floats));

    if (floats == NULL)
        return pst_diag_nomem(s->import->diag, n * sizeof(*floats));
    for (size_t i = 0; i < n; i++)
        if (!pst_json_double(json_array_get(list, i), &floats[i]))
            return wrong(s, "as_floats");
    *ret = (struct pst_arg){
        .kind = PST_ARG_FLOATS, .n = (unsigned)n, .floats = floats};
    return PST_OK;
}

static enum pst_status read_bools(const struct source *s, const json_t *list,
                                  struct pst_arg *ret)
{
    const size_t n = json_array_size(list);
    bool *bools =
        pst_arena_calloc(&s->import->build.graph->arena, n, sizeof(*bools));

    if (bools == NULL)
        return pst_diag_nomem(s->import->diag, n * sizeof(*bools));
    for (size_t i = 0; i < n; i++) {
        if (!json_is_boolean(json_array_get(list, i)))
            return wrong(s, "as_bools");
        bools[i] = json_is_true(json_array_get(list, i));
    }
    *ret = (struct pst_arg){
        .kind = PST_ARG_BOOLS, .n = (unsigned)n, .bools = bools};
    return PST_OK;
}

static enum pst_status read_number(const struct source *s, const char *tag,
                                   const json_t *json, struct pst_arg *ret)
{
    double x;

    if (strcmp(tag, "as_int") == 0 && json_is_integer(json))
        *ret = pst_i(json_integer_value(json));
    else if (strcmp(tag, "as_bool") == 0 && json_is_boolean(json))
        *ret = pst_b(json_is_true(json));
    else if (strcmp(tag, "as_float") == 0 && pst_json_double(json, &x))
        *ret = pst_f(x);
    else
        return wrong(s, tag);
    return PST_OK;
}

/* {"as_int": 3} or {"as_name": "sym"} in as_sym_int and its like. */
static enum pst_status read_symbol(const struct source *s, const json_t *json,
                                   struct pst_arg *ret)
{
    json_t *payload;
    const char *tag = pst_json_union(json, &payload, s->where, s->import->diag);

    if (tag == NULL)
        return PST_ERR_INPUT;
    if (strcmp(tag, "as_name") == 0)
        return pst_import_symbol(s->import, s->scope,
                                 json_string_value(payload), s->where, ret);
    return read_number(s, tag, payload, ret);
}

static enum pst_status read_dtype(const struct source *s, const json_t *json,
                                  struct pst_arg *ret)
{
    enum pst_dtype dtype;

    if (!json_is_integer(json))
        return wrong(s, "as_scalar_type");
    if (!pst_json_is_complex(json_integer_value(json), &dtype) &&
        !pst_dtype_from_pt2(json_integer_value(json), &dtype))
        return pst_diag_set(s->import->diag, PST_ERR_UNSUPPORTED,
                            "%s: dtype %s is not supported", s->where,
                            pst_json_dtype_name(json_integer_value(json)));
    *ret = pst_dtype_arg(dtype);
    return PST_OK;
}

static enum pst_status read_arg(const struct source *s, const json_t *json,
                                struct pst_arg *ret)
{
    struct pst_diag *diag = s->import->diag;
    enum pst_status status;
    json_t *payload;
    const char *tag = pst_json_union(json, &payload, s->where, diag);

    if (tag == NULL)
        return PST_ERR_INPUT;
    *ret = pst_none();
    if (strcmp(tag, "as_none") == 0)
        return PST_OK;
    if (strcmp(tag, "as_tensor") == 0) {
        ret->kind = PST_ARG_VALUE;
        status = find_value(s, payload, &ret->value);
        return status;
    }
    if (strcmp(tag, "as_tensors") == 0)
        return read_values(s, payload, false, ret);
    if (strcmp(tag, "as_optional_tensors") == 0)
        return read_values(s, payload, true, ret);
    if (strcmp(tag, "as_int") == 0 || strcmp(tag, "as_bool") == 0 ||
        strcmp(tag, "as_float") == 0)
        return read_number(s, tag, payload, ret);
    if (strcmp(tag, "as_ints") == 0 || strcmp(tag, "as_sym_ints") == 0)
        return read_ints(s, payload, ret);
    if (strcmp(tag, "as_floats") == 0)
        return read_floats(s, payload, ret);
    if (strcmp(tag, "as_bools") == 0)
        return read_bools(s, payload, ret);
    if (pst_has_prefix(tag, "as_sym_"))
        return read_symbol(s, payload, ret);
    if (strcmp(tag, "as_scalar_type") == 0)
        return read_dtype(s, payload, ret);
    if (strcmp(tag, "as_string") == 0 && json_is_string(payload)) {
        *ret = pst_text(json_string_value(payload));
        return PST_OK;
    }
    if (strcmp(tag, "as_layout") == 0 && json_integer_value(payload) != 7)
        return pst_diag_set(diag, PST_ERR_UNSUPPORTED,
                            "%s: only strided tensors are supported", s->where);
    if (strcmp(tag, "as_layout") == 0 || strcmp(tag, "as_device") == 0 ||
        strcmp(tag, "as_memory_format") == 0) {
        ret->kind = PST_ARG_IGNORED;
        return PST_OK;
    }
    return pst_diag_set(diag, PST_ERR_UNSUPPORTED,
                        "%s: an argument of the kind \"%s\" is not supported",
                        s->where, tag);
}

enum pst_status pst_import_value(struct pst_import *import,
                                 struct pst_scope *scope, const json_t *json,
                                 const char *where, struct pst_arg *ret)
{
    const struct source s = {import, scope, where, false, false};

    return read_arg(&s, json, ret);
}

/* Numbers stand where the row wants tensors: PyTorch wraps them, and they do
 * not raise a dtype within its category. */
static enum pst_status wrap_numbers(struct pst_import *import,
                                    const struct pst_schema *schema,
                                    struct pst_arg *args)
{
    const struct pst_op *scalar_tensor =
        pst_op_find("aten.scalar_tensor.default");
    enum pst_dtype dtype = PST_N_DTYPES;

    for (unsigned i = 0; i < schema->n_args; i++) {
        const struct pst_arg *a = &args[i];

        if (schema->args[i].type != PST_TYPE_TENSOR ||
            (a->kind != PST_ARG_INT && a->kind != PST_ARG_FLOAT &&
             a->kind != PST_ARG_BOOL))
            continue;
        if (scalar_tensor == NULL)
            return pst_diag_set(import->diag, PST_ERR_UNSUPPORTED,
                                "%s: a number for \"%s\" is not supported yet",
                                schema->name, schema->args[i].name);
        if (dtype == PST_N_DTYPES)
            dtype = pst_result_type(args, schema->n_args);
        args[i] = pst_v(pst_emit(&import->build, scalar_tensor,
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

/* Only arguments that have a place in the schema may be given. */
static enum pst_status bind_one(const struct source *s,
                                const struct pst_schema *schema,
                                const json_t *input, struct pst_arg *args,
                                bool *given)
{
    const char *name = pst_json_text(input, "name", s->where, s->import->diag);
    struct source at = *s;
    char where[160];
    int i;

    if (name == NULL)
        return PST_ERR_INPUT;
    i = pst_import_find_arg(schema, name);
    if (i < 0)
        return pst_diag_set(s->import->diag, PST_ERR_INPUT,
                            "%s has no argument \"%s\"", schema->name, name);
    if (given[i])
        return pst_diag_set(s->import->diag, PST_ERR_INPUT,
                            "%s: argument \"%s\" is given twice", schema->name,
                            name);
    given[i] = true;
    snprintf(where, sizeof(where), "argument \"%s\"", name);
    at.where = where;
    at.written = s->raw && i == 0;
    return read_arg(&at, json_object_get(input, "arg"), &args[i]);
}

/* The argument that import_out() writes. */
static bool is_out(const json_t *input)
{
    const char *name = json_string_value(json_object_get(input, "name"));

    return name != NULL && strcmp(name, "out") == 0;
}

enum pst_status pst_import_bind(struct pst_import *import,
                                struct pst_scope *scope, const json_t *node,
                                const struct pst_target *target, bool raw,
                                struct pst_arg **ret)
{
    const struct pst_schema *schema = pst_op_schema(target->op);
    const struct source s = {import, scope, target->name, raw, false};
    struct pst_arena *arena = &import->build.graph->arena;
    const json_t *inputs =
        pst_json_member(node, "inputs", JSON_ARRAY, target->name, import->diag);
    struct pst_arg *args =
        pst_arena_calloc(arena, schema->n_args, sizeof(*args));
    bool *given = pst_arena_calloc(arena, schema->n_args, sizeof(*given));
    enum pst_status status = PST_OK;
    json_t *input;
    size_t k;

    if (args == NULL || given == NULL)
        return pst_diag_nomem(import->diag, schema->n_args * sizeof(*args));
    if (inputs == NULL)
        return PST_ERR_INPUT;
    json_array_foreach(inputs, k, input)
    {
        if (target->kind == PST_TARGET_OUT && is_out(input))
            continue;
        if (status == PST_OK)
            status = bind_one(&s, schema, input, args, given);
    }
    for (unsigned i = 0; i < schema->n_args && status == PST_OK; i++) {
        if (given[i])
            continue;
        if (!schema->args[i].has_default)
            return pst_diag_set(import->diag, PST_ERR_INPUT,
                                "%s: argument \"%s\" is missing", schema->name,
                                schema->args[i].name);
        args[i] = schema->args[i].def;
    }
    if (status == PST_OK)
        status = wrap_numbers(import, schema, args);
    if (status == PST_OK)
        *ret = args;
    return status;
}
