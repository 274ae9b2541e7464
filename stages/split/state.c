// SPDX-License-Identifier: Apache-2.0
/* Parameters, buffers and constants of a plan: who reads them, who holds them,
 * and their start values. */
#include "stages/files/safetensors.h"
#include "stages/ops/op.h"
#include "stages/split/pack.h"
#include "stages/split/split.h"

#include <string.h>

#define TAG PST_TAG_PLAN

static enum pst_status copy_names(struct pst_splitter *s,
                                  const struct pst_map *ties,
                                  struct pst_plan_param *param)
{
    const struct pst_tie *tie = pst_map_get(ties, param->fqn);
    struct pst_arena *arena = &s->plan->arena;

    param->fqn = pst_arena_strdup(arena, param->fqn);
    param->n_aliases = tie == NULL ? 0 : tie->n_aliases;
    param->aliases =
        pst_arena_calloc(arena, param->n_aliases + 1, sizeof(char *));
    if (param->fqn == NULL || param->aliases == NULL)
        return pst_diag_nomem(s->diag, 0);
    for (unsigned k = 0; k < param->n_aliases; k++) {
        param->aliases[k] = pst_arena_strdup(arena, tie->aliases[k]);
        if (param->aliases[k] == NULL)
            return pst_diag_nomem(s->diag, 0);
    }
    return PST_OK;
}

static enum pst_status copy_windows(struct pst_splitter *s,
                                    struct pst_plan_param *param)
{
    const struct pst_state_storage *storage = NULL;
    struct pst_arena *arena = &s->plan->arena;

    for (size_t i = 0; i < s->model->storages.n && storage == NULL; i++)
        if (strcmp(s->model->storages.at[i].fqn, param->fqn) == 0)
            storage = &s->model->storages.at[i];
    if (storage == NULL)
        return PST_OK;
    param->nameless = storage->nameless;
    param->n_windows = storage->n_windows;
    param->windows = pst_arena_memdup(
        arena, storage->windows, storage->n_windows * sizeof(*param->windows));
    if (param->windows == NULL)
        return pst_diag_nomem(s->diag, storage->n_windows);
    for (unsigned k = 0; k < param->n_windows; k++) {
        param->windows[k].fqn =
            pst_arena_strdup(arena, storage->windows[k].fqn);
        if (param->windows[k].fqn == NULL)
            return pst_diag_nomem(s->diag, 0);
    }
    return PST_OK;
}

static bool is_state(const struct pst_value *value)
{
    return value->kind == PST_VALUE_PARAM || value->kind == PST_VALUE_BUFFER ||
           value->kind == PST_VALUE_CONST;
}

static enum pst_status add_param(struct pst_splitter *s,
                                 const struct pst_map *ties,
                                 const struct pst_value *value)
{
    struct pst_plan_param param = {.fqn = value->fqn,
                                   .kind = value->kind,
                                   .meta = value->meta,
                                   .requires_grad = value->requires_grad,
                                   .persistent = value->persistent};
    enum pst_status status = copy_names(s, ties, &param);

    if (status == PST_OK)
        status = copy_windows(s, &param);
    if (status != PST_OK)
        return status;
    pst_meta_set_contiguous(&param.meta);
    return pst_vec_push(TAG, &s->plan->params, param)
               ? PST_OK
               : pst_diag_nomem(s->diag, sizeof(param));
}

/* Counts the readers of each parameter, then lists them. */
static enum pst_status list_readers(struct pst_splitter *s, bool list)
{
    struct pst_plan *plan = s->plan;

    for (unsigned k = 0; k < plan->stages.n; k++) {
        const struct pst_graph *graph = plan->stages.at[k].graph;

        for (size_t i = 0; i < graph->values.n; i++) {
            struct pst_plan_param *param;

            if (!is_state(graph->values.at[i]))
                continue;
            param =
                &plan->params
                     .at[pst_plan_find_param(plan, graph->values.at[i]->fqn)];
            if (list)
                param->stages[param->n_stages] = k;
            param->n_stages++;
        }
    }
    for (size_t i = 0; i < plan->params.n; i++) {
        struct pst_plan_param *param = &plan->params.at[i];

        if (list) {
            param->home = param->n_stages > 0 ? param->stages[0] : 0;
            continue;
        }
        param->stages = pst_arena_calloc(&plan->arena, param->n_stages + 1,
                                         sizeof(*param->stages));
        param->uses = pst_arena_calloc(&plan->arena, param->n_stages + 1,
                                       sizeof(*param->uses));
        param->n_stages = 0;
        if (param->stages == NULL || param->uses == NULL)
            return pst_diag_nomem(s->diag, 0);
    }
    return PST_OK;
}

