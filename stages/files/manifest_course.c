// SPDX-License-Identifier: Apache-2.0
/* Reads and writes the progress of a run in the manifest: updates of its
 * optimizer, and its position in the data. */
#include "stages/files/manifest.h"

static bool get(const json_t *value, uint64_t *ret)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return false;
    *ret = (uint64_t)json_integer_value(value);
    return true;
}

static enum pst_status refuse(const char *what, struct pst_diag *diag)
{
    return pst_diag_set(diag, PST_E_CHECKPOINT_DAMAGED, "'%s' is wrong", what);
}

enum pst_status pst_manifest_read_updates(struct pst_manifest *m,
                                          const json_t *root,
                                          struct pst_diag *diag)
{
    struct pst_checkpoint_info *info = &m->info;
    const json_t *updates = json_object_get(root, "updates");
    json_t *since = json_object_get(root, "updates_before");
    enum pst_status status = PST_OK;
    const char *name;
    json_t *value;

    info->counts_updates = updates != NULL;
    info->updates = info->step;
    if (updates == NULL)
        return PST_OK;
    if (!get(updates, &info->updates) || info->updates > info->step)
        return refuse("updates", diag);
    if (since != NULL && !json_is_object(since))
        return refuse("updates_before", diag);
    json_object_foreach(since, name, value)
    {
        uint64_t n;

        if (!get(value, &n) || n > info->updates)
            return refuse("updates_before", diag);
        status = pst_state_names_add_since(&m->names, name, n, diag);
        if (status != PST_OK)
            return status;
    }
    return PST_OK;
}

bool pst_manifest_add_updates(const struct pst_manifest *m, json_t *root)
{
    json_t *since = m->names.since.n > 0 ? json_object() : NULL;

    if (!m->info.counts_updates)
        return true;
    if (json_object_set_new(root, "updates",
                            json_integer((json_int_t)m->info.updates)) != 0)
        return false;
    for (size_t i = 0; since != NULL && i < m->names.since.n; i++) {
        const struct pst_state_since *s = &m->names.since.at[i];

        if (json_object_set_new(since, s->param,
                                json_integer((json_int_t)s->updates)) != 0) {
            json_decref(since);
            return false;
        }
    }
    return m->names.since.n == 0 ||
           json_object_set_new(root, "updates_before", since) == 0;
}

static bool get_key(const json_t *table, const char *key, uint64_t *ret)
{
    return get(json_object_get(table, key), ret);
}

bool pst_manifest_read_place(struct pst_checkpoint_info *info,
                             const json_t *root)
{
    const json_t *table = json_object_get(root, "data");
    struct pst_data_place *p = &info->place;

    *p = (struct pst_data_place){.known = table != NULL};
    if (table == NULL)
        return true;
    p->tokens = json_is_true(json_object_get(table, "tokens"));
    return get_key(table, "pass", &p->pass) && get_key(table, "at", &p->at) &&
           get_key(table, "step", &p->step) && get_key(table, "unit", &p->unit);
}

bool pst_manifest_add_place(const struct pst_checkpoint_info *info,
                            json_t *root)
{
    const struct pst_data_place *p = &info->place;

    return !p->known ||
           json_object_set_new(
               root, "data",
               json_pack("{s:b, s:I, s:I, s:I, s:I}", "tokens", (int)p->tokens,
                         "pass", (json_int_t)p->pass, "at", (json_int_t)p->at,
                         "step", (json_int_t)p->step, "unit",
                         (json_int_t)p->unit)) == 0;
}
