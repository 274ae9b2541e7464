// SPDX-License-Identifier: Apache-2.0
/* Options of the library's calls, which are rows of the options of commands. */
#include <string.h>

#include "lib/object.h"

/* Options of a session, besides the options of a step. */
static const char *const extra[] = {
    "ranks",    "steps",  "watchdog", "accept-lost-backward",
    "keep",     "verify", "device",   "no-fallback",
    "no-graphs"};

/* Options of a program: those of optimizers, except rules for single
 * parameters. */
static const char *const of_program[] = {"optimizer",
                                         "lr",
                                         "momentum",
                                         "dampening",
                                         "nesterov",
                                         "beta1",
                                         "beta2",
                                         "eps",
                                         "alpha",
                                         "centered",
                                         "rho",
                                         "lr-decay",
                                         "ns-steps",
                                         "beta2-decay",
                                         "eps2",
                                         "clip-threshold",
                                         "weight-decay",
                                         "clip-norm",
                                         "lr-schedule",
                                         "warmup",
                                         "lr-steps",
                                         "lr-min",
                                         "lr-decay-steps",
                                         "lr-decay-shape",
                                         "lr-cycles",
                                         "lr-power",
                                         "match-rms-adamw"};

static bool is_in(const char *const *list, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(name, list[i]) == 0)
            return true;
    return false;
}

/* Returns the groups in which the option is looked up; 0: none. */
static uint64_t groups_of(enum pstl_call call, const char *name)
{
    const struct pstd_option *row = pstd_option_find(~UINT64_C(0), name);

    if (call == PSTL_OPEN)
        return PSTD_OPT_SPLIT;
    if (call == PSTL_SWAP)
        return PSTD_OPT_SWAP;
    if (call == PSTL_PROGRAM)
        return is_in(of_program, PST_COUNT(of_program), name) ? PSTD_OPT_STEP
                                                              : 0;
    if (is_in(extra, PST_COUNT(extra), name))
        return row != NULL ? row->groups : 0;
    return PSTD_OPT_STEP | PSTD_OPT_LIBRARY;
}

bool pstl_option_is_of(enum pstl_call call, const char *name)
{
    return pstd_option_find(groups_of(call, name), name) != NULL;
}

static enum pst_status set_one(struct pstd_config *config, enum pstl_call call,
                               const struct penstock_option *o,
                               struct pst_diag *diag)
{
    static const char *const names[] = {"open", "session_new", "program_open",
                                        "swap"};
    uint64_t groups;

    if (o->name == NULL || o->value == NULL)
        return pst_diag_set(diag, PST_E_LIBRARY_ARGUMENT,
                            "an option has no name or no value (NULL)");
    groups = groups_of(call, o->name);
    if (!pstl_option_is_of(call, o->name) &&
        pstd_option_find(~UINT64_C(0), o->name) != NULL)
        return pst_diag_set(diag, PST_E_LIBRARY_OPTION,
                            "\"%.60s\" is no option of penstock_%s", o->name,
                            names[call]);
    if (strcmp(o->name, "microbatch-weights") == 0 &&
        strcmp(o->value, "tokens") == 0)
        return pst_diag_set(diag, PST_E_LIBRARY_OPTION,
                            "\"microbatch-weights\" is rows or equal here: "
                            "tokens are counted in data files");
    return pstd_config_set(config, groups, o->name, o->value, diag);
}

enum pst_status pstl_options_set(struct pstd_config *config,
                                 enum pstl_call call,
                                 const struct penstock_option *options,
                                 size_t n, struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    if (options == NULL && n > 0)
        return pst_diag_set(diag, PST_E_LIBRARY_ARGUMENT,
                            "options is NULL, and n_options is not 0");
    for (size_t i = 0; i < n && status == PST_OK; i++)
        status = set_one(config, call, &options[i], diag);
    return status;
}
