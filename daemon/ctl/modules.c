// SPDX-License-Identifier: Apache-2.0
/* penstock modules: the tree of modules as a model calls them. */
#include "stages/modules/modules.h"
#include "daemon/ctl/ctl.h"
#include "daemon/ctl/out.h"
#include "stages/graph/graph.h"
#include "stages/ops/op.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static json_t *names_json(const struct pst_modules *m)
{
    const char **names = pst_calloc(PST_TAG_PLAN, m->n_sites, sizeof(*names));
    json_t *list = json_array();
    size_t n = 0;

    if (names == NULL) {
        json_decref(list);
        return NULL;
    }
    for (unsigned i = 1; i < m->n_sites; i++)
        names[n++] = m->sites[i].name;
    if (n > 0)
        qsort(names, n, sizeof(*names), by_name);
    for (size_t i = 0; i < n; i++)
        if (i == 0 || strcmp(names[i], names[i - 1]) != 0)
            (void)json_array_append_new(list, pstctl_json_text(names[i]));
    pst_free(names);
    return list;
}

static json_t *site_json(const struct pst_module_site *s)
{
    return json_pack("{s:o, s:i, s:i, s:o, s:i, s:o, s:i}", "path",
                     pstctl_json_text(s->call->path), "index",
                     (int)s->call->index, "identity", (int)s->identity, "name",
                     pstctl_json_text(s->name), "template", (int)s->template,
                     "type", pstctl_json_text(s->call->type), "operators",
                     (int)s->n_nodes);
}

static json_t *module_json(const struct pst_module_site *s)
{
    return json_pack(
        "{s:o, s:o, s:i, s:i, s:i}", "path", pstctl_json_text(s->call->path),
        "type", pstctl_json_text(s->call->type), "identity", (int)s->identity,
        "calls", (int)s->n_calls, "graphs", (int)s->n_graphs);
}

static enum pst_status print_json(const struct pst_modules *m, bool calls,
                                  struct pst_diag *diag)
{
    json_t *list = json_array();

    for (unsigned i = 1; i < m->n_sites; i++)
        if (calls || m->sites[i].n_calls > 0)
            (void)json_array_append_new(list, calls
                                                  ? site_json(&m->sites[i])
                                                  : module_json(&m->sites[i]));
    return pstctl_json_print(
        json_pack("{s:o, s:o, s:i}", calls ? "calls" : "modules", list, "names",
                  names_json(m), "templates", (int)m->n_templates),
        diag);
}

/* "Linear" of "torch.nn.modules.linear.Linear". */
static const char *class_of(const char *type)
{
    const char *dot = strrchr(type, '.');

    return dot != NULL ? dot + 1 : type;
}

/* The path below its caller's, but for one that is called past it. */
static const char *short_path(const struct pst_module_call *call)
{
    const char *outer = call->parent != NULL ? call->parent->path : "";
    const size_t n = strlen(outer);

    if (call->parent == NULL)
        return "(model)";
    return n > 0 && strncmp(call->path, outer, n) == 0 && call->path[n] == '.'
               ? call->path + n + 1
               : call->path;
}

static void print_calls(const struct pst_modules *m)
{
    pstctl_printf(stdout, "%-36s %-20s %9s %8s  %s\n", "call", "class",
                  "operators", "template", "graph of");
    for (unsigned i = 0; i < m->n_sites; i++) {
        const struct pst_module_site *s = &m->sites[i];
        const int indent = (int)(2 * s->call->depth);
        char name[300];

        (void)snprintf(name, sizeof(name),
                       s->call->index > 0 ? "%.250s@%u" : "%.250s",
                       short_path(s->call), s->call->index);
        pstctl_printf(stdout, "%*s%-*s %-20s %9u", indent, "",
                      PST_MAX(1, 36 - indent), name, class_of(s->call->type),
                      s->n_nodes);
        if (s->call->parent != NULL)
            pstctl_printf(stdout, " %8u  %s", s->template, s->name);
        pstctl_printf(stdout, "\n");
    }
}

static void print_modules(const struct pst_modules *m)
{
    pstctl_printf(stdout, "%-36s %-20s %7s %7s\n", "module", "class", "calls",
                  "graphs");
    for (unsigned i = 1; i < m->n_sites; i++) {
        const struct pst_module_site *s = &m->sites[i];
        const int indent = 2 * (int)(s->call->depth - 1);

        if (s->n_calls > 0)
            pstctl_printf(stdout, "%*s%-*s %-20s %7u %7u\n", indent, "",
                          PST_MAX(1, 36 - indent), short_path(s->call),
                          class_of(s->call->type), s->n_calls, s->n_graphs);
    }
}

static enum pst_status run_modules(const struct pstd_config *config,
                                   struct pst_diag *diag)
{
    struct pst_modules *modules = NULL;
    struct pst_model *model = NULL;
    enum pst_status status = pst_registry_init(diag);

    if (status == PST_OK)
        status = pst_model_open(config->args[0], &model, diag);
    if (status == PST_OK)
        status = pst_modules_new(model, &modules, diag);
    if (status == PST_OK && config->json) {
        status = print_json(modules, config->calls, diag);
    } else if (status == PST_OK) {
        (config->calls ? print_calls : print_modules)(modules);
        pstctl_printf(stdout, "%u calls, %u templates\n", modules->n_sites - 1,
                      modules->n_templates);
    }
    pst_modules_free(modules);
    pst_model_close(model);
    return status;
}

const struct pstctl_command pstctl_modules = {
    "modules",
    "MODEL.pt2",
    1,
    1,
    PSTD_OPT_JSON | PSTD_OPT_MODULES,
    "the modules of a model, their calls, and which of these are alike",
    "A call is named by the path of its module and its number (n, n@1, ...). "
    "Calls\nwith one template have the same graph: operators, constants, "
    "attributes and\ncallees. \"graph of\" names the first call of the module "
    "with that graph.",
    run_modules};
