// SPDX-License-Identifier: Apache-2.0
#include "stages/run/rank/bind.h"

#include "stages/compile/hosted.h"
#include "stages/compile/memplan.h"
#include "stages/layout/memory/residency.h"
#include "stages/run/rank/lend.h"
#include "stages/run/rank/recordings.h"

/* State while one action is bound. */
struct binder {
    unsigned number; /* index of the action among those that compute */
    const struct pst_binding *binding;
    struct pst_rank_action *x;
    const struct pst_program *program; /* program of the acting stage */
    unsigned cap;                      /* capacity of x->instrs */
    /* regions of inputs that may be lent (lend.h) */
    unsigned n_own;
};

static struct pst_instr *add_instr(struct binder *b, enum pst_instr_kind kind)
{
    struct pst_instr *instr;

    if (b->x->n_instrs >= b->cap)
        return NULL;
    instr = &b->x->instrs[b->x->n_instrs++];
    *instr = (struct pst_instr){.kind = kind};
    return instr;
}

static void extend_reach(struct binder *b, const unsigned char *end)
{
    const size_t used =
        pst_mem_round((size_t)(end - b->binding->device->mem.base));

    b->x->arena_end = PST_MAX(b->x->arena_end, used);
}

static unsigned char *address_of(const struct binder *b, struct pst_loc loc)
{
    return b->x->base[loc.region] + loc.offset;
}

/* --- instructions --------------------------------------------------------- */

/* own: as in struct pst_instr; 0: the input cannot be lent. */
static void add_fill(struct binder *b, unsigned input, unsigned own, void *to,
                     size_t bytes)
{
    struct pst_instr *instr = add_instr(b, PST_INSTR_FILL);

    if (instr == NULL)
        return;
    instr->index = input;
    instr->own = own;
    instr->to = to;
    instr->bytes = bytes;
}

static void add_copy(struct binder *b, const void *from,
                     const struct pst_meta *from_meta, void *to,
                     const struct pst_meta *to_meta)
{
    struct pst_instr *instr = add_instr(b, PST_INSTR_COPY);

    if (instr == NULL)
        return;
    instr->from = from;
    instr->to = to;
    if (from_meta->dtype == to_meta->dtype &&
        pst_meta_is_contiguous(from_meta) && pst_meta_is_contiguous(to_meta)) {
        instr->bytes = pst_meta_bytes(from_meta);
        return;
    }
    instr->from_meta = from_meta;
    instr->to_meta = to_meta;
}

/* Adds a copy of the value that a carried buffer had before the step: the first
 * microbatch begins with it. It is in the shadow copy if the stage that changes
 * the buffer is on this rank, too. */
static void add_start(struct binder *b, const struct pst_edge *edge,
                      const struct pst_value *input)
{
    const struct pst_plan *plan = b->binding->role->plan;
    const struct pst_rank_param *p = pst_layout_param(
        b->binding->layout, (unsigned)pst_plan_find_param(plan, edge->carries));

    add_copy(
        b,
        pst_rank_at(b->binding->device, p->shadow != 0 ? p->shadow : p->data),
        &plan->params.at[p->index].meta,
        address_of(b, pst_program_loc(b->program, input)), &input->meta);
}

/* True if input i of the stage's graph may be lent. */
static bool lends_input(const struct binder *b, size_t i)
{
    return b->n_own > 0 && pst_input_is_free(b->program, (unsigned)i);
}

static void add_fills(struct binder *b)
{
    const struct pst_plan *plan = b->binding->role->plan;
    const struct pst_stage *stage = &plan->stages.at[b->x->a.stage];
    const struct pst_graph *graph = b->program->graph;

    for (size_t i = 0; i < graph->inputs.n; i++) {
        const struct pst_value *input = graph->inputs.at[i];
        const unsigned index = stage->inputs[i].index;

        if (stage->inputs[i].kind == PST_SOURCE_MODEL_INPUT)
            add_fill(b, index, lends_input(b, i) ? (unsigned)i + 1 : 0,
                     address_of(b, pst_program_loc(b->program, input)),
                     pst_meta_bytes(&input->meta));
        else if (plan->edges.at[index].carries != NULL &&
                 b->x->a.microbatch == 0)
            add_start(b, &plan->edges.at[index], input);
    }
}

/* Adds an instruction that runs kernels begin .. end - 1 of the list, if there
 * are any. */
