// SPDX-License-Identifier: Apache-2.0
#include "stages/run/rank/step/device.h"

#include <string.h>

#include "stages/base/host/alive.h"
#include "stages/compile/memplan.h"
#include "stages/layout/layout.h"

/* Finds the tasks for states and parameters that are not f32. */
static enum pst_status find_packing(struct pst_rank_device *d,
                                    const struct pst_rank_role *role,
                                    unsigned param, struct pst_diag *diag)
{
    const struct pst_plan_param *p = &role->plan->params.at[param];
    const bool is_bf16 = p->requires_grad && p->meta.dtype == PST_BF16;
    const struct pst_device *device = role->options.device;
    enum pst_status status = PST_OK;

    if ((pst_role_update(role, param)->store == PST_STORE_F32 && !is_bf16) ||
        d->pack != NULL)
        return PST_OK;
    if (is_bf16 && strcmp(device->name, "cuda") == 0)
        return pst_diag_set(diag, PST_E_DEVICE_NONE,
                            "the device cuda trains f32 only: leave out "
                            "--params bf16");
    if (strcmp(device->name, "cuda") == 0)
        return pst_diag_set(diag, PST_E_DEVICE_NONE,
                            "the device cuda keeps optimizer states in f32 "
                            "only: leave out --state-dtype");
    status = pst_device_task(device, "pack", &d->pack, diag);
    return status == PST_OK
               ? pst_device_task(device, "unpack", &d->unpack, diag)
               : status;
}

/* Finds the device's update task of each optimizer that a group of parameters
 * uses. */
static enum pst_status find_updates(struct pst_rank_device *d,
                                    const struct pst_rank_role *role,
                                    struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    for (unsigned i = 0; i < role->plan->params.n && status == PST_OK; i++) {
        const struct pst_optim *row = pst_role_update(role, i)->row;
        pst_task_fn *to = &d->updates[pst_optim_index(row)];

        status = pst_optim_check_device(pst_role_update(role, i),
                                        role->options.device->name, diag);
        if (status != PST_OK)
            return status;
        if (*to == NULL)
            status = pst_device_task(role->options.device, row->task, to, diag);
        if (status == PST_OK)
            status = find_packing(d, role, i, diag);
        if (status != PST_OK)
            pst_diag_prefix(diag,
                            "optimizer %s (use --device cpu, or another "
                            "optimizer)",
                            row->name);
    }
    return status;
}

static enum pst_status find_tasks(struct pst_rank_device *d,
                                  const struct pst_rank_role *role,
                                  struct pst_diag *diag)
{
    const struct {
        const char *name;
        pst_task_fn *to;
    } tasks[] = {
        {"seed", &d->seed},
        {"copy", &d->copy},
        {"sum", &d->sum},
        {"sumsq", &d->sumsq},
        {role->options.train && role->options.optim.ema > 0 ? "ema" : NULL,
         &d->ema},
        {role->options.gather_bf16 ? "downcast" : NULL, &d->downcast},
        {role->options.gather_bf16 ? "upcast" : NULL, &d->upcast},
    };
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < PST_COUNT(tasks) && status == PST_OK; i++)
        if (tasks[i].name != NULL)
            status = pst_device_task(role->options.device, tasks[i].name,
                                     tasks[i].to, diag);
    if (status == PST_OK && pst_role_optim(role) != NULL)
        status = find_updates(d, role, diag);
    return status;
}

/* Loads a parameter of which this rank has only a shard. */
static enum pst_status load_share(struct pst_rank_device *d,
                                  const struct pst_rank_role *role,
                                  const struct pst_rank_param *p,
                                  struct pst_diag *diag)
{
    unsigned char *whole = pst_alloc(PST_TAG_EXEC, p->bytes);
    const size_t bytes = (size_t)p->n * sizeof(float);
    void *at = pst_rank_at(d, p->own_data);
    enum pst_status status =
        whole == NULL
            ? pst_diag_nomem(diag, p->bytes)
            : pst_plan_read_param(role->plan, (unsigned)p->index, whole, diag);

    if (status == PST_OK) {
        memcpy(pst_device_host(&d->mem, at),
               whole + (size_t)p->begin * sizeof(float), bytes);
        pst_device_push(&d->mem, at, bytes);
    }
    pst_free(whole);
    return status;
}

static enum pst_status load_params(struct pst_rank_device *d,
                                   const struct pst_rank_role *role,
                                   const struct pst_layout *layout,
                                   struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < layout->params.n && status == PST_OK; i++) {
        const struct pst_rank_param *p = &layout->params.at[i];
        void *at = pst_rank_at(d, p->data);

        pst_alive_progress();
        if (pst_role_gathers(role, (unsigned)p->index)) {
            status = load_share(d, role, p, diag);
            continue;
        }
        status = pst_plan_read_param(role->plan, (unsigned)p->index,
                                     pst_device_host(&d->mem, at), diag);
        if (status == PST_OK)
            pst_device_push(&d->mem, at, p->bytes);
    }
    return status;
}

enum pst_status pst_rank_device_open(struct pst_rank_device *d,
                                     const struct pst_rank_role *role,
                                     const struct pst_layout *layout,
                                     unsigned ordinal, size_t size,
                                     struct pst_pool *pool,
                                     struct pst_diag *diag)
{
    enum pst_status status = pst_device_open(role->options.device, ordinal,
                                             PST_MAX(size, 1), &d->mem, diag);

    if (status != PST_OK) {
        pst_diag_prefix(diag, "rank %u", pst_role_number(role));
        return status;
    }
    d->pool = pool;
    if (d->mem.device->touch != NULL)
        d->mem.device->touch(&d->mem, pool);
    status = find_tasks(d, role, diag);
    return status == PST_OK ? load_params(d, role, layout, diag) : status;
}

enum pst_status pst_rank_device_check(struct pst_rank_device *d, unsigned rank,
                                      const char *when, struct pst_diag *diag)
{
    const struct pst_device *device = d->mem.device;
    const struct pst_event none = {0};
    const char *why;

    if (device->poll(&d->mem, &none) != PST_ERR_DEVICE)
        return PST_OK;
    why = device->failure != NULL ? device->failure(&d->mem) : NULL;
    return pst_diag_set(
        diag, PST_E_RUN_DEVICE, "rank %u: the device %s has failed%s%s%s", rank,
        device->name, when, why != NULL ? ": " : "", why != NULL ? why : "");
}

void pst_rank_device_close(struct pst_rank_device *d)
{
    pst_device_close(&d->mem);
}

bool pst_rank_is_held(struct pst_rank_device *d)
{
    const bool is_read = atomic_load(&d->is_read);

    if (is_read && d->held_since == 0)
        d->held_since = pst_now();
    if (!is_read && d->held_since > 0) {
        d->held_s += pst_now() - d->held_since;
        d->held_since = 0;
    }
    return is_read;
}

void pst_rank_record_used(struct pst_rank_device *d, const unsigned char *end)
{
    const size_t used = pst_mem_round((size_t)(end - d->mem.base));

    d->high_water = PST_MAX(d->high_water, used);
}
