// SPDX-License-Identifier: Apache-2.0
#include "stages/modules/frames.h"

#include "stages/graph/schema.h"

#include <string.h>

#define TAG PST_TAG_PLAN

struct finder {
    struct pst_frames *frames;
    const struct pst_graph *graph;
    pst_frame_own_fn own;
    void *ctx;
    /* Index of the current frame. */
    int frame;
    unsigned char *taken; /* by value id: GIVEN for results of frames, else 0 */
    bool failed;
    struct pst_diag *diag;
};
enum { GIVEN = 1 };

static enum pst_status no_memory(const struct finder *f)
{
    return pst_diag_nomem(f->diag, 0);
}

static int frame_of(const struct finder *f, const struct pst_value *v)
{
    return v->def == NULL ? -1 : pst_frames_of(f->frames, v->def->call);
}

static void push_leaf(struct finder *f, struct pst_frame_leaves *leaves,
                      struct pst_value *v)
{
    const struct pst_leaf leaf = {v->name, {.kind = PST_ARG_VALUE, .value = v}};

    if (!pst_vec_push(TAG, &leaves->at, leaf))
        f->failed = true;
}

static bool has_leaf(const struct pst_frame_leaves *leaves,
                     const struct pst_value *v)
{
    for (size_t i = 0; i < leaves->at.n; i++)
        if (leaves->at.at[i].arg.value == v)
            return true;
    return false;
}

static void record_operand(void *ctx, struct pst_value **slot, unsigned arg)
{
    struct finder *f = ctx;
    struct pst_value *v = *slot, *state = v;
    const int from = frame_of(f, v);

    (void)arg;
    if (v->version_of != NULL)
        state = v->version_of;
    if (from >= 0 && from != f->frame && v->version_of == NULL)
        f->taken[v->id] |= GIVEN;
    if (f->frame < 0 || from == f->frame ||
        (pst_value_is_state(state) && f->own(f->ctx, state)))
        return;
    if (!has_leaf(&f->frames->at.at[f->frame].ins, v))
        push_leaf(f, &f->frames->at.at[f->frame].ins, v);
}

/* Lists the results of every frame in order of computation. */
static void list_results(struct finder *f)
{
    for (size_t i = 0; i < f->graph->nodes.n; i++) {
        const struct pst_node *node = f->graph->nodes.at[i];

        for (unsigned k = 0; k < node->n_outs; k++)
            if ((f->taken[node->outs[k]->id] & GIVEN) != 0)
                push_leaf(f, &f->frames->at.at[frame_of(f, node->outs[k])].outs,
                          node->outs[k]);
    }
}

static enum pst_status refuse_stages(const struct finder *f,
                                     const struct pst_frame *frame, int other)
{
    return pst_diag_set(f->diag, PST_E_SWAP_REPLACE,
                        "module \"%s\" lies in the stages %d and %d: replace "
                        "the modules in it, or cut elsewhere",
                        frame->call->name, frame->stage, other);
}

static enum pst_status walk_nodes(struct finder *f)
{
    f->taken = pst_calloc(TAG, f->graph->values.n + 1, 1);
    if (f->taken == NULL)
        return no_memory(f);
    for (size_t i = 0; i < f->graph->nodes.n; i++) {
        struct pst_node *node = f->graph->nodes.at[i];

        f->frame = pst_frames_of(f->frames, node->call);
        if (f->frame >= 0) {
            struct pst_frame *frame = &f->frames->at.at[f->frame];

            f->failed |= !pst_vec_push(TAG, &frame->ids, node->id);
            frame->no_grad = frame->no_grad && node->no_grad;
            if (frame->ids.n > 1 && frame->stage != node->stage)
                return refuse_stages(f, frame, node->stage);
            frame->stage = node->stage;
        }
        pst_node_uses(node, record_operand, f);
    }
    f->frame = -1;
    for (size_t i = 0; i < f->graph->outputs.n; i++) {
        struct pst_output *output = &f->graph->outputs.at[i];

        /* Updates of the old module's own buffers are removed with it. */
        if (output->arg.kind == PST_ARG_VALUE &&
            (output->kind != PST_OUTPUT_BUFFER_UPDATE ||
             !f->own(f->ctx, output->target)))
            record_operand(f, &output->arg.value, 0);
    }
    list_results(f);
    return f->failed ? no_memory(f) : PST_OK;
}

