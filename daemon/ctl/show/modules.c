// SPDX-License-Identifier: Apache-2.0
/* `penstock modules`: prints the modules of a model as a tree, or their calls.
 */
#include "daemon/ctl/ctl.h"
#include "daemon/ctl/out.h"
#include "daemon/ctl/print.h"
#include "daemon/ctl/show/tree.h"
#include "stages/base/plural.h"
#include "stages/ops/core/op.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* --- for programs --------------------------------------------------------- */

static json_t *names_json(const struct pst_modules *m)
{
    const size_t n = m->outline.order.n;
    const char **names = pst_calloc(PST_TAG_CLIENT, n + 1, sizeof(*names));
    json_t *list = json_array();

    if (names == NULL) {
        json_decref(list);
        return NULL;
    }
    for (size_t i = 0; i < n; i++)
        names[i] = pst_modules_call(m, i)->name;
    if (n > 0)
        qsort(names, n, sizeof(*names), by_name);
    for (size_t i = 0; i < n; i++)
        if (i == 0 || strcmp(names[i], names[i - 1]) != 0)
            (void)json_array_append_new(list, pstctl_json_text(names[i]));
    pst_free(names);
    return list;
}

static json_t *call_json(const struct pst_module_site *s)
{
    return json_pack("{s:o, s:i, s:i, s:o, s:i}", "path",
                     pstctl_json_text(s->call->path), "index",
                     (int)s->call->index, "identity", (int)s->identity, "name",
                     pstctl_json_text(s->name), "template", (int)s->template);
}

static json_t *numbers_json(const unsigned *at, size_t n)
{
    json_t *list = json_array();

    for (size_t i = 0; i < n; i++)
        (void)json_array_append_new(list, json_integer(at[i]));
    return list;
}

static json_t *module_json(const struct pst_tree_row *row)
{
    const struct pst_module_site *s = row->site;

    return json_pack(
        "{s:o, s:o, s:o, s:i, s:i, s:o, s:I, s:I, s:o, s:o}", "path",
        pstctl_json_text(row->path), "type",
        pstctl_json_text(s != NULL ? s->call->type : ""), "identity",
        s != NULL ? json_integer(s->identity) : json_null(), "calls",
        s != NULL ? (int)s->n_calls : 0, "graphs",
        s != NULL ? (int)s->n_graphs : 0, "templates",
        numbers_json(row->templates.at, row->templates.n), "own_parameters",
        (json_int_t)row->own, "parameters", (json_int_t)row->total, "flops",
        pstctl_json_real(row->flops), "stages",
        numbers_json(row->stages.at, row->stages.n));
}

static enum pst_status print_json(const struct pstctl_tree *t, bool calls,
                                  struct pst_diag *diag)
{
    const struct pst_modules *m = t->modules;
    json_t *list = json_array();

    for (size_t i = 0; calls && i < m->outline.order.n; i++)
        (void)json_array_append_new(list, call_json(pst_modules_call(m, i)));
    /* Skips the root, which is the model itself. */
    for (size_t i = 1; !calls && i < t->tree->order.n; i++)
        (void)json_array_append_new(
            list, module_json(&t->tree->rows.at[t->tree->order.at[i]]));
    return pstctl_json_print(
        json_pack("{s:o, s:o, s:i}", calls ? "calls" : "modules", list, "names",
                  names_json(m), "templates", (int)m->n_templates),
        diag);
}

/* --- for people ----------------------------------------------------------- */

/* Returns the name of a module's class without its package: "Linear" for
 * "torch.nn.modules.linear.Linear". */
static const char *class_of(const struct pst_module_site *site)
{
    const char *type = site != NULL ? site->call->type : "";
    const char *dot = strrchr(type, '.');

    if (type[0] == '\0')
        return "-";
    return dot != NULL ? dot + 1 : type;
}

/* Returns the path relative to `outer`, or unchanged if it is not below
 * `outer`. */
static const char *short_path(const char *path, const char *outer)
{
    const size_t n = strlen(outer);

    return n > 0 && strncmp(path, outer, n) == 0 && path[n] == '.'
               ? path + n + 1
               : path;
}

#define NAME_WIDTH 34

static void print_name(const char *name, unsigned depth)
{
    const int indent = (int)(2 * depth);

    pstctl_printf(stdout, "%*s%-*s", indent, "",
                  PST_MAX(1, NAME_WIDTH - indent), name);
}

