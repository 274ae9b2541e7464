// SPDX-License-Identifier: Apache-2.0
/* Finds all that is not supported before anything is built. */
#include "stages/frontend/import/import.h"

#include <string.h>

#define NO_TIER 9 /* of a value: it is no operator */

struct finding {
    const char *what; /* "aten.foo.default", "dtype complex64" */
    const char *reason;
    unsigned tier; /* of struct pst_target */
    struct pst_place place;
    const char *value; /* name of a value, where there is no node */
    unsigned count;
};

struct scan {
    struct pst_import *import;
    bool dropout_on, dropout_off; /* a dropout that acts, one that does not */
    bool trains, evaluates;       /* a node says so: model->evaluates */
    struct PST_VEC(struct finding) findings;
};

static enum pst_status add_finding(struct scan *s, const char *what,
                                   const char *reason, unsigned tier,
                                   const char *value)
{
    struct finding f = {what, reason, tier, s->import->place, value, 1};

    for (size_t i = 0; i < s->findings.n; i++) {
        struct finding *g = &s->findings.at[i];

        if (strcmp(g->what, what) == 0 && strcmp(g->reason, reason) == 0) {
            g->count++;
            return PST_OK;
        }
    }
    if (!pst_vec_push(PST_TAG_ARCHIVE, &s->findings, f))
        return pst_diag_nomem(s->import->diag, sizeof(f));
    return PST_OK;
}

/* Values of dtypes that we do not have. */
static enum pst_status scan_values(struct scan *s, const json_t *graph)
{
    enum pst_status status = PST_OK;
    const char *name;
    json_t *meta;

    json_object_foreach(json_object_get(graph, "tensor_values"), name, meta)
    {
        const json_t *dtype = json_object_get(meta, "dtype");
        enum pst_dtype unused;

        if (json_is_integer(dtype) && status == PST_OK &&
            !pst_json_is_complex(json_integer_value(dtype), &unused) &&
            !pst_dtype_from_pt2(json_integer_value(dtype), &unused))
            status =
                add_finding(s, pst_json_dtype_name(json_integer_value(dtype)),
                            "dtypes", NO_TIER, name);
    }
    return status;
}

/* Has a node's result, {"name": ...}, a size that depends on data? */
static bool is_unbacked(const struct scan *s, const json_t *graph,
                        const json_t *tensor)
{
    const char *name = json_string_value(json_object_get(tensor, "name"));
    const json_t *meta =
        name != NULL
            ? json_object_get(json_object_get(graph, "tensor_values"), name)
            : NULL;
    json_t *size;
    size_t i;

    json_array_foreach(json_object_get(meta, "sizes"), i, size)
    {
        if (!pst_import_is_known(s->import, size))
            return true;
    }
    return false;
}

/* Sizes that depend on data, at the nodes that make them. */
static enum pst_status scan_sizes(struct scan *s, const json_t *graph,
                                  const json_t *node)
{
    bool found = false;
    json_t *output, *item;
    size_t i, k;

    json_array_foreach(json_object_get(node, "outputs"), i, output)
    {
        found = found ||
                is_unbacked(s, graph, json_object_get(output, "as_tensor"));
        json_array_foreach(json_object_get(output, "as_tensors"), k, item)
        {
            found = found || is_unbacked(s, graph, item);
        }
    }
    return found ? add_finding(s, "shapes", pst_import_unbacked, NO_TIER, NULL)
                 : PST_OK;
}

static const char *const supported_tags[] = {
    "as_none",      "as_tensor",   "as_tensors",     "as_int",
    "as_ints",      "as_float",    "as_floats",      "as_bool",
    "as_bools",     "as_string",   "as_sym_int",     "as_sym_ints",
    "as_sym_float", "as_sym_bool", "as_scalar_type", "as_memory_format",
    "as_layout",    "as_device",   "as_graph",       "as_optional_tensors",
};

/* --- numbers -------------------------------------------------------------- */

static enum pst_status mark_number(struct scan *s, const json_t *number)
{
    const char *name = json_string_value(json_object_get(number, "as_name"));

    if (name == NULL || pst_map_put(&s->import->numbers, name, s))
        return PST_OK;
    return pst_diag_nomem(s->import->diag, strlen(name));
}

/* Numbers and lists of them have names in whatever kind of argument. */
static enum pst_status mark_numbers(struct scan *s, const json_t *arg)
{
    enum pst_status status = PST_OK;
    const char *tag;
    json_t *payload, *item;
    size_t i;

    json_object_foreach((json_t *)arg, tag, payload)
    {
        if (status == PST_OK)
            status = mark_number(s, payload);
        json_array_foreach(payload, i, item)
        {
            if (status == PST_OK)
                status = mark_number(s, item);
        }
    }
    return status;
}

/* Arithmetic whose result nothing needs, and assertions, need no numbers. */
static bool needs_numbers(const struct scan *s, const json_t *node)
{
    const struct pst_target target = pst_import_target(node, NULL);
    json_t *output;
    size_t i;

    if (target.kind == PST_TARGET_ASSERT)
        return false;
    if (target.kind != PST_TARGET_SIZE)
        return true;
    json_array_foreach(json_object_get(node, "outputs"), i, output)
    {
        if (pst_import_number_needed(s->import, output))
            return true;
    }
    return false;
}

