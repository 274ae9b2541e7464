// SPDX-License-Identifier: Apache-2.0
/* The executor: one loop over actions that decides nothing. */
#include <stdio.h>
#include <string.h>

#include "stages/exec/rank/rank.h"

/* Seconds between two looks at messages while kernels run. */
#define PROGRESS_EVERY 0.0005

static void bases(const struct pst_rank *r, const struct pst_rank_action *x,
                  unsigned char *base[PST_N_REGIONS])
{
    const struct pst_rank_stage *stage = &r->stages[x->a.stage];

    base[PST_R_NONE] = NULL;
    base[PST_R_FIXED] = r->arena;
    base[PST_R_WORK] = pst_rank_at(r, r->work);
    for (int k = PST_R_FIRST; k < PST_R_WORK; k++) {
        const struct pst_slot_pool *pool = &stage->pools[k];

        base[k] =
            x->slot[k] < 0
                ? NULL
                : pst_rank_at(r, pool->base + (size_t)x->slot[k] * pool->size);
    }
}

/* The first fault of a step, with its place. */
static void note_fault(struct pst_rank *r, const struct pst_action *a,
                       const char *what, const char *module)
{
    if (r->fault_text[0] != '\0')
        return;
    snprintf(r->fault_text, sizeof(r->fault_text),
             "rank %u, stage %d, microbatch %d, %s%s%s: %s", pst_rank_number(r),
             a->stage, (int)r->first_mb + a->microbatch, what,
             module[0] != '\0' ? " of " : "", module, r->fault.text);
}

static void progress(struct pst_rank *r)
{
    double now;

    if (pst_rank_job_size(r) < 2)
        return;
    now = pst_now();
    if (now - r->last_progress < PROGRESS_EVERY)
        return;
    r->last_progress = now;
    if (r->n_summing > 0 && r->progressed == PST_OK)
        r->progressed = pst_rank_poll(r); /* sums move on */
    else
        r->transport->ops->progress(r->transport);
}

static void run_node(struct pst_rank *r, const struct pst_rank_stage *stage,
                     struct pst_exec_node *n, unsigned char *const *base,
                     const struct pst_action *a)
{
    struct pst_call *call = &n->call;
    bool assigns = n->first_touch && a->microbatch == stage->first_backward;

    for (unsigned i = 0; i < call->n_in; i++)
        call->in[i].data = n->in[i].region == PST_R_NONE
                               ? NULL
                               : base[n->in[i].region] + n->in[i].offset;
    for (unsigned i = 0; i < call->n_out; i++)
        call->out[i].data = n->out[i].region == PST_R_NONE
                                ? NULL
                                : base[n->out[i].region] + n->out[i].offset;
    call->scratch =
        call->scratch_size > 0 ? base[PST_R_WORK] + n->scratch.offset : NULL;
    call->rng.step = r->step;
    call->rng.microbatch = r->first_mb + (uint32_t)a->microbatch;
    call->accumulate = n->role == PST_GRAD_FUSED && !assigns;
    if (n->role == PST_GRAD_ADD && assigns)
        memset(call->in[0].data, 0, pst_meta_bytes(&call->in[0].meta));
    n->kernel->run(call);
    if (r->fault.set)
        note_fault(r, a, n->node->schema->name, n->node->module);
}

/* The gradient that the loss of this microbatch has: its weight. */
static void set_seed(struct pst_rank *r, const struct pst_rank_action *x)
{
    const struct pst_joint *joint =
        pst_rank_program(r, x->a.stage, x->a.microbatch)->joint;

    for (size_t i = 0; joint != NULL && i < joint->seeds.n; i++)
        if (joint->seeds.at[i].edge < 0)
            pst_store_f64(joint->seeds.at[i].seed->meta.dtype,
                          pst_rank_at(r, r->stages[x->a.stage].seed_offset), 0,
                          r->weights[r->first_mb + (unsigned)x->a.microbatch]);
}

static void run_nodes(struct pst_rank *r, const struct pst_rank_action *x,
                      const struct pst_exec_list *l, unsigned char *const *base)
{
    const struct pst_rank_stage *stage = &r->stages[x->a.stage];

    for (unsigned i = 0; i < l->n; i++) {
        if (l->at[i].elsewhere)
            continue;
        run_node(r, stage, &l->at[i], base, &x->a);
        progress(r);
    }
    pst_rank_reach(r, base[PST_R_WORK] + l->work);
}

