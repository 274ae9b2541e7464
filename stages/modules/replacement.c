// SPDX-License-Identifier: Apache-2.0
/* Emits the nodes of the new graph: those of the old one, with the file's in
 * place of the replaced calls. */
#include "stages/modules/replacement.h"

#include "stages/graph/calls.h"
#include "stages/graph/schema.h"

static enum pst_status no_memory(const struct pst_replacer *r)
{
    return pst_diag_nomem(r->diag, 0);
}

static void record_versions(const struct pst_replacer *r,
                            const struct pst_node *node)
{
    for (unsigned k = 0; k < node->n_outs; k++) {
        const struct pst_value *of = node->outs[k]->version_of;

        if (of != NULL)
            r->current[of->id] = r->replay.map[node->outs[k]->id];
    }
}

/* Adds the replaced call, with the new module's class. */
static enum pst_status add_call(struct pst_replacer *r,
                                const struct pst_frame *frame,
                                struct pst_module_call **ret)
{
    struct pst_module_call like = *frame->call, *parent;
    enum pst_status status =
        pst_graph_adopt_call(r->graph, like.parent, &parent, r->diag);

    if (status != PST_OK)
        return status;
    like.parent = parent;
    like.type = r->file->calls.at[0]->type;
    return pst_graph_add_call(r->graph, &like, ret, r->diag);
}

/* True if the old graph has a call with that path and index that stays. */
static bool stays_in_graph(const struct pst_replacer *r, const char *path,
                           unsigned index)
{
    const struct pst_module_call *call =
        pst_graph_find_call(r->old->graph, path, index);

    return call != NULL && pst_frames_of(&r->frames, call) < 0;
}

/* Adds the file's calls inside the replaced call, with the next index that is
 * unused for their path. */
static enum pst_status place_calls(struct pst_replacer *r,
                                   const struct pst_frame *frame,
                                   const struct pst_module_call **calls)
{
    struct pst_arena *arena = &r->graph->arena;

    for (size_t i = 1; i < r->file->calls.n; i++) {
        const struct pst_module_call *from = r->file->calls.at[i];
        struct pst_module_call like = *from, *added;
        enum pst_status status;

        like.parent = calls[from->parent->id];
        like.path =
            pst_arena_printf(arena, "%s.%s", frame->call->path, from->path);
        like.identity = pst_arena_printf(
            arena, "%s/%s", pst_renaming_prefix(&r->names),
            from->identity[0] != '\0' ? from->identity : from->path);
        if (like.path == NULL || like.identity == NULL)
            return no_memory(r);
        like.index = from->index;
        while (pst_graph_find_call(r->graph, like.path, like.index) != NULL ||
               stays_in_graph(r, like.path, like.index))
            like.index++;
        status = pst_graph_add_call(r->graph, &like, &added, r->diag);
        if (status != PST_OK)
            return status;
        calls[i] = added;
    }
    return PST_OK;
}

/* Copies the file's graph and gives its nodes their calls, ids and names in the
 * new graph. Ids are those of the replaced nodes, then new ones. */
static enum pst_status copy_part(struct pst_replacer *r,
                                 const struct pst_frame *frame,
                                 struct pst_graph **ret)
{
    const struct pst_module_call **calls = pst_arena_calloc(
        &r->frames.arena, r->file->calls.n, sizeof(const void *));
    struct pst_module_call *call = NULL;
    enum pst_status status = add_call(r, frame, &call);

    if (calls == NULL)
        return no_memory(r);
    calls[0] = call;
    if (status == PST_OK)
        status = place_calls(r, frame, calls);
    if (status == PST_OK)
        status = pst_graph_copy(r->file, ret, r->diag);
    if (status != PST_OK)
        return status;
    for (size_t i = 0; i < (*ret)->nodes.n; i++) {
        struct pst_node *node = (*ret)->nodes.at[i];

        node->call = calls[node->call->id];
        node->id =
            i < frame->ids.n ? frame->ids.at[i] : r->graph->next_node_id++;
        node->stage = frame->stage;
        node->no_grad = node->no_grad || (frame->no_grad && frame->ids.n > 0);
        for (unsigned k = 0; k < node->n_outs; k++) {
            node->outs[k]->name =
                pst_arena_printf(&(*ret)->arena, "%s_%s", frame->call->path,
                                 node->outs[k]->name);
            if (node->outs[k]->name == NULL)
                return no_memory(r);
        }
    }
    return PST_OK;
}

static enum pst_status bind_inputs(struct pst_replacer *r,
                                   const struct pst_frame *frame,
                                   const struct pst_match *match)
{
    unsigned n = 0;

    for (size_t i = 0; i < r->file->values.n; i++)
        r->inner.map[i] = r->holds[i];
    for (size_t i = 0; i < r->arguments.at.n; i++) {
        const struct pst_arg *arg = &r->arguments.at.at[i].arg;
        const struct pst_arg *given;

        if (arg->kind != PST_ARG_VALUE)
            continue;
        given = &frame->ins.at.at[match->ins[n++]].arg;
        if (given->kind == PST_ARG_VALUE)
            r->inner.map[arg->value->id] = r->replay.map[given->value->id];
        if (r->inner.map[arg->value->id] == NULL)
            return pst_diag_set(r->diag, PST_E_SWAP_REPLACE,
                                "module \"%s\" uses \"%s\" before it is "
                                "defined",
                                frame->call->name, r->arguments.at.at[i].path);
    }
    return PST_OK;
}

