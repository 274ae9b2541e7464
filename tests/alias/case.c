// SPDX-License-Identifier: Apache-2.0
#include "tests/alias/case.h"

#include "stages/frontend/functional/functionalise.h"
#include "stages/graph/schema.h"
#include "stages/ops/core/op.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void fault(struct alias_case *c, const char *fmt, ...) PST_PRINTF(2, 3);

static void fault(struct alias_case *c, const char *fmt, ...)
{
    va_list args;

    if (c->fault[0] != '\0')
        return;
    va_start(args, fmt);
    (void)vsnprintf(c->fault, sizeof(c->fault), fmt, args);
    va_end(args);
}

/* Returns a text of the object. Without such a text, reports a malformed case
 * and returns "". */
static const char *text_of(struct alias_case *c, const json_t *object,
                           const char *key)
{
    const char *ret = alias_text(object, key);

    if (ret == NULL)
        fault(c, "something has no text \"%s\"", key);
    return ret != NULL ? ret : "";
}

enum pst_dtype alias_dtype(const char *torch)
{
    static const struct {
        const char *name;
        enum pst_dtype dtype;
    } rows[] = {
        {"float32", PST_F32}, {"float64", PST_F64},   {"int64", PST_I64},
        {"int32", PST_I32},   {"int16", PST_I16},     {"int8", PST_I8},
        {"bool", PST_BOOL},   {"bfloat16", PST_BF16}, {"float16", PST_F16},
        {"uint8", PST_U8},
    };

    for (size_t i = 0; torch != NULL && i < PST_COUNT(rows); i++)
        if (strcmp(rows[i].name, torch) == 0)
            return rows[i].dtype;
    return PST_N_DTYPES;
}

static enum pst_dtype dtype_of(struct alias_case *c, const json_t *object)
{
    const char *name = text_of(c, object, "dtype");
    const enum pst_dtype ret = alias_dtype(name);

    if (ret != PST_N_DTYPES)
        return ret;
    fault(c, "dtype \"%s\" is not known", name);
    return PST_F32;
}

double alias_number(const json_t *x)
{
    return json_is_boolean(x) ? json_is_true(x) : json_number_value(x);
}

