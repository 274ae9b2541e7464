// SPDX-License-Identifier: Apache-2.0
/* Copies state from one engine to another. */
#include <string.h>

#include "stages/base/alloc.h"
#include "stages/base/host/alive.h"
#include "stages/layout/layout.h"
#include "stages/run/rank/step/device.h"
#include "stages/run/state/average.h"
#include "stages/run/state/entries.h"
#include "stages/run/state/migration.h"

#define TAG    PST_TAG_EXEC
#define LISTED 8 /* maximum number of names in a message */

enum pst_status pst_engine_read_param(const struct pst_engine *engine,
                                      unsigned param, void *dst,
                                      struct pst_diag *diag)
{
    for (unsigned i = 0; i < engine->n_local; i++) {
        struct pst_rank *r = engine->ranks[i];
        const struct pst_rank_param *p =
            pst_layout_param(pst_rank_layout(r), param);

        if (p == NULL || pst_role_gathers(pst_rank_role(r), param))
            continue;
        memcpy(dst, pst_rank_pull(pst_rank_device(r), p->data, p->bytes),
               p->bytes);
        return PST_OK;
    }
    return pst_diag_set(diag, PST_E_CHECKPOINT_WHERE,
                        "no rank of this process has \"%s\"%s",
                        engine->grid->plan->params.at[param].fqn,
                        pst_engine_has_parts(engine, param) ? " whole" : "");
}

/* Sets the value of a parameter that no stage reads. */
static enum pst_status write_unread(struct pst_engine *engine, unsigned param,
                                    const void *src, struct pst_diag *diag)
{
    const size_t bytes =
        pst_meta_bytes(&engine->grid->plan->params.at[param].meta);

    if (engine->unread[param] == NULL)
        engine->unread[param] = pst_alloc(TAG, PST_MAX(bytes, (size_t)1));
    if (engine->unread[param] == NULL)
        return pst_diag_nomem(diag, bytes);
    memcpy(engine->unread[param], src, bytes);
    return PST_OK;
}

enum pst_status pst_engine_write_param(struct pst_engine *engine,
                                       unsigned param, const void *src,
                                       struct pst_diag *diag)
{
    engine->changes++;
    if (engine->grid->plan->params.at[param].n_stages == 0)
        return write_unread(engine, param, src, diag);
    for (unsigned i = 0; i < engine->n_local; i++) {
        struct pst_rank *r = engine->ranks[i];
        const struct pst_rank_param *p =
            pst_layout_param(pst_rank_layout(r), param);
        struct pst_rank_device *d = pst_rank_device(r);
        size_t begin = 0, bytes;
        void *at;

        if (p == NULL)
            continue;
        at = pst_rank_at(d, p->data);
        bytes = p->bytes;
        if (pst_role_gathers(pst_rank_role(r), param)) {
            at = pst_rank_at(d, p->own_data);
            begin = (size_t)p->begin * sizeof(float);
            bytes = (size_t)p->n * sizeof(float);
        }
        memcpy(pst_device_host(&d->mem, at), (const char *)src + begin, bytes);
        pst_device_push(&d->mem, at, bytes);
        pst_engine_restart_average(engine, r, p);
        pst_rank_params_changed(r);
    }
    return PST_OK;
}

enum pst_status pst_engine_read_unread(const struct pst_engine *engine,
                                       unsigned param, void *dst,
                                       struct pst_diag *diag)
{
    if (engine->unread[param] == NULL)
        return pst_plan_read_param(engine->grid->plan, param, dst, diag);
    memcpy(dst, engine->unread[param],
           pst_meta_bytes(&engine->grid->plan->params.at[param].meta));
    return PST_OK;
}

enum pst_status pst_engine_read_start(const struct pst_engine *engine,
                                      struct pst_plan *plan, unsigned param,
                                      void *dst, struct pst_diag *diag)
{
    enum pst_status status;

    if (pst_engine_has_parts(engine, param)) {
        memset(dst, 0, pst_meta_bytes(&plan->params.at[param].meta));
        return PST_OK;
    }
    if (engine->unread[param] != NULL)
        return pst_engine_read_unread(engine, param, dst, diag);
    status = pst_engine_read_param(engine, param, dst, diag);
    return status == PST_ERR_NOT_FOUND
               ? pst_plan_read_param(plan, param, dst, diag)
               : status;
}

