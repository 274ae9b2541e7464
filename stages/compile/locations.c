// SPDX-License-Identifier: Apache-2.0
/* Assigns a location to every value of a stage. */
#include "stages/base/checked.h"
#include "stages/compile/compile.h"
#include "stages/ops/core/call.h"
#include "stages/ops/pointwise/chain.h"

#include <string.h>

/* --- lifetimes ----------------------------------------------------------- */

struct use {
    struct pst_compiler *c;
    enum pst_list list;
    unsigned pos;
};

static void record_use(void *ctx, struct pst_value **slot, unsigned arg)
{
    struct use *u = ctx;
    struct pst_life *life = &u->c->lives[pst_value_storage(*slot)->id];

    (void)arg;
    life->last[u->list] = u->pos;
}

static struct pst_life *life_of(struct pst_compiler *c,
                                const struct pst_value *value)
{
    return &c->lives[pst_value_storage((struct pst_value *)value)->id];
}

/* Marks the value's storage as crossing the stage's boundary, and returns its
 * lifetime. */
static struct pst_life *mark_crossing(struct pst_compiler *c,
                                      const struct pst_value *value)
{
    struct pst_life *life = life_of(c, value);

    if (life->boundary < 0)
        life->boundary = (int)(c->p->n_regions++ - PST_R_BOUNDARY);
    return life;
}

/* True if the value covers its storage in memory order. */
static bool is_whole(const struct pst_value *value)
{
    const struct pst_value *storage =
        pst_value_storage((struct pst_value *)value);

    return value->offset == 0 && value->meta.dtype == storage->meta.dtype &&
           pst_meta_is_contiguous(&value->meta) &&
           pst_meta_is_contiguous(&storage->meta) &&
           pst_meta_numel(&value->meta) == pst_meta_numel(&storage->meta);
}

static void record_ends(struct pst_compiler *c)
{
    const struct pst_program *p = c->p;
    const struct pst_graph *graph = p->graph;

    for (size_t i = 0; i < p->plan->edges.n; i++) {
        const struct pst_edge *edge = &p->plan->edges.at[i];

        if (edge->from_stage == p->stage)
            mark_crossing(c, graph->outputs.at[edge->from_output].arg.value)
                ->sent = true;
        if (edge->to_stage == p->stage)
            mark_crossing(c, graph->inputs.at[edge->to_input])->arrives = true;
    }
    for (size_t i = 0; i < graph->outputs.n; i++) {
        const struct pst_output *o = &graph->outputs.at[i];

        if (o->arg.kind == PST_ARG_VALUE)
            life_of(c, o->arg.value)->output = true;
        if (o->kind == PST_OUTPUT_BUFFER_UPDATE && is_whole(o->arg.value))
            life_of(c, o->arg.value)->updates = o->target;
    }
    for (size_t i = 0; p->joint != NULL && i < p->joint->input_grads.n; i++)
        mark_crossing(c, p->joint->input_grads.at[i].value)->sent = true;
    for (size_t i = 0; p->joint != NULL && i < p->joint->seeds.n; i++)
        if (p->joint->seeds.at[i].edge >= 0)
            mark_crossing(c, p->joint->seeds.at[i].seed)->arrives = true;
}

/* Creates the rows of regions. append_crossing fills those of the boundary. */
static enum pst_status make_regions(struct pst_program *p,
                                    struct pst_diag *diag)
{
    static const struct pst_region_row rows[PST_R_BOUNDARY] = {
#define PST_REGION_ROW(name, writer, end)                                      \
    [PST_R_##name] = {PST_WRITER_##writer, PST_END_##end, 0},
        PST_REGION_LIST(PST_REGION_ROW)
#undef PST_REGION_ROW
    };

    p->regions = pst_arena_calloc(&p->arena, p->n_regions, sizeof(*p->regions));
    if (p->regions == NULL)
        return pst_diag_nomem(diag, p->n_regions * sizeof(*p->regions));
    memcpy(p->regions, rows, sizeof(rows));
    return PST_OK;
}

enum pst_status pst_pass_lives(struct pst_compiler *c, struct pst_diag *diag)
{
    struct pst_arena *arena = &c->p->arena;

