// SPDX-License-Identifier: Apache-2.0
/* Finds everything unsupported before anything is built. */
#include "stages/frontend/import/import.h"
#include "stages/graph/oprow.h"
#include "stages/ops/core/op.h"

#include <string.h>

#define NO_TIER 9 /* for a finding on a value, not an operator */

struct finding {
    const char *what; /* "aten.foo.default", "dtype complex64" */
    const char *reason;
    unsigned tier; /* as in struct pst_target; or NO_TIER */
    const struct pst_doc_place *place;
    const char *value; /* name of a value if there is no node */
    unsigned count;
};

struct scan {
    struct pst_import *import;
    bool dropout_on, dropout_off; /* some dropout is on; is off */
    bool trains, evaluates;       /* some node shows that mode */
    struct PST_VEC(struct finding) findings;
};

static enum pst_status add_finding(struct scan *s, const char *what,
                                   const char *reason, unsigned tier,
                                   const char *value)
{
    struct finding f = {.what = what,
                        .reason = reason,
                        .tier = tier,
                        .place = s->import->place,
                        .value = value,
                        .count = 1};

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

/* Finds values of unsupported dtypes. */
static enum pst_status scan_values(struct scan *s,
                                   const struct pst_doc_graph *graph)
{
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < graph->tensors.n && status == PST_OK; i++) {
        const struct pst_doc_tensor *t = graph->tensors.entries[i].value;
        enum pst_dtype unused;

        if (!pst_doc_is_complex(t->dtype, &unused) &&
            !pst_dtype_from_pt2(t->dtype, &unused))
            status = add_finding(s, pst_doc_dtype_name(t->dtype), "dtypes",
                                 NO_TIER, t->name);
    }
    return status;
}

/* True if the value has a size that depends on data. */
static bool is_unbacked(const struct scan *s, const struct pst_doc_graph *graph,
                        const char *name)
{
    const struct pst_doc_tensor *t = pst_doc_tensor(graph, name);

    for (unsigned i = 0; t != NULL && i < t->rank; i++)
        if (!pst_import_is_known(s->import, t->sizes[i].expr))
            return true;
    return false;
}

static bool any_unbacked(const struct scan *s,
                         const struct pst_doc_graph *graph,
                         const struct pst_doc_arg *arg)
{
    if (arg->kind == PST_DOC_TENSOR)
        return is_unbacked(s, graph, arg->name);
    if (arg->kind != PST_DOC_TENSORS && arg->kind != PST_DOC_OPTIONAL_TENSORS)
        return false;
    for (unsigned k = 0; k < arg->n; k++)
        if (is_unbacked(s, graph, arg->names[k]))
            return true;
    return false;
}

/* True if a tensor of the list is a mask (bool or u8). */
static bool has_mask(const struct pst_doc_graph *graph,
                     const struct pst_doc_arg *list)
{
    for (unsigned k = 0; k < list->n; k++) {
        const struct pst_doc_tensor *t = pst_doc_tensor(graph, list->names[k]);
        enum pst_dtype dtype;

        if (t != NULL && pst_dtype_from_pt2(t->dtype, &dtype) &&
            (dtype == PST_BOOL || dtype == PST_U8))
            return true;
    }
    return false;
}

/* Finds sizes that depend on data, at the nodes where they originate. */
static enum pst_status scan_sizes(struct scan *s,
                                  const struct pst_doc_graph *graph,
                                  const struct pst_doc_node *node)
{
    const char *what = node->target;
    bool found = false;

    for (unsigned i = 0; i < node->n_outputs; i++)
        found = found || any_unbacked(s, graph, &node->outputs[i]);
    for (unsigned i = 0; i < node->n_inputs && found; i++) {
        const struct pst_doc_arg *arg = &node->inputs[i].arg;

        found = !any_unbacked(s, graph, arg);
        if (strcmp(what, "aten.index.Tensor") == 0 &&
            (arg->kind == PST_DOC_TENSORS ||
             arg->kind == PST_DOC_OPTIONAL_TENSORS) &&
            has_mask(graph, arg))
            what = "aten.index.Tensor with a mask";
    }
    return found ? add_finding(s, what, pst_import_unbacked, NO_TIER, NULL)
                 : PST_OK;
}

/* --- numbers -------------------------------------------------------------- */

static enum pst_status mark_name(struct scan *s, struct pst_map *set,
                                 const char *name)
{
    if (name == NULL || pst_map_put(set, name, s))
        return PST_OK;
    return pst_diag_nomem(s->import->diag, strlen(name));
}

/* Records the names of numbers, also in lists, as needed. */
static enum pst_status mark_numbers(struct scan *s,
                                    const struct pst_doc_arg *arg)
{
    struct pst_map *numbers = &s->import->numbers;
    enum pst_status status = mark_name(s, numbers, pst_doc_number_name(arg));

    if (arg->kind != PST_DOC_INTS && arg->kind != PST_DOC_SYM_INTS)
        return status;
    for (unsigned i = 0; i < arg->n && status == PST_OK; i++)
        if (arg->numbers[i].kind == PST_DOC_NUMBER_NAME)
            status = mark_name(s, numbers, arg->numbers[i].name);
    return status;
}