/* Maps buffers that a replaced node updated to their values before it, for the
 * nodes that follow. */
static void skip_versions(struct pst_replacer *r, const struct pst_node *node)
{
    for (unsigned k = 0; k < node->n_outs; k++)
        if (node->outs[k]->version_of != NULL)
            r->replay.map[node->outs[k]->id] =
                r->current[node->outs[k]->version_of->id];
}

/* True if a node of the call computes the value's storage. */
static bool is_own(const struct pst_replacer *r, const struct pst_frame *frame,
                   struct pst_value *v)
{
    const struct pst_node *def = pst_value_storage(v)->def;
    const int at = def != NULL ? pst_frames_of(&r->frames, def->call) : -1;

    return at >= 0 && &r->frames.at.at[at] == frame;
}

/* Checks that the new results alias the same inputs as the old ones, because
 * the model's in-place writes were functionalised on that basis. */
static enum pst_status check_aliases(const struct pst_replacer *r,
                                     const struct pst_frame *frame,
                                     const struct pst_match *match)
{
    for (size_t i = 0; r->old->writes && i < frame->outs.at.n; i++) {
        const struct pst_arg *out = &frame->outs.at.at[i].arg;
        const struct pst_value *result;
        bool old, new;

        if (match->outs[i] < 0 || out->kind != PST_ARG_VALUE)
            continue;
        result = r->results.at.at[match->outs[i]].arg.value;
        old = is_own(r, frame, out->value);
        new = (result->base != NULL ? result->base : result)->kind ==
              PST_VALUE_NODE;
        if (old == new)
            continue;
        return pst_diag_set(
            r->diag, PST_E_SWAP_REPLACE,
            "module \"%s\": the model writes in place, and result \"%s\" of "
            "the %s module is (a view of) what it takes, that of the "
            "other one is not%s",
            frame->call->name, r->results.at.at[match->outs[i]].path,
            old ? "new" : "old", old ? ": return a clone()" : "");
    }
    return PST_OK;
}

/* --- sizes ---------------------------------------------------------------- */

/* Finds the values of the file's symbolic sizes at this call. */
static enum pst_status unify_sizes(struct pst_replacer *r,
                                   struct pst_unified *u)
{
    enum pst_status status = PST_OK;

    for (unsigned pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < r->arguments.at.n && status == PST_OK; i++) {
            const struct pst_arg *arg = &r->arguments.at.at[i].arg;

            if (arg->kind == PST_ARG_VALUE)
                status = (pass == 0 ? pst_unified_bind : pst_unified_compare)(
                    u, arg->value, r->inner.map[arg->value->id], r->diag);
        }
    if (status == PST_OK)
        status = pst_unified_limit(u, r->diag);
    r->fixed = r->fixed || u->fixed;
    return status;
}

static unsigned count_numbers(const struct pst_arg *arg)
{
    return arg->kind == PST_ARG_INTS || arg->kind == PST_ARG_FLOATS ? arg->n
                                                                    : 1;
}

/* Translates the expressions of a new node from the file's symbols to the
 * model's. */
static enum pst_status translate_node(struct pst_replacer *r,
                                      const struct pst_unified *u,
                                      struct pst_node *node)
{
    struct pst_arena *arena = &r->graph->arena;
    enum pst_status status = PST_OK;

    for (unsigned k = 0; k < node->schema->n_args && status == PST_OK; k++)
        status = pst_unified_translate(u, node->args[k].exprs,
                                       count_numbers(&node->args[k]), arena,
                                       &node->args[k].exprs, r->diag);
    for (unsigned k = 0; k < node->n_outs && status == PST_OK; k++)
        status = pst_unified_translate(u, node->outs[k]->dims,
                                       node->outs[k]->meta.rank, arena,
                                       &node->outs[k]->dims, r->diag);
    return status;
}

/* Checks that the new result has the old one's shape, and requires the same for
 * all values of symbolic sizes. */
static enum pst_status check_sizes(struct pst_replacer *r,
                                   const struct pst_frame *frame,
                                   const char *path,
                                   const struct pst_value *old,
                                   const struct pst_value *result)
{
    char a[PST_META_TEXT], b[PST_META_TEXT];

    if (!pst_meta_same_shape(&old->meta, &result->meta))
        return pst_diag_set(r->diag, PST_E_SWAP_INTERFACE,
                            "module \"%s\" returns %s, the new module's \"%s\" "
                            "is %s there",
                            frame->call->name, pst_meta_text(&old->meta, a),
                            path, pst_meta_text(&result->meta, b));
    for (unsigned d = 0; d < old->meta.rank; d++) {
        const struct pst_extent x = pst_extent_of(&r->sizing, old, d);
        const struct pst_extent y = pst_extent_of(&r->sizing, result, d);

        if (x.expr != NULL && y.expr == NULL)
            r->fixed = true;
        else
            (void)pst_extent_is(&r->sizing, x, y);
    }
    return r->sizing.status;
}

