// SPDX-License-Identifier: Apache-2.0
#include "stages/modules/renaming.h"

#include "stages/base/str.h"

#include <stdlib.h>
#include <string.h>

#define TAG        PST_TAG_PLAN
#define MAX_JOINED 200 /* longest name to append another one to, in bytes */

static enum pst_status no_memory(const struct pst_renaming *r)
{
    return pst_diag_nomem(r->diag, 0);
}

/* True if the name is below the path. "@CALL" after a component is skipped:
 * "n@1.g.w" is below "n" and "n.g". *ret_call: the number after the path
 * itself; -1: none. */
static bool is_below_path(const char *name, const char *path, int *ret_call)
{
    *ret_call = -1;
    for (;; path++) {
        if (*name == '@') {
            const int call = (int)strtol(name + 1, (char **)&name, 10);

            *ret_call = *path == '\0' ? call : -1;
        }
        if (*path == '\0')
            return *name == '.';
        if (*name++ != *path)
            return false;
    }
}

static bool is_below(const struct pst_renaming *r, const char *name)
{
    int call;

    for (size_t i = 0; i < r->paths.n; i++)
        if (is_below_path(name, r->paths.at[i], &call))
            return true;
    return false;
}

/* True if the old name is removed: it is below the paths and, if other calls
 * keep the module, belongs to the replaced call alone. */
static bool is_removed(const struct pst_renaming *r, const char *name)
{
    int call = -1;
    bool below = false;

    for (size_t i = 0; i < r->paths.n && !below; i++)
        below = is_below_path(name, r->paths.at[i], &call);
    return below && (!r->stays || (call >= 0 && call == r->call));
}

/* --- single values -------------------------------------------------------- */

void pst_renaming_init(struct pst_renaming *r, const struct pst_model *old,
                       const struct pst_model *module, struct pst_model *model,
                       struct pst_diag *diag)
{
    *r = (struct pst_renaming){
        .old = old, .module = module, .model = model, .diag = diag};
    pst_map_init(&r->ties, TAG);
    pst_map_init(&r->storages, TAG);
    pst_map_init(&r->kept, TAG);
}

enum pst_status pst_renaming_index(struct pst_renaming *r)
{
    bool ok = true;

    for (size_t i = 0; i < r->old->ties.n; i++)
        ok = pst_map_put(&r->ties, r->old->ties.at[i].fqn,
                         &r->old->ties.at[i]) &&
             ok;
    for (size_t i = 0; i < r->old->storages.n; i++)
        ok = pst_map_put(&r->storages, r->old->storages.at[i].fqn,
                         &r->old->storages.at[i]) &&
             ok;
    return ok ? PST_OK : no_memory(r);
}

void pst_renaming_fini(struct pst_renaming *r)
{
    pst_vec_fini(&r->paths);
    pst_map_fini(&r->ties);
    pst_map_fini(&r->storages);
    pst_map_fini(&r->kept);
}

bool pst_renaming_is_path(const struct pst_renaming *r, const char *path)
{
    for (size_t i = 0; i < r->paths.n; i++)
        if (strcmp(path, r->paths.at[i]) == 0)
            return true;
    return false;
}

/* Returns a name of the value that is below the paths or, if !below, one that
 * is not; NULL if there is none. */
static const char *find_name(const struct pst_renaming *r,
                             const struct pst_value *value, bool below)
{
    const struct pst_tie *tie = pst_map_get(&r->ties, value->fqn);
    const struct pst_state_storage *s = pst_map_get(&r->storages, value->fqn);
    const char *kept = pst_map_get(&r->kept, value->fqn);

    if ((s == NULL || !s->nameless) && is_below(r, value->fqn) == below)
        return value->fqn;
    for (unsigned i = 0; tie != NULL && i < tie->n_aliases; i++)
        if (is_below(r, tie->aliases[i]) == below)
            return tie->aliases[i];
    /* If a part of the storage has such a name, returns the name of the whole
     * storage. */
    for (unsigned i = 0; s != NULL && i < s->n_windows; i++)
        if (is_below(r, s->windows[i].fqn) == below)
            return below || kept == NULL ? value->fqn : kept;
    return NULL;
}

bool pst_renaming_is_own(const struct pst_renaming *r,
                         const struct pst_value *value)
{
    return find_name(r, value, true) != NULL;
}

const char *pst_renaming_old(const struct pst_renaming *r,
                             const struct pst_value *value)
{
    return r->stays && !is_removed(r, value->fqn) ? value->fqn
                                                  : find_name(r, value, false);
}

/* Returns a name for a storage, made of the names of its parts that stay:
 * "c.k+c.v", or "c.k+". */
