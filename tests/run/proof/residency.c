// SPDX-License-Identifier: Apache-2.0
#include "tests/run/proof/proof.h"

enum state { SHARDED, GATHERING, UNSHARDED };

struct checker {
    const struct pst_layout *layout;
    const struct pst_rank_role *role;
    struct pst_toucher *toucher;
    struct pst_touches touches;
    enum state *states;              /* per bucket: state of its values */
    const struct pst_action *action; /* the current action */
    unsigned number;                 /* its index among the compute actions */
    struct pst_diag *diag;
};

/* Returns the name of the module whose parameters are in the bucket, with its
 * length; "": none. */
static const char *group_of(const struct checker *c, unsigned bucket,
                            unsigned *ret_len)
{
    const struct pst_flats *f = &c->layout->flats;

    for (size_t i = 0; i < f->parts.n; i++)
        if (f->parts.at[i].flat == c->layout->buckets.at[bucket].flat) {
            const char *fqn =
                c->role->plan->params.at[f->parts.at[i].param].fqn;

            *ret_len = (unsigned)pst_flat_group(fqn);
            return fqn;
        }
    *ret_len = 0;
    return "";
}

static enum pst_status report_violation(const struct checker *c,
                                        unsigned bucket, unsigned kernel,
                                        const char *what)
{
    struct pst_str action = {0};
    unsigned len;
    const char *group = group_of(c, bucket, &len);

    if (c->action != NULL)
        pst_action_print(c->action, &action);
    (void)pst_diag_set(c->diag, PST_E_INTERNAL_BUG,
                       "rank %u, %s, kernel %u: parameters of group \"%.*s\" "
                       "%s",
                       pst_role_number(c->role),
                       action.len > 0 ? pst_str_text(&action)
                                      : "end of the step",
                       kernel, (int)len, group, what);
    pst_str_fini(&action);
    return PST_ERR_INTERNAL;
}

/* Checks the touches from index *at on whose first kernel is before `end`: the
 * values that they read must be gathered. Moves *at past them. */
static enum pst_status check_reads(const struct checker *c, size_t *at,
                                   unsigned end)
{
    for (; *at < c->touches.all.n && c->touches.all.at[*at].first < end;
         ++*at) {
        const struct pst_touch *t = &c->touches.all.at[*at];

        if (!t->grads && c->states[t->bucket] != UNSHARDED)
            return report_violation(c, t->bucket, t->first,
                                    c->states[t->bucket] == GATHERING
                                        ? "are read before they are waited for"
                                        : "are read while they are sharded");
    }
    return PST_OK;
}

static enum pst_status check_release(const struct checker *c,
                                     const struct pst_residency_event *e)
{
    if (c->states[e->bucket] != UNSHARDED)
        return report_violation(c, e->bucket, e->pos,
                                "are released and have not been gathered");
    for (size_t i = 0; i < c->touches.all.n; i++) {
        const struct pst_touch *t = &c->touches.all.at[i];

        if (!t->grads && t->bucket == e->bucket && t->first < e->pos &&
            t->last >= e->pos)
            return report_violation(c, e->bucket, t->last,
                                    "are read while they are sharded");
    }
    c->states[e->bucket] = SHARDED;
    return PST_OK;
}

static enum pst_status play_event(const struct checker *c,
                                  const struct pst_residency_event *e)
{
    enum state *state = &c->states[e->bucket];

    switch (e->task) {
    case PST_RESIDENCY_GATHER:
        if (*state != SHARDED)
            return report_violation(c, e->bucket, e->pos,
                                    "are gathered while they are here already");
        *state = GATHERING;
        return PST_OK;
    case PST_RESIDENCY_VALUES:
        if (*state != GATHERING)
            return report_violation(
                c, e->bucket, e->pos,
                "are waited for and nobody has asked for them");
        *state = UNSHARDED;
        return PST_OK;
    case PST_RESIDENCY_RELEASE:
        return check_release(c, e);
    default:
        return PST_OK;
    }
}

static enum pst_status play_compute(struct checker *c)
{
    unsigned n;
    const struct pst_residency_event *e =
        pst_residency_of(c->layout, c->number, &n);
    enum pst_status status = pst_touches_of(c->toucher, c->action, &c->touches);
    size_t at = 0;

    for (unsigned i = 0; i < n && status == PST_OK; i++) {
        status = check_reads(c, &at, e[i].pos);
        if (status == PST_OK)
            status = play_event(c, &e[i]);
    }
    if (status == PST_OK)
        status = check_reads(c, &at, c->touches.n_kernels);
    c->number++;
    return status;
}

/* Checks that no values of the stage (-1: of any) are still gathered. */
static enum pst_status check_none_gathered(const struct checker *c, int stage)
{
    for (unsigned i = 0; i < c->layout->buckets.n; i++) {
        const struct pst_bucket *b = &c->layout->buckets.at[i];

        /* Values of a flat that is `alone` may be in use by other stages. */
        if (c->states[i] == SHARDED ||
            (stage >= 0 &&
             ((int)b->stage != stage ||
              c->layout->flats.all.at[b->flat].single_use /* other stages */)))
            continue;
        return report_violation(
            c, i, 0,
            c->states[i] == GATHERING
                ? "are left over: asked for, and read by nobody"
                : "are left over: nobody has released them");
    }
    return PST_OK;
}

enum pst_status prove_residency(const struct pst_layout *layout,
                                struct pst_toucher *toucher,
                                struct pst_diag *diag)
{
    const struct pst_rank_role *role = toucher->role;
    const struct pst_schedule *sched = role->sched;
    struct checker c = {
        .layout = layout, .role = role, .toucher = toucher, .diag = diag};
    enum pst_status status = PST_OK;

    c.states =
        pst_calloc(PST_TAG_TEST, layout->buckets.n + 1, sizeof(*c.states));
    if (c.states == NULL)
        return pst_diag_nomem(diag, layout->buckets.n * sizeof(*c.states));
    for (size_t i = 0; i < sched->ranks[role->rank].n && status == PST_OK;
         i++) {
        c.action = &sched->ranks[role->rank].at[i];
        if (c.action->kind <= PST_ACT_W)
            status = play_compute(&c);
        else if (c.action->kind == PST_ACT_RESHARD)
            status = check_none_gathered(&c, c.action->stage);
    }
    c.action = NULL;
    if (status == PST_OK)
        status = check_none_gathered(&c, -1);
    pst_touches_fini(&c.touches);
    pst_free(c.states);
    return status;
}
