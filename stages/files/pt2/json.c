// SPDX-License-Identifier: Apache-2.0
/* Accessors of JSON values. */
#include "stages/files/pt2/json.h"

#include "stages/base/str.h"

#include <math.h>
#include <string.h>

#define FEW 8 /* objects with at most so many members have no hash table */

/* --- keys --------------------------------------------------------------- */

static bool is_same(const char *a, const char *b)
{
    return a == b || (*a == *b && strcmp(a, b) == 0);
}

/* Returns the size of a hash table for n keys: a power of two, at least 2 *
 * n. */
static size_t count_slots(size_t n)
{
    size_t slots = 16;

    while (slots < 2 * n)
        slots *= 2;
    return slots;
}

static size_t slot_of(const char *key, size_t n_slots)
{
    return (size_t)pst_hash(key, strlen(key), 0) & (n_slots - 1);
}

static const struct pst_json *find_member(const struct pst_json *object,
                                          const char *key)
{
    const size_t n_slots = count_slots(object->n);

    for (size_t i = slot_of(key, n_slots); object->slots[i] != 0;
         i = (i + 1) & (n_slots - 1)) {
        const struct pst_json *member = &object->at[object->slots[i] - 1];

        if (is_same(member->key, key))
            return member;
    }
    return NULL;
}

const struct pst_json *pst_json_get(const struct pst_json *object,
                                    const char *key)
{
    const size_t n = pst_json_members(object);

    if (n > FEW)
        return find_member(object, key);
    for (size_t i = 0; i < n; i++)
        if (is_same(object->at[i].key, key))
            return &object->at[i];
    return NULL;
}

enum pst_status pst_json_index(struct pst_json *object, struct pst_arena *arena)
{
    const size_t n_slots = count_slots(object->n);
    uint32_t *slots;

    if (object->n <= FEW) {
        for (size_t i = 1; i < object->n; i++)
            for (size_t k = 0; k < i; k++)
                if (is_same(object->at[i].key, object->at[k].key))
                    return PST_ERR_INPUT;
        return PST_OK;
    }
    slots = pst_arena_calloc(arena, n_slots, sizeof(*slots));
    if (slots == NULL)
        return PST_ERR_NOMEM;
    object->slots = slots;
    for (uint32_t i = 0; i < object->n; i++) {
        const char *key = object->at[i].key;
        size_t at = slot_of(key, n_slots);

        for (; slots[at] != 0; at = (at + 1) & (n_slots - 1))
            if (is_same(object->at[slots[at] - 1].key, key))
                return PST_ERR_INPUT;
        slots[at] = i + 1;
    }
    return PST_OK;
}

/* --- values ------------------------------------------------------------- */

bool pst_json_is(const struct pst_json *json, enum pst_json_kind kind)
{
    return json != NULL && json->kind == kind;
}

size_t pst_json_length(const struct pst_json *array)
{
    return pst_json_is(array, PST_JSON_ARRAY) ? array->n : 0;
}

size_t pst_json_members(const struct pst_json *object)
{
    return pst_json_is(object, PST_JSON_OBJECT) ? object->n : 0;
}

const struct pst_json *pst_json_at(const struct pst_json *array, size_t i)
{
    return i < pst_json_length(array) ? &array->at[i] : NULL;
}

const struct pst_json *pst_json_next(const struct pst_json *object,
                                     const struct pst_json *last)
{
    const size_t n = pst_json_members(object);

    if (last == NULL)
        return n > 0 ? object->at : NULL;
    return last + 1 < object->at + n ? last + 1 : NULL;
}

const char *pst_json_string(const struct pst_json *json)
{
    return pst_json_is(json, PST_JSON_STRING) ? json->text : NULL;
}

int64_t pst_json_integer(const struct pst_json *json)
{
    return pst_json_is(json, PST_JSON_INTEGER) ? json->integer : 0;
}

bool pst_json_true(const struct pst_json *json)
{
    return pst_json_is(json, PST_JSON_BOOL) && json->boolean;
}

bool pst_json_false(const struct pst_json *json)
{
    return pst_json_is(json, PST_JSON_BOOL) && !json->boolean;
}

bool pst_json_double(const struct pst_json *json, double *ret)
{
    const char *text = pst_json_string(json);

    if (pst_json_is(json, PST_JSON_INTEGER))
        *ret = (double)json->integer;
    else if (pst_json_is(json, PST_JSON_REAL))
        *ret = json->real;
    else if (text != NULL && strcmp(text, "Infinity") == 0)
        *ret = INFINITY;
    else if (text != NULL && strcmp(text, "-Infinity") == 0)
        *ret = -INFINITY;
    else if (text != NULL && strcmp(text, "NaN") == 0)
        *ret = NAN;
    else
        return false;
    return true;
}

static const char *kind_name(enum pst_json_kind kind)
{
    static const char *const names[] = {"an object",  "a list",   "text",
                                        "an integer", "a number", "a boolean",
                                        "null"};

    return names[kind];
}

const struct pst_json *pst_json_member(const struct pst_json *object,
                                       const char *key, enum pst_json_kind kind,
                                       const char *where, struct pst_diag *diag)
{
    const struct pst_json *member = pst_json_get(object, key);

    if (pst_json_is(member, kind))
        return member;
    if (member == NULL)
        pst_diag_set(diag, PST_E_PT2_JSON, "%s: \"%s\" is missing", where, key);
    else
        pst_diag_set(diag, PST_E_PT2_JSON, "%s: \"%s\" is not %s", where, key,
                     kind_name(kind));
    return NULL;
}

const char *pst_json_text(const struct pst_json *object, const char *key,
                          const char *where, struct pst_diag *diag)
{
    return pst_json_string(
        pst_json_member(object, key, PST_JSON_STRING, where, diag));
}

const char *pst_json_union(const struct pst_json *object,
                           const struct pst_json **payload, const char *where,
                           struct pst_diag *diag)
{
    if (pst_json_members(object) != 1) {
        pst_diag_set(diag, PST_E_PT2_JSON,
                     "%s: expected an object with exactly one key", where);
        return NULL;
    }
    *payload = &object->at[0];
    return object->at[0].key;
}
