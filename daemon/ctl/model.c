// SPDX-License-Identifier: Apache-2.0
/* Opens and prints plans for commands, and implements `penstock split`. */
#include "daemon/ctl/model.h"

#include <stdio.h>
#include <string.h>

#include "daemon/common/model/cut.h"
#include "daemon/ctl/ctl.h"
#include "daemon/ctl/print.h"

void pstctl_print_notes(const struct pst_plan *plan)
{
    for (size_t i = 0; i < plan->notes.n; i++)
        pstctl_printf(stderr, "note: %s\n", plan->notes.at[i]);
}

enum pst_status pstctl_plan_open(const struct pstd_config *config,
                                 struct pstd_plan *ret, struct pst_diag *diag)
{
    const enum pst_status status =
        pstd_plan_open(config->args[0], config, ret, diag);

    if (status == PST_OK && ret->models.n > 0 && !config->quiet)
        pstctl_print_notes(ret->plan);
    return status;
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

/* Prints a note if split has replaced another plan in the folder. before:
 * digest of that plan; "": there was none. */
static void print_replaced_note(const char *dir, const char *before,
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
    if (!pstd_is_plan(dir) || pst_plan_load(dir, &plan, &ignored) != PST_OK)
        return;
    memcpy(ret, plan->digest, sizeof(plan->digest));
    pst_plan_free(plan);
}

static enum pst_status run_split(const struct pstd_config *config,
                                 struct pst_diag *diag)
{
    struct pstd_plan p = {0};
    char before[33];
    enum pst_status status;

    if (config->output == NULL)
        return pst_diag_set(diag, PST_E_COMMAND_ARGUMENTS,
                            "-o PLAN is missing: the folder to write");
    if (pstd_is_plan(config->args[0]))
        return pst_diag_set(diag, PST_E_RUN_PLAN,
                            "%s is a folder; split takes a .pt2 file",
                            config->args[0]);
    if (config->costs != NULL && !pstd_cut_uses_costs(config))
        return pst_diag_set(diag, PST_E_CUT_OPTIONS,
                            "--costs has no effect: only the policies flops "
                            "and layers cut by time");
    if (PSTD_GIVEN(config, seed) && config->lora.n == 0)
        return pst_diag_set(diag, PST_E_COMMAND_ARGUMENTS,
                            "--seed has no effect without --lora");
    status = pstd_plan_open(config->args[0], config, &p, diag);
    if (status != PST_OK)
        return status;
    find_digest(config->output, before);
    status = pst_plan_save(p.plan, config->output, diag);
    if (status == PST_OK)
        print_replaced_note(config->output, before, p.plan);
    if (status == PST_OK)
        status = pstctl_print_plan(p.plan, config->json, diag);
    pstd_plan_close(&p);
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
