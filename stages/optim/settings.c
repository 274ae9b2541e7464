// SPDX-License-Identifier: Apache-2.0
/* Options of an update by their names. */
#include "stages/optim/optim.h"

#include <stddef.h>
#include <string.h>

#include "stages/base/str.h"

struct setting {
    const char *name;
    size_t at;
    bool is_flag;
    bool of_all; /* an option of every optimizer */
};

#define SETTING(member, name, is_flag, of_all)                                 \
    {                                                                          \
        name, offsetof(struct pst_optim_options, member), is_flag, of_all      \
    }

static const struct setting settings[] = {
    SETTING(lr, "lr", false, true),
    SETTING(weight_decay, "weight-decay", false, true),
    SETTING(clip_norm, "clip-norm", false, true),
    SETTING(clip_value, "clip-value", false, true),
    SETTING(momentum, "momentum", false, false),
    SETTING(dampening, "dampening", false, false),
    SETTING(nesterov, "nesterov", true, false),
    SETTING(beta1, "beta1", false, false),
    SETTING(beta2, "beta2", false, false),
    SETTING(eps, "eps", false, false),
    SETTING(alpha, "alpha", false, false),
    SETTING(centered, "centered", true, false),
    SETTING(rho, "rho", false, false),
    SETTING(lr_decay, "lr-decay", false, false),
    SETTING(ns_steps, "ns-steps", false, false),
    SETTING(beta2_decay, "beta2-decay", false, false),
    SETTING(eps2, "eps2", false, false),
    SETTING(clip_threshold, "clip-threshold", false, false),
    SETTING(match_rms_adamw, "match-rms-adamw", true, false),
    SETTING(store, "state-dtype", false, false),
};

static enum pst_status refuse_unknown(const char *name, struct pst_diag *diag)
{
    const char *names[PST_COUNT(settings)];
    struct pst_str list = {0};
    int near;

    for (size_t i = 0; i < PST_COUNT(settings); i++) {
        names[i] = settings[i].name;
        pst_str_addf(&list, "%s%s", i > 0 ? ", " : "", names[i]);
    }
    near = pst_nearest(name, names, PST_COUNT(names));
    (void)pst_diag_set(diag, PST_E_OPTIMIZER_OPTION,
                       "no option \"%.40s\" of an update%s%s%s; there are %s",
                       name, near >= 0 ? ", did you mean \"" : "",
                       near >= 0 ? names[near] : "", near >= 0 ? "\"?" : "",
                       pst_str_text(&list));
    pst_str_fini(&list);
    return PST_ERR_USAGE;
}

/* Replaces the optimizer by another one, with its own defaults. Options that do
 * not belong to an optimizer stay: clipping, `ema` and the learning rate
 * schedule. */
static enum pst_status set_row(struct pst_optim_options *options,
                               const char *name, struct pst_diag *diag)
{
    struct pst_optim_options o;
    enum pst_status status = pst_optim_defaults(name, &o, diag);

    if (status != PST_OK)
        return status;
    if (o.row == NULL)
        return pst_diag_set(diag, PST_E_OPTIMIZER_OPTION,
                            "optimizer \"%.40s\" updates nothing: freeze the "
                            "parameters instead",
                            name);
    o.clip_norm = options->clip_norm;
    o.clip_rule = options->clip_rule;
    o.clip_value = options->clip_value;
    o.ema = options->ema;
    pst_lr_copy(options, &o);
    *options = o;
    return PST_OK;
}

static enum pst_status set_flag(const char *name, const char *value, bool *ret,
                                struct pst_diag *diag)
{
    *ret = strcmp(value, "yes") == 0;
    if (*ret || strcmp(value, "no") == 0)
        return PST_OK;
    return pst_diag_set(diag, PST_E_OPTIMIZER_OPTION,
                        "%s is yes or no, not \"%.40s\"", name, value);
}

enum pst_status pst_optim_set(struct pst_optim_options *options,
                              const char *name, const char *value,
                              struct pst_diag *diag)
{
    const struct setting *s = NULL;
    void *at;

    if (strcmp(name, "optimizer") == 0)
        return set_row(options, value, diag);
    for (size_t i = 0; i < PST_COUNT(settings) && s == NULL; i++)
        if (strcmp(settings[i].name, name) == 0)
            s = &settings[i];
    if (s == NULL)
        return refuse_unknown(name, diag);
    if (options->row == NULL ||
        (!s->of_all && !pst_optim_has(options->row, name)))
        return pst_diag_set(diag, PST_E_OPTIMIZER_OPTION,
                            "optimizer %s has no option \"%s\"",
                            pst_optim_name(options), name);
    at = (char *)options + s->at;
    if (s->is_flag)
        return set_flag(name, value, at, diag);
    if (s->at == offsetof(struct pst_optim_options, store))
        return pst_optim_store_find(value, at)
                   ? PST_OK
                   : pst_diag_set(diag, PST_E_OPTIMIZER_OPTION,
                                  "%s is f32, bf16 or int8, not \"%.40s\"",
                                  name, value);
    if (!pst_parse_f64(value, at))
        return pst_diag_set(diag, PST_E_OPTIMIZER_OPTION,
                            "%s is a number, not \"%.40s\"", name, value);
    return PST_OK;
}