static const char *name_parts(const struct pst_renaming *r,
                              const struct pst_state_storage *s)
{
    struct pst_str name = {0};
    const char *ret = NULL;
    unsigned n = 0;

    for (unsigned i = 0; i < s->n_windows; i++)
        if (!is_removed(r, s->windows[i].fqn) && name.len < MAX_JOINED)
            pst_str_addf(&name, "%s%s", n++ > 0 ? "+" : "", s->windows[i].fqn);
    if (n == 1)
        pst_str_add(&name, "+");
    if (!name.failed)
        ret = pst_arena_strdup(&r->model->arena, pst_str_text(&name));
    pst_str_fini(&name);
    return ret;
}

enum pst_status pst_renaming_move_storages(struct pst_renaming *r)
{
    for (size_t i = 0; i < r->old->storages.n; i++) {
        const struct pst_state_storage *s = &r->old->storages.at[i];
        const struct pst_value value = {.fqn = s->fqn};
        const char *name;

        if (!is_removed(r, s->fqn) || pst_renaming_old(r, &value) != s->fqn)
            continue;
        name = name_parts(r, s);
        if (name == NULL || !pst_map_put(&r->kept, s->fqn, (void *)name))
            return no_memory(r);
    }
    return PST_OK;
}

static const char *join_name(const struct pst_renaming *r, const char *prefix,
                             const char *name)
{
    return pst_arena_printf(&r->model->arena, "%s.%s", prefix, name);
}

const char *pst_renaming_prefix(const struct pst_renaming *r)
{
    return r->prefix != NULL ? r->prefix : r->paths.at[0];
}

const char *pst_renaming_new(const struct pst_renaming *r, const char *name)
{
    return join_name(r, pst_renaming_prefix(r), name);
}

/* --- weights -------------------------------------------------------------- */

static enum pst_status add_weight(struct pst_renaming *r,
                                  const struct pst_model *source,
                                  const struct pst_weight *from,
                                  const char *fqn)
{
    struct pst_weight w = *from;

    if (w.source == NULL)
        w.source = source;
    w.fqn = fqn;
    return fqn != NULL && pst_vec_push(TAG, &r->model->weights, w)
               ? PST_OK
               : no_memory(r);
}

/* Returns the number of names that a tensor of the new module gets in the
 * model: one below each path, or one below the prefix. */
static size_t n_prefixes(const struct pst_renaming *r)
{
    return r->prefix != NULL ? 1 : r->paths.n;
}

static const char *prefix_of(const struct pst_renaming *r, size_t i)
{
    return r->prefix != NULL ? r->prefix : r->paths.at[i];
}

static enum pst_status fill_weights(struct pst_renaming *r)
{
    struct pst_model *to = r->model;
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < r->old->weights.n && status == PST_OK; i++) {
        const struct pst_weight *w = &r->old->weights.at[i];
        const char *kept = pst_map_get(&r->kept, w->fqn);

        if (kept != NULL || !is_removed(r, w->fqn))
            status = add_weight(r, r->old, w, kept != NULL ? kept : w->fqn);
    }
    for (size_t i = 0; i < r->module->weights.n; i++)
        for (size_t k = 0; k < n_prefixes(r) && status == PST_OK; k++)
            status = add_weight(
                r, r->module, &r->module->weights.at[i],
                join_name(r, prefix_of(r, k), r->module->weights.at[i].fqn));
    for (size_t i = 0; i < to->weights.n && status == PST_OK; i++) {
        struct pst_weight *w = &to->weights.at[i];

        if (pst_map_has(&to->weights_by_fqn, w->fqn))
            return pst_diag_set(r->diag, PST_E_SWAP_NAME_TAKEN,
                                "\"%s\" of the new module is already a name "
                                "of the model's state",
                                w->fqn);
        if (!pst_map_put(&to->weights_by_fqn, w->fqn, w))
            status = no_memory(r);
    }
    return status;
}

/* --- names of values ------------------------------------------------------ */

struct names {
    struct PST_VEC(const char *) at;
};

static enum pst_status add_tie(struct pst_renaming *r, const char *fqn,
                               const struct names *names)
{
    struct pst_tie tie = {.fqn = fqn, .n_aliases = (unsigned)names->at.n};

    if (names->at.n == 0)
        return PST_OK;
    tie.aliases = pst_arena_memdup(&r->model->arena, names->at.at,
                                   names->at.n * sizeof(char *));
    return tie.aliases != NULL && pst_vec_push(TAG, &r->model->ties, tie)
               ? PST_OK
               : no_memory(r);
}

static enum pst_status add_name(struct pst_renaming *r, struct names *names,
                                const char *name, const char *but)
{
    if (name == NULL)
        return no_memory(r);
    if (strcmp(name, but) == 0)
        return PST_OK;
    return pst_vec_push(TAG, &names->at, name) ? PST_OK : no_memory(r);
}