    c->n_values = c->p->graph->values.n;
    c->lives = pst_arena_calloc(arena, c->n_values + 1, sizeof(*c->lives));
    c->p->places =
        pst_arena_calloc(arena, c->n_values + 1, sizeof(*c->p->places));
    if (c->lives == NULL || c->p->places == NULL)
        return pst_diag_nomem(diag, c->n_values * sizeof(*c->lives));
    for (size_t i = 0; i < c->n_values; i++) {
        c->lives[i].list = c->lives[i].interval = c->lives[i].boundary = -1;
        for (int l = 0; l < PST_N_LISTS; l++)
            c->lives[i].last[l] = PST_NEVER;
    }
    for (int l = 0; l < PST_N_LISTS; l++) {
        for (unsigned i = 0; i < c->p->lists[l].n; i++) {
            struct pst_exec_node *x = &c->p->lists[l].at[i];
            struct use use = {c, (enum pst_list)l, i};

            pst_node_uses((struct pst_node *)x->node, record_use, &use);
            for (unsigned k = 0; k < x->node->n_outs; k++) {
                struct pst_life *life = &c->lives[x->node->outs[k]->id];

                if (x->node->outs[k]->base != NULL)
                    continue;
                life->list = l;
                life->pos = i;
            }
        }
    }
    c->p->n_regions = PST_R_BOUNDARY;
    record_ends(c);
    return make_regions(c->p, diag);
}

/* --- places -------------------------------------------------------------- */

static void place_value(struct pst_compiler *c, const struct pst_value *value,
                        unsigned region, size_t offset)
{
    c->p->places[value->id] = (struct pst_loc){region, offset};
    c->lives[value->id].placed = true;
}

static void append_value(struct pst_compiler *c, const struct pst_value *value,
                         unsigned region)
{
    size_t *size = &c->p->regions[region].size;

    place_value(c, value, region, *size);
    *size = pst_size_add(*size, pst_mem_round(pst_meta_span(&value->meta)));
}

/* Places a value in a boundary region of its own; returns false if it does not
 * cross the boundary. */
static bool append_crossing(struct pst_compiler *c,
                            const struct pst_value *value,
                            enum pst_region_writer writer,
                            enum pst_region_end end)
{
    const int boundary = c->lives[value->id].boundary;
    struct pst_region_row *row;

