// SPDX-License-Identifier: Apache-2.0
/* `penstock show`: prints a model or a plan. */
#include <string.h>

#include "daemon/common/setup.h"
#include "daemon/ctl/ctl.h"
#include "daemon/ctl/passes.h"
#include "daemon/ctl/plan/groups.h"
#include "daemon/ctl/print.h"
#include "daemon/ctl/show/tree.h"

/* Collects the modules that nodes belong to, once each, in execution order. */
static enum pst_status list_modules(const struct pst_plan *plan,
                                    struct pst_map *modules,
                                    struct pst_diag *diag)
{
    for (size_t s = 0; s < plan->stages.n; s++) {
        const struct pst_graph *graph = plan->stages.at[s].graph;

        for (size_t i = 0; i < graph->nodes.n; i++) {
            const char *module = graph->nodes.at[i]->call->path;

            if (*module != '\0' && !pst_map_has(modules, module) &&
                !pst_map_put(modules, module, &plan->stages.at[s]))
                return pst_diag_nomem(diag, strlen(module));
        }
    }
    return PST_OK;
}

static enum pst_status show_modules(const struct pst_plan *plan, bool json,
                                    struct pst_diag *diag)
{
    json_t *list = json ? json_array() : NULL;
    struct pst_map modules;
    enum pst_status status;

    pst_map_init(&modules, PST_TAG_CLIENT);
    status = list_modules(plan, &modules, diag);
    for (size_t i = 0; status == PST_OK && i < modules.n; i++) {
        const struct pst_stage *stage = modules.entries[i].value;

        if (json)
            (void)json_array_append_new(
                list, json_pack("{s:o s:I}", "module",
                                pstctl_json_text(modules.entries[i].key),
                                "first_stage", (json_int_t)stage->index));
        else
            pstctl_printf(stdout, "%3u  %s\n", stage->index,
                          modules.entries[i].key);
    }
    pst_map_fini(&modules);
    if (status == PST_OK && json)
        return pstctl_json_print(json_pack("{s:o}", "modules", list), diag);
    json_decref(list);
    return status;
}

/* Prints the kernels that the ranks of a job would run. Here all ranks are in
 * this process, since kernels do not depend on the transport. */
static enum pst_status show_kernels(struct pst_plan *plan,
                                    const struct pstd_config *config,
                                    struct pst_diag *diag)
{
    struct pst_transport *transport = NULL;
    struct pst_exec_options options;
    struct pst_engine *engine = NULL;
    struct pst_str text = {.visible = !config->json};
    enum pst_status status =
        pstd_exec_options(config, 1, plan->loss >= 0, &options, diag);

    if (status == PST_OK)
        status = pst_transport_self.open("1", &transport, diag);
    if (status == PST_OK)
        status = pst_engine_new(plan, transport, &options, &engine, diag);
    if (status == PST_OK) {
        pst_engine_print_kernels(engine, &text);
        if (config->json)
            status = pstctl_json_print(
                json_pack("{s:o}", "kernels",
                          pstctl_json_text(pst_str_text(&text))),
                diag);
        else
            pstctl_print(stdout, &text);
    }
    pst_str_fini(&text);
    pst_engine_free(engine);
    if (transport != NULL)
        transport->ops->close(transport);
    return status;
}

static enum pst_status show_stage(const struct pst_plan *plan,
                                  const struct pstd_config *config,
                                  struct pst_diag *diag)
{
    struct pst_str text = {.visible = !config->json};
    enum pst_status status;

    if (config->stage >= plan->stages.n)
        return pst_diag_set(diag, PST_E_COMMAND_ARGUMENTS,
                            "there is no stage %llu, the plan has %zu",
                            (unsigned long long)config->stage, plan->stages.n);
    if (!config->json) {
        pst_plan_describe_stage(plan, (unsigned)config->stage, &text);
        return pstctl_print_text(&text, false, diag);
    }
    pst_plan_print_stage(plan, (unsigned)config->stage, &text);
    status = pstctl_json_print(json_pack("{s:I s:o}", "stage",
                                         (json_int_t)config->stage, "graph",
                                         pstctl_json_text(pst_str_text(&text))),
                               diag);
    pst_str_fini(&text);
    return status;
}

