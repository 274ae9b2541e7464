// SPDX-License-Identifier: Apache-2.0
#include "stages/sched/costs.h"

#include "stages/base/host/fs.h"
#include "stages/base/untrusted/json_file.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FILE    ((size_t)64 << 20)
#define MAX_STAGES  4096u
#define MAX_MODULES 1000000u
#define MAX_SECONDS 1e9
#define MAX_RATE    1e18

enum pst_status pst_costs_init(struct pst_costs *costs, unsigned n_stages,
                               struct pst_diag *diag)
{
    *costs =
        (struct pst_costs){.plan = "", .n_stages = n_stages, .overlap = true};
    pst_arena_init(&costs->arena, PST_TAG_PLAN);
    costs->stages =
        pst_arena_calloc(&costs->arena, n_stages, sizeof(*costs->stages));
    if (!costs->stages) {
        pst_costs_fini(costs);
        return pst_diag_nomem(diag, n_stages * sizeof(*costs->stages));
    }
    return PST_OK;
}

void pst_costs_fini(struct pst_costs *costs)
{
    pst_arena_fini(&costs->arena);
    *costs = (struct pst_costs){.plan = ""};
}

/* --- reading ------------------------------------------------------------- */

struct reader {
    const char *path;
    struct pst_diag *diag;
};

static enum pst_status report_bad_field(const struct reader *r,
                                        const char *what, const char *name,
                                        const char *rule)
{
    return pst_diag_set(r->diag, PST_E_COSTS_FILE, "costs %s: %s\"%s\" %s",
                        r->path, what, name, rule);
}

/* Reads a number if it is there; a missing one is left unchanged. */
static enum pst_status read_number(const struct reader *r, const json_t *object,
                                   const char *what, const char *name,
                                   double max, double *ret)
{
    const json_t *value = json_object_get(object, name);
    double x;

    if (!value)
        return PST_OK;
    x = json_number_value(value);
    if (!json_is_number(value) || !(x >= 0.0 && x <= max))
        return report_bad_field(r, what, name,
                                "is not a number of 0 or more in range");
    *ret = x;
    return PST_OK;
}

static enum pst_status read_seconds(const struct reader *r,
                                    const json_t *object, const char *what,
                                    struct pst_seconds *ret)
{
    enum pst_status status;

    if (!json_is_object(object))
        return report_bad_field(r, what, "", "is not an object");
    status =
        read_number(r, object, what, "forward", MAX_SECONDS, &ret->forward);
    if (status == PST_OK)
        status =
            read_number(r, object, what, "input", MAX_SECONDS, &ret->input);
    if (status == PST_OK)
        status =
            read_number(r, object, what, "weight", MAX_SECONDS, &ret->weight);
    return status;
}

static enum pst_status read_stages(const struct reader *r, const json_t *list,
                                   struct pst_costs *costs)
{
    enum pst_status status = PST_OK;

    for (unsigned i = 0; i < costs->n_stages && status == PST_OK; i++) {
        const json_t *object = json_array_get(list, i);
        struct pst_stage_cost *s = &costs->stages[i];
        char what[32];

        (void)snprintf(what, sizeof(what), "stage %u: ", i);
        status = read_seconds(r, object, what, &s->seconds);
        if (status == PST_OK)
            status = read_number(r, object, what, "backward", MAX_SECONDS,
                                 &s->backward);
        if (status == PST_OK)
            status = read_number(r, object, what, "optimizer", MAX_SECONDS,
                                 &s->optim);
        if (status == PST_OK)
            status =
                read_number(r, object, what, "reduce", MAX_SECONDS, &s->reduce);
    }
    return status;
}

static enum pst_status read_modules(const struct reader *r, const json_t *list,
                                    struct pst_costs *costs)
{
    const size_t n = json_array_size(list);
    enum pst_status status = PST_OK;

    if (!list)
        return PST_OK;
    if (!json_is_array(list) || n > MAX_MODULES)
        return report_bad_field(r, "", "modules", "is not a list");
    costs->modules =
        pst_arena_calloc(&costs->arena, n, sizeof(*costs->modules));
    if (!costs->modules)
        return pst_diag_nomem(r->diag, n * sizeof(*costs->modules));
    for (size_t i = 0; i < n && status == PST_OK; i++) {
        const json_t *object = json_array_get(list, i);
        const char *module =
            json_string_value(json_object_get(object, "module"));
        struct pst_module_cost *m = &costs->modules[i];

        if (!module)
            return report_bad_field(r, "modules: ", "module", "is missing");
        m->module = pst_arena_strdup(&costs->arena, module);
        if (!m->module)
            return pst_diag_nomem(r->diag, strlen(module));
        status = read_seconds(r, object, "modules: ", &m->seconds);
    }
    costs->n_modules = n;
    return status;
}

static enum pst_status read_rest(const struct reader *r, const json_t *root,
                                 struct pst_costs *costs)
{
    const json_t *plan = json_object_get(root, "plan");
    const json_t *overlap = json_object_get(root, "overlap");
    enum pst_status status =
        read_number(r, root, "", "latency", MAX_SECONDS, &costs->wire.latency);

    if (status == PST_OK)
        status = read_number(r, root, "", "bandwidth", MAX_RATE,
                             &costs->wire.bandwidth);
    if (status != PST_OK)
        return status;
    if (plan && !json_is_string(plan))
        return report_bad_field(r, "", "plan", "is not a text");
    if (overlap && !json_is_boolean(overlap))
        return report_bad_field(r, "", "overlap", "is neither true nor false");
    if (overlap)
        costs->overlap = json_is_true(overlap);
    if (!plan)
        return PST_OK;
    costs->plan = pst_arena_strdup(&costs->arena, json_string_value(plan));
    return costs->plan ? PST_OK : pst_diag_nomem(r->diag, 32);
}