    if (boundary < 0)
        return false;
    row = &c->p->regions[PST_R_BOUNDARY + boundary];
    row->writer = writer;
    row->end = end;
    append_value(c, value, PST_R_BOUNDARY + (unsigned)boundary);
    return true;
}

static bool read_by(const struct pst_life *life, enum pst_list list)
{
    return life->last[list] != PST_NEVER;
}

/* Returns the last action that reads the value; a message of it counts as part
 * of the action that computes it. */
static enum pst_region_end end_of(const struct pst_life *life)
{
    return read_by(life, PST_LIST_W)   ? PST_END_W
           : read_by(life, PST_LIST_B) ? PST_END_I
                                       : PST_END_F;
}

static void place_given(struct pst_compiler *c, const struct pst_value *value)
{
    static const enum pst_region in[PST_N_ENDS] = {PST_R_IN_F, PST_R_IN_I,
                                                   PST_R_IN_W};
    const struct pst_life *life = &c->lives[value->id];

    switch (value->kind) {
    case PST_VALUE_INPUT:
        if (!append_crossing(c, value, PST_WRITER_ARRIVE_F, end_of(life)))
            append_value(c, value, in[end_of(life)]);
        break;
    case PST_VALUE_SEED:
        if (!life->arrives ||
            !append_crossing(c, value, PST_WRITER_ARRIVE_B,
                             PST_MAX(end_of(life), PST_END_I)))
            place_value(c, value, PST_R_FIXED,
                        c->fixed(c->fixed_ctx, value, 0));
        break;
    case PST_VALUE_GRAD: /* operands.c assigns a location to each use */
        place_value(c, value, PST_R_FIXED, 0);
        break;
    default:
        place_value(c, value, PST_R_FIXED, c->fixed(c->fixed_ctx, value, 0));
        break;
    }
}

/* Returns the region of a value that is computed and stays in this stage. */
static enum pst_region region_of(const struct pst_compiler *c,
                                 const struct pst_life *life)
{
    const enum pst_region_end end = end_of(life);

    if (life->list == PST_LIST_P)
        return end > PST_END_F || read_by(life, PST_LIST_F) ? PST_R_FIXED
                                                            : PST_R_WORK;
    if (life->list == PST_LIST_F)
        return end == PST_END_W   ? PST_R_STASH_W
               : end == PST_END_I ? PST_R_STASH_I
                                  : PST_R_WORK;
    /* An output of list B is copied after list W, which overwrites the
     * workspace, has run. */
    return life->list == PST_LIST_B &&
                   (end == PST_END_W ||
                    (life->output && c->p->options.split_iw))
               ? PST_R_KEEP
               : PST_R_WORK;
}

static bool reads_storage(const struct pst_arg *arg,
                          const struct pst_value *storage)
{
    if (arg->kind == PST_ARG_VALUE)
        return pst_value_storage(arg->value) == storage;
    for (unsigned k = 0; arg->kind == PST_ARG_VALUES && k < arg->n; k++)
        if (arg->values[k] != NULL &&
            pst_value_storage(arg->values[k]) == storage)
            return true;
    return false;
}

/* True if the node's kernel may write out[0] over in[0]: no other operand is a
 * view of the same storage. */
static bool writes_over_first(const struct pst_exec_node *x)
{
    const struct pst_value *out = x->node->outs[0], *in;

    if (!(x->kernel->flags & PST_K_INPLACE_0) || x->node->n_outs != 1 ||
        x->node->args[0].kind != PST_ARG_VALUE || x->role != PST_GRAD_NONE)
        return false;
    in = x->node->args[0].value;
    if (in->offset != 0 || in->meta.dtype != out->meta.dtype ||
        !pst_meta_same_shape(&in->meta, &out->meta) ||
        !pst_meta_is_contiguous(&in->meta) ||
        pst_meta_bytes(&pst_value_storage((void *)in)->meta) !=
            pst_meta_bytes(&out->meta))
        return false;
    for (unsigned k = 1; k < x->node->schema->n_args; k++)
        if (reads_storage(&x->node->args[k], pst_value_storage((void *)in)))
            return false;
    return true;
}

/* True if the new content of a buffer can be computed in place: no node reads
 * the old content after the kernel that computes the new one. */
static bool replaces_buffer(const struct pst_compiler *c,
                            const struct pst_value *value)
{
    const struct pst_life *life = &c->lives[value->id], *old;
    const struct pst_exec_node *x;

    if (life->updates == NULL || life->list != PST_LIST_F || life->sent ||
        end_of(life) != PST_END_F ||
        value->meta.dtype != life->updates->meta.dtype ||
        pst_meta_numel(&value->meta) != pst_meta_numel(&life->updates->meta) ||
        !pst_meta_is_contiguous(&value->meta) ||
        !pst_meta_is_contiguous(&life->updates->meta))
        return false;
    old = &c->lives[life->updates->id];
    x = &c->p->lists[PST_LIST_F].at[life->pos];
    if (!old->placed || end_of(old) != PST_END_F || read_by(old, PST_LIST_P) ||
        c->p->places[life->updates->id].region != PST_R_FIXED)
        return false;
    if (!read_by(old, PST_LIST_F) || old->last[PST_LIST_F] < life->pos)
        return true;
    return old->last[PST_LIST_F] == life->pos && writes_over_first(x) &&
           pst_value_storage(x->node->args[0].value) == life->updates;
}

/* Places a value that this stage computes, unless it is temporary (WORK). */
static void place_computed(struct pst_compiler *c,
                           const struct pst_value *value)
{
    const struct pst_life *life = &c->lives[value->id];
    const bool forward = life->list == PST_LIST_F;
    const enum pst_region region = region_of(c, life);

    if (life->sent && life->list != PST_LIST_P &&
        append_crossing(c, value, forward ? PST_WRITER_F : PST_WRITER_I,
                        forward ? end_of(life)
                                : PST_MAX(end_of(life), PST_END_I)))
        return;
    if (replaces_buffer(c, value))
        place_value(c, value, PST_R_FIXED,
                    c->p->places[life->updates->id].offset);
    else if (region == PST_R_FIXED)
        place_value(c, value, region, c->fixed(c->fixed_ctx, value, 0));
    else if (region != PST_R_WORK)
        append_value(c, value, region);
}

enum pst_status pst_pass_regions(struct pst_compiler *c, struct pst_diag *diag)
{
    const struct pst_graph *graph = c->p->graph;