static void run_list(struct pst_rank *r, const struct pst_rank_action *x,
                     enum pst_list list)
{
    const struct pst_rank_stage *stage = &r->stages[x->a.stage];
    struct pst_program *p = pst_rank_program(r, x->a.stage, x->a.microbatch);
    unsigned char *base[PST_N_REGIONS];

    bases(r, x, base);
    if (list != PST_LIST_F)
        set_seed(r, x);
    run_nodes(r, x, &p->lists[list], base);
    for (int k = PST_R_FIRST; k < PST_R_WORK; k++)
        if (base[k] != NULL)
            pst_rank_reach(r, base[k] + stage->pools[k].size);
}

/* Returns whether there was anything to do. */
static bool prepare_stage(struct pst_rank *r, unsigned stage)
{
    const struct pst_program *programs[] = {r->stages[stage].program,
                                            r->stages[stage].fewer};
    unsigned char *base[PST_N_REGIONS] = {
        [PST_R_FIXED] = r->arena, [PST_R_WORK] = pst_rank_at(r, r->work)};
    const struct pst_rank_action x = {.a.stage = (int)stage};
    bool any = false;

    for (size_t i = 0; i < PST_COUNT(programs); i++) {
        if (programs[i] == NULL || programs[i]->lists[PST_LIST_P].n == 0)
            continue;
        run_nodes(r, &x, &programs[i]->lists[PST_LIST_P], base);
        any = true;
    }
    return any;
}

static void prepare(struct pst_rank *r)
{
    const double begin = r->last_progress = pst_now();
    bool any = false;

    for (unsigned s = 0; s < r->sched->n_stages; s++)
        any = prepare_stage(r, s) || any;
    r->is_prepared = !r->fault.set;
    if (!any)
        return;
    r->ring.now->prepare = (struct pst_mark){begin, pst_now()};
    r->times.forward += r->ring.now->prepare.end - begin;
}

/* --- ends of a forward ---------------------------------------------------- */

static void fill_input(struct pst_rank *r, const struct pst_rank_action *x,
                       unsigned input, void *dst)
{
    struct pst_diag diag;

    pst_diag_init(&diag);
    if (r->fill(r->fill_ctx, r->step, r->first_mb + (unsigned)x->a.microbatch,
                input, dst, &diag) == PST_OK ||
        r->fault.set)
        return;
    r->fault.set = 1;
    snprintf(r->fault.text, sizeof(r->fault.text), "%.200s", diag.text);
    note_fault(r, &x->a, "input data", "");
}

static void fill_inputs(struct pst_rank *r, const struct pst_rank_action *x)
{
    const struct pst_stage *stage = &r->plan->stages.at[x->a.stage];
    const struct pst_program *p =
        pst_rank_program(r, x->a.stage, x->a.microbatch);
    unsigned char *base[PST_N_REGIONS];

    bases(r, x, base);
    for (size_t i = 0; i < p->graph->inputs.n; i++) {
        struct pst_loc loc = pst_program_loc(p, p->graph->inputs.at[i]);

        if (stage->inputs[i].kind == PST_SOURCE_MODEL_INPUT)
            fill_input(r, x, stage->inputs[i].index,
                       base[loc.region] + loc.offset);
    }
}

static const struct pst_value *output_value(const struct pst_program *p,
                                            const struct pst_plan_output *o)
{
    return p->graph->outputs.at[o->output].arg.value;
}

/* One microbatch of output i goes to where the caller finds it. */
static void keep_output(struct pst_rank *r, const struct pst_rank_action *x,
                        unsigned char *const *base, size_t i)
{
    const struct pst_plan_output *o =
        &pst_rank_plan(r, x->a.microbatch)->outputs.at[i];
    const struct pst_program *p =
        pst_rank_program(r, x->a.stage, x->a.microbatch);
    const size_t at =
        pst_output_bytes(r->plan, &r->options, i,
                         r->first_mb + (unsigned)x->a.microbatch) -
        pst_output_bytes(r->plan, &r->options, i, r->first_mb);
    unsigned char *to = pst_rank_at(r, r->outputs[i] + at);
    const struct pst_value *value;
    struct pst_meta meta;
    struct pst_loc loc;

    if (o->stage < 0) { /* a model input, as it was given */
        fill_input(r, x, o->output, to);
    } else {
        value = output_value(p, o);
        loc = pst_program_loc(p, value);
        meta = value->meta;
        pst_meta_set_contiguous(&meta);
        pst_copy_strided(&value->meta, base[loc.region] + loc.offset, &meta,
                         to);
    }
    pst_rank_reach(r, to + pst_meta_bytes(&o->meta));
}