/* True if the node needs the values of its numbers. Assertions and arithmetic
 * with an unused result do not. */
static bool needs_numbers(const struct scan *s, const struct pst_doc_node *node)
{
    switch (node->resolved->kind) {
    case PST_TARGET_ASSERT:
    case PST_TARGET_RANGE:
    case PST_TARGET_RANGE_OF_SIZE:
        return false;
    case PST_TARGET_SIZE:
        for (unsigned i = 0; i < node->n_outputs; i++)
            if (pst_import_number_needed(s->import, &node->outputs[i]))
                return true;
        return false;
    default:
        return true;
    }
}

/* Walks from the last node to the first, since uses come after definitions. */
static enum pst_status find_numbers(struct scan *s,
                                    const struct pst_doc_graph *graph)
{
    enum pst_status status = PST_OK;

    for (unsigned i = 0; i < graph->n_outputs && status == PST_OK; i++)
        status = mark_numbers(s, &graph->outputs[i]);
    for (size_t k = graph->n_nodes; k-- > 0 && status == PST_OK;) {
        const struct pst_doc_node *node = &graph->nodes[k];

        if (!needs_numbers(s, node))
            continue;
        if (pst_import_tensor_row(s->import, graph, node) != NULL)
            continue; /* the importer reads the number as a tensor */
        for (unsigned i = 0; i < node->n_inputs && status == PST_OK; i++)
            status = mark_numbers(s, &node->inputs[i].arg);
    }
    return status;
}

/* --- tensors -------------------------------------------------------------- */

static enum pst_status mark_arg(struct scan *s, const struct pst_doc_arg *arg)
{
    struct pst_map *used = &s->import->used;
    enum pst_status status = PST_OK;

    if (arg->kind == PST_DOC_TENSOR)
        return mark_name(s, used, arg->name);
    if (arg->kind != PST_DOC_TENSORS && arg->kind != PST_DOC_OPTIONAL_TENSORS)
        return PST_OK;
    for (unsigned i = 0; i < arg->n && status == PST_OK; i++)
        status = mark_name(s, used, arg->names[i]);
    return status;
}

/* Returns the argument that shows whether the model trains; NULL if there is
 * none. Norms without running statistics have none: they use the statistics of
 * the batch in both modes. */
static const struct pst_doc_arg *training_flag(const struct pst_doc_node *node)
{
    static const char *const names[] = {"train", "training", "use_input_stats"};

    if (pst_doc_arg(node, "running_mean", PST_DOC_NONE) != NULL)
        return NULL;
    for (size_t i = 0; i < PST_COUNT(names); i++) {
        const struct pst_doc_arg *flag =
            pst_doc_arg(node, names[i], PST_DOC_BOOL);

        if (flag != NULL)
            return flag;
    }
    return NULL;
}

/* Records which mode the node shows that the export was made in. An active
 * dropout shows training mode even if it was called as a function. */
static void find_mode_signs(struct scan *s, const struct pst_doc_node *node)
{
    const enum pst_mode_sign sign = node->resolved->sign;
    const struct pst_doc_arg *flag = training_flag(node);
    const struct pst_doc_arg *share =
        pst_doc_arg(node, "dropout_p", PST_DOC_FLOAT);
    const bool on = flag != NULL && flag->number.b;
    const bool off = flag != NULL && !flag->number.b;

    s->trains = s->trains || on || (share != NULL && share->number.f > 0.0) ||
                sign == PST_SIGN_TRAINS ||
                (flag == NULL && sign == PST_SIGN_NATIVE_DROPOUT);
    s->evaluates = s->evaluates || off || sign == PST_SIGN_EVALUATES;
    s->dropout_on = s->dropout_on || (on && sign == PST_SIGN_DROPOUT);
    s->dropout_off = s->dropout_off || (off && sign == PST_SIGN_DROPOUT);
}

static enum pst_status record_mode(const struct scan *s)
{
    s->import->model->evaluates = s->evaluates && !s->trains;
    if (!s->dropout_off || s->dropout_on ||
        pst_vec_push(PST_TAG_ARCHIVE, &s->import->model->notes,
                     "exported in evaluation mode: dropout does nothing in "
                     "training either"))
        return PST_OK;
    return pst_diag_nomem(s->import->diag, 0);
}

static enum pst_status scan_graph(struct scan *s,
                                  const struct pst_doc_graph *graph,
                                  bool outer);

/* True if a tensor passed as this argument becomes complex when other operands
 * are complex. */
static bool takes_complex(const struct pst_target *target, const char *name)
{
    const struct pst_schema *schema =
        target->promotes ? pst_op_schema(target->op) : NULL;
    const int at = schema != NULL ? pst_import_find_arg(schema, name) : -1;

    return at >= 0 && schema->args[at].type == PST_TYPE_TENSOR;
}

