// SPDX-License-Identifier: Apache-2.0
/* Opens models and plans for commands, and implements `penstock split`. */
#include "daemon/ctl/model.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "daemon/ctl/ctl.h"
#include "daemon/ctl/cut.h"
#include "daemon/ctl/lora.h"
#include "daemon/ctl/print.h"
#include "stages/modules/freeze.h"
#include "stages/modules/replace.h"

bool pstctl_is_plan(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

const char *pstctl_cut_option(const struct pstd_config *config)
{
    const struct pstd_option *rows;
    size_t n;

    rows = pstd_options(&n);
    for (size_t i = 0; i < n; i++)
        if (rows[i].groups == PSTD_OPT_SPLIT && config->given[i])
            return rows[i].name;
    return NULL;
}

/* A plan is already cut: refuses options that determine the cuts. */
static enum pst_status refuse_cut(const char *path,
                                  const struct pstd_config *config,
                                  struct pst_diag *diag)
{
    const char *name = pstctl_cut_option(config);

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
    struct pstctl_cut cut;
    enum pst_status status;

    if (config->partial && config->weights == NULL)
        return pst_diag_set(diag, PST_E_COMMAND_ARGUMENTS,
                            "--partial has no effect without --weights");
    status = pstctl_cut_init(&cut, config, diag);
    if (status != PST_OK)
        return status;
    status = pst_split(model, &cut.options, ret, diag);
    if (status == PST_OK && config->weights != NULL)
        status = pst_plan_give(*ret, config->weights, config->partial, diag);
    pstctl_cut_fini(&cut);
    return status;
}

static enum pst_status keep_model(struct pstctl_plan *p,
                                  struct pst_model *model,
                                  struct pst_diag *diag)
{
    if (pst_vec_push(PST_TAG_CLIENT, &p->models, model))
        return PST_OK;
    pst_model_close(model);
    return pst_diag_nomem(diag, sizeof(model));
}

/* Parses FQN[@K]=MODULE.pt2. */
static enum pst_status swap(struct pstctl_plan *p, const char *spec,
                            bool aliases, struct pst_diag *diag)
{
    const char *equal = strchr(spec, '='), *at = strchr(spec, '@');
    struct pst_replacement what = {.call = -1, .aliases = aliases};
    struct pst_model *old = pstctl_model(p), *module, *model;
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
    status = pst_model_open(equal + 1, &module, diag);
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

static enum pst_status freeze(struct pst_model *model,
                              const struct pstd_list *patterns, bool frozen,
                              struct pst_diag *diag)
{
    enum pst_status status = PST_OK;
    unsigned n;

    for (size_t i = 0; i < patterns->n && status == PST_OK; i++)
        status = pst_model_freeze(model, patterns->at[i], frozen, &n, diag);
    return status;
}

enum pst_status pstctl_model_open(const char *path,
                                  const struct pstd_config *config,
                                  struct pstctl_plan *ret,
                                  struct pst_diag *diag)
{
    struct pst_model *model;
    enum pst_status status = pst_model_open(path, &model, diag);

    if (status == PST_OK)
        status = keep_model(ret, model, diag);
    if (status == PST_OK && config->aliases && config->swap.n == 0)
        status = pst_diag_set(diag, PST_E_COMMAND_ARGUMENTS,
                              "--aliases has no effect without --swap");
    for (size_t i = 0; i < config->swap.n && status == PST_OK; i++)
        status = swap(ret, config->swap.at[i], config->aliases, diag);
    if (status == PST_OK && config->lora.n > 0) {
        status = pstctl_lora(pstctl_model(ret), &config->lora, config->seed,
                             &model, diag);
        if (status == PST_OK)
            status = keep_model(ret, model, diag);
    }
    if (status == PST_OK)
        status = freeze(pstctl_model(ret), &config->freeze, true, diag);
    if (status == PST_OK)
        status = freeze(pstctl_model(ret), &config->unfreeze, false, diag);
    return status;
}

enum pst_status pstctl_plan_open(const char *path,
                                 const struct pstd_config *config,
                                 struct pstctl_plan *ret, struct pst_diag *diag)
{
    struct pstctl_plan p = {0};
    enum pst_status status;

    if (pstctl_is_plan(path)) {
        status = refuse_cut(path, config, diag);
        if (status == PST_OK)
            status = pst_plan_load(path, &p.plan, diag);
    } else {
        status = pstctl_model_open(path, config, &p, diag);
        if (status == PST_OK)
            status = split_model(pstctl_model(&p), config, &p.plan, diag);
    }
    if (status == PST_OK) {
        *ret = p;
        return PST_OK;
    }
    pstctl_plan_close(&p);
    return status;
}

void pstctl_plan_close(struct pstctl_plan *p)
{
    pst_plan_free(p->plan);
    for (size_t i = p->models.n; i-- > 0;)
        pst_model_close(p->models.at[i]);
    pst_vec_fini(&p->models);
}

enum pst_status pstctl_print_text(struct pst_str *text, bool json,
                                  struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    if (text->failed)
        status = pst_diag_nomem(diag, text->len);
    else if (json)
        pstctl_print_json(pst_str_text(text));
    else
        pstctl_print(stdout, text);
    if (status == PST_OK && text->len > 0 && text->text[text->len - 1] != '\n')
        pstctl_printf(stdout, "\n");
    pst_str_fini(text);
    return status;
}

enum pst_status pstctl_print_plan(const struct pst_plan *plan, bool json,
                                  struct pst_diag *diag)
{
    struct pst_str text = {.visible = !json};

    if (json)
        pst_plan_print_json(plan, &text);
    else
        pst_plan_print(plan, &text);
    return pstctl_print_text(&text, json, diag);
}

/* Prints a note if the plan in the folder was replaced by a different one. */
static void note_replaced(const char *dir, const char *before,
                          const struct pst_plan *after)
{
    if (*before != '\0' && strcmp(before, after->digest) != 0)
        pstctl_printf(stderr, "note: %s had another plan, which is replaced\n",
                      dir);
}

/* Reads the digest of the plan in a folder; "": there is no readable plan. */
static void find_digest(const char *dir, char ret[33])
{
    struct pst_plan *plan;
    struct pst_diag ignored;

    ret[0] = '\0';
    if (!pstctl_is_plan(dir) || pst_plan_load(dir, &plan, &ignored) != PST_OK)
        return;
    memcpy(ret, plan->digest, sizeof(plan->digest));
    pst_plan_free(plan);
}

static enum pst_status run_split(const struct pstd_config *config,
                                 struct pst_diag *diag)
{
    struct pstctl_plan p = {0};
    char before[33];
    enum pst_status status;

    if (config->output == NULL)
        return pst_diag_set(diag, PST_E_COMMAND_ARGUMENTS,
                            "-o PLAN is missing: the folder to write");
    if (pstctl_is_plan(config->args[0]))
        return pst_diag_set(diag, PST_E_RUN_PLAN,
                            "%s is a folder; split takes a .pt2 file",
                            config->args[0]);
    if (config->costs != NULL && !pstctl_cut_takes_costs(config))
        return pst_diag_set(diag, PST_E_CUT_OPTIONS,
                            "--costs has no effect: only the policies flops "
                            "and layers cut by time");
    if (PSTD_GIVEN(config, seed) && config->lora.n == 0)
        return pst_diag_set(diag, PST_E_COMMAND_ARGUMENTS,
                            "--seed has no effect without --lora");
    status = pstctl_plan_open(config->args[0], config, &p, diag);
    if (status != PST_OK)
        return status;
    find_digest(config->output, before);
    status = pst_plan_save(p.plan, config->output, diag);
    if (status == PST_OK)
        note_replaced(config->output, before, p.plan);
    if (status == PST_OK)
        status = pstctl_print_plan(p.plan, config->json, diag);
    pstctl_plan_close(&p);
    return status;
}

static const struct pstd_option_help split_options[] = {
    {"output", "folder to write the plan to", "PLAN", NULL},
    {NULL, NULL, NULL, NULL},
};

const struct pstctl_command pstctl_split = {
    "split",
    "MODEL.pt2 -o PLAN",
    1,
    1,
    PSTD_OPT_SPLIT | PSTD_OPT_OUTPUT | PSTD_OPT_JSON,
    "cut a model into stages",
    "MODEL.pt2 is a file that torch.export.save wrote (PyTorch 2.9 or newer),\n"
    "exported at the shape of one microbatch. PLAN is a folder that will "
    "contain\n"
    "everything that the ranks need.",
    run_split,
    true,
    split_options};
