// SPDX-License-Identifier: Apache-2.0
/* Reads and writes "state_dict" of a manifest: key -> tensor, or a view of one;
 * also the adapters among the tensors. */
#include "stages/files/checkpoint/manifest.h"

#include <string.h>

static enum pst_status report_bad_names(struct pst_diag *diag)
{
    return pst_diag_set(diag, PST_E_CHECKPOINT_DAMAGED,
                        "'state_dict' is wrong");
}

/* Reads a list of natural numbers, one per dimension. */
static bool read_list(const json_t *list, unsigned *ret_rank,
                      int64_t ret[PST_MAX_RANK])
{
    const size_t n = json_array_size(list);

    if (!json_is_array(list) || n > PST_MAX_RANK)
        return false;
    for (size_t i = 0; i < n; i++) {
        const json_t *x = json_array_get(list, i);

        if (!json_is_integer(x) || json_integer_value(x) < 0)
            return false;
        ret[i] = json_integer_value(x);
    }
    *ret_rank = (unsigned)n;
    return true;
}

static bool read_window(const json_t *json, struct pst_state_name *ret)
{
    const json_t *offset = json_object_get(json, "offset");
    unsigned rank;

    ret->is_window = true;
    if (!json_is_integer(offset) || json_integer_value(offset) < 0 ||
        !read_list(json_object_get(json, "size"), &ret->meta.rank,
                   ret->meta.size) ||
        !read_list(json_object_get(json, "stride"), &rank, ret->meta.stride))
        return false;
    ret->offset = json_integer_value(offset);
    return rank == ret->meta.rank;
}

/* Reads an entry that is a view, or complex numbers, or both. */
static bool read_object(const json_t *json, struct pst_state_name *ret)
{
    ret->tensor = json_string_value(json_object_get(json, "tensor"));
    ret->is_complex = json_is_true(json_object_get(json, "complex"));
    return json_object_get(json, "offset") == NULL || read_window(json, ret);
}

enum pst_status pst_manifest_read_names(struct pst_manifest *m,
                                        const json_t *table,
                                        struct pst_diag *diag)
{
    enum pst_status status = PST_OK;
    const char *key;
    json_t *value;

    m->has_names = table != NULL;
    if (table != NULL && !json_is_object(table))
        return report_bad_names(diag);
    json_object_foreach((json_t *)table, key, value)
    {
        struct pst_state_name name = {.key = key};

        if (json_is_string(value))
            name.tensor = json_string_value(value);
        else if (!read_object(value, &name))
            return report_bad_names(diag);
        if (name.tensor == NULL || !pst_map_has(&m->tensors, name.tensor))
            return report_bad_names(diag);
        status = pst_state_names_add(&m->names, &name, diag);
        if (status != PST_OK)
            return status;
    }
    return status;
}