static void add_part(struct binder *b, const struct pst_exec_list *list,
                     unsigned begin, unsigned end)
{
    struct pst_instr *instr =
        begin < end ? add_instr(b, PST_INSTR_KERNELS) : NULL;

    if (instr == NULL)
        return;
    instr->run = list;
    instr->begin = begin;
    instr->end = end;
}

/* True if the device records this rank's kernels. */
static bool records(const struct binder *b)
{
    return b->binding->device->mem.device->recorder != NULL &&
           !b->binding->role->options.no_graphs;
}

/* Adds instructions for kernels begin .. end - 1 of the list. If the device
 * records, each kernel that cannot be recorded gets an instruction of its own.
 */
static void add_run(struct binder *b, const struct pst_exec_list *list,
                    unsigned begin, unsigned end)
{
    for (unsigned i = begin; i < end && records(b); i++)
        if (!pst_hosted_can_record(&list->at[i])) {
            add_part(b, list, begin, i);
            add_part(b, list, i, i + 1);
            begin = i + 1;
        }
    add_part(b, list, begin, end);
}

/* Returns the number of kernels that cannot be recorded. */
static unsigned count_eager(const struct binder *b)
{
    unsigned n = 0;

    for (int l = 0; l < PST_N_LISTS && records(b); l++)
        for (unsigned i = 0; i < b->program->lists[l].n; i++)
            n += !pst_hosted_can_record(&b->program->lists[l].at[i]);
    return n;
}

/* Adds the kernels of the action's lists and, between them, the gathers and
 * reductions of buckets. */
static void add_kernels(struct binder *b)
{
    const struct pst_rank_stage *stage =
        &b->binding->layout->stages[b->x->a.stage];
    enum pst_list lists[2];
    const unsigned n = pst_residency_lists(
        b->program, (enum pst_action_kind)b->x->a.kind, lists);
    unsigned n_events, at = 0;
    const struct pst_residency_event *event =
        pst_residency_of(b->binding->layout, b->number, &n_events);
    const struct pst_residency_event *end = event + n_events;

    for (unsigned i = 0; i < n; i++) {
        const struct pst_exec_list *l = &b->program->lists[lists[i]];
        unsigned begin = 0;

        for (; event < end && (event->pos < at + l->n || i + 1 == n); event++) {
            struct pst_instr *instr;

            if (event->task == PST_RESIDENCY_RELEASE &&
                !b->binding->role->options.verify)
                /* releasing memory needs no instruction */
                continue;
            add_run(b, l, begin, event->pos - at);
            begin = event->pos - at;
            instr = add_instr(b, PST_INSTR_BUCKET);
            if (instr != NULL)
                instr->event = event;
        }
        add_run(b, l, begin, l->n);
        at += l->n;
        extend_reach(b, b->x->base[PST_R_WORK] + l->work);
    }
    for (unsigned k = PST_R_FIRST; k < stage->n_pools; k++)
        if (b->x->base[k] != NULL)
            extend_reach(b, b->x->base[k] + stage->pools[k].size);
}

static void add_seed(struct binder *b)
{
    const struct pst_joint *joint = b->program->joint;

    for (size_t i = 0; joint != NULL && i < joint->seeds.n; i++) {
        struct pst_instr *instr;

        if (joint->seeds.at[i].edge >= 0)
            continue;
        instr = add_instr(b, PST_INSTR_SEED);
        if (instr == NULL)
            return;
        instr->dtype = joint->seeds.at[i].seed->meta.dtype;
        instr->index =
            b->binding->role->first_mb + (unsigned)b->x->a.microbatch;
        instr->to =
            pst_rank_at(b->binding->device,
                        b->binding->layout->stages[b->x->a.stage].seed_offset);
    }
}

static const struct pst_value *output_value(const struct binder *b,
                                            const struct pst_plan_output *o)
{
    return b->program->graph->outputs.at[o->output].arg.value;
}

/* Adds a contiguous copy of a value to `to`, memory that keeps it until the
 * step has ended. */
static enum pst_status add_kept_value(struct binder *b,
                                      const struct pst_value *value,
                                      unsigned char *to)
{
    struct pst_meta *plain = pst_arena_alloc(b->binding->heap, sizeof(*plain));

    if (plain == NULL)
        return pst_diag_nomem(b->binding->diag, sizeof(*plain));
    *plain = value->meta;
    pst_meta_set_contiguous(plain);
    add_copy(b, address_of(b, pst_program_loc(b->program, value)), &value->meta,
             to, plain);
    return PST_OK;
}

