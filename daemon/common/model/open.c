// SPDX-License-Identifier: Apache-2.0
#include "daemon/common/model/open.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "daemon/common/model/cut.h"
#include "daemon/common/model/lora.h"
#include "stages/modules/freeze.h"
#include "stages/modules/replace.h"
#include "stages/modules/widen.h"
#include "stages/split/init.h"

bool pstd_is_plan(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

const char *pstd_cut_option(const struct pstd_config *config)
{
    const struct pstd_option *rows;
    size_t n;

    rows = pstd_options(&n);
    for (size_t i = 0; i < n; i++)
        if (rows[i].groups == PSTD_OPT_SPLIT && config->given[i])
            return rows[i].name;
    return NULL;
}

/* Refuses options that determine the cuts, since a plan is already cut. */
static enum pst_status refuse_cut(const char *path,
                                  const struct pstd_config *config,
                                  struct pst_diag *diag)
{
    const char *name = pstd_cut_option(config);

    if (name == NULL)
        return PST_OK;
    return pst_diag_set(diag, PST_E_RUN_PLAN,
                        "%s is a plan, it is split already; --%s needs the "
                        ".pt2 file",
                        path, name);
}

static enum pst_status split_model(struct pst_model *model,
                                   const struct pstd_config *config,
                                   struct pst_plan **ret, struct pst_diag *diag)
{
    struct pstd_cut cut;
    enum pst_status status;

    if (config->partial && config->weights == NULL)
        return pst_diag_set(diag, PST_E_COMMAND_ARGUMENTS,
                            "--partial has no effect without --weights");
    if (config->init_std > 0 && !PSTD_GIVEN(config, init_seed))
        return pst_diag_set(diag, PST_E_COMMAND_ARGUMENTS,
                            "--init-std has no effect without --init-seed");
    status = pstd_cut_init(&cut, config, diag);
    if (status != PST_OK)
        return status;
    status = pst_split(model, &cut.options, ret, diag);
    if (status == PST_OK && PSTD_GIVEN(config, init_seed))
        status =
            pst_plan_set_init(*ret, config->init_seed, config->init_std, diag);
    if (status == PST_OK && config->weights != NULL)
        status =
            pst_plan_set_weights(*ret, config->weights, config->partial, diag);
    pstd_cut_fini(&cut);
    return status;
}

static enum pst_status keep_model(struct pstd_plan *p, struct pst_model *model,
                                  struct pst_diag *diag)
{
    if (pst_vec_push(PST_TAG_CLIENT, &p->models, model))
        return PST_OK;
    pst_model_close(model);
    return pst_diag_nomem(diag, sizeof(model));
}

/* Replaces a module as --swap FQN[@K]=MODULE.pt2 says. */
static enum pst_status swap_module(struct pstd_plan *p, const char *spec,
                                   const struct pstd_config *config,
                                   struct pst_diag *diag)
{
    const char *equal = strchr(spec, '='), *at = strchr(spec, '@');
    struct pst_replacement what = {.call = -1, .aliases = config->aliases};
    struct pst_model *old = pstd_model(p), *module, *model;
    struct pst_str path = {0};
    enum pst_status status;
    int64_t call = -1;

    if (at != NULL && equal != NULL && at > equal)
        at = NULL;
    if (at != NULL && equal != NULL) {
        char number[16];

        (void)snprintf(number, sizeof(number), "%.*s", (int)(equal - at - 1),
                       at + 1);
        if (!pst_parse_i64(number, &call) || call < 0 || call > INT_MAX)
            equal = NULL;
    }
    if (equal == NULL || equal == spec || equal[1] == '\0' || at == spec)
        return pst_diag_set(diag, PST_E_SWAP_FILE,
                            "--swap %.200s: expected FQN=MODULE.pt2 or "
                            "FQN@CALL=MODULE.pt2",
                            spec);
    status = pst_model_open_cast(equal + 1, config->autocast, &module, diag);
    if (status == PST_OK)
        status = keep_model(p, module, diag);
    if (status != PST_OK)
        return status;
    pst_str_addf(&path, "%.*s", (int)((at != NULL ? at : equal) - spec), spec);
    what.path = pst_str_text(&path);
    what.call = (int)call;
    what.module = module;
    status = path.failed ? pst_diag_nomem(diag, path.len)
                         : pst_model_replace(old, &what, &model, NULL, diag);
    pst_str_fini(&path);
    return status == PST_OK ? keep_model(p, model, diag) : status;
}

static enum pst_status freeze_params(struct pst_model *model,
                                     const struct pstd_list *patterns,
                                     bool frozen, struct pst_diag *diag)
{
    enum pst_status status = PST_OK;
    unsigned n;

    for (size_t i = 0; i < patterns->n && status == PST_OK; i++)
        status = pst_model_freeze(model, patterns->at[i], frozen, &n, diag);
    return status;
}

/* Reports a model in which autocast changes nothing. */
static enum pst_status refuse_autocast(const char *path, const char *dtype,
                                       struct pst_diag *diag)
{
    return pst_diag_set(diag, PST_E_COMMAND_ARGUMENTS,
                        "%s: --autocast %s has no effect: no operator "
                        "that it casts reads f32 (f64, complex numbers and "
                        "what the export has cast stay)",
                        path, dtype);
}

static enum pst_status keep_bf16(const char *path, struct pst_model *model,
                                 struct pst_diag *diag)
{
    unsigned n;
    const enum pst_status status = pst_model_keep_bf16(model, &n, diag);

    return status != PST_OK || n > 0
               ? status
               : pst_diag_set(diag, PST_E_COMMAND_ARGUMENTS,
                              "%s: --params bf16 has no effect: no trained "
                              "parameter is f32",
                              path);
}

enum pst_status pstd_model_open(const char *path,
                                const struct pstd_config *config,
                                struct pstd_plan *ret, struct pst_diag *diag)
{
    struct pst_model *model;
    enum pst_status status =
        pst_model_open_cast(path, config->autocast, &model, diag);

    if (status == PST_OK)
        status = keep_model(ret, model, diag);
    if (status == PST_OK && config->aliases && config->swap.n == 0)
        status = pst_diag_set(diag, PST_E_COMMAND_ARGUMENTS,
                              "--aliases has no effect without --swap");
    for (size_t i = 0; i < config->swap.n && status == PST_OK; i++)
        status = swap_module(ret, config->swap.at[i], config, diag);
    if (status == PST_OK && config->autocast != NULL &&
        pstd_model(ret)->n_casts == 0)
        status = refuse_autocast(path, config->autocast, diag);
    if (status == PST_OK && config->lora.n > 0) {
        status = pstd_lora_add(pstd_model(ret), &config->lora, config->seed,
                               &model, diag);
        if (status == PST_OK)
            status = keep_model(ret, model, diag);
    }
    if (status == PST_OK)
        status = freeze_params(pstd_model(ret), &config->freeze, true, diag);
    if (status == PST_OK)
        status = freeze_params(pstd_model(ret), &config->unfreeze, false, diag);
    if (status == PST_OK && config->params != NULL)
        status = keep_bf16(path, pstd_model(ret), diag);
    return status;
}

enum pst_status pstd_plan_open(const char *path,
                               const struct pstd_config *config,
                               struct pstd_plan *ret, struct pst_diag *diag)
{
    struct pstd_plan p = {0};
    enum pst_status status;

    if (pstd_is_plan(path)) {
        status = refuse_cut(path, config, diag);
        if (status == PST_OK)
            status = pst_plan_load(path, &p.plan, diag);
    } else {
        status = pstd_model_open(path, config, &p, diag);
        if (status == PST_OK)
            status = split_model(pstd_model(&p), config, &p.plan, diag);
    }
    if (status == PST_OK) {
        *ret = p;
        return PST_OK;
    }
    pstd_plan_close(&p);
    return status;
}

void pstd_plan_close(struct pstd_plan *p)
{
    pst_plan_free(p->plan);
    for (size_t i = p->models.n; i-- > 0;)
        pst_model_close(p->models.at[i]);
    pst_vec_fini(&p->models);
}