static enum pst_status fill_old_ties(struct pst_renaming *r)
{
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < r->old->ties.n && status == PST_OK; i++) {
        const struct pst_tie *tie = &r->old->ties.at[i];
        const struct pst_value value = {.fqn = tie->fqn};
        const char *fqn = pst_renaming_old(r, &value);
        struct names names = {.at = {0}};

        if (fqn == NULL)
            continue;
        if (!is_removed(r, tie->fqn))
            status = add_name(r, &names, tie->fqn, fqn);
        for (unsigned k = 0; k < tie->n_aliases && status == PST_OK; k++)
            if (!is_removed(r, tie->aliases[k]))
                status = add_name(r, &names, tie->aliases[k], fqn);
        if (status == PST_OK)
            status = add_tie(r, fqn, &names);
        pst_vec_fini(&names.at);
    }
    return status;
}

/* Adds the names of a value of the file below each path. */
static enum pst_status fill_new_tie(struct pst_renaming *r,
                                    const struct pst_value *value,
                                    const struct pst_tie *tie)
{
    const char *fqn = pst_renaming_new(r, value->fqn);
    struct names names = {.at = {0}};
    enum pst_status status = fqn != NULL ? PST_OK : no_memory(r);

    for (size_t k = 0; k < n_prefixes(r) && status == PST_OK; k++) {
        status =
            add_name(r, &names, join_name(r, prefix_of(r, k), value->fqn), fqn);
        for (unsigned i = 0;
             tie != NULL && i < tie->n_aliases && status == PST_OK; i++)
            status = add_name(
                r, &names, join_name(r, prefix_of(r, k), tie->aliases[i]), fqn);
    }
    if (status == PST_OK)
        status = add_tie(r, fqn, &names);
    pst_vec_fini(&names.at);
    return status;
}

static enum pst_status fill_new_ties(struct pst_renaming *r)
{
    const struct pst_graph *graph = r->module->graph;
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < graph->values.n && status == PST_OK; i++) {
        const struct pst_value *v = graph->values.at[i];
        const struct pst_tie *tie = NULL;

        if (!pst_value_is_state(v))
            continue;
        for (size_t k = 0; k < r->module->ties.n && tie == NULL; k++)
            if (strcmp(r->module->ties.at[k].fqn, v->fqn) == 0)
                tie = &r->module->ties.at[k];
        status = fill_new_tie(r, v, tie);
    }
    return status;
}

/* --- windows -------------------------------------------------------------- */

static enum pst_status add_storage(struct pst_renaming *r,
                                   const struct pst_state_storage *from,
                                   bool is_new)
{
    const char *kept = pst_map_get(&r->kept, from->fqn);
    struct pst_state_storage to = *from;
    struct pst_named_window *windows =
        pst_arena_calloc(&r->model->arena, from->n_windows * n_prefixes(r) + 1,
                         sizeof(*windows));

    to.windows = windows;
    to.n_windows = 0;
    to.fqn = is_new         ? pst_renaming_new(r, from->fqn)
             : kept != NULL ? kept
                            : from->fqn;
    if (windows == NULL || to.fqn == NULL)
        return no_memory(r);
    for (unsigned i = 0; i < from->n_windows; i++) {
        for (size_t k = 0; k < (is_new ? n_prefixes(r) : 1); k++) {
            struct pst_named_window *w = &windows[to.n_windows];

            if (!is_new && is_removed(r, from->windows[i].fqn))
                continue;
            *w = from->windows[i];
            if (is_new)
                w->fqn = join_name(r, prefix_of(r, k), w->fqn);
            if (w->fqn == NULL)
                return no_memory(r);
            to.n_windows++;
        }
    }
    if (to.n_windows == 0 && to.nameless)
        return PST_OK;
    to.nameless = to.nameless || (!is_new && is_removed(r, from->fqn));
    return pst_vec_push(TAG, &r->model->storages, to) ? PST_OK : no_memory(r);
}

static enum pst_status fill_modules(struct pst_renaming *r)
{
    struct pst_model *to = r->model;

    for (size_t i = 0; i < r->old->modules.n; i++)
        if (!is_removed(r, r->old->modules.at[i]) &&
            !pst_vec_push(TAG, &to->modules, r->old->modules.at[i]))
            return no_memory(r);
    for (size_t i = 0; i < r->module->modules.n; i++)
        for (size_t k = 0; k < r->paths.n; k++) {
            const char *name =
                join_name(r, r->paths.at[k], r->module->modules.at[i]);

            if (name == NULL || !pst_vec_push(TAG, &to->modules, name))
                return no_memory(r);
        }
    return PST_OK;
}

enum pst_status pst_renaming_fill(struct pst_renaming *r)
{
    enum pst_status status = fill_weights(r);

    if (status == PST_OK)
        status = fill_old_ties(r);
    if (status == PST_OK)
        status = fill_new_ties(r);
    for (size_t i = 0; i < r->old->storages.n && status == PST_OK; i++)
        status = add_storage(r, &r->old->storages.at[i], false);
    for (size_t i = 0; i < r->module->storages.n && status == PST_OK; i++)
        status = add_storage(r, &r->module->storages.at[i], true);
    return status == PST_OK ? fill_modules(r) : status;
}
