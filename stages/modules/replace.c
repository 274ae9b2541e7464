// SPDX-License-Identifier: Apache-2.0
#include "stages/modules/replace.h"

#include "stages/graph/calls.h"
#include "stages/modules/alias.h"
#include "stages/modules/replacement.h"

#include <stdio.h>
#include <string.h>

#define TAG PST_TAG_PLAN

static enum pst_status no_memory(const struct pst_replacer *r)
{
    return pst_diag_nomem(r->diag, 0);
}

/* --- replaced calls ------------------------------------------------------- */

static bool is_wanted(void *ctx, const struct pst_module_call *call)
{
    const struct pst_replacer *r = ctx;

    return pst_renaming_is_path(&r->names, call->path) &&
           (r->call < 0 || call->index == (unsigned)r->call);
}

static bool is_own_state(void *ctx, const struct pst_value *value)
{
    const struct pst_replacer *r = ctx;

    return pst_renaming_is_own(&r->names, value);
}

static enum pst_status report_no_call(const struct pst_replacer *r)
{
    const struct pst_model *old = r->old;
    const char *path = r->path;
    unsigned calls = 0;
    int near;

    for (size_t i = 0; i < old->graph->calls.n; i++)
        calls += strcmp(old->graph->calls.at[i]->path, path) == 0;
    if (calls > 0)
        return pst_diag_set(r->diag, PST_E_MODULE_CALL_NUMBER,
                            "module \"%.200s\" has %u call%s, and none of "
                            "them is number %d",
                            path, calls, calls == 1 ? "" : "s", r->call);
    for (size_t i = 0; i < old->modules.n; i++)
        if (strcmp(old->modules.at[i], path) == 0)
            return pst_diag_set(r->diag, PST_E_MODULE_NOT_CALLED,
                                "module \"%.200s\" is in no call", path);
    /* In models made from a plan, `modules` lacks modules without a call. */
    for (size_t i = 0; i < old->weights.n; i++)
        if (strncmp(old->weights.at[i].fqn, path, strlen(path)) == 0 &&
            old->weights.at[i].fqn[strlen(path)] == '.')
            return pst_diag_set(r->diag, PST_E_MODULE_NOT_CALLED,
                                "module \"%.200s\" is in no call", path);
    near = pst_nearest(path, old->modules.at, old->modules.n);
    return pst_diag_set(r->diag, PST_E_MODULE_UNKNOWN,
                        "the model has no module \"%.200s\"%s%.200s%s", path,
                        near < 0 ? "" : "; the nearest name is \"",
                        near < 0 ? "" : old->modules.at[near],
                        near < 0 ? "" : "\"");
}

/* --- values that no node makes -------------------------------------------- */

static enum pst_status add_value(struct pst_replacer *r,
                                 const struct pst_value *like, const char *name,
                                 const char *fqn, struct pst_value **ret)
{
    *ret = pst_graph_add_value(r->graph, like->kind, name, fqn, &like->meta);
    if (*ret == NULL)
        return no_memory(r);
    (*ret)->requires_grad = like->requires_grad;
    (*ret)->persistent = like->persistent;
    return pst_exprs_copy(&r->graph->arena, like->dims, like->meta.rank,
                          &(*ret)->dims, r->diag);
}

/* Adds the new module's state once; all calls share it. */
static enum pst_status add_new_state(struct pst_replacer *r)
{
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < r->file->values.n && status == PST_OK; i++) {
        const struct pst_value *v = r->file->values.at[i];
        const char *fqn =
            pst_value_is_state(v) ? pst_renaming_new(&r->names, v->fqn) : NULL;

        if (!pst_value_is_state(v))
            continue;
        if (fqn == NULL)
            return no_memory(r);
        status = add_value(r, v, fqn, fqn, &r->state[i]);
        r->holds[i] = r->state[i];
    }
    return status;
}

/* Puts the inputs into the order of the old graph, in which data are given.
 * add_given() has put them into the order of the old graph's values, which
 * differs if an input is used before one that is declared before it
 * (pst_plan_model). */
static void order_inputs(struct pst_replacer *r)
{
    const struct pst_graph *old = r->old->graph;

    for (size_t i = 0; i < old->inputs.n; i++)
        r->graph->inputs.at[i] = r->replay.map[old->inputs.at[i]->id];
}