bool pst_engine_has_parts(const struct pst_engine *engine, unsigned param)
{
    return pst_role_gathers(pst_rank_role(engine->ranks[0]), param);
}

enum pst_status pst_engine_fetch_shares(struct pst_engine *engine,
                                        unsigned param, bool grad, void *dst,
                                        struct pst_diag *diag)
{
    const unsigned owner = pst_engine_owner(engine, param);
    const unsigned n = engine->grid->options.replicas;
    const struct pst_flats *flats = &pst_rank_layout(engine->ranks[0])->flats;
    enum pst_status status = PST_OK;

    for (unsigned k = 0; k < n && status == PST_OK; k++) {
        const unsigned from = k * engine->grid->options.ranks + owner;
        struct pst_rank *r = pst_engine_local_rank(engine, from);
        unsigned char *to = dst;
        const void *src = NULL;
        int64_t begin, numel;

        pst_flats_range(flats, param, n, k, &begin, &numel);
        if (r != NULL) {
            const struct pst_rank_param *p =
                pst_layout_param(pst_rank_layout(r), param);

            src = pst_rank_pull(pst_rank_device(r),
                                grad ? p->own_grad : p->own_data,
                                (size_t)numel * sizeof(float));
        }
        status = pst_engine_fetch(
            engine, from, src,
            to == NULL ? NULL : to + (size_t)begin * sizeof(float),
            (size_t)numel * sizeof(float), diag);
    }
    return status;
}

enum pst_status pst_engine_fetch_param(struct pst_engine *engine,
                                       unsigned param, void *dst,
                                       struct pst_diag *diag)
{
    const struct pst_plan_param *p = &engine->grid->plan->params.at[param];
    const unsigned owner = pst_engine_owner(engine, param);
    struct pst_rank *r = pst_engine_local_rank(engine, owner);
    const struct pst_rank_param *at =
        r != NULL ? pst_layout_param(pst_rank_layout(r), param) : NULL;
    const void *src = NULL;

    if (pst_role_gathers(pst_rank_role(engine->ranks[0]), param))
        return pst_engine_fetch_shares(engine, param, false, dst, diag);
    if (p->n_stages == 0)
        return pst_engine_is_zero(engine)
                   ? pst_engine_read_unread(engine, param, dst, diag)
                   : PST_OK;
    if (r != NULL && at == NULL)
        return pst_diag_set(diag, PST_E_INTERNAL_BUG, "rank %u has no \"%s\"",
                            owner, p->fqn);
    if (at != NULL)
        src = pst_rank_pull(pst_rank_device(r), at->data, at->bytes);
    return pst_engine_fetch(engine, owner, src, dst, pst_meta_bytes(&p->meta),
                            diag);
}

enum pst_status pst_engine_gather_param(struct pst_engine *engine,
                                        unsigned param, void *dst,
                                        struct pst_diag *diag)
{
    const size_t bytes =
        pst_meta_bytes(&engine->grid->plan->params.at[param].meta);
    const bool zero = pst_engine_is_zero(engine);
    enum pst_status status =
        pst_engine_fetch_shares(engine, param, false, zero ? dst : NULL, diag);

    if (engine->transport->ops->one_process)
        return status;
    for (unsigned k = 1; k < pst_grid_size(engine->grid) && status == PST_OK;
         k++)
        if (zero || engine->first == k)
            status = pst_engine_transfer(engine, zero, zero ? k : 0, dst, bytes,
                                         diag);
    return status;
}

/* --- states of the optimizer ---------------------------------------------- */

struct adoption {
    struct pst_engine *to;
    const struct pst_engine *from;
    const struct pst_adoption *how;
    struct pst_rank *old;   /* the same rank in `from` */
    struct pst_map entries; /* name -> struct pst_entry of `old` */
    struct pst_arena arena;
};

static enum pst_status record_optim_state(void *ctx, struct pst_rank *r,
                                          const struct pst_entry *entry,
                                          struct pst_diag *diag)
{
    struct adoption *a = ctx;
    struct pst_entry *copy;