/* Maps the results of the call to those of the file. */
static enum pst_status map_results(struct pst_replacer *r,
                                   const struct pst_frame *frame,
                                   const struct pst_match *match)
{
    enum pst_status status;

    for (size_t i = 0; i < frame->outs.at.n; i++) {
        const struct pst_arg *out = &frame->outs.at.at[i].arg;
        const struct pst_arg *result;

        if (match->outs[i] < 0 || out->kind != PST_ARG_VALUE)
            continue;
        result = &r->results.at.at[match->outs[i]].arg;
        status = check_sizes(r, frame, r->results.at.at[match->outs[i]].path,
                             out->value, r->inner.map[result->value->id]);
        if (status != PST_OK)
            return status;
        r->replay.map[out->value->id] = r->inner.map[result->value->id];
    }
    for (size_t i = 0; i < r->file->outputs.n; i++) {
        const struct pst_output *output = &r->file->outputs.at[i];

        if (output->kind == PST_OUTPUT_BUFFER_UPDATE)
            r->holds[output->target->id] = r->inner.map[output->arg.value->id];
    }
    return PST_OK;
}

static enum pst_status put_nodes(struct pst_replacer *r,
                                 const struct pst_unified *u,
                                 const struct pst_graph *part)
{
    enum pst_status status = PST_OK;

    r->inner.symbols = u->numbers ? NULL : &u->symbols;
    for (size_t i = 0; i < part->nodes.n && status == PST_OK; i++) {
        const struct pst_node *node = part->nodes.at[i];

        status = pst_replay_node(&r->inner, node);
        for (unsigned k = 0; k < node->n_outs && status == PST_OK; k++)
            if (node->outs[k]->version_of != NULL)
                r->inner.map[node->outs[k]->id]->version_of =
                    r->state[node->outs[k]->version_of->id];
        if (status == PST_OK)
            status =
                translate_node(r, u, r->graph->nodes.at[r->graph->nodes.n - 1]);
    }
    return status;
}

static enum pst_status put_module(struct pst_replacer *r,
                                  const struct pst_frame *frame)
{
    struct pst_graph *part = NULL;
    struct pst_unified u;
    struct pst_match match;
    enum pst_status status;

    status = pst_frame_match(frame, &r->arguments, &r->results, r->call < 0,
                             &r->frames.arena, &match, r->diag);
    if (status == PST_OK)
        status = check_aliases(r, frame, &match);
    if (status == PST_OK)
        status = bind_inputs(r, frame, &match);
    if (status != PST_OK)
        return status;
    status = pst_unified_init(&u, r->module, &r->sizing, r->diag);
    if (status == PST_OK)
        status = unify_sizes(r, &u);
    if (status == PST_OK)
        status = copy_part(r, frame, &part);
    if (status == PST_OK)
        status = put_nodes(r, &u, part);
    pst_graph_free(part);
    pst_unified_fini(&u);
    return status == PST_OK ? map_results(r, frame, &match) : status;
}

struct gone_ctx {
    struct pst_replacer *r;
    const struct pst_value *removed;
};

static void record_removed(void *ctx, struct pst_value **slot, unsigned arg)
{
    struct gone_ctx *g = ctx;
    const struct pst_value *v = *slot;

    (void)arg;
    if (v->version_of != NULL)
        v = v->version_of;
    if (pst_value_is_state(v) && g->r->replay.map[v->id] == NULL)
        g->removed = v;
}

static enum pst_status put_node(struct pst_replacer *r, struct pst_node *node)
{
    struct gone_ctx g = {r, NULL};
    enum pst_status status;

    pst_node_uses(node, record_removed, &g);
    if (g.removed != NULL)
        return pst_diag_set(r->diag, PST_E_SWAP_REPLACE,
                            "\"%s\" of module \"%s\" is read outside of it, "
                            "in \"%s\" at %s",
                            g.removed->fqn, r->path, node->call->path,
                            node->source);
    status = pst_replay_node(&r->replay, node);
    if (status == PST_OK)
        record_versions(r, node);
    return status;
}

enum pst_status pst_replacer_place(struct pst_replacer *r)
{
    const struct pst_graph *old = r->old->graph;
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < old->nodes.n && status == PST_OK; i++) {
        struct pst_node *node = old->nodes.at[i];
        const int frame = pst_frames_of(&r->frames, node->call);

        if (frame < 0) {
            status = put_node(r, node);
            continue;
        }
        if (!r->done[frame]) {
            r->done[frame] = true;
            status = put_module(r, &r->frames.at.at[frame]);
        }
        skip_versions(r, node);
    }
    for (size_t i = 0; i < r->frames.at.n && status == PST_OK; i++)
        if (!r->done[i])
            status = pst_diag_set(
                r->diag, PST_E_SWAP_REPLACE,
                "module \"%s\" left no operator in the export: what it takes "
                "and returns is not known",
                r->frames.at.at[i].call->name);
    return status;
}