/* Adds values in the order of the old graph; new state takes the position of
 * the old. */
static enum pst_status add_given(struct pst_replacer *r)
{
    const struct pst_graph *old = r->old->graph;
    enum pst_status status = PST_OK;
    bool added = false;

    for (size_t i = 0; i < old->values.n && status == PST_OK; i++) {
        const struct pst_value *v = old->values.at[i];
        const char *fqn = v->fqn;

        if (v->kind == PST_VALUE_NODE)
            continue;
        if (pst_value_is_state(v)) {
            fqn = pst_renaming_old(&r->names, v);
            if (fqn == NULL && !added) {
                added = true;
                status = add_new_state(r);
            }
            if (fqn == NULL)
                continue;
        }
        if (status == PST_OK)
            status = add_value(r, v, v->name, fqn, &r->replay.map[i]);
        r->current[i] = r->replay.map[i];
    }
    if (status == PST_OK && !added)
        status = add_new_state(r);
    if (status == PST_OK)
        order_inputs(r);
    return status;
}

/* --- outputs and calls ---------------------------------------------------- */

static enum pst_status put_outputs(struct pst_replacer *r)
{
    const struct pst_graph *old = r->old->graph;
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < old->outputs.n && status == PST_OK; i++) {
        struct pst_output output = old->outputs.at[i];

        if (output.target != NULL) {
            output.target = r->replay.map[output.target->id];
            if (output.target == NULL)
                continue; /* updates a buffer of the old module */
        }
        if (output.arg.kind == PST_ARG_VALUE) {
            output.arg.value = r->replay.map[output.arg.value->id];
            if (output.arg.value == NULL)
                return pst_diag_set(r->diag, PST_E_SWAP_REPLACE,
                                    "output \"%s\" of the model is state of "
                                    "module \"%s\"",
                                    output.path, r->path);
        }
        /* Only the old module updated the target: no output is needed. */
        if (output.target != NULL && output.arg.value == output.target)
            continue;
        status = pst_graph_add_output(r->graph, &output, r->diag);
    }
    for (size_t i = 0; i < r->file->outputs.n && status == PST_OK; i++) {
        struct pst_output output = r->file->outputs.at[i];

        if (output.kind != PST_OUTPUT_BUFFER_UPDATE)
            continue;
        output.arg = pst_v(r->holds[output.target->id]);
        output.target = r->state[output.target->id];
        output.path = output.target->name;
        status = pst_graph_add_output(r->graph, &output, r->diag);
    }
    return status;
}

/* Adds all calls except those inside replaced ones, with their signatures. */
static enum pst_status put_calls(struct pst_replacer *r)
{
    const struct pst_graph *old = r->old->graph;
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < old->calls.n && status == PST_OK; i++) {
        const struct pst_module_call *call = old->calls.at[i];
        const int frame = pst_frames_of(&r->frames, call);
        struct pst_module_call *copy;

        if (frame < 0 || r->frames.at.at[frame].call == call)
            status = pst_graph_adopt_call(r->graph, call, &copy, r->diag);
    }
    return status == PST_OK ? pst_graph_carry_signatures(old, r->graph,
                                                         r->replay.map, r->diag)
                            : status;
}

/* --- the model ------------------------------------------------------------ */

static enum pst_status list_paths(struct pst_replacer *r)
{
    const struct pst_graph *old = r->old->graph;
    const char *identity = NULL;

    if (!pst_vec_push(TAG, &r->names.paths, r->path))
        return no_memory(r);
    for (size_t i = 0; i < old->calls.n && identity == NULL; i++)
        if (strcmp(old->calls.at[i]->path, r->path) == 0)
            identity = old->calls.at[i]->identity;
    for (size_t i = 0; r->aliases && identity != NULL && i < old->calls.n;
         i++) {
        const struct pst_module_call *call = old->calls.at[i];
        const bool known =
            identity[0] != '\0' && strcmp(call->identity, identity) == 0;

        if (!pst_renaming_is_path(&r->names, call->path) &&
            (known || pst_have_same_state(r->old, r->path, call->path)) &&
            !pst_vec_push(TAG, &r->names.paths, call->path))
            return no_memory(r);
    }
    return PST_OK;
}

