// SPDX-License-Identifier: Apache-2.0
#include "stages/layout/memory/touches.h"

#include <string.h>

unsigned pst_residency_lists(const struct pst_program *program,
                             enum pst_action_kind kind, enum pst_list ret[2])
{
    ret[0] = kind == PST_ACT_F   ? PST_LIST_F
             : kind == PST_ACT_W ? PST_LIST_W
                                 : PST_LIST_B;
    ret[1] = PST_LIST_W;
    return kind == PST_ACT_B && program->options.split_iw ? 2 : 1;
}

enum pst_status pst_toucher_init(struct pst_toucher *t, struct pst_arena *heap)
{
    const struct pst_layout *l = t->layout;
    const struct pst_plan *plan = t->role->plan;

    t->value_bucket =
        pst_arena_calloc(heap, plan->params.n + 1, sizeof(*t->value_bucket));
    t->bucket_of =
        pst_arena_calloc(heap, l->flats.all.n + 1, sizeof(*t->bucket_of));
    t->uses = pst_arena_calloc(heap, plan->params.n + 1, sizeof(*t->uses));
    if (t->value_bucket == NULL || t->bucket_of == NULL || t->uses == NULL)
        return pst_diag_nomem(t->diag, plan->params.n * sizeof(*t->uses));
    for (size_t i = 0; i < l->flats.all.n; i++)
        t->bucket_of[i] = -1;
    for (size_t i = 0; i < l->buckets.n; i++)
        t->bucket_of[l->buckets.at[i].flat] = (int)i;
    for (unsigned i = 0; i < plan->params.n; i++)
        t->value_bucket[i] = -1;
    for (size_t i = 0; i < l->flats.parts.n; i++) {
        const struct pst_flat_part *p = &l->flats.parts.at[i];
        const int bucket = t->bucket_of[p->flat];

        if (bucket >= 0 && l->buckets.at[bucket].own_data != 0 &&
            pst_role_gathers(t->role, (unsigned)p->param))
            t->value_bucket[p->param] = bucket;
    }
    return PST_OK;
}

/* --- touches of a list ---------------------------------------------------- */

struct reading {
    struct pst_toucher *toucher;
    struct pst_touches *to;
    unsigned pos;
    bool failed;
};

static void add_touch(struct reading *r, unsigned bucket, bool grads)
{
    const struct pst_touch new = {bucket, grads, r->pos, r->pos};
    struct pst_touches *list = r->to;

    for (size_t i = list->all.n; i-- > 0;)
        if (list->all.at[i].bucket == bucket &&
            list->all.at[i].grads == grads) {
            list->all.at[i].last = r->pos;
            return;
        }
    r->failed = !pst_vec_push(PST_TAG_EXEC, &list->all, new) || r->failed;
}

static void read_value(void *ctx, struct pst_value **slot, unsigned arg)
{
    struct reading *r = ctx;
    const struct pst_value *v = pst_value_storage(*slot);
    int param;

    (void)arg;
    if (v->kind != PST_VALUE_PARAM)
        return;
    param = pst_plan_find_param(r->toucher->role->plan, v->fqn);
    if (param >= 0 && r->toucher->value_bucket[param] >= 0)
        add_touch(r, (unsigned)r->toucher->value_bucket[param], false);
}

/* Returns the bucket of the gradient of use number `use` of the parameter in
 * the stage; -1: it is always resident. A use without its own accumulator
 * shares the last one. */
static int grads_bucket(const struct pst_toucher *t, unsigned stage,
                        unsigned param, unsigned use)
{
    const struct pst_flats *f = &t->layout->flats;
    int ret = -1;

    if (!pst_role_scatters(t->role, param) || f->first[param] < 0)
        return -1;
    for (size_t i = (size_t)f->first[param];
         i < f->parts.n && f->parts.at[i].param == (int)param; i++)
        if (f->parts.at[i].stage == stage && f->parts.at[i].use <= use)
            ret = t->bucket_of[f->parts.at[i].flat];
    return ret;
}

static enum pst_status scan_list(struct pst_toucher *t, unsigned stage,
                                 const struct pst_exec_list *l,
                                 struct pst_touches *ret)
{
    struct reading r = {.toucher = t, .to = ret};

    for (unsigned i = 0; i < l->n; i++) {
        const struct pst_exec_node *x = &l->at[i];
        int param, bucket;

        r.pos = ret->n_kernels + i;
        pst_node_uses((struct pst_node *)x->node, read_value, &r);
        if (x->role == PST_GRAD_NONE)
            continue;
        param = pst_plan_find_param(t->role->plan, x->grad->fqn);
        if (param < 0)
            continue;
        bucket = grads_bucket(t, stage, (unsigned)param, t->uses[param]++);
        if (bucket >= 0)
            add_touch(&r, (unsigned)bucket, true);
    }
    return r.failed ? pst_diag_nomem(t->diag, sizeof(struct pst_touch))
                    : PST_OK;
}

enum pst_status pst_touches_of(struct pst_toucher *t,
                               const struct pst_action *a,
                               struct pst_touches *ret)
{
    const struct pst_program *program =
        pst_layout_program(t->layout, t->role, a->stage, a->microbatch);
    enum pst_list lists[2];
    const unsigned n =
        pst_residency_lists(program, (enum pst_action_kind)a->kind, lists);
    enum pst_status status = PST_OK;

    memset(t->uses, 0, t->role->plan->params.n * sizeof(*t->uses));
    ret->n_kernels = 0;
    ret->all.n = 0;
    for (unsigned i = 0; i < n && status == PST_OK; i++) {
        status =
            scan_list(t, (unsigned)a->stage, &program->lists[lists[i]], ret);
        ret->n_kernels += program->lists[lists[i]].n;
    }
    return status;
}

void pst_touches_fini(struct pst_touches *touches)
{
    pst_vec_fini(&touches->all);
}
