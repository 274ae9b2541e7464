// SPDX-License-Identifier: Apache-2.0
#include "daemon/ctl/passes.h"

#include "daemon/common/setup.h"
#include "daemon/ctl/out.h"
#include "stages/base/checked.h"
#include "stages/base/host/cpu.h"
#include "stages/compile/memplan.h"
#include "stages/compile/program.h"
#include "stages/compile/recompute.h"
#include "stages/frontend/model.h"

#include <stdio.h>
#include <string.h>

static const struct pst_pass_table *const tables[] = {&pst_frontend_passes,
                                                      &pst_compile_passes};

enum pst_status pstctl_check_pass(const char *name, struct pst_diag *diag)
{
    struct pst_str names = {0};
    enum pst_status status;

    for (size_t t = 0; t < PST_COUNT(tables); t++)
        if (pst_passes_have(tables[t], name))
            return PST_OK;
    for (size_t t = 0; t < PST_COUNT(tables); t++)
        for (size_t i = 0; i < tables[t]->n; i++)
            pst_str_addf(&names, "%s%s", names.len > 0 ? ", " : "",
                         tables[t]->passes[i].name);
    status = pst_diag_set(diag, PST_E_COMMAND_NO_SUCH_PASS,
                          "there is no pass \"%s\"; --after takes %s", name,
                          pst_str_text(&names));
    pst_str_fini(&names);
    return status;
}

bool pstctl_is_front_pass(const char *name)
{
    return pst_passes_have(&pst_frontend_passes, name);
}

enum pst_status pstctl_show_passes(bool json, struct pst_diag *diag)
{
    struct pst_str text = {.visible = !json};
    json_t *list = json ? json_array() : NULL;

    for (size_t t = 0; t < PST_COUNT(tables); t++) {
        if (!json)
            pst_passes_print(tables[t], &text);
        for (size_t i = 0; json && i < tables[t]->n; i++)
            (void)json_array_append_new(
                list, json_pack("{s:s s:s s:s}", "table", tables[t]->name,
                                "pass", tables[t]->passes[i].name, "does",
                                tables[t]->passes[i].what));
    }
    if (json)
        return pstctl_json_print(json_pack("{s:o}", "passes", list), diag);
    pstctl_print(stdout, &text);
    pst_str_fini(&text);
    return PST_OK;
}

/* Assigns offsets one after the other to values that keep their memory, such as
 * parameters and gradients. The real offsets also depend on the rank's other
 * stages. */
static size_t next_fixed(void *ctx, const struct pst_value *value, unsigned use)
{
    size_t *end = ctx;
    const size_t at = *end;

    (void)use;
    *end = pst_size_add(at, pst_mem_round(pst_meta_span(&value->meta)));
    return at;
}

/* Prints the text of a graph and frees it. has_stage: the graph is that of one
 * stage. */
static enum pst_status print_graph(struct pst_str *text, bool has_stage,
                                   const struct pstd_config *config,
                                   struct pst_diag *diag)
{
    json_t *stage = has_stage ? json_integer((json_int_t)config->stage) : NULL;
    enum pst_status status = PST_OK;

    if (text->failed)
        status = pst_diag_nomem(diag, text->len);
    else if (config->json)
        status = pstctl_json_print(
            json_pack("{s:s s:o* s:o}", "after", config->after, "stage",
                      json_incref(stage), "graph",
                      pstctl_json_text(pst_str_text(text))),
            diag);
    else
        pstctl_print(stdout, text);
    json_decref(stage);
    pst_str_fini(text);
    return status;
}

enum pst_status pstctl_show_front(const char *path,
                                  const struct pstd_config *config,
                                  struct pst_diag *diag)
{
    struct pst_str text = {.visible = !config->json};
    struct pst_model *model;
    enum pst_status status =
        pst_model_open_after(path, config->after, &model, diag);

    if (status != PST_OK)
        return status;
    if (model->graph != NULL)
        pst_graph_print(model->graph, &text);
    else
        pst_str_add(&text, "no graph yet\n");
    pst_model_close(model);
    return print_graph(&text, false, config, diag);
}

enum pst_status pstctl_stage_compile(const struct pst_plan *plan,
                                     unsigned stage,
                                     const struct pst_exec_options *exec,
                                     const char *last, struct pst_program **ret,
                                     struct pst_diag *diag)
{
    struct pst_program_options options = {
        .device = exec->device != NULL ? exec->device : &pst_device_cpu,
        .isa = pst_cpu_isa(),
        .train = exec->train,
        .threads = pst_exec_threads(exec),
        .bf16 = exec->bf16,
        .whole_logits = exec->whole_logits,
        .no_chains = exec->no_chains,
        .verify = exec->verify,
        .recompute = exec->recompute,
    };
    size_t end = 0;
    enum pst_status status;

    if (exec->recompute != NULL && strcmp(exec->recompute, "auto") == 0)
        options.recompute = pst_recompute_default(plan);
    *ret = NULL;
    status = pst_program_new(plan, stage, &options, ret, diag);
    if (status == PST_OK &&
        (last == NULL || strcmp(last, pst_compile_passes.passes[0].name) != 0))
        status = pst_program_compile(*ret, next_fixed, &end, last, diag);
    return status;
}

enum pst_status pstctl_show_after(const struct pst_plan *plan,
                                  const struct pstd_config *config,
                                  struct pst_diag *diag)
{
    struct pst_exec_options exec;
    struct pst_program *program = NULL;
    enum pst_status status =
        pstd_exec_options(config, 1, plan->loss >= 0, &exec, diag);

    if (status != PST_OK)
        return status;
    if (config->stage >= plan->stages.n)
        return pst_diag_set(diag, PST_E_COMMAND_ARGUMENTS,
                            "there is no stage %llu, the plan has %zu",
                            (unsigned long long)config->stage, plan->stages.n);
    status = pstctl_stage_compile(plan, (unsigned)config->stage, &exec,
                                  config->after, &program, diag);
    if (status == PST_OK) {
        struct pst_str text = {.visible = !config->json};

        pst_program_print(program, &text);
        status = print_graph(&text, true, config, diag);
    }
    pst_program_free(program);
    return status;
}