/* From the last node to the first: users stand behind what they use. */
static enum pst_status find_numbers(struct scan *s, const json_t *graph)
{
    const json_t *nodes = json_object_get(graph, "nodes");
    enum pst_status status = PST_OK;
    json_t *item;
    size_t i;

    json_array_foreach(json_object_get(graph, "outputs"), i, item)
    {
        if (status == PST_OK)
            status = mark_numbers(s, item);
    }
    for (size_t k = json_array_size(nodes); k-- > 0 && status == PST_OK;) {
        const json_t *node = json_array_get(nodes, k);

        if (!needs_numbers(s, node))
            continue;
        json_array_foreach(json_object_get(node, "inputs"), i, item)
        {
            if (status == PST_OK)
                status = mark_numbers(s, json_object_get(item, "arg"));
        }
    }
    return status;
}

/* --- tensors -------------------------------------------------------------- */

static enum pst_status mark_used(struct scan *s, const json_t *tensor)
{
    const char *name = json_string_value(json_object_get(tensor, "name"));

    if (name == NULL || pst_map_put(&s->import->used, name, s))
        return PST_OK;
    return pst_diag_nomem(s->import->diag, strlen(name));
}

static enum pst_status mark_arg(struct scan *s, const json_t *arg)
{
    enum pst_status status;
    json_t *item;
    size_t i;

    status = mark_used(s, json_object_get(arg, "as_tensor"));
    json_array_foreach(json_object_get(arg, "as_tensors"), i, item)
    {
        if (status == PST_OK)
            status = mark_used(s, item);
    }
    json_array_foreach(json_object_get(arg, "as_optional_tensors"), i, item)
    {
        if (status == PST_OK)
            status = mark_used(s, json_object_get(item, "as_tensor"));
    }
    return status;
}

/* The argument in which a node says whether the model trains; NULL if it has
 * none. Norms without running statistics take the batch's in both modes. */
static const json_t *training_flag(const json_t *node)
{
    static const char *const names[] = {"train", "training", "use_input_stats"};

    if (pst_import_arg(node, "running_mean", "as_none") != NULL)
        return NULL;
    for (size_t i = 0; i < PST_COUNT(names); i++) {
        const json_t *flag = pst_import_arg(node, names[i], "as_bool");

        if (flag != NULL)
            return flag;
    }
    return NULL;
}

/* Names of norms that say it instead. */
static bool says_in_name(const char *target, bool trains)
{
    static const char *const names[][2] = {
        {"aten._native_batch_norm_legit_no_training.",
         "aten._batch_norm_no_update."},
        {"aten._batch_norm_with_update.",
         "aten._batch_norm_with_update_functional."},
    };

    return pst_has_prefix(target, names[trains][0]) ||
           pst_has_prefix(target, names[trains][1]);
}

/* Was the model in training mode when it was exported? A dropout that drops
 * counts as a sign of it even if it was called as a function. */
static void look_at_mode(struct scan *s, const json_t *node,
                         const struct pst_target *target)
{
    const json_t *flag = training_flag(node);
    const json_t *share = pst_import_arg(node, "dropout_p", "as_float");

    s->trains =
        s->trains || json_is_true(flag) || json_number_value(share) > 0.0 ||
        says_in_name(target->name, true) ||
        (flag == NULL && pst_has_prefix(target->name, "aten.native_dropout."));
    s->evaluates = s->evaluates || json_is_false(flag) ||
                   says_in_name(target->name, false);
    if (!pst_has_prefix(target->name, "aten.dropout"))
        return;
    s->dropout_on = s->dropout_on || json_is_true(flag);
    s->dropout_off = s->dropout_off || json_is_false(flag);
}

static enum pst_status note_mode(const struct scan *s)
{
    s->import->model->evaluates = s->evaluates && !s->trains;
    if (!s->dropout_off || s->dropout_on ||
        pst_vec_push(PST_TAG_ARCHIVE, &s->import->model->notes,
                     "exported in evaluation mode: dropout does nothing in "
                     "training either"))
        return PST_OK;
    return pst_diag_nomem(s->import->diag, 0);
}

static enum pst_status scan_graph(struct scan *s, const json_t *graph,
                                  bool outer);

static enum pst_status scan_input(struct scan *s, const json_t *input,
                                  const struct pst_target *target, bool outer)
{
    const json_t *arg = json_object_get(input, "arg");
    enum pst_status status = PST_OK;
    bool known = false;
    const char *tag;
    json_t *payload;

    tag = pst_json_union(arg, &payload, target->name, s->import->diag);
    if (tag == NULL)
        return PST_ERR_INPUT;
    for (size_t i = 0; i < PST_COUNT(supported_tags); i++)
        known = known || strcmp(tag, supported_tags[i]) == 0;
    if (!known && target->kind != PST_TARGET_NONE)
        status =
            add_finding(s, target->name,
                        strcmp(tag, "as_complex") == 0
                            ? "complex numbers among the arguments (give them "
                              "in a buffer)"
                            : "arguments of this kind",
                        NO_TIER, NULL);
    if (status == PST_OK && outer)
        status = mark_arg(s, arg);
    if (status == PST_OK && strcmp(tag, "as_graph") == 0)
        status = scan_graph(s, json_object_get(payload, "graph"), false);
    return status;
}