    for (size_t i = 0; i < graph->values.n; i++) {
        struct pst_value *value = graph->values.at[i];
        struct pst_life *life = &c->lives[i];

        if (value->base != NULL)
            continue;
        if (value->kind != PST_VALUE_NODE) {
            place_given(c, value);
            continue;
        }
        if (life->list < 0) { /* no list has its node: fused, unused or empty */
            if (pst_meta_numel(&value->meta) == 0)
                place_value(c, value, PST_R_WORK, 0);
            continue;
        }
        place_computed(c, value);
    }
    (void)diag;
    return PST_OK;
}

/* True if a result of the node before result k has the interval. */
static bool is_overwritten(const struct pst_compiler *c,
                           const struct pst_node *node, unsigned k,
                           int interval)
{
    for (unsigned i = 0; i < k; i++)
        if (c->lives[node->outs[i]->id].interval == interval)
            return true;
    return false;
}

/* Returns the lifetime of the storage of an operand that result k of the node
 * may overwrite, else NULL. */
static struct pst_life *find_overwritten(struct pst_compiler *c,
                                         enum pst_list list,
                                         const struct pst_exec_node *x,
                                         unsigned k, unsigned pos)
{
    const struct pst_chain *chain = x->call.chain;
    const unsigned n = chain != NULL ? chain->n_in : writes_over_first(x);

    for (unsigned i = 0; i < n; i++) {
        const struct pst_arg *arg = &x->node->args[0];
        struct pst_life *life =
            life_of(c, chain != NULL ? arg->values[i] : arg->value);

        if (pst_call_may_overwrite(&x->call, x->kernel, k, i) &&
            life->list == (int)list && life->interval >= 0 && !life->output &&
            life->last[list] == pos &&
            !is_overwritten(c, x->node, k, life->interval))
            return life;
    }
    return NULL;
}

static unsigned find_last_read(const struct pst_compiler *c,
                               const struct pst_life *life, enum pst_list list,
                               unsigned pos)
{
    if (life->output)
        return c->p->lists[list].n;
    return read_by(life, list) ? life->last[list] : pos;
}

static void add_interval(struct pst_compiler *c, size_t size, unsigned begin,
                         unsigned end)
{
    c->intervals[c->n_intervals++] =
        (struct pst_interval){.size = size, .begin = begin, .end = end};
}

static enum pst_status place_work(struct pst_compiler *c, enum pst_list l,
                                  struct pst_diag *diag)
{
    struct pst_program *p = c->p;
    struct pst_exec_list *list = &p->lists[l];
    enum pst_status status;

    c->n_intervals = 0;
    for (unsigned i = 0; i < list->n; i++) {
        struct pst_exec_node *x = &list->at[i];
        for (unsigned k = 0; k < x->node->n_outs; k++) {
            struct pst_value *out = x->node->outs[k];
            struct pst_life *life = &c->lives[out->id], *under;

            if (out->base != NULL || life->placed || pst_is_gradient(x, k))
                continue;
            under = find_overwritten(c, l, x, k, i);
            life->interval = (int)c->n_intervals;
            if (under != NULL) {
                life->interval = under->interval;
                c->intervals[life->interval].end =
                    find_last_read(c, life, l, i);
                continue;
            }
            add_interval(c, pst_meta_bytes(&out->meta), i,
                         find_last_read(c, life, l, i));
        }
        /* For now the index of the scratch's interval; its offset after
         * packing. */
        x->scratch.offset = c->n_intervals;
        if (x->call.scratch_size > 0)
            add_interval(c, x->call.scratch_size, i, i);
    }
    status = pst_mem_pack(c->intervals, c->n_intervals, &list->work, diag);
    if (status != PST_OK)
        return status;
    for (unsigned i = 0; i < list->n; i++) {
        struct pst_exec_node *x = &list->at[i];

        for (unsigned k = 0; k < x->node->n_outs; k++) {
            struct pst_life *life = &c->lives[x->node->outs[k]->id];

            if (x->node->outs[k]->base == NULL && life->interval >= 0)
                place_value(c, x->node->outs[k], PST_R_WORK,
                            c->intervals[life->interval].offset);
        }
        if (x->call.scratch_size > 0)
            x->scratch = (struct pst_loc){
                PST_R_WORK, c->intervals[x->scratch.offset].offset};
    }
    p->regions[PST_R_WORK].size =
        PST_MAX(p->regions[PST_R_WORK].size, list->work);
    return PST_OK;
}

enum pst_status pst_pass_workspace(struct pst_compiler *c,
                                   struct pst_diag *diag)
{
    struct pst_program *p = c->p;
    size_t most = 0;
    enum pst_status status = PST_OK;

    for (int l = 0; l < PST_N_LISTS; l++) /* results and scratch of each node */
        for (unsigned i = 0; i < p->lists[l].n; i++)
            most += p->lists[l].at[i].node->n_outs + 1;
    c->intervals = pst_arena_calloc(&p->arena, most + 1, sizeof(*c->intervals));
    if (c->intervals == NULL)
        return pst_diag_nomem(diag, most * sizeof(*c->intervals));
    for (int l = 0; l < PST_N_LISTS && status == PST_OK; l++)
        status = place_work(c, (enum pst_list)l, diag);
    return status;
}