    (void)r;
    if (pst_optim_state_of(entry->name) == NULL)
        return PST_OK;
    copy = pst_arena_memdup(&a->arena, entry, sizeof(*entry));
    return copy != NULL && pst_map_put(&a->entries, copy->name, copy)
               ? PST_OK
               : pst_diag_nomem(diag, sizeof(*entry));
}

/* Returns the optimizer state of the old engine that corresponds to `entry`,
 * for the old engine's parameter fqn; NULL: none. n: length of the state's
 * prefix in entry->name. */
static const struct pst_entry *find_entry(const struct adoption *a,
                                          const struct pst_entry *entry,
                                          size_t n, const char *fqn)
{
    const struct pst_plan *plan = a->from->grid->plan;
    const int index = pst_plan_find_param(plan, fqn);
    struct pst_str name = {0};
    const struct pst_entry *ret = NULL;

    if (index < 0)
        return NULL;
    pst_str_addf(&name, "%.*s%s", (int)n, entry->name,
                 plan->params.at[index].fqn);
    if (!name.failed)
        ret = pst_map_get(&a->entries, name.text);
    pst_str_fini(&name);
    return ret;
}

static enum pst_status copy_entry(void *ctx, struct pst_rank *r,
                                  const struct pst_entry *entry,
                                  struct pst_diag *diag)
{
    const struct adoption *a = ctx;
    const char *fqn = pst_optim_state_of(entry->name);
    const size_t bytes = pst_meta_bytes(&entry->meta);
    const char *name = fqn != NULL ? a->how->states(a->how->ctx, fqn) : NULL;
    const struct pst_entry *old;
    struct pst_rank_device *d = pst_rank_device(r);
    void *at = pst_rank_at(d, entry->offset);

    (void)diag;
    if (name == NULL)
        return PST_OK;
    old = find_entry(a, entry, (size_t)(fqn - entry->name), name);
    if (old == NULL || !pst_meta_same(&old->meta, &entry->meta) ||
        old->shared || entry->shared)
        return PST_OK;
    memcpy(pst_device_host(&d->mem, at),
           pst_rank_pull(pst_rank_device(a->old), old->offset, bytes), bytes);
    pst_device_push(&d->mem, at, bytes);
    return PST_OK;
}

/* --- sharded states ------------------------------------------------------- */

/* Returns the parameter's index in the old plan; -1 if it is new or has another
 * shape, or if its states are not sharded in the old engine. */
static int old_index(const struct adoption *a, unsigned param)
{
    const struct pst_plan_param *p = &a->to->grid->plan->params.at[param];
    const char *name = a->how->states(a->how->ctx, p->fqn);
    const int old =
        name != NULL ? pst_plan_find_param(a->from->grid->plan, name) : -1;

    if (old < 0 ||
        !pst_role_shares(pst_rank_role(a->from->ranks[0]), (unsigned)old) ||
        !pst_meta_same(&a->from->grid->plan->params.at[old].meta, &p->meta))
        return -1;
    return old;
}

/* True if both engines have state p->state of the parameter, from the same
 * optimizer. For an average (--ema) the optimizers may differ. */
static bool has_both_states(const struct pst_migration *p)
{
    const struct pst_optim_options *to =
        pst_grid_update(p->to->grid, (unsigned)p->new);
    const struct pst_optim_options *from =
        pst_grid_update(p->from->grid, (unsigned)p->old);
    const struct pst_meta *meta = &p->to->grid->plan->params.at[p->new].meta;
    const unsigned k = (unsigned)p->state;
    struct pst_meta state;

    return ((to->row == from->row && to->store == from->store) ||
            k == PST_OPTIM_EMA) &&
           pst_optim_state(to, k, meta, &state) &&
           pst_optim_state(from, k, meta, &state);
}

static enum pst_status adopt_states(const struct adoption *a, unsigned param,
                                    struct pst_diag *diag)
{
    struct pst_migration p = {.to = a->to,
                              .from = a->from,
                              .old = old_index(a, param),
                              .new = (int)param};
    enum pst_status status = PST_OK;