static json_t *make_list(const int64_t *at, unsigned n)
{
    json_t *list = json_array();

    for (unsigned i = 0; list != NULL && i < n; i++)
        if (json_array_append_new(list, json_integer(at[i])) != 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

/* Returns the JSON of an entry; NULL if memory is out. */
static json_t *make_name(const struct pst_state_name *name)
{
    json_t *object;
    bool whole = true;

    if (!name->is_window && !name->is_complex)
        return json_string(name->tensor);
    object = json_pack("{s:s}", "tensor", name->tensor);
    if (name->is_complex)
        whole = json_object_set_new(object, "complex", json_true()) == 0;
    if (name->is_window)
        whole =
            whole &&
            json_object_set_new(object, "offset",
                                json_integer((json_int_t)name->offset)) == 0 &&
            json_object_set_new(object, "size",
                                make_list(name->meta.size, name->meta.rank)) ==
                0 &&
            json_object_set_new(
                object, "stride",
                make_list(name->meta.stride, name->meta.rank)) == 0;
    if (whole)
        return object;
    json_decref(object);
    return NULL;
}

json_t *pst_manifest_make_names(const struct pst_manifest *m)
{
    json_t *table = json_object();

    for (size_t i = 0; table != NULL && i < m->names.all.n; i++) {
        const struct pst_state_name *name = &m->names.all.at[i];

        if (json_object_set_new(table, name->key, make_name(name)) != 0) {
            json_decref(table);
            return NULL;
        }
    }
    return table;
}

/* --- adapters ------------------------------------------------------------- */

static const char *get_tensor(const struct pst_manifest *m, const json_t *item,
                              const char *key)
{
    const char *tensor = json_string_value(json_object_get(item, key));

    return tensor != NULL && pst_map_has(&m->tensors, tensor) ? tensor : NULL;
}

enum pst_status pst_manifest_read_adapters(struct pst_manifest *m,
                                           const json_t *list,
                                           struct pst_diag *diag)
{
    const size_t n = json_array_size(list);
    enum pst_status status = PST_OK;

    if (list != NULL && !json_is_array(list))
        return pst_diag_set(diag, PST_E_CHECKPOINT_DAMAGED,
                            "'adapters' is wrong");
    for (size_t i = 0; i < n && status == PST_OK; i++) {
        const json_t *item = json_array_get(list, i);
        const struct pst_adapter adapter = {
            .module = json_string_value(json_object_get(item, "module")),
            .weight = get_tensor(m, item, "weight"),
            .down = get_tensor(m, item, "down"),
            .up = get_tensor(m, item, "up"),
            .alpha = json_number_value(json_object_get(item, "alpha")),
            .transposed = json_is_true(json_object_get(item, "transposed")),
            .shared = json_is_true(json_object_get(item, "shared"))};

        if (adapter.module == NULL || adapter.weight == NULL ||
            adapter.down == NULL || adapter.up == NULL)
            return pst_diag_set(diag, PST_E_CHECKPOINT_DAMAGED,
                                "'adapters' is wrong");
        status = pst_adapters_add(&m->names.adapters, &m->names.arena, &adapter,
                                  diag);
    }
    return status;
}

enum pst_status pst_manifest_read_changed(struct pst_manifest *m,
                                          const json_t *list,
                                          struct pst_diag *diag)
{
    const size_t n = json_array_size(list);

    if (list != NULL && !json_is_array(list))
        return pst_diag_set(diag, PST_E_CHECKPOINT_DAMAGED,
                            "'changed' is wrong");
    for (size_t i = 0; i < n; i++) {
        const char *name = json_string_value(json_array_get(list, i));
        const char *copy;

        if (name == NULL || !pst_map_has(&m->tensors, name) ||
            strchr(name, '.') == NULL)
            return pst_diag_set(diag, PST_E_CHECKPOINT_DAMAGED,
                                "'changed' is wrong");
        copy = pst_arena_strdup(&m->names.arena, name);
        if (copy == NULL ||
            !pst_vec_push(PST_TAG_ARCHIVE, &m->names.changed, copy))
            return pst_diag_nomem(diag, strlen(name));
    }
    return PST_OK;
}

json_t *pst_manifest_make_changed(const struct pst_manifest *m)
{
    json_t *list = json_array();

    for (size_t i = 0; list != NULL && i < m->names.changed.n; i++)
        if (json_array_append_new(list, json_string(m->names.changed.at[i])) !=
            0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

json_t *pst_manifest_make_adapters(const struct pst_manifest *m)
{
    const struct pst_adapters *adapters = &m->names.adapters;
    json_t *list = json_array();

    for (size_t i = 0; list != NULL && i < adapters->n; i++) {
        const struct pst_adapter *a = &adapters->at[i];
        json_t *item = json_pack(
            "{s:s s:s s:s s:s s:f s:b s:b}", "module", a->module, "weight",
            a->weight, "down", a->down, "up", a->up, "alpha", a->alpha,
            "transposed", (int)a->transposed, "shared", (int)a->shared);

        if (json_array_append_new(list, item) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}
