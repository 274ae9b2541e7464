// SPDX-License-Identifier: Apache-2.0
/* Changes the optimizer's options of a grid during a run; copies the texts that
 * options borrow into the grid. */
#include "stages/tune/grid.h"

#include <string.h>

static enum pst_status copy_text(struct pst_grid *grid, const char **text,
                                 struct pst_diag *diag)
{
    const size_t n = *text != NULL ? strlen(*text) : 0;

    if (*text == NULL)
        return PST_OK;
    *text = pst_arena_strdup(&grid->texts, *text);
    return *text != NULL ? PST_OK : pst_diag_nomem(diag, n);
}

static enum pst_status copy_counts(struct pst_grid *grid, struct pst_diag *diag)
{
    struct pst_exec_options *o = &grid->options;
    unsigned *counts =
        pst_arena_calloc(&grid->texts, o->n_counts + 1, sizeof(*counts));

    if (counts == NULL)
        return pst_diag_nomem(diag, o->n_counts * sizeof(*counts));
    for (unsigned i = 0; i < o->n_counts; i++)
        counts[i] = o->counts[i];
    o->counts = counts;
    return PST_OK;
}

enum pst_status pst_grid_keep_texts(struct pst_grid *grid,
                                    struct pst_diag *diag)
{
    struct pst_exec_options *o = &grid->options;
    const char **const texts[] = {&o->schedule, &o->place,    &o->recompute,
                                  &o->stash,    &o->shard_by, &o->groups,
                                  &o->no_decay, &o->costs,    &o->devices};
    enum pst_status status = PST_OK;

    pst_arena_init(&grid->texts, PST_TAG_EXEC);
    for (size_t i = 0; i < PST_COUNT(texts) && status == PST_OK; i++)
        status = copy_text(grid, texts[i], diag);
    return status == PST_OK ? copy_counts(grid, diag) : status;
}

const struct pst_optim_options *pst_grid_update(const struct pst_grid *grid,
                                                unsigned param)
{
    return grid->groups.group_of != NULL
               ? &grid->groups.all.at[grid->groups.group_of[param]].options
               : &grid->options.optim;
}

/* Checks that each parameter keeps its optimizer, and number and storage of its
 * states, for which there is memory, and that the device supports the
 * optimizer. */
static enum pst_status check_states(const struct pst_grid *grid,
                                    const struct pst_groups *groups,
                                    struct pst_diag *diag)
{
    for (unsigned i = 0; i < grid->plan->params.n; i++) {
        const struct pst_optim_options *was = pst_grid_update(grid, i);
        const struct pst_optim_options *now =
            &groups->all.at[groups->group_of[i]].options;

        const enum pst_status status =
            grid->options.device == NULL
                ? PST_OK
                : pst_optim_check_device(now, grid->options.device->name, diag);

        if (status != PST_OK)
            return status;
        if (was->row == now->row && was->store == now->store &&
            pst_optim_n_states(was->row, was) ==
                pst_optim_n_states(now->row, now))
            continue;
        return pst_diag_set(diag, PST_E_OPTIMIZER_OPTION,
                            "'%.200s' would have other states of the "
                            "optimizer: that needs a new run",
                            grid->plan->params.at[i].fqn);
    }
    return PST_OK;
}

enum pst_status pst_grid_retune(struct pst_grid *grid,
                                const struct pst_exec_options *options,
                                bool apply, struct pst_diag *diag)
{
    struct pst_exec_options o = grid->options;
    struct pst_groups groups = {0};
    enum pst_status status = PST_OK;

    if (o.optim.row == NULL)
        return PST_OK;
    o.optim = options->optim;
    o.groups = options->groups;
    o.no_decay = options->no_decay;
    status = pst_optim_check(&o.optim, diag);
    if (status == PST_OK)
        status = pst_groups_make(&groups, grid->plan, &o, diag);
    if (status == PST_OK)
        status = check_states(grid, &groups, diag);
    if (status == PST_OK && apply)
        status = copy_text(grid, &o.groups, diag);
    if (status == PST_OK && apply)
        status = copy_text(grid, &o.no_decay, diag);
    if (status != PST_OK || !apply) {
        pst_groups_fini(&groups);
        return status;
    }
    pst_groups_fini(&grid->groups);
    grid->groups = groups;
    grid->options = o;
    return PST_OK;
}
