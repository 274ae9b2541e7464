// SPDX-License-Identifier: Apache-2.0
#include "tests/alias/case.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void set_fault(struct alias_case *c, const char *fmt, ...)
    PST_PRINTF(2, 3);

static void set_fault(struct alias_case *c, const char *fmt, ...)
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
        set_fault(c, "something has no text \"%s\"", key);
    return ret != NULL ? ret : "";
}

static enum pst_dtype dtype_of(struct alias_case *c, const json_t *object)
{
    const char *name = text_of(c, object, "dtype");
    const enum pst_dtype ret = pst_alias_text_dtype(name);

    if (ret != PST_N_DTYPES)
        return ret;
    set_fault(c, "dtype \"%s\" is not known", name);
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

static void *alloc_zeroed(struct alias_case *c, size_t n, size_t size)
{
    void *ret = pst_arena_calloc(&c->arena, n + 1, size);

    assert_non_null(ret);
    return ret;
}

/* --- storages ------------------------------------------------------------- */

static void store_number(enum pst_dtype dtype, void *data, size_t i,
                         const json_t *x)
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
            set_fault(c, "a run writes %zu values to \"%s\", which has %zu",
                      json_array_size(list), key, n);
        json_array_foreach(list, i, x)
        {
            if (i < n)
                store_number(c->storage_dtypes[k], c->storages[k].data, i, x);
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
            set_fault(c, "too many storages or values");
            return;
        }
        c->storage_names[k] = key;
        c->storage_dtypes[k] = dtype_of(c, storage);
        c->storages[k].bytes = n * pst_dtype_size(c->storage_dtypes[k]);
        c->storages[k].data = alloc_zeroed(c, c->storages[k].bytes + 8, 1);
        json_array_foreach(values, i, x)
            store_number(c->storage_dtypes[k], c->storages[k].data, i, x);
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
        set_fault(c, "\"%s\" has no storage or too many dimensions",
                  ret->as.name);
    if (alias_ints(json_object_get(tensor, "strides"), strides) != rank)
        set_fault(c, "\"%s\" has not as many strides as sizes", ret->as.name);
    if (c->fault[0] != '\0')
        return;
    ret->as.storage = (unsigned)storage;
    ret->as.meta = pst_meta_make(dtype_of(c, tensor), rank, sizes);
    memcpy(ret->as.meta.stride, strides, rank * sizeof(*strides));
    ret->as.offset = json_integer_value(json_object_get(tensor, "offset"));
}

/* Sets the operands: their names are those of the program, their windows come
 * from the case. */
static void add_operands(struct alias_case *c)
{
    const struct pst_alias_text *text = c->text;

    if (text->n_operands > CASE_MAX) {
        set_fault(c, "too many operands");
        return;
    }
    for (unsigned i = 0; i < text->n_operands; i++) {
        c->operands[i] = text->operands[i];
        if (!c->operands[i].from_before)
            set_window(c,
                       json_object_get(json_object_get(c->json, "tensors"),
                                       c->operands[i].as.name),
                       &c->operands[i]);
    }
    c->n_operands = text->n_operands;
    c->n_args = text->n_args;
}

/* Reads the program of the case, which is itself a text of a program; the
 * parser ignores the members that only this driver reads. */
static void read_program(struct alias_case *c)
{
    char *text = json_dumps(c->json, JSON_REAL_PRECISION(17));
    struct pst_diag diag;

    assert_non_null(text);
    pst_diag_init(&diag);
    if (pst_alias_text_parse(text, strlen(text), &c->text, &diag) != PST_OK)
        set_fault(c, "%.180s", diag.text);
    free(text);
}

void alias_case_init(struct alias_case *c, const json_t *json)
{
    memset(c, 0, sizeof(*c));
    pst_arena_init(&c->arena, PST_TAG_TEST);
    c->json = json;
    add_storages(c);
    read_program(c);
    if (c->text == NULL)
        return;
    c->program = c->text->program;
    add_operands(c);
}

void alias_case_fini(struct alias_case *c)
{
    pst_alias_text_free(c->text);
    pst_arena_fini(&c->arena);
}