static void print_calls(const struct pst_modules *m)
{
    pstctl_printf(stdout, "%-*s %-20s %9s %8s  %s\n", NAME_WIDTH, "call",
                  "class", "operators", "template", "graph of");
    for (size_t i = 0; i <= m->outline.order.n; i++) {
        const struct pst_module_site *s =
            i == 0 ? &m->sites[0] : pst_modules_call(m, i - 1);
        const struct pst_module_call *outer = s->call->parent;
        char name[300] = "(model)";

        if (outer != NULL)
            (void)snprintf(
                name, sizeof(name), s->call->index > 0 ? "%.250s@%u" : "%.250s",
                short_path(s->call->path, outer->path), s->call->index);
        print_name(name, s->call->depth);
        pstctl_printf(stdout, " %-20s %9u", class_of(s), s->n_nodes);
        if (outer != NULL)
            pstctl_printf(stdout, " %8u  %s", s->template, s->name);
        pstctl_printf(stdout, "\n");
    }
}

/* Appends numbers, with ranges: "0, 3-5". */
static void add_numbers(const unsigned *at, size_t n, struct pst_str *out)
{
    for (size_t i = 0; i < n; i++) {
        const size_t first = i;

        while (i + 1 < n && at[i + 1] == at[i] + 1)
            i++;
        pst_str_addf(out, first > 0 ? ", %u" : "%u", at[first]);
        if (i > first)
            pst_str_addf(out, i > first + 1 ? "-%u" : ", %u", at[i]);
    }
    if (n == 0)
        pst_str_add(out, "-");
}

static void print_row(const struct pst_tree *tree,
                      const struct pst_tree_row *row, bool stages)
{
    struct pst_str templates = {0}, own = {0}, total = {0}, flops = {0},
                   where = {0};
    const char *name =
        row->parent < 0
            ? "(model)"
            : short_path(row->path, tree->rows.at[row->parent].path);

    add_numbers(row->templates.at, row->templates.n, &templates);
    pstctl_count((double)row->own, &own);
    pstctl_count((double)row->total, &total);
    pstctl_count(row->flops, &flops);
    add_numbers(row->stages.at, row->stages.n, &where);
    print_name(name, row->depth);
    pstctl_printf(stdout, " %-20s %6u %-10s %8s %10s %8s", class_of(row->site),
                  row->site == NULL ? 0
                  : row->parent < 0 ? 1
                                    : row->site->n_calls,
                  pst_str_text(&templates), pst_str_text(&own),
                  pst_str_text(&total), pst_str_text(&flops));
    pstctl_printf(stdout, stages ? "  %s\n" : "\n", pst_str_text(&where));
    pst_str_fini(&templates);
    pst_str_fini(&own);
    pst_str_fini(&total);
    pst_str_fini(&flops);
    pst_str_fini(&where);
}

static void print_modules(const struct pstctl_tree *t)
{
    const bool stages = t->plan.plan != NULL;

    pstctl_printf(stdout, "%-*s %-20s %6s %-10s %8s %10s %8s%s\n", NAME_WIDTH,
                  "module", "class", "calls", "templates", "own", "parameters",
                  "FLOPs", stages ? "  stages" : "");
    for (size_t i = 0; i < t->tree->order.n; i++)
        print_row(t->tree, &t->tree->rows.at[t->tree->order.at[i]], stages);
}

static enum pst_status run_modules(const struct pstd_config *config,
                                   struct pst_diag *diag)
{
    struct pstctl_tree t;
    enum pst_status status = pst_registry_init(diag);

    if (status == PST_OK)
        status = pstctl_tree_open(config->args[0], config, &t, diag);
    if (status != PST_OK)
        return status;
    if (config->json) {
        status = print_json(&t, config->calls, diag);
    } else {
        if (config->calls)
            print_calls(t.modules);
        else
            print_modules(&t);
        pstctl_printf(
            stdout, "%zu call%s, %u template%s\n", t.modules->outline.order.n,
            pst_plural(t.modules->outline.order.n), t.modules->n_templates,
            pst_plural(t.modules->n_templates));
    }
    pstctl_tree_close(&t);
    return status;
}

const struct pstctl_command pstctl_modules = {
    "modules",
    "MODEL.pt2|PLAN",
    1,
    1,
    PSTD_OPT_JSON | PSTD_OPT_MODULES,
    "list the modules of a model, their calls, and which calls are alike",
    "A call is named by the path of its module and its number (n, n@1, ...). "
    "Calls\n"
    "with one template have the same graph: operators, constants, attributes "
    "and\n"
    "callees. \"graph of\" names the first call of the module with that graph. "
    "\"own\"\n"
    "and \"parameters\" count elements without and with the modules below; "
    "FLOPs are\n"
    "those of one forward pass.",
    run_modules,
    true};