/* Finds out whether other calls of the paths keep the old module. */
static enum pst_status find_remaining_calls(struct pst_replacer *r)
{
    const struct pst_graph *old = r->old->graph;

    for (size_t i = 0; i < old->calls.n; i++) {
        const struct pst_module_call *call = old->calls.at[i];

        if (pst_renaming_is_path(&r->names, call->path) &&
            pst_frames_of(&r->frames, call) < 0)
            r->names.stays = true;
    }
    if (!r->names.stays)
        return PST_OK;
    r->names.prefix =
        pst_arena_printf(&r->model->arena, "%s@%d", r->path, r->call);
    return r->names.prefix != NULL ? PST_OK : no_memory(r);
}

static enum pst_status list_file(struct pst_replacer *r)
{
    const struct pst_model *m = r->module;

    for (size_t i = 0; i < m->arguments.n; i++) {
        const struct pst_leaf leaf = {m->arguments.at[i].path,
                                      m->arguments.at[i].arg};

        if (!pst_vec_push(TAG, &r->arguments.at, leaf))
            return no_memory(r);
    }
    for (size_t i = 0; i < r->file->outputs.n; i++) {
        const struct pst_output *output = &r->file->outputs.at[i];
        const struct pst_leaf leaf = {output->path, output->arg};

        if (output->kind == PST_OUTPUT_INPUT_UPDATE)
            return pst_diag_set(r->diag, PST_E_SWAP_REPLACE,
                                "the new module writes its input \"%s\"",
                                output->target->name);
        if (output->kind == PST_OUTPUT_USER &&
            !pst_vec_push(TAG, &r->results.at, leaf))
            return no_memory(r);
    }
    return PST_OK;
}

static enum pst_status fill_head(struct pst_replacer *r)
{
    const struct pst_model *old = r->old;
    struct pst_model *to = r->model;
    enum pst_status status =
        pst_symbols_copy(&old->symbols, &to->symbols, r->diag);
    struct pst_str text = {0};

    to->name = old->name;
    to->torch_version = old->torch_version;
    to->decomposed = old->decomposed;
    to->evaluates = old->evaluates;
    to->autocast = old->autocast;
    to->n_casts = old->n_casts + r->module->n_casts;
    to->lost = old->lost != NULL ? old->lost : r->module->lost;
    to->writes = old->writes || r->module->writes;
    to->fixed = old->fixed;
    pst_str_addf(&text, "%s %s %d %d %s", old->digest, r->path, r->call,
                 r->aliases, r->module->digest);
    pst_digest(pst_str_text(&text), text.len, to->digest);
    pst_str_fini(&text);
    for (size_t i = 0; i < old->notes.n && status == PST_OK; i++)
        if (!pst_vec_push(TAG, &to->notes, old->notes.at[i]))
            status = no_memory(r);
    for (size_t i = 0; i < old->arguments.n && status == PST_OK; i++)
        if (!pst_vec_push(TAG, &to->arguments, old->arguments.at[i]))
            status = no_memory(r);
    return status;
}

static enum pst_status build_graph(struct pst_replacer *r)
{
    enum pst_status status = pst_replacer_place(r);

    if (status == PST_OK)
        status = put_outputs(r);
    if (status == PST_OK)
        status = put_calls(r);
    if (status != PST_OK)
        return status;
    pst_graph_dce(r->graph, false);
    return pst_graph_verify(r->graph, r->diag);
}

static enum pst_status prepare_maps(struct pst_replacer *r)
{
    struct pst_arena *arena = &r->frames.arena;
    const size_t n = r->old->graph->values.n + 1, m = r->file->values.n + 1;

    r->replay.map = pst_arena_calloc(arena, n, sizeof(void *));
    r->current = pst_arena_calloc(arena, n, sizeof(void *));
    r->inner.map = pst_arena_calloc(arena, m, sizeof(void *));
    r->state = pst_arena_calloc(arena, m, sizeof(void *));
    r->holds = pst_arena_calloc(arena, m, sizeof(void *));
    r->done = pst_arena_calloc(arena, r->frames.at.n + 1, sizeof(bool));
    if (r->replay.map == NULL || r->current == NULL || r->inner.map == NULL ||
        r->state == NULL || r->holds == NULL || r->done == NULL)
        return no_memory(r);
    pst_build_init(&r->replay.build, r->graph, r->diag);
    pst_build_init(&r->inner.build, r->graph, r->diag);
    pst_build_init(&r->sizing, r->graph, r->diag);
    r->sizes.symbols = &r->model->symbols;
    r->sizing.sizes = &r->sizes;
    r->graph->next_node_id = r->old->graph->next_node_id;
    return PST_OK;
}

