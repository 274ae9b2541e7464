// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_LAYOUT_ROLE_H
#define PENSTOCK_STAGES_LAYOUT_ROLE_H
/*
 * Which rank of a job it is, and what it is told of its engine. Fixed before
 * the rank is made; what it points to belongs to the engine, which outlives
 * it. Weights and counts of updates alone change, between steps. Any thread may
 * read it.
 */
#include "stages/layout/batch.h"
#include "stages/layout/memory/uses.h"

struct pst_rank_role {
    struct pst_plan *plan;
    const struct pst_schedule *sched; /* of its replica */
    const struct pst_uses *uses;
    const unsigned char *sharing; /* per parameter; NULL: options.shard */
    struct pst_exec_options options;
    const double *weights; /* of all microbatches of the step */
    /* Of the optimizer before the step; per parameter before its states. */
    const uint64_t *updates, *since;
    unsigned replica, rank; /* rank: of the pipeline */
    unsigned first_mb; /* microbatch of the step that is 0 of this replica */
};

/* Rank of the job that is rank 0 of this replica. */
static inline unsigned pst_role_first(const struct pst_rank_role *role)
{
    return role->replica * role->options.ranks;
}

/* Its number in the job. */
static inline unsigned pst_role_number(const struct pst_rank_role *role)
{
    return pst_role_first(role) + role->rank;
}

static inline unsigned pst_role_job_size(const struct pst_rank_role *role)
{
    return role->options.ranks * role->options.replicas;
}

/* NULL: steps change no parameter. */
static inline const struct pst_optim *pst_role_optim(
    const struct pst_rank_role *role)
{
    return role->options.train ? role->options.optim.row : NULL;
}

/* True if somebody wants the norm of all gradients. */
static inline bool pst_role_wants_norm(const struct pst_rank_role *role)
{
    return role->options.train &&
           (role->options.optim.clip_norm > 0 || role->options.grad_norm ||
            role->options.check_grads);
}

/* True if this rank updates the parameter. All that read it do, but for one
 * that its home transmits. */
static inline bool pst_role_owns(const struct pst_rank_role *role,
                                 unsigned param)
{
    const struct pst_plan_param *p = &role->plan->params.at[param];

    return !p->transmit || role->sched->rank_of[p->home] == (int)role->rank;
}

/* What replicas have a part of each, of that parameter: values alone, where
 * nothing is trained. */
static inline enum pst_sharing pst_role_sharing(
    const struct pst_rank_role *role, unsigned param)
{
    const struct pst_plan_param *p = &role->plan->params.at[param];
    enum pst_sharing mode;

    if (role->options.replicas < 2 || p->transmit || p->meta.dtype != PST_F32 ||
        pst_uses_total(role->uses, param) == 0)
        return PST_SHARING_NONE;
    mode = role->sharing != NULL ? (enum pst_sharing)role->sharing[param]
                                 : role->options.shard;
    if (role->options.train)
        return pst_role_optim(role) != NULL ? mode : PST_SHARING_NONE;
    return mode >= PST_SHARING_ZERO3 ? mode : PST_SHARING_NONE;
}

/* True if replicas update a part of the parameter each. */
static inline bool pst_role_shares(const struct pst_rank_role *role,
                                   unsigned param)
{
    return pst_role_sharing(role, param) != PST_SHARING_NONE;
}

/* The same, and they sum its gradient in each microbatch. */
static inline bool pst_role_scatters(const struct pst_rank_role *role,
                                     unsigned param)
{
    return role->options.train &&
           pst_role_sharing(role, param) >= PST_SHARING_ZERO2;
}

/* The same, and its value is gathered where it is used. */
static inline bool pst_role_gathers(const struct pst_rank_role *role,
                                    unsigned param)
{
    return pst_role_sharing(role, param) >= PST_SHARING_ZERO3;
}

/* True of a microbatch (of this replica) with fewer rows than the plan. */
static inline bool pst_role_is_tail(const struct pst_rank_role *role,
                                    int microbatch)
{
    return role->first_mb + (unsigned)microbatch >=
           pst_n_larger(&role->options);
}

static inline struct pst_plan *pst_role_plan(const struct pst_rank_role *role,
                                             int microbatch)
{
    return pst_role_is_tail(role, microbatch) ? role->options.tail : role->plan;
}

#endif