static enum pst_status read_root(const struct reader *r, const json_t *root,
                                 struct pst_costs *ret)
{
    const json_t *stages = json_object_get(root, "stages");
    const char *format = json_string_value(json_object_get(root, "format"));
    const json_t *version = json_object_get(root, "version");
    struct pst_costs costs;
    enum pst_status status;

    if (!format || strcmp(format, "penstock-costs") != 0)
        return report_bad_field(r, "", "format", "is not \"penstock-costs\"");
    if (!json_is_integer(version) || json_integer_value(version) != 1)
        return pst_diag_set(r->diag, PST_E_COSTS_VERSION,
                            "costs %s: the version is not 1", r->path);
    if (json_array_size(stages) < 1 || json_array_size(stages) > MAX_STAGES)
        return report_bad_field(r, "", "stages",
                                "is not a list of 1 to 4096 stages");
    status = pst_costs_init(&costs, (unsigned)json_array_size(stages), r->diag);
    if (status != PST_OK)
        return status;
    status = read_stages(r, stages, &costs);
    if (status == PST_OK)
        status = read_modules(r, json_object_get(root, "modules"), &costs);
    if (status == PST_OK)
        status = read_rest(r, root, &costs);
    if (status == PST_OK)
        *ret = costs;
    else
        pst_costs_fini(&costs);
    return status;
}

enum pst_status pst_costs_read(const char *path, struct pst_costs *ret,
                               struct pst_diag *diag)
{
    const struct reader r = {path, diag};
    json_error_t error;
    json_t *root;
    char *text;
    size_t size;
    enum pst_status status =
        pst_json_file_read(path, MAX_FILE, &text, &size, diag);

    if (status != PST_OK)
        return status;
    root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
    pst_free(text);
    if (!root)
        return pst_diag_set(diag, PST_E_COSTS_FILE,
                            "costs %s: line %d, column %d: %s", path,
                            error.line, error.column, error.text);
    status = read_root(&r, root, ret);
    json_decref(root);
    return status;
}

/* --- writing ------------------------------------------------------------- */

static json_t *append_value(json_t *list, json_t *value)
{
    if (json_array_append_new(list, value) == 0)
        return list;
    json_decref(list);
    return NULL;
}

/* Returns the JSON of a stage; `backward` is omitted if only I and W have
 * times. */
static json_t *stage_json(const struct pst_stage_cost *s)
{
    if (s->backward > 0.0)
        return json_pack("{s:f s:f s:f s:f s:f s:f}", "forward",
                         s->seconds.forward, "input", s->seconds.input,
                         "weight", s->seconds.weight, "backward", s->backward,
                         "optimizer", s->optim, "reduce", s->reduce);
    return json_pack("{s:f s:f s:f s:f s:f}", "forward", s->seconds.forward,
                     "input", s->seconds.input, "weight", s->seconds.weight,
                     "optimizer", s->optim, "reduce", s->reduce);
}

static json_t *stages_json(const struct pst_costs *costs)
{
    json_t *ret = json_array();

    for (unsigned i = 0; i < costs->n_stages; i++)
        ret = append_value(ret, stage_json(&costs->stages[i]));
    return ret;
}

static json_t *modules_json(const struct pst_costs *costs)
{
    json_t *ret = json_array();

    for (size_t i = 0; i < costs->n_modules; i++) {
        const struct pst_module_cost *m = &costs->modules[i];

        ret = append_value(
            ret, json_pack("{s:s s:f s:f s:f}", "module", m->module, "forward",
                           m->seconds.forward, "input", m->seconds.input,
                           "weight", m->seconds.weight));
    }
    return ret;
}

static void print_costs(const struct pst_costs *costs, struct pst_str *out)
{
    json_t *const root = json_pack(
        "{s:s s:i s:s s:o s:o s:f s:f s:b}", "format", "penstock-costs",
        "version", 1, "plan", costs->plan, "stages", stages_json(costs),
        "modules", modules_json(costs), "latency", costs->wire.latency,
        "bandwidth", costs->wire.bandwidth, "overlap", (int)costs->overlap);
    char *text = root != NULL ? json_dumps(root, JSON_INDENT(1)) : NULL;

    json_decref(root);
    if (text != NULL)
        pst_str_add_json_shown(out, text);
    else
        out->failed = 1;
    pst_str_add(out, "\n");
    free(text);
}

static enum pst_status check_numbers(const struct pst_costs *costs,
                                     struct pst_diag *diag)
{
    bool fine =
        isfinite(costs->wire.latency) && isfinite(costs->wire.bandwidth);

    for (unsigned i = 0; i < costs->n_stages; i++) {
        const struct pst_stage_cost *s = &costs->stages[i];

        fine = fine &&
               isfinite(s->seconds.forward + s->seconds.input +
                        s->seconds.weight + s->backward + s->optim + s->reduce);
    }
    for (size_t i = 0; i < costs->n_modules; i++) {
        const struct pst_seconds *s = &costs->modules[i].seconds;

        fine = fine && isfinite(s->forward + s->input + s->weight);
    }
    return fine ? PST_OK
                : pst_diag_set(diag, PST_E_INTERNAL_BUG,
                               "a cost is not a finite number");
}

enum pst_status pst_costs_write(const struct pst_costs *costs, const char *path,
                                struct pst_diag *diag)
{
    struct pst_str text = {0};
    enum pst_status status = check_numbers(costs, diag);

    if (status != PST_OK)
        return status;
    print_costs(costs, &text);
    if (text.failed)
        status = pst_diag_nomem(diag, text.len);
    else
        status = pst_file_write(path, text.text, text.len, diag);
    pst_str_fini(&text);
    return status;
}