/* Nested sub-graphs are bounded by the depth of the document. */
static enum pst_status scan_graph(struct scan *s, const json_t *graph,
                                  bool outer)
{
    struct pst_diag *diag = s->import->diag;
    const json_t *nodes =
        pst_json_member(graph, "nodes", JSON_ARRAY, "a graph", diag);
    enum pst_status status = nodes != NULL
                                 ? pst_import_unwrap((json_t *)nodes, diag)
                                 : PST_ERR_INPUT;
    json_t *node, *input;
    size_t i, k;

    if (status == PST_OK)
        status = find_numbers(s, graph);
    json_array_foreach(json_object_get(graph, "inputs"), i, input)
    {
        const json_t *tensor = json_object_get(input, "as_tensor");

        if (status == PST_OK && outer && is_unbacked(s, graph, tensor))
            status =
                add_finding(s, "shapes", pst_import_unbacked, NO_TIER,
                            json_string_value(json_object_get(tensor, "name")));
    }
    json_array_foreach(nodes, i, node)
    {
        const struct pst_target target =
            pst_import_target(node, json_object_get(graph, "tensor_values"));

        if (status != PST_OK)
            return status;
        look_at_mode(s, node, &target);
        status = pst_import_place(s->import, node);
        if (status == PST_OK && target.kind == PST_TARGET_NONE &&
            !pst_import_is_idle(s->import, node))
            status =
                add_finding(s, target.name, target.reason, target.tier, NULL);
        if (status == PST_OK)
            status = scan_sizes(s, graph, node);
        json_array_foreach(json_object_get(node, "inputs"), k, input)
        {
            if (status != PST_OK)
                break;
            status = scan_input(s, input, &target, outer);
            if (status != PST_OK)
                pst_import_blame(s->import, node, target.name);
        }
    }
    if (status == PST_OK)
        status = scan_values(s, graph);
    json_array_foreach(json_object_get(graph, "outputs"), i, input)
    {
        if (status == PST_OK && outer)
            status = mark_arg(s, input);
    }
    return status;
}

static void describe(const struct finding *f, struct pst_str *out)
{
    pst_str_add(out, f->what);
    pst_str_add(out, " (");
    if (f->count > 1)
        pst_str_addf(out, "%u times, first ", f->count);
    if (f->value != NULL)
        pst_str_addf(out, "\"%s\"", f->value);
    else
        pst_str_addf(out, "in %s",
                     f->place.module[0] != '\0' ? f->place.module
                                                : "the outermost module");
    if (f->value == NULL && f->place.source[0] != '\0')
        pst_str_addf(out, " at %s", f->place.source);
    pst_str_add(out, ")");
}

static void describe_reason(const struct finding *f, struct pst_str *out)
{
    if (f->tier == 0)
        pst_str_add(out, "in no tier, ");
    else if (f->tier != NO_TIER)
        pst_str_addf(out, "tier %u, ", f->tier);
    pst_str_addf(out, "%s: ", f->reason);
}

/* One message for all, reason by reason. Where it gets long, places are left
 * out; what does not fit in even so is counted. */
static enum pst_status report(const struct scan *s)
{
    const struct finding *all = s->findings.at;
    struct pst_str text = {0};
    enum pst_status status;
    size_t left = 0;

    for (size_t i = 0; i < s->findings.n; i++) {
        bool first = true;

        for (size_t k = 0; k < i && first; k++)
            first = strcmp(all[k].reason, all[i].reason) != 0;
        for (size_t k = i; first && k < s->findings.n; k++) {
            if (strcmp(all[k].reason, all[i].reason) != 0)
                continue;
            if (text.len > PST_DIAG_TEXT - 250) {
                left++;
                continue;
            }
            pst_str_add(&text, k > i ? ", " : i > 0 ? "; " : "");
            if (k == i)
                describe_reason(&all[i], &text);
            if (text.len > PST_DIAG_TEXT / 2)
                pst_str_add(&text, all[k].what);
            else
                describe(&all[k], &text);
        }
    }
    if (left > 0)
        pst_str_addf(&text, "; and %zu more", left);
    status = pst_diag_set(s->import->diag, PST_ERR_UNSUPPORTED,
                          "not supported: %s", pst_str_text(&text));
    pst_str_fini(&text);
    return status;
}

enum pst_status pst_import_scan(struct pst_import *import)
{
    struct scan s = {.import = import};
    const json_t *graph = pst_json_member(import->module, "graph", JSON_OBJECT,
                                          "graph_module", import->diag);
    enum pst_status status;

    if (graph == NULL)
        return PST_ERR_INPUT;
    status = scan_graph(&s, graph, true);
    if (status == PST_OK && s.findings.n > 0)
        status = report(&s);
    if (status == PST_OK)
        status = note_mode(&s);
    pst_vec_fini(&s.findings);
    return status;
}