static enum pst_status scan_arg(struct scan *s,
                                const struct pst_doc_input *input,
                                const struct pst_target *target, bool outer)
{
    const struct pst_doc_arg *arg = &input->arg;
    const bool known =
        arg->kind != PST_DOC_OTHER && arg->kind != PST_DOC_OPERATOR &&
        (arg->kind != PST_DOC_COMPLEX || takes_complex(target, input->name));
    enum pst_status status = PST_OK;

    if (!known && target->kind != PST_TARGET_NONE)
        status =
            add_finding(s, target->name,
                        arg->kind == PST_DOC_COMPLEX
                            ? "complex numbers among the arguments (give them "
                              "in a buffer)"
                            : "arguments of this kind",
                        NO_TIER, NULL);
    if (status == PST_OK && outer)
        status = mark_arg(s, arg);
    if (status == PST_OK && arg->kind == PST_DOC_GRAPH)
        status = scan_graph(s, arg->graph, false);
    return status;
}

static enum pst_status scan_node(struct scan *s,
                                 const struct pst_doc_graph *graph,
                                 const struct pst_doc_node *node, bool outer)
{
    const struct pst_target *target = node->resolved;
    enum pst_status status = PST_OK;

    find_mode_signs(s, node);
    s->import->place = node->place;
    if (target->kind != PST_TARGET_NONE)
        status = scan_sizes(s, graph, node);
    else if (!pst_import_is_idle(s->import, node) &&
             !pst_import_is_fixed(s->import, graph, node))
        status =
            add_finding(s, target->name, target->reason, target->tier, NULL);
    for (unsigned k = 0; k < node->n_inputs && status == PST_OK; k++)
        status = scan_arg(s, &node->inputs[k], target, outer);
    return status;
}

/* Scans a graph and its sub-graphs; the depth of the document bounds the
 * recursion. */
static enum pst_status scan_graph(struct scan *s,
                                  const struct pst_doc_graph *graph, bool outer)
{
    enum pst_status status = find_numbers(s, graph);

    for (unsigned i = 0; i < graph->n_inputs && outer; i++) {
        const struct pst_doc_arg *input = &graph->inputs[i];

        if (status == PST_OK && input->kind == PST_DOC_TENSOR &&
            is_unbacked(s, graph, input->name))
            status = add_finding(s, "shapes", pst_import_unbacked, NO_TIER,
                                 input->name);
    }
    for (size_t i = 0; i < graph->n_nodes && status == PST_OK; i++)
        status = scan_node(s, graph, &graph->nodes[i], outer);
    if (status == PST_OK)
        status = scan_values(s, graph);
    for (unsigned i = 0; i < graph->n_outputs && outer; i++)
        if (status == PST_OK)
            status = mark_arg(s, &graph->outputs[i]);
    return status;
}

static void describe_finding(const struct finding *f, struct pst_str *out)
{
    pst_str_add(out, f->what);
    pst_str_add(out, " (");
    if (f->count > 1)
        pst_str_addf(out, "%u times, first ", f->count);
    if (f->value != NULL)
        pst_str_addf(out, "\"%s\"", f->value);
    else
        pst_str_addf(out, "in %s",
                     f->place->module[0] != '\0' ? f->place->module
                                                 : "the outermost module");
    if (f->value == NULL && f->place->source[0] != '\0')
        pst_str_addf(out, " at %s", f->place->source);
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

/* True if some unknown operator is not in PyTorch's namespaces: a plugin is
 * missing. */
static bool lacks_plugin(const struct scan *s)
{
    for (size_t i = 0; i < s->findings.n; i++)
        if (s->findings.at[i].tier == 0 && s->findings.at[i].value == NULL &&
            !pst_has_prefix(s->findings.at[i].what, "aten.") &&
            !pst_has_prefix(s->findings.at[i].what, "higher_order."))
            return true;
    return false;
}

/* Reports all findings in one message, grouped by reason. If it gets too long,
 * source lines are omitted, and findings that still do not fit are counted. */
static enum pst_status report_findings(const struct scan *s)
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
                describe_finding(&all[k], &text);
        }
    }
    if (left > 0)
        pst_str_addf(&text, "; and %zu more", left);
    if (lacks_plugin(s))
        pst_str_add(&text, "; operators of your own come in plugins: `penstock "
                           "ops --missing MODEL.pt2` prints one to start from");
    status = pst_diag_set(s->import->diag, PST_E_OP_NOT_SUPPORTED,
                          "not supported: %s", pst_str_text(&text));
    pst_str_fini(&text);
    return status;
}

enum pst_status pst_import_scan(struct pst_import *import)
{
    struct scan s = {.import = import};
    enum pst_status status;

    status = pst_import_mark_constants(import);
    if (status == PST_OK)
        status = scan_graph(&s, import->doc->graph, true);
    if (status == PST_OK)
        status = import->build.status;
    if (status == PST_OK && s.findings.n > 0)
        status = report_findings(&s);
    if (status == PST_OK)
        status = record_mode(&s);
    pst_vec_fini(&s.findings);
    return status;
}