/* Adds the copy of one microbatch of output i to the kept outputs. */
static enum pst_status add_kept(struct binder *b, size_t i)
{
    const struct pst_rank_role *role = b->binding->role;
    const int microbatch = b->x->a.microbatch;
    const struct pst_plan_output *o =
        &pst_role_plan(role, microbatch)->outputs.at[i];
    const size_t before =
        pst_output_bytes(role->plan, &role->options, i,
                         role->first_mb + (unsigned)microbatch) -
        pst_output_bytes(role->plan, &role->options, i, role->first_mb);
    unsigned char *to = pst_rank_at(b->binding->device,
                                    b->binding->layout->outputs[i] + before);

    extend_reach(b, to + pst_meta_bytes(&o->meta));
    if (o->stage < 0) { /* the output is a model input */
        add_fill(b, o->output, 0, to, pst_meta_bytes(&o->meta));
        return PST_OK;
    }
    return add_kept_value(b, output_value(b, o), to);
}

static void add_loss(struct binder *b, const struct pst_value *value)
{
    const struct pst_layout *layout = b->binding->layout;
    unsigned char *to = pst_rank_at(
        b->binding->device, layout->readback.losses +
                                (size_t)b->x->a.microbatch * PST_READBACK_LOSS);

    add_copy(b, address_of(b, pst_program_loc(b->program, value)), &value->meta,
             to, &value->meta);
}

/* Returns the kernel list that computes a value; list F if no node computes the
 * value. */
static enum pst_list list_of(const struct binder *b,
                             const struct pst_value *value)
{
    const struct pst_node *node = value->def;

    return node != NULL && node->phase != PST_PHASE_F
               ? pst_list_of(b->program, node)
               : PST_LIST_F;
}

static bool runs_list(const struct binder *b, enum pst_list list)
{
    enum pst_list lists[2];
    const unsigned n = pst_residency_lists(
        b->program, (enum pst_action_kind)b->x->a.kind, lists);

    for (unsigned i = 0; i < n; i++)
        if (lists[i] == list)
            return true;
    return false;
}

/* True if the action computes the output. Most outputs are results of F, but
 * the loss may be a result of the backward (stages/compile/heads.c). */
static bool has_output(const struct binder *b, const struct pst_plan_output *o)
{
    return runs_list(b, o->stage < 0 ? PST_LIST_F
                                     : list_of(b, output_value(b, o)));
}

/* Adds copies of the gradients of model inputs that the stage keeps. A gradient
 * that is a seed of the backward is not computed by any list. */
static enum pst_status add_parts(struct binder *b)
{
    const struct pst_rank_role *role = b->binding->role;
    const unsigned number = role->first_mb + (unsigned)b->x->a.microbatch;
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < role->plan->parts.n && status == PST_OK; i++) {
        const struct pst_input_part *part = &role->plan->parts.at[i];
        const struct pst_value *value;
        unsigned char *to;

        if (part->stage != (unsigned)b->x->a.stage ||
            b->binding->layout->parts[i] == 0 || !runs_list(b, PST_LIST_B))
            continue;
        value = b->program->graph->outputs.at[part->output].arg.value;
        to = pst_rank_at(b->binding->device,
                         b->binding->layout->parts[i] +
                             pst_input_bytes(role->plan, &role->options,
                                             part->input, number) -
                             pst_input_bytes(role->plan, &role->options,
                                             part->input, role->first_mb));
        extend_reach(b, to + pst_meta_bytes(&value->meta));
        status = add_kept_value(b, value, to);
    }
    return status;
}

/* Adds copies of the loss and of kept outputs that the action computes. */
static enum pst_status add_outputs(struct binder *b)
{
    const struct pst_plan *plan = b->binding->role->plan;
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < plan->outputs.n && status == PST_OK; i++) {
        const struct pst_plan_output *o = &plan->outputs.at[i];
        const bool wanted =
            (int)i == plan->loss || b->binding->layout->outputs[i] != 0;

        if (!o->is_tensor || !wanted ||
            pst_plan_output_stage(o) != (unsigned)b->x->a.stage ||
            !has_output(b, o))
            continue;
        if ((int)i == plan->loss && o->stage >= 0)
            add_loss(b, output_value(b, o));
        if (b->binding->layout->outputs[i] != 0)
            status = add_kept(b, i);
    }
    return status == PST_OK ? add_parts(b) : status;
}