static void keep_outputs(struct pst_rank *r, const struct pst_rank_action *x,
                         unsigned char *const *base)
{
    const struct pst_program *p =
        pst_rank_program(r, x->a.stage, x->a.microbatch);

    for (size_t i = 0; i < r->plan->outputs.n; i++) {
        const struct pst_plan_output *o = &r->plan->outputs.at[i];

        if (!o->is_tensor || pst_plan_output_stage(o) != (unsigned)x->a.stage)
            continue;
        if ((int)i == r->plan->loss) {
            const struct pst_value *value = output_value(p, o);
            const struct pst_loc loc = pst_program_loc(p, value);

            r->report->values[r->first_mb + (unsigned)x->a.microbatch] =
                pst_load_f64(value->meta.dtype, base[loc.region] + loc.offset,
                             0);
        }
        if (r->outputs[i] != 0)
            keep_output(r, x, base, i);
    }
}

static void update_buffers(struct pst_rank *r, const struct pst_rank_action *x,
                           unsigned char *const *base)
{
    const struct pst_program *p =
        pst_rank_program(r, x->a.stage, x->a.microbatch);

    for (size_t i = 0; i < p->graph->outputs.n; i++) {
        const struct pst_output *o = &p->graph->outputs.at[i];
        struct pst_loc from, to;

        if (o->kind != PST_OUTPUT_BUFFER_UPDATE)
            continue;
        from = pst_program_loc(p, o->arg.value);
        to = pst_program_loc(p, o->target);
        pst_copy_strided(&o->arg.value->meta, base[from.region] + from.offset,
                         &o->target->meta, base[to.region] + to.offset);
    }
}

static void run_forward(struct pst_rank *r, const struct pst_rank_action *x)
{
    unsigned char *base[PST_N_REGIONS];

    fill_inputs(r, x);
    run_list(r, x, PST_LIST_F);
    bases(r, x, base);
    keep_outputs(r, x, base);
    update_buffers(r, x, base);
}

/* --- hand-overs on this rank ---------------------------------------------- */

static void hand_over(struct pst_rank *r, const struct pst_rank_action *x,
                      const struct pst_value *from, const struct pst_value *to)
{
    const struct pst_program *p =
        pst_rank_program(r, x->a.stage, x->a.microbatch);
    const struct pst_rank_stage *peer = &r->stages[x->a.peer_stage];
    const struct pst_program *q =
        pst_rank_program(r, x->a.peer_stage, x->a.microbatch);
    struct pst_loc source = pst_program_loc(p, from);
    struct pst_loc target = pst_program_loc(q, to);
    const struct pst_slot_pool *pool = &peer->pools[target.region];
    const size_t slot = (size_t)x->peer_slot[target.region];
    unsigned char *base[PST_N_REGIONS];

    bases(r, x, base);
    memcpy(pst_rank_at(r, pool->base + slot * pool->size + target.offset),
           base[source.region] + source.offset, pst_meta_span(&from->meta));
}

static const struct pst_value *seed_of(const struct pst_joint *joint,
                                       const struct pst_joint_grad *grad)
{
    for (size_t i = 0; i < joint->seeds.n; i++)
        if (joint->seeds.at[i].edge == (int)grad->edge &&
            joint->seeds.at[i].part == grad->part)
            return joint->seeds.at[i].seed;
    return NULL;
}

static void copy_forward(struct pst_rank *r, const struct pst_rank_action *x)
{
    const struct pst_program *from =
        pst_rank_program(r, x->a.stage, x->a.microbatch);
    const struct pst_program *to =
        pst_rank_program(r, x->a.peer_stage, x->a.microbatch);

    for (size_t i = 0; i < r->plan->edges.n; i++) {
        const struct pst_edge *e = &r->plan->edges.at[i];

        if ((int)e->from_stage == x->a.stage &&
            (int)e->to_stage == x->a.peer_stage)
            hand_over(r, x, from->graph->outputs.at[e->from_output].arg.value,
                      to->graph->inputs.at[e->to_input]);
    }
}

