// SPDX-License-Identifier: Apache-2.0
#include "stages/optim/optim.h"

#include <math.h>
#include <string.h>

#include "stages/base/str.h"

#define PST_OPTIM(id) extern const struct pst_optim pst_optim_##id;
#include "stages/optim/optims.def"
#undef PST_OPTIM

static const struct pst_optim *const optims[] = {
#define PST_OPTIM(id) &pst_optim_##id,
#include "stages/optim/optims.def"
#undef PST_OPTIM
};

/* Gradients are computed and stay; nothing is updated. */
static void none_step(const struct pst_optim_options *options, uint64_t step,
                      double lr, double grad_scale, int64_t n, float *param,
                      const float *grad, float *const *states, enum pst_isa isa,
                      struct pst_pool *pool)
{
    (void)options, (void)step, (void)lr, (void)grad_scale, (void)n;
    (void)param, (void)grad, (void)states, (void)isa, (void)pool;
}

const struct pst_optim pst_optim_none = {
    .name = "none",
    .summary = "gradients only, no update",
    .step = none_step,
};

const struct pst_optim *pst_optim_find(const char *name, struct pst_diag *diag)
{
    struct pst_str list = {0};

    for (size_t i = 0; i < PST_COUNT(optims); i++) {
        if (strcmp(optims[i]->name, name) == 0)
            return optims[i];
        pst_str_addf(&list, "%s%s", i > 0 ? ", " : "", optims[i]->name);
    }
    (void)pst_diag_set(diag, PST_ERR_USAGE,
                       "there is no optimizer '%s'; there are %s", name,
                       pst_str_text(&list));
    pst_str_fini(&list);
    return NULL;
}

enum pst_status pst_optim_defaults(const char *name,
                                   struct pst_optim_options *ret,
                                   struct pst_diag *diag)
{
    const struct pst_optim *optim = pst_optim_find(name, diag);

    if (optim == NULL)
        return PST_ERR_USAGE;
    *ret = (struct pst_optim_options){
        .name = optim->name,
        .lr = 1e-3,
        .beta1 = 0.9,
        .beta2 = 0.999,
        .eps = 1e-8,
        .weight_decay = strcmp(optim->name, "adamw") == 0 ? 1e-2 : 0,
        .lr_schedule = PST_LR_CONSTANT,
    };
    return PST_OK;
}

unsigned pst_optim_n_states(const struct pst_optim *optim,
                            const struct pst_optim_options *options)
{
    if (optim == &pst_optim_sgd && options->momentum == 0)
        return 0;
    return optim->n_states;
}

static enum pst_status check(const char *what, double x, double low,
                             double high, struct pst_diag *diag)
{
    if (isfinite(x) && x >= low && x <= high)
        return PST_OK;
    return pst_diag_set(diag, PST_ERR_USAGE,
                        "%s must be between %g and %g, not %g", what, low, high,
                        x);
}

enum pst_status pst_optim_check(const struct pst_optim_options *o,
                                struct pst_diag *diag)
{
    const struct {
        const char *what;
        double x, high;
    } rows[] = {
        {"the learning rate", o->lr, 1e6},
        {"weight decay", o->weight_decay, 1e6},
        {"momentum", o->momentum, 1},
        {"dampening", o->dampening, 1},
        {"beta1", o->beta1, 1},
        {"beta2", o->beta2, 1},
        {"eps", o->eps, 1},
        {"the gradient norm to clip at", o->clip_norm, 1e30},
        {"the lowest share of the learning rate", o->min_lr_ratio, 1},
    };

    for (size_t i = 0; i < PST_COUNT(rows); i++) {
        enum pst_status status =
            check(rows[i].what, rows[i].x, 0, rows[i].high, diag);

        if (status != PST_OK)
            return status;
    }
    if (o->nesterov && (o->momentum <= 0 || o->dampening != 0))
        return pst_diag_set(diag, PST_ERR_USAGE,
                            "Nesterov momentum needs a momentum and no "
                            "dampening");
    if (o->lr_schedule != PST_LR_CONSTANT && o->total_steps == 0)
        return pst_diag_set(diag, PST_ERR_USAGE,
                            "a learning rate that falls needs the number of "
                            "steps at which it ends");
    return pst_optim_find(o->name, diag) != NULL ? PST_OK : PST_ERR_USAGE;
}