static enum pst_status show_graph(const struct pst_model *model, bool json,
                                  struct pst_diag *diag)
{
    struct pst_str text = {.visible = !json};
    enum pst_status status;

    pst_graph_print(model->graph, &text);
    if (!json) {
        for (size_t i = 0; i < model->notes.n; i++)
            pstctl_printf(stderr, "note: %s\n", model->notes.at[i]);
        return pstctl_print_text(&text, false, diag);
    }
    status = pstctl_json_print(
        json_pack("{s:o s:s s:s s:I s:I s:o}", "name",
                  pstctl_json_text(model->name), "digest", model->digest,
                  "torch_version",
                  model->torch_version != NULL ? model->torch_version : "",
                  "nodes", (json_int_t)model->graph->nodes.n, "params",
                  (json_int_t)model->graph->params.n, "graph",
                  pstctl_json_text(pst_str_text(&text))),
        diag);
    pst_str_fini(&text);
    return status;
}

/* Returns the option that asks for groups of parameters; NULL: none. */
static const char *groups_option(const struct pstd_config *config)
{
    return PSTD_GIVEN(config, group)       ? "group"
           : config->no_decay != NULL      ? "no-decay"
           : PSTD_GIVEN(config, optimizer) ? "optimizer"
                                           : NULL;
}

/* Returns the option that requests something that cannot be drawn as a picture;
 * NULL: there is none, and the whole plan is shown. */
static const char *find_undrawable(const struct pstd_config *config)
{
    return config->passes              ? "passes"
           : config->module != NULL    ? "module"
           : config->after != NULL     ? "after"
           : config->modules           ? "modules"
           : config->kernels           ? "kernels"
           : PSTD_GIVEN(config, stage) ? "stage"
                                       : groups_option(config);
}

static enum pst_status draw_plan(const struct pst_plan *plan,
                                 const struct pstd_config *config,
                                 struct pst_diag *diag)
{
    struct pst_str text = {.visible = 1};

    if (config->json)
        return pst_diag_set(diag, PST_E_COMMAND_ARGUMENTS,
                            "--format %s and --json: use one of them",
                            config->format);
    if (strcmp(config->format, "dot") == 0)
        pst_plan_draw_dot(plan, &text);
    else
        pst_plan_draw_svg(plan, &text);
    return pstctl_print_text(&text, false, diag);
}

/* Shows one call of a module. */
static enum pst_status show_call(const struct pstd_config *config,
                                 struct pst_diag *diag)
{
    struct pst_str text = {.visible = !config->json};
    const struct pst_module_site *site;
    struct pstctl_tree t;
    enum pst_status status;

    status = pstctl_tree_open(config->args[0], config, &t, diag);
    if (status != PST_OK)
        return status;
    status = pst_tree_find(t.modules, t.tree, config->module, &site, diag);
    if (status == PST_OK) {
        pst_modules_print(t.modules, site, &text);
        if (config->json)
            status = pstctl_json_print(
                json_pack("{s:o s:I s:o s:I s:o}", "path",
                          pstctl_json_text(site->call->path), "index",
                          (json_int_t)site->call->index, "name",
                          pstctl_json_text(site->name), "template",
                          (json_int_t)site->template, "graph",
                          pstctl_json_text(pst_str_text(&text))),
                diag);
        else
            status = pstctl_print_text(&text, false, diag);
    }
    pst_str_fini(&text);
    pstctl_tree_close(&t);
    return status;
}

/* Shows which parameters are in which group of the optimizer. */
static enum pst_status show_groups(const struct pst_plan *plan,
                                   const struct pstd_config *config,
                                   struct pst_diag *diag)
{
    struct pst_exec_options options;
    struct pst_groups groups = {0};
    enum pst_status status = pstd_exec_options(config, (unsigned)plan->stages.n,
                                               plan->loss >= 0, &options, diag);