/* Adds copies of new buffer values that kernels did not write in place. */
static void add_updates(struct binder *b)
{
    const struct pst_graph *graph = b->program->graph;

    for (size_t i = 0; i < graph->outputs.n; i++) {
        const struct pst_output *o = &graph->outputs.at[i];
        const unsigned char *from, *to;

        if (o->kind != PST_OUTPUT_BUFFER_UPDATE)
            continue;
        from = address_of(b, pst_program_loc(b->program, o->arg.value));
        to = address_of(b, pst_program_loc(b->program, o->target));
        if (from != to)
            add_copy(b, from, &o->arg.value->meta, (void *)to,
                     &o->target->meta);
    }
}

/* Adds copies of the values that the peer stage does not read in place. */
static enum pst_status add_passages(struct binder *b,
                                    const struct pst_channel *channel)
{
    const struct pst_rank_action *x = b->x;
    const struct pst_rank_stage *peer =
        &b->binding->layout->stages[x->a.peer_stage];

    for (unsigned i = 0; i < channel->n; i++) {
        const struct pst_passage *p = &channel->at[i];
        struct pst_instr *instr;

        if (peer->pools[p->peer_at.region].shares != NULL)
            continue;
        instr = add_instr(b, PST_INSTR_COPY);
        if (instr == NULL)
            break;
        instr->bytes = p->len;
        instr->from =
            pst_layout_address(b->binding->layout, b->binding->device->mem.base,
                               x->a.stage, p->at, x->slot[p->at.region]);
        instr->to = pst_layout_address(
            b->binding->layout, b->binding->device->mem.base, x->a.peer_stage,
            p->peer_at, x->peer_slot[p->peer_at.region]);
        if (p->len > 0 && (instr->from == NULL || instr->to == NULL))
            return pst_diag_set(b->binding->diag, PST_E_INTERNAL_BUG,
                                "a copy of microbatch %d from stage %d to "
                                "stage %d has no slot",
                                x->a.microbatch, x->a.stage, x->a.peer_stage);
    }
    return PST_OK;
}

/* --- actions -------------------------------------------------------------- */

static enum pst_status set_bases(struct binder *b)
{
    struct pst_rank_action *x = b->x;
    const unsigned n = b->binding->layout->stages[x->a.stage].n_pools;

    x->base =
        pst_arena_calloc(b->binding->heap, n + b->n_own, sizeof(*x->base));
    if (x->base == NULL)
        return pst_diag_nomem(b->binding->diag, n * sizeof(*x->base));
    x->n_bases = n + b->n_own;
    x->n_lent = b->n_own;
    x->base[PST_R_FIXED] = b->binding->device->mem.base;
    x->base[PST_R_WORK] =
        pst_rank_at(b->binding->device, b->binding->layout->work);
    for (unsigned k = PST_R_FIRST; k < n; k++)
        x->base[k] =
            pst_layout_address(b->binding->layout, b->binding->device->mem.base,
                               x->a.stage, (struct pst_loc){k, 0}, x->slot[k]);
    for (unsigned i = 0; i < b->n_own; i++)
        if (pst_input_is_free(b->program, i))
            x->base[n + i] =
                address_of(b, pst_program_loc(b->program,
                                              b->program->graph->inputs.at[i]));
    return PST_OK;
}

/* Sets the counters of messages that the action waits for. */
static enum pst_status set_waits(struct binder *b)
{
    const struct pst_counters *counters = b->binding->counters;
    struct pst_rank_action *x = b->x;
    const bool copies = pst_action_copies(&x->a);
    const struct pst_rank_stage *stage =
        &b->binding->layout->stages[copies ? x->a.peer_stage : x->a.stage];
    const int *slot = copies ? x->peer_slot : x->slot;