    for (p.rank = 0; p.old >= 0 && p.rank < a->to->grid->options.ranks;
         p.rank++) {
        if (!pst_migration_is_on(a->from, p.old, p.rank) ||
            !pst_migration_is_on(a->to, p.new, p.rank))
            continue;
        for (p.state = 0; p.state < PST_OPTIM_ALL_STATES && status == PST_OK;
             p.state++)
            if (has_both_states(&p))
                status = pst_migration_run(&p, diag);
    }
    return status;
}

static enum pst_status adopt_value(const struct adoption *a, unsigned param,
                                   struct pst_diag *diag)
{
    const struct pst_plan_param *to = &a->to->grid->plan->params.at[param];
    const char *name = a->how->values(a->how->ctx, to->fqn);
    struct pst_migration p = {
        .to = a->to, .from = a->from, .new = (int)param, .state = -1};
    enum pst_status status = PST_OK;

    p.old = name != NULL ? pst_plan_find_param(a->from->grid->plan, name) : -1;
    if (p.old < 0)
        return PST_OK;
    p.average = pst_engine_average(a->from, (unsigned)p.old) > 0 &&
                !pst_engine_keeps_average(a->to, param);
    if (!p.average && !pst_migration_is_sharded(&p))
        return PST_OK;
    if (!pst_meta_same(&a->from->grid->plan->params.at[p.old].meta,
                       &to->meta)) {
        /* Each old rank had the whole value, and the new plan's start value was
         * made from it. If it was 16-bit, the start value is f32. */
        if (!p.average && !pst_engine_has_parts(a->from, (unsigned)p.old))
            return PST_OK;
        return pst_diag_set(diag, PST_E_INTERNAL_BUG,
                            "\"%s\" has another dtype or shape now", to->fqn);
    }
    for (p.rank = 0; p.rank < a->to->grid->options.ranks && status == PST_OK;
         p.rank++) {
        if (!pst_migration_is_on(a->to, p.new, p.rank))
            continue;
        status = pst_migration_run(&p, diag);
        if (status == PST_OK && a->how->convert != NULL)
            pst_migration_convert(&p, a->how);
    }
    return status;
}

/* Returns the old parameter whose average (--ema) a parameter continues, and
 * whose optimizer states, too, if the optimizer is the same (keeps_optimizer).
 * NULL: average and states start anew. */
static const struct pst_plan_param *continued_param(const struct adoption *a,
                                                    unsigned param)
{
    const struct pst_plan_param *p = &a->to->grid->plan->params.at[param];
    const char *name = a->how->states(a->how->ctx, p->fqn);
    const int old =
        name != NULL ? pst_plan_find_param(a->from->grid->plan, name) : -1;
    const struct pst_plan_param *of =
        old >= 0 ? &a->from->grid->plan->params.at[old] : NULL;

    return of != NULL && of->requires_grad && pst_meta_same(&of->meta, &p->meta)
               ? of
               : NULL;
}

static bool keeps_optimizer(const struct adoption *a, unsigned param,
                            const struct pst_plan_param *of)
{
    const ptrdiff_t old = of - a->from->grid->plan->params.at;
    const struct pst_optim_options *now = pst_grid_update(a->to->grid, param);
    const struct pst_optim_options *was =
        pst_grid_update(a->from->grid, (unsigned)old);

    return now->row == was->row && now->store == was->store;
}

/* Sets the averages (--ema) of new parameters to the parameters' values. If the
 * value of a parameter is new, also sets to it those optimizer states that hold
 * a value of the parameter. */
static void init_averages(const struct adoption *a, struct pst_rank *r)
{
    const struct pst_layout *l = pst_rank_layout(r);
    struct pst_rank_device *d = pst_rank_device(r);

    for (size_t i = 0; i < l->params.n; i++) {
        const struct pst_rank_param *p = &l->params.at[i];
        const size_t bytes = (size_t)p->n * sizeof(float);
        const char *fqn = a->to->grid->plan->params.at[p->index].fqn;
        void *at = pst_rank_at(d, p->state[PST_OPTIM_EMA]);

        if (a->how->values(a->how->ctx, fqn) == NULL)
            pst_engine_restart_average(a->to, r, p);
        if (p->state[PST_OPTIM_EMA] == 0 || bytes == 0 ||
            continued_param(a, (unsigned)p->index) != NULL)
            continue;
        memcpy(pst_device_host(&d->mem, at),
               pst_rank_pull(d, p->own_data, bytes), bytes);
        pst_device_push(&d->mem, at, bytes);
    }
}

