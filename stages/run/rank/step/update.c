// SPDX-License-Identifier: Apache-2.0
#include "stages/run/rank/step/update.h"

#include <stdio.h>

#include "stages/layout/layout.h"

void pst_update_save(const struct pst_layout *layout, struct pst_rank_device *d)
{
    for (size_t i = 0; i < layout->params.n; i++) {
        const struct pst_rank_param *p = &layout->params.at[i];

        if (p->shadow != 0)
            d->mem.device->copy(&d->mem, PST_QUEUE_COMPUTE,
                                pst_rank_at(d, p->shadow),
                                pst_rank_at(d, p->data), p->bytes);
    }
}

void pst_update_restore(const struct pst_layout *layout,
                        struct pst_rank_device *d)
{
    for (size_t i = 0; i < layout->params.n; i++) {
        const struct pst_rank_param *p = &layout->params.at[i];

        if (p->shadow != 0)
            d->mem.device->copy(&d->mem, PST_QUEUE_COMPUTE,
                                pst_rank_at(d, p->data),
                                pst_rank_at(d, p->shadow), p->bytes);
    }
}

struct pst_stayed pst_stayed_make(const uint64_t *words, uint64_t step)
{
    if (words[1] == 0)
        return (struct pst_stayed){0};
    return (struct pst_stayed){
        .n = words[1], .step = step, .param = (uint32_t)(words[0] - 1)};
}

static const struct pst_meta *meta_of(const struct pst_rank_role *role,
                                      const struct pst_rank_param *p)
{
    return &role->plan->params.at[p->index].meta;
}

/* Moves the average of a parameter towards its new value. The first update of a
 * run sets it. */
static void update_average(struct pst_rank_device *d,
                           const struct pst_rank_param *p, double decay,
                           bool is_first)
{
    void *const to = pst_rank_at(d, p->state[PST_OPTIM_EMA]);
    void *const from[] = {pst_rank_at(d, p->own_data), to};
    const struct pst_task task = {.dtype = PST_F32,
                                  .n = p->n,
                                  .to = to,
                                  .from = from,
                                  .n_from = PST_COUNT(from),
                                  .number = is_first ? 1 : 1 - decay,
                                  .pool = d->pool,
                                  .isa = pst_cpu_isa()};

    d->mem.device->run(&d->mem, d->ema, &task);
}

/* Returns the factor that clips the gradients of parameters with these options;
 * 1 without clipping. */
static double scale_of(const struct pst_optim_options *o, const double *norms)
{
    return o->clip_norm > 0 ? pst_clip_scale(norms[o->clip_rule], o->clip_norm)
                            : 1;
}

void pst_update_apply(const struct pst_rank_role *role,
                      const struct pst_layout *layout,
                      struct pst_rank_device *d, const double *norms)
{
    const uint64_t updates = *role->updates;
    void *const words = pst_rank_at(d, layout->readback.stayed);
    const struct pst_optim_options *of = NULL;
    uint64_t since = 0;
    struct pst_update update = {0};

    d->mem.device->zero(&d->mem, words, 2 * sizeof(uint64_t));
    for (size_t i = 0; i < layout->params.n; i++) {
        const struct pst_rank_param *p = &layout->params.at[i];
        const bool whole = pst_role_is_whole(role, (unsigned)p->index);
        void *from[3 + PST_OPTIM_MAX_STATES] = {
            pst_rank_at(d, p->own_grad),
            [1 + PST_OPTIM_MAX_STATES] =
                whole ? pst_rank_at(d, layout->work) : NULL,
            [2 + PST_OPTIM_MAX_STATES] = words};
        const struct pst_task task = {.dtype = PST_F32,
                                      .n = p->n,
                                      .to = pst_rank_at(d, p->own_data),
                                      .from = from,
                                      .n_from = PST_COUNT(from),
                                      .number = (double)p->index + 1,
                                      .meta = whole ? meta_of(role, p) : NULL,
                                      .update = &update,
                                      .pool = d->pool,
                                      .isa = pst_cpu_isa()};

        if (!p->trained)
            continue;
        if (whole)
            pst_rank_record_used(
                d, pst_rank_at(d, layout->work) +
                       pst_optim_work(pst_role_update(role, (unsigned)p->index),
                                      meta_of(role, p)));
        if (p->n == 0)
            continue;
        if (of != pst_role_update(role, (unsigned)p->index) ||
            role->since[p->index] != since) {
            of = pst_role_update(role, (unsigned)p->index);
            since = role->since[p->index];
            update = pst_optim_update(of->row, of, updates, since,
                                      scale_of(of, norms));
        }
        for (unsigned k = 0; k < PST_OPTIM_MAX_STATES; k++)
            if (p->state[k] != 0)
                from[1 + k] = pst_rank_at(d, p->state[k]);
        d->mem.device->run(&d->mem, d->updates[pst_optim_index(of->row)],
                           &task);
        if (p->state[PST_OPTIM_EMA] != 0)
            update_average(d, p, of->ema, updates == 0);
    }
}

void pst_stayed_describe(const struct pst_stayed *stayed,
                         const struct pst_rank_role *role, unsigned rank,
                         char *text, size_t size)
{
    (void)snprintf(
        text, size,
        "rank %u: the update of step %llu left %llu elements of parameters as "
        "they were, the first one of '%.300s': they, or what %s keeps of them, "
        "would not be finite",
        rank, (unsigned long long)stayed->step, (unsigned long long)stayed->n,
        role->plan->params.at[stayed->param].fqn,
        pst_optim_name(pst_role_update(role, stayed->param)));
}