static enum pst_status unknown_param(struct pst_splitter *s, const char *name,
                                     const char *what)
{
    const struct pst_map *index = &s->plan->names;
    const char **names =
        pst_arena_calloc(&s->plan->arena, index->n + 1, sizeof(*names));
    int near;

    if (names == NULL)
        return pst_diag_nomem(s->diag, 0);
    for (size_t i = 0; i < index->n; i++)
        names[i] = index->entries[i].key;
    near = pst_nearest(name, names, index->n);
    return pst_diag_set(s->diag, PST_ERR_INPUT,
                        "the model has no parameter \"%.200s\" to %s%s"
                        "%.200s%s",
                        name, what, near < 0 ? "" : "; the nearest name is \"",
                        near < 0 ? "" : names[near], near < 0 ? "" : "\"");
}

/* A parameter by any of its names, to be transmitted or replicated. */
static enum pst_status find_param(struct pst_splitter *s, const char *name,
                                  const char *what, struct pst_plan_param **ret)
{
    const int index = pst_plan_find_param(s->plan, name);

    if (index < 0)
        return unknown_param(s, name, what);
    *ret = &s->plan->params.at[index];
    if ((*ret)->kind != PST_VALUE_PARAM)
        return pst_diag_set(s->diag, PST_ERR_INPUT,
                            "\"%.200s\" is no parameter: buffers and constants "
                            "are copied, there is nothing to %s",
                            name, what);
    if ((*ret)->n_stages > 1)
        return PST_OK;
    return pst_split_note(
        s, "\"%.200s\" is read by %s, so there is nothing to %s", name,
        (*ret)->n_stages == 1 ? "one stage only" : "no stage", what);
}

static enum pst_status mark_transmitted(struct pst_splitter *s)
{
    const struct pst_split_options *o = s->options;
    struct pst_plan_param *param;
    enum pst_status status;

    for (size_t i = 0; i < o->n_transmit; i++) {
        status = find_param(s, o->transmit[i], "transmit", &param);
        if (status != PST_OK)
            return status;
        param->transmit = param->n_stages > 1;
    }
    for (size_t i = 0; i < o->n_replicate; i++) {
        status = find_param(s, o->replicate[i], "replicate", &param);
        if (status != PST_OK)
            return status;
        if (param->transmit)
            return pst_diag_set(s->diag, PST_ERR_USAGE,
                                "\"%.200s\" is to be replicated and "
                                "transmitted: name it once",
                                o->replicate[i]);
    }
    return PST_OK;
}

enum pst_status pst_split_state(struct pst_splitter *s)
{
    struct pst_map ties; /* a name -> those that are one tensor with it */
    enum pst_status status = PST_OK;

    pst_map_init(&ties, TAG);
    for (size_t i = s->model->ties.n; i-- > 0 && status == PST_OK;)
        if (!pst_map_put(&ties, s->model->ties.at[i].fqn,
                         &s->model->ties.at[i]))
            status = pst_diag_nomem(s->diag, sizeof(struct pst_tie));
    for (size_t i = 0; i < s->graph->values.n && status == PST_OK; i++)
        if (is_state(s->graph->values.at[i]))
            status = add_param(s, &ties, s->graph->values.at[i]);
    pst_map_fini(&ties);
    if (status == PST_OK)
        status = pst_plan_index(s->plan, s->diag);
    if (status == PST_OK)
        status = list_readers(s, false);
    if (status == PST_OK)
        status = list_readers(s, true);
    if (status == PST_OK)
        status = mark_transmitted(s);
    return status;
}

/* --- start values ------------------------------------------------------- */

static enum pst_status read_model(const struct pst_plan *plan,
                                  const struct pst_plan_param *param, void *dst,
                                  struct pst_diag *diag)
{
    const struct pst_weight *weight = pst_model_weight(plan->model, param->fqn);

    if (weight == NULL || weight->absent)
        return pst_diag_set(diag, PST_ERR_INPUT,
                            "the model file holds no data of \"%s\"",
                            param->fqn);
    /* A narrow parameter that is trained is kept in f32. */
    if (!pst_meta_same_shape(&weight->meta, &param->meta))
        return pst_diag_set(diag, PST_ERR_MISMATCH,
                            "the model file holds \"%s\" in another shape",
                            param->fqn);
    return pst_model_read(plan->model, weight, &param->meta, dst, diag);
}

/* Stays open until the plan is freed: a plan has many parameters. */
struct pst_plan_file {
    struct pst_safetensors *st; /* NULL: not open yet */
    bool whole;                 /* its digest was compared */
};

/* The size goes first: it costs nothing, and what the header of a file that
 * was cut says is of no use. */
static enum pst_status check_size(const struct pst_stage *stage,
                                  const char *path, struct pst_diag *diag)
{
    struct pst_file file;
    enum pst_status status = pst_file_open(path, &file, diag);

    if (status != PST_OK)
        return status;
    if (file.size != stage->weights_size)
        status = pst_diag_set(
            diag, PST_ERR_INPUT,
            "%s is damaged: it has %llu bytes, stage %u was saved with %llu",
            path, (unsigned long long)file.size, stage->index,
            (unsigned long long)stage->weights_size);
    pst_file_close(&file);
    return status;
}