    x->sends =
        pst_arena_calloc(b->binding->heap, x->n_takes + 1, sizeof(*x->sends));
    if (x->sends == NULL)
        return pst_diag_nomem(b->binding->diag, x->n_takes * sizeof(*x->sends));
    for (unsigned i = 0; i < x->n_takes; i++) {
        const unsigned k = x->takes[i];

        x->sends[x->n_sends++] =
            pst_counter_leaving(counters, &stage->pools[k], slot[k]);
    }
    if (x->a.kind <= PST_ACT_W)
        x->receives = pst_counter_arriving(
            counters, x->a.stage, x->a.kind != PST_ACT_F, x->a.microbatch);
    return PST_OK;
}

/* Returns the maximum number of instructions of the action. */
static unsigned count_instrs(const struct binder *b,
                             const struct pst_channel *channel)
{
    unsigned n;

    if (channel != NULL)
        return channel->n;
    (void)pst_residency_of(b->binding->layout, b->number, &n);
    return (unsigned)(b->program->graph->inputs.n +
                      b->program->graph->outputs.n +
                      2 * b->binding->role->plan->outputs.n) +
           2 * n + 3 + 2 * count_eager(b);
}

static enum pst_status add_compute(struct binder *b)
{
    enum pst_status status = PST_OK;

    switch (b->x->a.kind) {
    case PST_ACT_F:
        add_fills(b);
        add_kernels(b);
        status = add_outputs(b);
        add_updates(b);
        return status;
    /* the seed is set again, since I of another microbatch may have set it */
    case PST_ACT_W:
        add_seed(b);
        add_kernels(b);
        return add_outputs(b);
    default: /* B, I */
        add_seed(b);
        add_kernels(b);
        return add_outputs(b);
    }
}

static bool lends_inputs(const struct pst_binding *with)
{
    const struct pst_device *device = with->device->mem.device;

    return with->role->options.lends_inputs &&
           (device->space == PST_SPACE_HOST || device->guest != NULL);
}

static enum pst_status bind_action(struct binder *b)
{
    const struct pst_action *a = &b->x->a;
    const struct pst_channel *channel = NULL;
    enum pst_status status;

    if (a->kind == PST_ACT_REDUCE && a->param >= 0)
        b->x->reduction =
            pst_param_reduction_find(b->binding->reductions, a->param);
    if (a->microbatch < 0)
        return PST_OK;
    b->program = pst_layout_program(b->binding->layout, b->binding->role,
                                    a->stage, a->microbatch);
    if (a->kind <= PST_ACT_W && lends_inputs(b->binding)) {
        b->n_own = (unsigned)b->program->graph->inputs.n;
        pst_inputs_redirect((struct pst_program *)b->program,
                            b->binding->layout->stages[a->stage].n_pools);
    }
    status = a->kind <= PST_ACT_W ? set_bases(b) : PST_OK;
    if (status == PST_OK)
        status = set_waits(b);
    if (status != PST_OK || (a->kind > PST_ACT_W && !pst_action_copies(a)))
        return status;
    if (pst_action_copies(a))
        status =
            pst_channel_of(b->binding->channels, a, &channel, b->binding->diag);
    if (status != PST_OK)
        return status;
    b->cap = count_instrs(b, channel);
    b->x->instrs =
        pst_arena_calloc(b->binding->heap, b->cap + 1, sizeof(*b->x->instrs));
    if (b->x->instrs == NULL)
        return pst_diag_nomem(b->binding->diag, b->cap * sizeof(*b->x->instrs));
    status = channel != NULL ? add_passages(b, channel) : add_compute(b);
    if (status == PST_OK && records(b) &&
        !pst_recordings_bind(b->x, b->binding->heap))
        status = pst_diag_nomem(b->binding->diag, sizeof(struct pst_recording));
    return status;
}

enum pst_status pst_bind_instrs(const struct pst_binding *with)
{
    enum pst_status status = PST_OK;
    unsigned number = 0;

    for (unsigned i = 0; i < with->actions->n && status == PST_OK; i++) {
        struct binder b = {
            .binding = with, .x = &with->actions->at[i], .number = number};

        status = bind_action(&b);
        number += b.x->a.kind <= PST_ACT_W;
    }
    for (unsigned i = 0; i < with->actions->n && status == PST_OK; i++) {
        const struct pst_action *a = &with->actions->at[i].a;

        if (lends_inputs(with) && a->kind == PST_ACT_F && a->microbatch >= 0 &&
            !pst_inputs_link(with->actions, i,
                             with->layout->stages[a->stage].n_pools,
                             with->heap))
            status = pst_diag_nomem(with->diag, sizeof(void *));
    }
    return status;
}