/* Makes the model's sizes fixed if the new module does not work for other
 * sizes. */
static enum pst_status fix_sizes(struct pst_replacer *r)
{
    struct pst_model *to = r->model;

    if (to->fixed != NULL || (!r->fixed && r->sizes.fixed == NULL))
        return PST_OK;
    to->fixed = pst_arena_printf(&to->arena,
                                 "module \"%s\" was replaced by one of fixed "
                                 "sizes",
                                 r->path);
    return to->fixed != NULL ? PST_OK : no_memory(r);
}

static bool is_removed(const struct pst_replacer *r, const char *module)
{
    for (size_t i = 0; i < r->names.paths.n && !r->names.stays; i++) {
        const size_t n = strlen(r->names.paths.at[i]);

        if (strncmp(module, r->names.paths.at[i], n) == 0 &&
            (module[n] == '\0' || module[n] == '.'))
            return true;
    }
    return false;
}

/* Keeps the adapters of layers that still exist. */
static enum pst_status keep_adapters(struct pst_replacer *r)
{
    for (size_t i = 0; i < r->old->adapters.n; i++) {
        const struct pst_adapter *adapter = &r->old->adapters.at[i];

        if (!is_removed(r, adapter->module) &&
            pst_model_weight(r->model, adapter->weight) != NULL &&
            pst_model_weight(r->model, adapter->down) != NULL &&
            pst_model_weight(r->model, adapter->up) != NULL &&
            !pst_vec_push(TAG, &r->model->adapters, *adapter))
            return no_memory(r);
    }
    return PST_OK;
}

static enum pst_status replace_calls(struct pst_replacer *r)
{
    enum pst_status status;

    if (r->frames.at.n == 0)
        return report_no_call(r);
    status = find_remaining_calls(r);
    if (status == PST_OK)
        status = pst_renaming_move_storages(&r->names);
    if (status == PST_OK)
        status = prepare_maps(r);
    if (status == PST_OK)
        status = list_file(r);
    if (status == PST_OK)
        status = fill_head(r);
    if (status == PST_OK)
        status = add_given(r);
    if (status == PST_OK)
        status = build_graph(r);
    if (status == PST_OK)
        status = fix_sizes(r);
    if (status == PST_OK)
        status = pst_renaming_fill(&r->names);
    return status == PST_OK ? keep_adapters(r) : status;
}

enum pst_status pst_model_replace(const struct pst_model *model,
                                  const struct pst_replacement *what,
                                  struct pst_model **ret, unsigned *ret_calls,
                                  struct pst_diag *diag)
{
    struct pst_replacer r = {.old = model,
                             .path = what->path,
                             .call = what->call,
                             .aliases = what->aliases,
                             .module = what->module,
                             .file = what->module->graph,
                             .diag = diag};
    enum pst_status status = pst_model_new(&r.model, diag);

    if (status != PST_OK)
        return status;
    status = pst_graph_new(&r.model->graph, diag);
    r.graph = r.model->graph;
    pst_renaming_init(&r.names, model, what->module, r.model, diag);
    r.names.call = what->call;
    if (status == PST_OK)
        status = pst_renaming_index(&r.names);
    if (status == PST_OK)
        status = list_paths(&r);
    if (status == PST_OK)
        status = pst_frames_init(&r.frames, model->graph, is_wanted,
                                 is_own_state, &r, diag);
    if (status == PST_OK) {
        status = replace_calls(&r);
        if (status == PST_OK && ret_calls != NULL)
            *ret_calls = (unsigned)r.frames.at.n;
        pst_frames_fini(&r.frames);
    }
    pst_vec_fini(&r.arguments.at);
    pst_vec_fini(&r.results.at);
    pst_renaming_fini(&r.names);
    if (status == PST_OK)
        *ret = r.model;
    else
        pst_model_close(r.model);
    return status;
}
