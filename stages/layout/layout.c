// SPDX-License-Identifier: Apache-2.0
#include "stages/layout/layout.h"

void pst_layout_fini(struct pst_layout *l)
{
    pst_vec_fini(&l->params);
    pst_vec_fini(&l->grads);
    pst_vec_fini(&l->buckets);
    pst_vec_fini(&l->residency);
    pst_vec_fini(&l->spills.jobs);
    pst_flats_fini(&l->flats);
}

const struct pst_rank_param *pst_layout_param(const struct pst_layout *l,
                                              unsigned param)
{
    const int at = l->param_at[param];

    return at < 0 ? NULL : &l->params.at[at];
}

static bool same_param(const struct pst_rank_param *a,
                       const struct pst_rank_param *b, bool all)
{
    bool same = a->index == b->index && a->bytes == b->bytes &&
                a->begin == b->begin && a->n == b->n &&
                a->own_data == b->own_data;

    for (unsigned k = 0; k < PST_OPTIM_ALL_STATES; k++)
        same = same && a->state[k] == b->state[k];
    return same && (!all || (a->data == b->data && a->shadow == b->shadow &&
                             a->own_grad == b->own_grad));
}

bool pst_layout_same_fixed(const struct pst_layout *a,
                           const struct pst_layout *b, unsigned n_stages,
                           bool all)
{
    bool same = a->params.n == b->params.n && a->grads.n == b->grads.n;

    for (size_t i = 0; i < a->params.n && same; i++)
        same = same_param(&a->params.at[i], &b->params.at[i], all);
    for (size_t i = 0; i < a->grads.n && same && all; i++)
        same = a->grads.at[i].offset == b->grads.at[i].offset;
    for (unsigned s = 0; s < n_stages && same && all; s++)
        same = a->stages[s].seed_offset == b->stages[s].seed_offset;
    return same && (!all || a->memory.prepared == b->memory.prepared);
}

size_t pst_layout_grads_of(const struct pst_layout *l, int param)
{
    const int at = l->grad_at[param];

    return at < 0 ? l->grads.n : (size_t)at;
}

unsigned char *pst_layout_address(const struct pst_layout *l,
                                  unsigned char *base, int stage,
                                  struct pst_loc loc, int slot)
{
    const struct pst_slot_pool *pool = &l->stages[stage].pools[loc.region];

    if (loc.region == PST_R_FIXED)
        return base + loc.offset;
    if (loc.region == PST_R_WORK)
        return base + l->work + loc.offset;
    if (slot < 0)
        return NULL;
    return base + pool->base + (size_t)slot * pool->size + loc.offset;
}

const struct pst_exec_node *pst_layout_site(const struct pst_layout *l,
                                            const struct pst_rank_role *role,
                                            unsigned site, int *ret_stage)
{
    for (unsigned s = 0; s < role->sched->n_stages; s++) {
        const struct pst_program *programs[] = {l->stages[s].program,
                                                l->stages[s].tail};

        for (size_t i = 0; i < PST_COUNT(programs); i++)
            for (int k = 0; programs[i] != NULL && k < PST_N_LISTS; k++) {
                const struct pst_exec_list *list = &programs[i]->lists[k];

                *ret_stage = (int)s;
                if (site >= list->first_site &&
                    site - list->first_site < list->n)
                    return &list->at[site - list->first_site];
            }
    }
    return NULL;
}
