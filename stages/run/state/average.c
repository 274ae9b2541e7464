// SPDX-License-Identifier: Apache-2.0
#include "stages/run/state/average.h"

#include <string.h>

#include "stages/layout/layout.h"
#include "stages/run/engine.h"
#include "stages/run/rank/step/device.h"

bool pst_engine_keeps_average(const struct pst_engine *engine, unsigned param)
{
    const struct pst_exec_options *o = &engine->grid->options;

    return o->train && o->optim.row != NULL &&
           engine->grid->plan->params.at[param].kind == PST_VALUE_PARAM &&
           pst_uses_total(&engine->grid->uses, param) > 0 &&
           pst_grid_update(engine->grid, param)->row->average > 0;
}

unsigned pst_engine_average(const struct pst_engine *engine, unsigned param)
{
    return pst_engine_keeps_average(engine, param) &&
                   engine->updates > engine->since[param]
               ? pst_grid_update(engine->grid, param)->row->average
               : 0;
}

void pst_engine_restart_average(const struct pst_engine *engine,
                                struct pst_rank *r,
                                const struct pst_rank_param *p)
{
    const size_t bytes = (size_t)p->n * sizeof(float);
    struct pst_rank_device *d = pst_rank_device(r);
    const struct pst_optim *row;

    if (!p->trained || bytes == 0 ||
        !pst_engine_keeps_average(engine, (unsigned)p->index))
        return;
    row = pst_grid_update(engine->grid, (unsigned)p->index)->row;
    for (unsigned k = 0; k < row->n_states; k++) {
        void *at = pst_rank_at(d, p->state[k]);

        if (row->signs[k] != 'p')
            continue;
        memcpy(pst_device_host(&d->mem, at),
               pst_rank_pull(d, p->own_data, bytes), bytes);
        pst_device_push(&d->mem, at, bytes);
    }
}

/* True if an update before the checkpoint has set the states of a parameter. */
static bool is_set(const struct pst_checkpoint *ckpt, const char *fqn)
{
    for (size_t i = 0; i < ckpt->names.since.n; i++)
        if (strcmp(ckpt->names.since.at[i].param, fqn) == 0)
            return ckpt->info.updates > ckpt->names.since.at[i].updates;
    return ckpt->info.updates > 0;
}

const struct pst_safetensors_entry *pst_checkpoint_average(
    const struct pst_checkpoint *ckpt, const char *fqn)
{
    const struct pst_safetensors_entry *ret = NULL;
    const struct pst_optim *const *rows;
    size_t n;

    if (!is_set(ckpt, fqn))
        return NULL;
    rows = pst_optim_rows(&n);
    for (size_t i = 0; i < n && ret == NULL; i++) {
        struct pst_str name = {0};

        if (rows[i]->average == 0)
            continue;
        pst_str_addf(&name, "%s.%s", rows[i]->states[rows[i]->average - 1],
                     fqn);
        if (!name.failed)
            ret = pst_checkpoint_find(ckpt, name.text);
        pst_str_fini(&name);
    }
    return ret;
}

bool pst_checkpoint_has_average(const struct pst_checkpoint *ckpt)
{
    for (size_t i = 0; i < ckpt->where.n; i++) {
        const char *fqn = pst_optim_own_average_of(ckpt->where.entries[i].key);

        if (fqn != NULL && is_set(ckpt, fqn))
            return true;
    }
    return false;
}