static enum pst_status copy_leaves(struct finder *f,
                                   const struct pst_call_leaf *from, unsigned n,
                                   struct pst_frame_leaves *to)
{
    to->at.n = 0;
    for (unsigned i = 0; i < n; i++) {
        const struct pst_leaf leaf = {from[i].path, from[i].arg};

        if (!pst_vec_push(TAG, &to->at, leaf))
            return no_memory(f);
    }
    return PST_OK;
}

/* Replaces inputs and results by those of the call's signature, which has
 * unused ones and literals, too. Does nothing if the signature lacks a used
 * result, which left the call through a hook or an attribute. */
static enum pst_status use_signature(struct finder *f, struct pst_frame *frame)
{
    const struct pst_call_signature *s = frame->call->signature;
    enum pst_status status;

    for (size_t i = 0; i < frame->outs.at.n; i++) {
        bool found = false;

        for (unsigned k = 0; k < s->n_outputs; k++)
            found = found ||
                    (s->outputs[k].arg.kind == PST_ARG_VALUE &&
                     s->outputs[k].arg.value == frame->outs.at.at[i].arg.value);
        if (!found)
            return PST_OK;
    }
    frame->is_signed = true;
    status = copy_leaves(f, s->inputs, s->n_inputs, &frame->ins);
    if (status == PST_OK)
        status = copy_leaves(f, s->outputs, s->n_outputs, &frame->outs);
    return status;
}

static enum pst_status list_frames(struct finder *f, pst_frame_call_fn wanted)
{
    struct pst_frames *frames = f->frames;

    for (size_t i = 0; i < f->graph->calls.n; i++) {
        const struct pst_module_call *call = f->graph->calls.at[i];
        struct pst_frame frame = {.call = call, .no_grad = true, .stage = -1};

        frames->frame_of[i] =
            call->parent != NULL ? frames->frame_of[call->parent->id] : -1;
        if (frames->frame_of[i] >= 0 || call->parent == NULL ||
            !wanted(f->ctx, call))
            continue;
        frames->frame_of[i] = (int)frames->at.n;
        if (!pst_vec_push(TAG, &frames->at, frame))
            return no_memory(f);
    }
    return PST_OK;
}

enum pst_status pst_frames_init(struct pst_frames *frames,
                                const struct pst_graph *graph,
                                pst_frame_call_fn wanted, pst_frame_own_fn own,
                                void *ctx, struct pst_diag *diag)
{
    struct finder f = {frames, graph, own, ctx, .diag = diag};
    enum pst_status status;

    *frames = (struct pst_frames){.frame_of = NULL};
    pst_arena_init(&frames->arena, TAG);
    frames->frame_of = pst_arena_calloc(&frames->arena, graph->calls.n + 1,
                                        sizeof(*frames->frame_of));
    status = frames->frame_of != NULL ? list_frames(&f, wanted) : no_memory(&f);
    if (status == PST_OK)
        status = walk_nodes(&f);
    for (size_t i = 0; i < frames->at.n && status == PST_OK; i++)
        if (frames->at.at[i].call->signature != NULL)
            status = use_signature(&f, &frames->at.at[i]);
    pst_free(f.taken);
    if (status != PST_OK)
        pst_frames_fini(frames);
    return status;
}

void pst_frames_fini(struct pst_frames *frames)
{
    for (size_t i = 0; i < frames->at.n; i++) {
        pst_vec_fini(&frames->at.at[i].ids);
        pst_vec_fini(&frames->at.at[i].ins.at);
        pst_vec_fini(&frames->at.at[i].outs.at);
    }
    pst_vec_fini(&frames->at);
    pst_arena_fini(&frames->arena);
}