static void copy_backward(struct pst_rank *r, const struct pst_rank_action *x)
{
    const struct pst_joint *joint =
        pst_rank_program(r, x->a.stage, x->a.microbatch)->joint;
    const struct pst_joint *peer =
        pst_rank_program(r, x->a.peer_stage, x->a.microbatch)->joint;

    for (size_t i = 0; i < joint->input_grads.n; i++) {
        const struct pst_joint_grad *g = &joint->input_grads.at[i];
        const struct pst_value *seed = seed_of(peer, g);

        if ((int)r->plan->edges.at[g->edge].from_stage == x->a.peer_stage &&
            seed != NULL)
            hand_over(r, x, g->value, seed);
    }
}

/* --- actions -------------------------------------------------------------- */

/* Is a slot that the action writes still being sent from? */
static bool is_leaving(const struct pst_rank *r,
                       const struct pst_rank_action *x)
{
    const bool copies =
        x->a.kind == PST_ACT_COPY_F || x->a.kind == PST_ACT_COPY_B;
    const struct pst_rank_stage *stage =
        &r->stages[copies ? x->a.peer_stage : x->a.stage];
    const int *slot = copies ? x->peer_slot : x->slot;

    for (int k = PST_R_FIRST; k < PST_R_WORK; k++)
        if ((x->writes >> k & 1) && slot[k] >= 0 &&
            stage->pools[k].outstanding[slot[k]] > 0)
            return true;
    return false;
}

/* Everything has arrived, and the slots that it writes are not being sent. */
static bool ready(const struct pst_rank *r, const struct pst_rank_action *x)
{
    const struct pst_rank_stage *stage = &r->stages[x->a.stage];

    if (x->a.kind == PST_ACT_F && stage->waiting_f[x->a.microbatch] > 0)
        return false;
    if (x->a.kind != PST_ACT_F && stage->waiting_b[x->a.microbatch] > 0)
        return false;
    return !is_leaving(r, x);
}

static void note_wait(struct pst_rank *r, enum pst_status status)
{
    bool receives = r->phase == PST_RANK_RUN && r->pc < r->n_actions &&
                    r->actions[r->pc].a.kind <= PST_ACT_W;
    double now;

    if (status == PST_AGAIN) {
        if (r->waiting_since == 0)
            r->waiting_since = pst_now();
        return;
    }
    if (r->waiting_since == 0)
        return;
    now = pst_now();
    if (receives)
        r->times.wait_recv += now - r->waiting_since;
    else
        r->times.wait_other += now - r->waiting_since;
    r->waiting_since = 0;
}

/* Has this stage programs of their own for I and W? */
static bool splits(const struct pst_rank *r, const struct pst_rank_action *x)
{
    return r->stages[x->a.stage].program->options.split_iw;
}

static enum pst_status compute(struct pst_rank *r, struct pst_rank_action *x)
{
    struct pst_mark *mark = &r->ring.now->marks[r->pc];
    double spent;

    if (!ready(r, x))
        return PST_AGAIN;
    note_wait(r, PST_OK); /* computing is no waiting */
    mark->start = r->last_progress = pst_now();
    if (x->a.kind == PST_ACT_F)
        run_forward(r, x);
    if (x->a.kind == PST_ACT_B || x->a.kind == PST_ACT_I)
        run_list(r, x, PST_LIST_B);
    if (x->a.kind == PST_ACT_W || (x->a.kind == PST_ACT_B && splits(r, x)))
        run_list(r, x, PST_LIST_W);
    mark->end = pst_now();
    spent = mark->end - mark->start;
    if (x->a.kind == PST_ACT_F)
        r->times.forward += spent;
    else
        r->times.backward += spent;
    return PST_OK;
}

static enum pst_status post_all(struct pst_rank *r, struct pst_rank_action *x)
{
    enum pst_status status = PST_OK;

    if (is_leaving(r, x))
        return PST_AGAIN;
    for (unsigned i = 0; i < x->n_messages && status == PST_OK; i++)
        status = pst_rank_post(r, &x->messages[i]);
    return status;
}