    if (status == PST_OK && options.optim.row == NULL)
        status = pst_diag_set(diag, PST_E_COMMAND_ARGUMENTS,
                              "--optimizer none has no groups of parameters");
    if (status == PST_OK)
        status = pst_groups_make(&groups, plan, &options, diag);
    if (status == PST_OK && config->json)
        status = pstctl_json_print(pstctl_groups_json(&groups, plan), diag);
    else if (status == PST_OK)
        pstctl_groups_print(&groups, plan);
    pst_groups_fini(&groups);
    return status;
}

/* Shows the graph of a model after the front end, before it has stages. */
static enum pst_status show_front(const struct pstd_config *config,
                                  struct pst_diag *diag)
{
    const char *cut = pstd_cut_option(config);

    if (pstd_is_plan(config->args[0]))
        return pst_diag_set(diag, PST_E_COMMAND_ARGUMENTS,
                            "--after %s is a pass of the front end, which ran "
                            "before %s was made; give the .pt2 file",
                            config->after, config->args[0]);
    if (cut != NULL || PSTD_GIVEN(config, stage))
        return pst_diag_set(diag, PST_E_COMMAND_ARGUMENTS,
                            "--after %s: a pass of the front end, there are no "
                            "stages yet; --%s has no effect",
                            config->after, cut != NULL ? cut : "stage");
    return pstctl_show_front(config->args[0], config, diag);
}

static enum pst_status run_show(const struct pstd_config *config,
                                struct pst_diag *diag)
{
    struct pstd_plan p = {0};
    const char *part = find_undrawable(config);
    enum pst_status status = PST_OK;

    if (part != NULL && strcmp(config->format, "text") != 0)
        return pst_diag_set(diag, PST_E_COMMAND_ARGUMENTS,
                            "--format %s is for whole plans: --%s is text, or "
                            "with --json an object",
                            config->format, part);
    if (config->passes)
        return pstctl_show_passes(config->json, diag);
    if (config->n_args == 0)
        return pst_diag_set(diag, PST_E_COMMAND_ARGUMENTS,
                            "show takes MODEL.pt2 or PLAN");
    if (config->module != NULL)
        return show_call(config, diag);
    if (config->after != NULL)
        status = pstctl_check_pass(config->after, diag);
    if (status == PST_OK && config->after != NULL &&
        pstctl_is_front_pass(config->after))
        return show_front(config, diag);
    if (status == PST_OK)
        status = pstd_plan_open(config->args[0], config, &p, diag);
    if (status != PST_OK)
        return status;
    if (config->after != NULL)
        status = pstctl_show_after(p.plan, config, diag);
    else if (config->modules)
        status = show_modules(p.plan, config->json, diag);
    else if (config->kernels)
        status = show_kernels(p.plan, config, diag);
    else if (PSTD_GIVEN(config, stage))
        status = show_stage(p.plan, config, diag);
    else if (groups_option(config) != NULL)
        status = show_groups(p.plan, config, diag);
    else if (strcmp(config->format, "text") != 0)
        status = draw_plan(p.plan, config, diag);
    else if (pstd_model(&p) != NULL && !PSTD_GIVEN(config, format) &&
             pstd_cut_option(config) == NULL)
        status = show_graph(pstd_model(&p), config->json, diag);
    else
        status = pstctl_print_plan(p.plan, config->json, diag);
    pstd_plan_close(&p);
    return status;
}

const struct pstctl_command pstctl_show = {
    "show",
    "MODEL.pt2|PLAN",
    0,
    1,
    PSTD_OPT_SHOW | PSTD_OPT_SPLIT | PSTD_OPT_JSON,
    "print the graph of a model, or the stages of a plan",
    "Without options: of a model its graph, of a plan its stages and what they "
    "send\n"
    "to each other. With --group, --no-decay or --optimizer: which parameters "
    "are in\n"
    "which group.",
    run_show,
    true};