static void adopt_counts(const struct adoption *a)
{
    a->to->updates = a->from->updates;
    if (a->to->grid->options.loss_scale.kind == PST_LOSS_SCALE_DYNAMIC)
        a->to->scaler = a->from->scaler;
    for (unsigned i = 0; i < a->to->grid->plan->params.n; i++) {
        const struct pst_plan_param *of = continued_param(a, i);

        a->to->since[i] =
            of != NULL && keeps_optimizer(a, i, of)
                ? a->from->since[of - a->from->grid->plan->params.at]
                : a->from->updates;
    }
}

void pst_engine_list_renewed(struct pst_engine *to,
                             const struct pst_engine *from,
                             const struct pst_adoption *how,
                             struct pst_str *out)
{
    const struct adoption a = {.to = to, .from = from, .how = how};
    unsigned n = 0;

    for (unsigned i = 0; i < to->grid->plan->params.n; i++) {
        const struct pst_plan_param *p = &to->grid->plan->params.at[i];
        const struct pst_plan_param *of = continued_param(&a, i);

        if (!to->grid->options.train || !p->requires_grad || of == NULL ||
            keeps_optimizer(&a, i, of))
            continue;
        if (n < LISTED)
            pst_str_addf(out, "%s'%.200s'", n > 0 ? ", " : "", p->fqn);
        n++;
    }
    if (n > LISTED)
        pst_str_addf(out, " and %u more", n - LISTED);
}

/* Checks that each parameter is where it was: state is copied within each rank.
 */
static enum pst_status check_places(const struct adoption *a,
                                    struct pst_diag *diag)
{
    const struct pst_plan *plan = a->to->grid->plan;

    for (unsigned i = 0; i < plan->params.n; i++) {
        const char *fqn = plan->params.at[i].fqn;
        const char *name = a->how->values(a->how->ctx, fqn);
        const int old =
            name != NULL ? pst_plan_find_param(a->from->grid->plan, name) : -1;

        if (old < 0 || a->from->grid->plan->params.at[old].n_stages == 0)
            continue;
        for (unsigned k = 0; k < a->to->grid->options.ranks; k++)
            if (pst_migration_is_on(a->to, (int)i, k) &&
                !pst_migration_is_on(a->from, old, k))
                return pst_diag_set(diag, PST_E_INTERNAL_BUG,
                                    "\"%s\" would move to rank %u, which does "
                                    "not have its state",
                                    fqn, k);
    }
    return PST_OK;
}

enum pst_status pst_engine_copy_state(struct pst_engine *to,
                                      const struct pst_engine *from,
                                      const struct pst_adoption *how,
                                      struct pst_diag *diag)
{
    struct adoption a = {.to = to, .from = from, .how = how};
    enum pst_status status = check_places(&a, diag);

    to->changes++;
    if (status != PST_OK)
        return status;
    adopt_counts(&a);
    for (unsigned i = 0; i < to->n_local && status == PST_OK; i++) {
        a.old = from->ranks[i];
        pst_arena_init(&a.arena, TAG);
        pst_map_init(&a.entries, TAG);
        status = pst_each_entry(from, from->ranks[i], false, record_optim_state,
                                &a, diag);
        if (status == PST_OK)
            status =
                pst_each_entry(to, to->ranks[i], false, copy_entry, &a, diag);
        pst_map_fini(&a.entries);
        pst_arena_fini(&a.arena);
    }
    status = pst_engine_agree(to, status, diag);
    for (unsigned i = 0; i < to->grid->plan->params.n && status == PST_OK;
         i++) {
        if (pst_role_shares(pst_rank_role(to->ranks[0]), i))
            status = adopt_states(&a, i, diag);
        if (status == PST_OK)
            status = adopt_value(&a, i, diag);
    }
    for (unsigned i = 0; i < to->n_local && status == PST_OK; i++)
        init_averages(&a, to->ranks[i]);
    return status;
}
