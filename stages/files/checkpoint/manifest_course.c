// SPDX-License-Identifier: Apache-2.0
/* Reads and writes the progress of a run in the manifest: updates of its
 * optimizer, the loss scale, and its position in the data. */
#include "stages/files/checkpoint/manifest.h"

#include <math.h>

static bool read_count(const json_t *value, uint64_t *ret)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return false;
    *ret = (uint64_t)json_integer_value(value);
    return true;
}

static enum pst_status report_bad_key(const char *what, struct pst_diag *diag)
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
    if (!read_count(updates, &info->updates) || info->updates > info->step)
        return report_bad_key("updates", diag);
    if (since != NULL && !json_is_object(since))
        return report_bad_key("updates_before", diag);
    json_object_foreach(since, name, value)
    {
        uint64_t n;

        if (!read_count(value, &n) || n > info->updates)
            return report_bad_key("updates_before", diag);
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
    return read_count(json_object_get(table, key), ret);
}

/* --- loss scale ----------------------------------------------------------- */

/* The scale is a power of two that f32 has (stages/optim/loss_scale.h), and is
 * stored as its exponent. */
bool pst_manifest_read_scale(struct pst_checkpoint_info *info,
                             const json_t *root)
{
    const json_t *table = json_object_get(root, "loss_scale");
    const json_t *exponent = json_object_get(table, "exponent");

    info->loss_scale = 0;
    if (table == NULL)
        return true;
    if (!json_is_integer(exponent) || json_integer_value(exponent) < -60 ||
        json_integer_value(exponent) > 127)
        return false;
    info->loss_scale = ldexp(1, (int)json_integer_value(exponent));
    return get_key(table, "good_steps", &info->good) &&
           get_key(table, "overflows", &info->overflows);
}

bool pst_manifest_add_scale(const struct pst_checkpoint_info *info,
                            json_t *root)
{
    if (info->loss_scale == 0)
        return true;
    return json_object_set_new(root, "loss_scale",
                               json_pack("{s:i, s:I, s:I}", "exponent",
                                         ilogb(info->loss_scale), "good_steps",
                                         (json_int_t)info->good, "overflows",
                                         (json_int_t)info->overflows)) == 0;
}

/* --- position in the data ------------------------------------------------- */

static bool read_source(struct pst_data_source_place *ret, const json_t *table)
{
    const char *name = json_string_value(json_object_get(table, "source"));

    /* older versions stored no name */
    (void)snprintf(ret->name, sizeof(ret->name), "%s", name ? name : "");
    return get_key(table, "pass", &ret->pass) && get_key(table, "at", &ret->at);
}

/* One source is stored in the table itself, several in "sources". */
bool pst_manifest_read_place(struct pst_checkpoint_info *info,
                             const json_t *root)
{
    const json_t *table = json_object_get(root, "data");
    const json_t *sources = json_object_get(table, "sources");
    const json_t *left_out = json_object_get(table, "left_out");
    const json_t *since = json_object_get(table, "since");
    struct pst_data_place *p = &info->place;
    bool good;

    *p = (struct pst_data_place){.known = table != NULL, .n = 1};
    if (table == NULL)
        return true;
    p->tokens = json_is_true(json_object_get(table, "tokens"));
    good = get_key(table, "step", &p->step) &&
           get_key(table, "unit", &p->unit) &&
           (left_out == NULL || read_count(left_out, &p->left_out)) &&
           (since == NULL || read_count(since, &p->since)) &&
           p->since <= info->step;
    if (sources == NULL)
        return good && read_source(&p->sources[0], table);
    p->n = (unsigned)PST_MIN(json_array_size(sources), PST_DATA_MAX_SOURCES);
    good = good && p->n == json_array_size(sources) && p->n > 0 &&
           get_key(table, "phase", &p->phase) &&
           get_key(table, "order", &p->order);
    for (unsigned i = 0; i < p->n && good; i++)
        good = read_source(&p->sources[i], json_array_get(sources, i));
    return good;
}

static json_t *pack_source(const struct pst_data_source_place *s)
{
    return json_pack("{s:s, s:I, s:I}", "source", s->name, "pass",
                     (json_int_t)s->pass, "at", (json_int_t)s->at);
}

/* Adds the sources; false if memory runs out. */
static bool add_sources(const struct pst_data_place *p, json_t *table)
{
    json_t *list = p->n > 1 ? json_array() : NULL;
    bool good = p->n == 1 || list != NULL;

    for (unsigned i = 0; i < p->n && good; i++) {
        json_t *source = pack_source(&p->sources[i]);

        good = p->n > 1
                   ? json_array_append_new(list, source) == 0
                   : source != NULL && json_object_update(table, source) == 0;
        if (p->n == 1)
            json_decref(source);
    }
    if (p->n == 1)
        return good;
    return json_object_set_new(table, "sources", list) == 0 && good &&
           json_object_set_new(table, "phase",
                               json_integer((json_int_t)p->phase)) == 0 &&
           json_object_set_new(table, "order",
                               json_integer((json_int_t)p->order)) == 0;
}

/* Adds a number, unless it is 0, as in most manifests. */
static bool add_count(const char *key, uint64_t n, json_t *table)
{
    return n == 0 ||
           json_object_set_new(table, key, json_integer((json_int_t)n)) == 0;
}

bool pst_manifest_add_place(const struct pst_checkpoint_info *info,
                            json_t *root)
{
    const struct pst_data_place *p = &info->place;
    json_t *table;

    if (!p->known)
        return true;
    table = json_pack("{s:b, s:I, s:I}", "tokens", (int)p->tokens, "step",
                      (json_int_t)p->step, "unit", (json_int_t)p->unit);
    if (table != NULL && add_count("left_out", p->left_out, table) &&
        add_count("since", p->since, table) && add_sources(p, table))
        return json_object_set_new(root, "data", table) == 0;
    json_decref(table);
    return false;
}