static enum pst_status run_action(struct pst_rank *r, struct pst_rank_action *x)
{
    switch (x->a.kind) {
    case PST_ACT_F:
    case PST_ACT_B:
    case PST_ACT_I:
    case PST_ACT_W:
        return compute(r, x);
    case PST_ACT_SEND_F:
    case PST_ACT_RECV_F:
    case PST_ACT_SEND_B:
    case PST_ACT_RECV_B:
        return post_all(r, x);
    case PST_ACT_COPY_F:
        if (is_leaving(r, x))
            return PST_AGAIN;
        copy_forward(r, x);
        return PST_OK;
    case PST_ACT_COPY_B:
        if (is_leaving(r, x))
            return PST_AGAIN;
        copy_backward(r, x);
        return PST_OK;
    case PST_ACT_REDUCE:
        if (x->a.param < 0)
            return pst_replicas_begin(r, x->a.stage);
        return r->n_summing > 0 ? PST_AGAIN : pst_rank_reduce(r, x->a.param);
    case PST_ACT_UNSHARD: /* parameters are resident */
    case PST_ACT_RESHARD:
        return PST_OK;
    default:
        return pst_diag_set(r->diag, PST_ERR_INTERNAL,
                            "rank %u: unknown action %d", pst_rank_number(r),
                            (int)x->a.kind);
    }
}

void pst_rank_note_fault(struct pst_rank *r, const char *text)
{
    r->fault.set = 1;
    snprintf(r->fault_text, sizeof(r->fault_text), "%s", text);
}

void pst_rank_begin(struct pst_rank *r, uint64_t step, pst_fill_fn fill,
                    void *fill_ctx, unsigned control)
{
    r->phase = PST_RANK_RUN;
    r->pc = 0;
    r->step = step;
    r->fill = fill;
    r->fill_ctx = fill_ctx;
    r->control = control;
    r->fault.set = 0;
    r->fault.text[0] = r->fault_text[0] = '\0';
    r->times = (struct pst_times){0};
    r->started = pst_now();
    r->waiting_since = 0;
    r->progressed = PST_OK;
    pst_ring_begin(&r->ring, step, r->started);
    for (size_t i = 0; i < r->params.n; i++)
        if (r->params.at[i].updated)
            memcpy(pst_rank_at(r, r->params.at[i].shadow),
                   pst_rank_at(r, r->params.at[i].data),
                   pst_meta_bytes(
                       &r->plan->params.at[r->params.at[i].index].meta));
}

/* What waits between its parts (a reduction) lasts from its first part on;
 * compute sets its own mark. */
static enum pst_status run_next(struct pst_rank *r)
{
    struct pst_rank_action *x = &r->actions[r->pc];
    struct pst_mark *mark = &r->ring.now->marks[r->pc];
    const bool computes = x->a.kind <= PST_ACT_W;
    enum pst_status status;

    if (!computes && mark->start <= r->started)
        mark->start = pst_now();
    status = run_action(r, x);
    if (status != PST_OK)
        return status;
    if (!computes)
        mark->end = pst_now();
    note_wait(r, status);
    r->pc++;
    return PST_OK;
}

static enum pst_status advance_once(struct pst_rank *r)
{
    if (r->phase == PST_RANK_RUN && !r->is_prepared)
        prepare(r);
    if (r->phase == PST_RANK_RUN && r->pc < r->n_actions)
        return run_next(r);
    if (r->phase == PST_RANK_RUN)
        r->phase = PST_RANK_DRAIN;
    if (r->phase == PST_RANK_DRAIN) {
        if (r->n_active > 0)
            return PST_AGAIN;
        r->phase = PST_RANK_REPORT;
    }
    return r->phase < PST_RANK_APPLY ? pst_rank_agree(r) : pst_rank_conclude(r);
}

enum pst_status pst_rank_advance(struct pst_rank *r)
{
    enum pst_status status = r->progressed;

    if (status == PST_OK)
        status = pst_rank_poll(r);
    while (status == PST_OK && r->phase != PST_RANK_DONE) {
        status = advance_once(r);
        note_wait(r, status);
        if (status == PST_AGAIN) {
            /* One more look: the message may have come meanwhile. */
            unsigned before = r->n_active;
            enum pst_status polled = pst_rank_poll(r);

            if (polled != PST_OK)
                return polled;
            if (r->n_active < before)
                status = PST_OK;
        }
    }
    return status;
}