static enum pst_status open_weights(struct pst_plan *plan, unsigned stage,
                                    struct pst_plan_file **ret,
                                    struct pst_diag *diag)
{
    enum pst_status status = PST_OK;
    struct pst_plan_file *file;
    char *path;

    if (plan->files == NULL) {
        plan->files = pst_calloc(TAG, plan->stages.n, sizeof(*plan->files));
        if (plan->files == NULL)
            return pst_diag_nomem(diag, plan->stages.n * sizeof(*plan->files));
    }
    file = &plan->files[stage];
    if (file->st == NULL) {
        path = pst_arena_printf(&plan->arena, "%s/%s", plan->dir,
                                plan->stages.at[stage].weights);
        if (path == NULL)
            return pst_diag_nomem(diag, 0);
        status = check_size(&plan->stages.at[stage], path, diag);
        if (status == PST_OK)
            status = pst_safetensors_open(path, &file->st, diag);
    }
    *ret = file;
    return status;
}

/* Reads all of the file, once. */
static enum pst_status check_whole(const struct pst_plan *plan, unsigned stage,
                                   struct pst_plan_file *file,
                                   struct pst_diag *diag)
{
    enum pst_status status;
    char digest[33];

    if (file->whole)
        return PST_OK;
    status = pst_file_digest(pst_safetensors_file(file->st), digest, diag);
    if (status != PST_OK)
        return status;
    if (strcmp(digest, plan->stages.at[stage].weights_digest) != 0)
        return pst_diag_set(diag, PST_ERR_INPUT,
                            "%s/%s is damaged: it is not what stage %u was "
                            "saved with, its digest does not fit",
                            plan->dir, plan->stages.at[stage].weights, stage);
    file->whole = true;
    return PST_OK;
}

/* The parameter's entry in its home's file; with `whole`, in a file that is as
 * it was saved. */
static enum pst_status find_entry(struct pst_plan *plan,
                                  const struct pst_plan_param *param,
                                  bool whole,
                                  const struct pst_safetensors_entry **ret,
                                  struct pst_diag *diag)
{
    const struct pst_safetensors_entry *entry;
    struct pst_plan_file *file = NULL;
    enum pst_status status = open_weights(plan, param->home, &file, diag);
    bool fits;

    if (status != PST_OK)
        return status;
    entry = pst_safetensors_find(file->st, param->fqn);
    fits = entry != NULL && pst_meta_same(&entry->meta, &param->meta);
    if (whole || !fits)
        status = check_whole(plan, param->home, file, diag);
    if (status != PST_OK)
        return status;
    if (!fits)
        return pst_diag_set(diag, PST_ERR_MISMATCH,
                            "%s/%s does not hold \"%s\" as the plan wants it",
                            plan->dir, plan->stages.at[param->home].weights,
                            param->fqn);
    *ret = entry;
    return PST_OK;
}

static enum pst_status read_file(struct pst_plan *plan,
                                 const struct pst_plan_param *param, void *dst,
                                 struct pst_diag *diag)
{
    const struct pst_safetensors_entry *entry = NULL;
    enum pst_status status = find_entry(plan, param, true, &entry, diag);

    return status == PST_OK
               ? pst_safetensors_read(entry, 0, entry->bytes, dst, diag)
               : status;
}

enum pst_status pst_plan_entry(struct pst_plan *plan, unsigned i,
                               const struct pst_safetensors_entry **ret,
                               struct pst_diag *diag)
{
    if (plan->dir == NULL)
        return pst_diag_set(diag, PST_ERR_INTERNAL, "the plan has no files");
    return find_entry(plan, &plan->params.at[i], true, ret, diag);
}

enum pst_status pst_plan_check_weights(struct pst_plan *plan,
                                       struct pst_diag *diag)
{
    for (size_t i = 0; i < plan->params.n; i++) {
        const struct pst_safetensors_entry *entry = NULL;
        enum pst_status status =
            find_entry(plan, &plan->params.at[i], false, &entry, diag);

        if (status != PST_OK)
            return status;
    }
    return PST_OK;
}

enum pst_status pst_plan_read_param(struct pst_plan *plan, unsigned i,
                                    void *dst, struct pst_diag *diag)
{
    const struct pst_plan_param *param = &plan->params.at[i];

    if (plan->parent != NULL)
        return pst_plan_read_param(plan->parent, i, dst, diag);
    if (plan->dir != NULL)
        return read_file(plan, param, dst, diag);
    if (plan->model == NULL)
        return pst_diag_set(diag, PST_ERR_INTERNAL, "the plan has no weights");
    return read_model(plan, param, dst, diag);
}

void pst_plan_close_files(struct pst_plan *plan)
{
    for (size_t i = 0; plan->files != NULL && i < plan->stages.n; i++)
        pst_safetensors_close(plan->files[i].st);
    pst_free(plan->files);
    plan->files = NULL;
}
