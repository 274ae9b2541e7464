// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_LAYOUT_ROLE_H
#define PENSTOCK_STAGES_LAYOUT_ROLE_H
/*
 * The numbers of a rank in its job, and the data of the engine that the rank
 * reads. Fixed before the rank is created; the engine owns the data and
 * outlives the rank. Only weights and update counts change, between steps. Any
 * thread may read it.
 */
#include "stages/layout/batch.h"
#include "stages/layout/groups/groups.h"
#include "stages/layout/memory/uses.h"

struct pst_rank_role {
    struct pst_plan *plan;
    const struct pst_schedule *sched; /* schedule of its replica's pipeline */
    const struct pst_uses *uses;
    /* sharding mode per parameter; NULL: options.shard for all */
    const unsigned char *sharing;
    const struct pst_groups *groups; /* NULL: all have options.optim */
    struct pst_exec_options options;
    /* Per stage: true if its program has separate lists for I and W, since the
     * schedule for some number of microbatches needs them. NULL: they are
     * separate if `sched` has I. */
    const bool *splits;
    const double *weights; /* weights of all microbatches of the step */
    /* Updates before the step, and, per parameter, updates before its optimizer
     * states were initialized. */
    const uint64_t *updates, *since;
    const struct pst_loss_scaler *scaler; /* NULL: the loss is not scaled */
    /* The largest loss and the largest norm with which a step is applied. */
    const double *limits;
    unsigned replica, rank; /* rank: number in its pipeline */
    /* index in the step of this replica's microbatch 0 */
    unsigned first_mb;
};

/* Returns the number in the job of this replica's rank 0. */
static inline unsigned pst_role_first(const struct pst_rank_role *role)
{
    return role->replica * role->options.ranks;
}

/* Returns the rank's number in the job. */
static inline unsigned pst_role_number(const struct pst_rank_role *role)
{
    return pst_role_first(role) + role->rank;
}

static inline unsigned pst_role_job_size(const struct pst_rank_role *role)
{
    return role->options.ranks * role->options.replicas;
}

/* Returns the largest number of microbatches of a replica in any step. */
static inline unsigned pst_role_most_microbatches(
    const struct pst_rank_role *role)
{
    const unsigned r = PST_MAX(role->options.replicas, 1);
    const unsigned most = pst_most_microbatches(&role->options);

    return role->options.n_counts > 0 ? most / r + (most % r > 0)
                                      : role->sched->n_microbatches;
}

/* Returns the optimizer; NULL if steps change no parameter. */
static inline const struct pst_optim *pst_role_optim(
    const struct pst_rank_role *role)
{
    return role->options.train ? role->options.optim.row : NULL;
}

/* Returns the optimizer options of a parameter. Needs an optimizer. */
static inline const struct pst_optim_options *pst_role_update(
    const struct pst_rank_role *role, unsigned param)
{
    return role->groups != NULL
               ? &role->groups->all.at[role->groups->group_of[param]].options
               : &role->options.optim;
}

/* True if an update of the parameter needs all of its elements at once. */
static inline bool pst_role_is_whole(const struct pst_rank_role *role,
                                     unsigned param)
{
    return pst_role_optim(role) != NULL &&
           pst_role_update(role, param)->row->whole;
}

/* Largest number of norms by which gradients are clipped: one for all
 * parameters, and one for each rule of --group with its own clip-norm. */
#define PST_CLIPS 65

/* True if gradients are clipped by a norm. */
static inline bool pst_role_clips_norm(const struct pst_rank_role *role)
{
    bool ret = role->options.optim.clip_norm > 0;

    for (size_t i = 0; role->groups != NULL && i < role->groups->all.n; i++)
        ret |= role->groups->all.at[i].options.clip_norm > 0;
    return ret;
}

/* True if a step whose gradients are not finite is not applied. */
static inline bool pst_role_checks_norm(const struct pst_rank_role *role)
{
    return pst_role_clips_norm(role) || role->options.check_grads ||
           role->options.loss_scale.kind != PST_LOSS_SCALE_NONE;
}

/* True if the norm of all gradients is needed. */
static inline bool pst_role_wants_norm(const struct pst_rank_role *role)
{
    return role->options.train &&
           (pst_role_checks_norm(role) || role->options.grad_norm);
}

/* Returns the factor by which the loss, and thus all gradients in the arena,
 * are multiplied. */
static inline double pst_role_loss_scale(const struct pst_rank_role *role)
{
    return role->scaler != NULL ? role->scaler->scale : 1;
}

/* True if this rank updates the parameter: every rank that reads it does,
 * except that a transmitted parameter is updated by its owner. */
static inline bool pst_role_owns(const struct pst_rank_role *role,
                                 unsigned param)
{
    const struct pst_plan_param *p = &role->plan->params.at[param];

    return !p->transmit ||
           role->sched->rank_of[p->owner_stage] == (int)role->rank;
}

/* Returns how the parameter is sharded over replicas. Without training only
 * PST_SHARING_ZERO3 has an effect, since there are only values. */
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

/* True if each replica updates a shard of the parameter. */
static inline bool pst_role_shares(const struct pst_rank_role *role,
                                   unsigned param)
{
    return pst_role_sharing(role, param) != PST_SHARING_NONE;
}

/* True if replicas also shard the parameter's gradient, which they reduce in
 * each microbatch. */
static inline bool pst_role_scatters(const struct pst_rank_role *role,
                                     unsigned param)
{
    return role->options.train &&
           pst_role_sharing(role, param) >= PST_SHARING_ZERO2;
}

/* True if replicas also shard the parameter's value, which they gather where it
 * is used. */
static inline bool pst_role_gathers(const struct pst_rank_role *role,
                                    unsigned param)
{
    return pst_role_sharing(role, param) >= PST_SHARING_ZERO3;
}

/* True for a microbatch (of this replica) with fewer rows than the plan. */
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