const char *alias_text(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

unsigned alias_ints(const json_t *list, int64_t ret[PST_MAX_RANK])
{
    const size_t n = PST_MIN(json_array_size(list), (size_t)PST_MAX_RANK);

    for (size_t i = 0; i < n; i++)
        ret[i] = json_integer_value(json_array_get(list, i));
    return (unsigned)n;
}

int alias_case_storage(const struct alias_case *c, const char *name)
{
    for (unsigned i = 0; i < c->n_storages; i++)
        if (strcmp(c->storage_names[i], name) == 0)
            return (int)i;
    return -1;
}

static void *room(struct alias_case *c, size_t n, size_t size)
{
    void *ret = pst_arena_calloc(&c->arena, n + 1, size);

    assert_non_null(ret);
    return ret;
}

/* --- storages ------------------------------------------------------------- */

static void store(enum pst_dtype dtype, void *data, size_t i, const json_t *x)
{
    if (json_is_integer(x))
        pst_store_i64(dtype, data, (int64_t)i, json_integer_value(x));
    else
        pst_store_f64(dtype, data, (int64_t)i, alias_number(x));
}

void alias_case_overwrite(struct alias_case *c, const json_t *values)
{
    const char *key;
    json_t *list, *x;
    size_t i;

    json_object_foreach((json_t *)values, key, list)
    {
        const int k = alias_case_storage(c, key);
        const size_t n =
            k < 0 ? 0
                  : c->storages[k].bytes / pst_dtype_size(c->storage_dtypes[k]);

        if (json_array_size(list) > n)
            fault(c, "a run writes %zu values to \"%s\", which has %zu",
                  json_array_size(list), key, n);
        json_array_foreach(list, i, x)
        {
            if (i < n)
                store(c->storage_dtypes[k], c->storages[k].data, i, x);
        }
    }
}

static void add_storages(struct alias_case *c)
{
    const char *key;
    json_t *storage, *x;
    size_t i;

    json_object_foreach(json_object_get(c->json, "storages"), key, storage)
    {
        const json_t *values = json_object_get(storage, "values");
        const json_t *zeros = json_object_get(storage, "zeros");
        const size_t n = zeros != NULL ? (size_t)json_integer_value(zeros)
                                       : json_array_size(values);
        const unsigned k = c->n_storages++;

        if (k == CASE_MAX || n > SIZE_MAX / 16) {
            c->n_storages--;
            fault(c, "too many storages or values");
            return;
        }
        c->storage_names[k] = key;
        c->storage_dtypes[k] = dtype_of(c, storage);
        c->storages[k].bytes = n * pst_dtype_size(c->storage_dtypes[k]);
        c->storages[k].data = room(c, c->storages[k].bytes + 8, 1);
        json_array_foreach(values, i, x)
            store(c->storage_dtypes[k], c->storages[k].data, i, x);
    }
}

/* --- operands ------------------------------------------------------------- */

static void set_window(struct alias_case *c, const json_t *tensor,
                       struct pst_alias_program_operand *ret)
{
    int64_t sizes[PST_MAX_RANK], strides[PST_MAX_RANK];
    const unsigned rank = alias_ints(json_object_get(tensor, "sizes"), sizes);
    const int storage = alias_case_storage(c, text_of(c, tensor, "storage"));

    if (storage < 0 ||
        json_array_size(json_object_get(tensor, "sizes")) > PST_MAX_RANK)
        fault(c, "\"%s\" has no storage or too many dimensions", ret->as.name);
    if (alias_ints(json_object_get(tensor, "strides"), strides) != rank)
        fault(c, "\"%s\" has not as many strides as sizes", ret->as.name);
    if (c->fault[0] != '\0')
        return;
    ret->as.storage = (unsigned)storage;
    ret->as.meta = pst_meta_make(dtype_of(c, tensor), rank, sizes);
    memcpy(ret->as.meta.stride, strides, rank * sizeof(*strides));
    ret->as.offset = json_integer_value(json_object_get(tensor, "offset"));
    if (json_is_true(json_object_get(tensor, "requires_grad")))
        ret->leaf = ret->as.name;
}

static unsigned tensor_number(const struct alias_case *c, const char *name)
{
    unsigned ret = 0;
    const char *key;
    json_t *tensor;

    json_object_foreach(json_object_get(c->json, "tensors"), key, tensor)
    {
        if (strcmp(key, name) == 0)
            return ret;
        ret++;
    }
    return ret;
}

static void add_operand(struct alias_case *c, const char *name, int position)
{
    const json_t *tensor =
        json_object_get(json_object_get(c->json, "tensors"), name);
    struct pst_alias_program_operand *o = &c->operands[c->n_operands];

    if (name == NULL || ++c->n_operands == CASE_MAX) {
        c->n_operands--;
        fault(c, "an operand has no name, or there are too many");
        return;
    }
    o->as.name = name;
    o->as.tensor = tensor_number(c, name);
    if (position >= 0)
        o->again = pst_arena_printf(&c->arena, "%d", position);
    o->from_before = tensor == NULL;
    o->as.hidden = position < 0;
    if (tensor != NULL)
        set_window(c, tensor, o);
}

static bool has_operand(const struct alias_case *c, const char *name)
{
    for (unsigned i = 0; i < c->n_operands; i++)
        if (strcmp(c->operands[i].as.name, name) == 0)
            return true;
    return false;
}

static void add_operands(struct alias_case *c)
{
    json_t *x, *tensor;
    const char *key;
    size_t i;

    json_array_foreach(json_object_get(c->json, "args"), i, x)
        add_operand(c, json_string_value(x), (int)i);
    c->n_args = c->n_operands;
    if (json_object_get(c->json, "before") == NULL)
        return;
    json_object_foreach(json_object_get(c->json, "tensors"), key, tensor)
    {
        if (!has_operand(c, key))
            add_operand(c, key, -1);
    }
}

/* --- operators ------------------------------------------------------------ */

static bool is_name(const json_t *x)
{
    return json_is_string(x) && json_string_value(x)[0] == '%';
}

static bool has_names(const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (is_name(json_array_get(list, i)))
            return true;
    return false;
}

static void read_list(struct alias_case *c, const json_t *list,
                      struct pst_alias_program_arg *ret)
{
    const size_t n = json_array_size(list);
    bool real = false;

    for (size_t i = 0; i < n; i++)
        real = real || json_is_real(json_array_get(list, i));
    if (real) {
        double *floats = room(c, n, sizeof(*floats));

        for (size_t i = 0; i < n; i++)
            floats[i] = json_number_value(json_array_get(list, i));
        ret->literal = (struct pst_arg){
            .kind = PST_ARG_FLOATS, .n = (unsigned)n, .floats = floats};
    } else {
        int64_t *ints = room(c, n, sizeof(*ints));

        for (size_t i = 0; i < n; i++)
            ints[i] = json_integer_value(json_array_get(list, i));
        ret->literal = pst_ints(ints, (unsigned)n);
    }
}

static void read_names(struct alias_case *c, const json_t *list,
                       struct pst_alias_program_arg *ret)
{
    const size_t n = json_is_array(list) ? json_array_size(list) : 1;
    const char **names = room(c, n, sizeof(*names));

    for (size_t i = 0; i < n; i++) {
        const json_t *x = json_is_array(list) ? json_array_get(list, i) : list;

        names[i] = json_is_null(x) ? NULL : json_string_value(x) + 1;
    }
    ret->names = names;
    ret->n = (unsigned)n;
    ret->kind = json_is_array(list) ? PST_PROGRAM_NAMES : PST_PROGRAM_NAME;
}

static void read_arg(struct alias_case *c, const json_t *x,
                     struct pst_alias_program_arg *ret)
{
    if (is_name(x) || has_names(x))
        read_names(c, x, ret);
    else if (json_is_array(x))
        read_list(c, x, ret);
    else if (json_is_boolean(x))
        ret->literal = pst_b(json_is_true(x));
    else if (json_is_integer(x))
        ret->literal = pst_i(json_integer_value(x));
    else if (json_is_real(x))
        ret->literal = pst_f(json_real_value(x));
    else if (json_is_string(x))
        ret->literal = alias_dtype(json_string_value(x)) != PST_N_DTYPES
                           ? pst_dtype_arg(alias_dtype(json_string_value(x)))
                           : pst_text(json_string_value(x));
    else
        ret->literal = pst_none();
}

/* Returns the full name of an operator. "aten.clone" means
 * "aten.clone.default"; "aten.add.Tensor" means "aten.add.Scalar" if its
 * argument `other` is a number. */
static const char *full_name(struct alias_case *c, const json_t *op)
{
    const char *name = text_of(c, op, "op"), *last = strrchr(name, '.');
    const json_t *second = json_array_get(json_object_get(op, "args"), 1);
    const struct pst_op *row;

    if (last == strchr(name, '.'))
        return pst_arena_printf(&c->arena, "%s.default", name);
    row = pst_op_find(name) != NULL ? pst_op_find(name)
                                    : pst_functional_variant(name);
    if (strcmp(last, ".Tensor") == 0 && json_is_number(second) &&
        (row == NULL || pst_schema_arg(pst_op_schema(row), "other") == 1))
        return pst_arena_printf(&c->arena, "%.*s.Scalar", (int)(last - name),
                                name);
    return name;
}

static void read_op(struct alias_case *c, const json_t *op,
                    struct pst_alias_program_op *ret)
{
    const json_t *args = json_object_get(op, "args");
    json_t *kwargs = json_object_get(op, "kwargs"), *x;
    const json_t *outs = json_object_get(op, "out");
    struct pst_alias_program_arg *list = room(
        c, json_array_size(args) + json_object_size(kwargs), sizeof(*list));
    const char **names = room(c, json_array_size(outs), sizeof(*names));
    const char *key;
    size_t i;

    ret->op = full_name(c, op);
    ret->no_grad = json_is_true(json_object_get(op, "no_grad"));
    ret->stage = (unsigned)json_integer_value(json_object_get(op, "stage"));
    json_array_foreach((json_t *)args, i, x)
        read_arg(c, x, &list[ret->n_args++]);
    json_object_foreach(kwargs, key, x)
    {
        list[ret->n_args].keyword = key;
        read_arg(c, x, &list[ret->n_args++]);
    }
    json_array_foreach((json_t *)outs, i, x) names[ret->n_outs++] =
        json_string_value(x);
    ret->args = list;
    ret->outs = names;
}

static const struct pst_alias_program_op *read_ops(struct alias_case *c,
                                                   const char *key,
                                                   unsigned *ret_n)
{
    const json_t *list = json_object_get(c->json, key);
    struct pst_alias_program_op *ret =
        room(c, json_array_size(list), sizeof(*ret));

    *ret_n = (unsigned)json_array_size(list);
    for (unsigned i = 0; i < *ret_n; i++)
        read_op(c, json_array_get(list, i), &ret[i]);
    return ret;
}

static const char *const *read_returns(struct alias_case *c, unsigned *ret_n)
{
    const json_t *list = json_object_get(c->json, "returns");
    const char **ret = room(c, json_array_size(list), sizeof(*ret));

    *ret_n = (unsigned)json_array_size(list);
    for (unsigned i = 0; i < *ret_n; i++) {
        ret[i] = json_string_value(json_array_get(list, i));
        if (ret[i] == NULL) {
            fault(c, "return %u is not a name", i);
            ret[i] = "";
        }
    }
    return ret;
}

void alias_case_init(struct alias_case *c, const json_t *json)
{
    memset(c, 0, sizeof(*c));
    pst_arena_init(&c->arena, PST_TAG_TEST);
    c->json = json;
    add_storages(c);
    add_operands(c);
    c->program.before = read_ops(c, "before", &c->program.n_before);
    c->program.ops = read_ops(c, "ops", &c->program.n_ops);
    c->program.returns = read_returns(c, &c->program.n_returns);
}

void alias_case_fini(struct alias_case *c)
{
    pst_arena_fini(&c->arena);
}
