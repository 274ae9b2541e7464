// SPDX-License-Identifier: Apache-2.0
/* Assigns a stage to each node. */
#include "stages/split/assign/assign.h"

#include "stages/cost/cost.h"
#include "stages/ops/core/rows.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define TAG       PST_TAG_PLAN
#define MAX_NOTES 16 /* maximum number of ignored cuts listed in notes */

/* --- a list of cuts ----------------------------------------------------- */

static int compare_cuts(const void *a, const void *b)
{
    const struct pst_cut *x = a, *y = b;

    return x->node < y->node ? -1 : x->node > y->node;
}

/* The nodes between two cuts. computes: some node does work (pst_node_is_work);
 * lives: some does after dead code elimination. */
struct part {
    bool computes, lives;
    int stage;
};

static void mark_parts(const struct pst_graph *graph, struct part *parts,
                       bool live)
{
    for (size_t i = 0; i < graph->nodes.n; i++) {
        const struct pst_node *node = graph->nodes.at[i];

        if (!pst_node_is_work(node))
            continue;
        if (live)
            parts[node->stage].lives = true;
        else
            parts[node->stage].computes = true;
    }
}

/* Sets each node's stage to its part's number; part i begins at cut i - 1. */
static void set_parts(struct pst_graph *graph, const struct pst_cuts *cuts)
{
    size_t part = 0;

    for (size_t i = 0; i < graph->nodes.n; i++) {
        while (part < cuts->list.n && cuts->list.at[part].node <= i)
            part++;
        graph->nodes.at[i]->stage = (int)part;
    }
}

/* Gives stage numbers to the parts and returns the number of stages, at least
 * 1. A part without work joins the next one, or the previous one at the end. */
static unsigned number_parts(struct part *parts, size_t n)
{
    int next = 0;

    for (size_t i = 0; i < n; i++) {
        parts[i].stage = next;
        next += parts[i].lives;
    }
    for (size_t i = 0; i < n; i++)
        parts[i].stage = PST_MAX(0, PST_MIN(parts[i].stage, next - 1));
    return (unsigned)PST_MAX(next, 1);
}

/* True if dead code elimination removed all work of a part in [from, to). */
static bool has_dead_part(const struct part *parts, size_t from, size_t to)
{
    bool ret = false;

    for (size_t i = from; i < to; i++)
        ret = ret || (parts[i].computes && !parts[i].lives);
    return ret;
}

/* Adds notes on cuts that begin no new stage: cuts before the first part with
 * work, cuts after the last one, and cuts that end a part without work. `parts`
 * has n + 1 entries. */
static enum pst_status note_ignored(struct pst_splitter *s,
                                    const struct pst_cuts *cuts,
                                    const struct part *parts)
{
    const size_t n = cuts->list.n;
    enum pst_status status = PST_OK;
    size_t first = 0, last = n, ignored = 0;
    bool dead_first, dead_last;

    while (first < n && !parts[first].lives)
        first++;
    while (last > first && !parts[last].lives)
        last--;
    dead_first = has_dead_part(parts, 0, first);
    dead_last = has_dead_part(parts, last + 1, n + 1);
    for (size_t i = 0; i < n && status == PST_OK; i++) {
        const char *where = i < first   ? "before it"
                            : i >= last ? "after it"
                                        : "between it and the cut before";
        const bool dead = i < first   ? dead_first
                          : i >= last ? dead_last
                                      : parts[i].computes;

        if ((i >= first && i < last && parts[i].lives) || ++ignored > MAX_NOTES)
            continue;
        status = pst_split_note(
            s, "%s is ignored: %s computed %s%s", cuts->list.at[i].what,
            dead ? "nobody uses what is" : "nothing that is used is", where,
            dead ? ", it is dropped" : "");
    }
    if (status == PST_OK && ignored > MAX_NOTES)
        status =
            pst_split_note(s, "%zu of %zu cuts are ignored in all", ignored, n);
    return status;
}

/* Sorts the cuts, removes dead nodes and markers, and numbers stages without
 * gaps. */
static enum pst_status apply_cuts(struct pst_splitter *s, struct pst_cuts *cuts)
{
    struct pst_graph *graph = s->graph;
    const size_t n = cuts->list.n;
    enum pst_status status = pst_cuts_move_off_heads(s, cuts);
    struct part *parts;

    if (status != PST_OK)
        return status;
    parts = pst_calloc(TAG, n + 1, sizeof(*parts));
    if (parts == NULL)
        return pst_diag_nomem(s->diag, n * sizeof(*parts));
    if (n > 0)
        qsort(cuts->list.at, n, sizeof(cuts->list.at[0]), compare_cuts);
    set_parts(graph, cuts);
    mark_parts(graph, parts, false);
    pst_graph_dce(graph, true);
    mark_parts(graph, parts, true);
    s->n_stages = number_parts(parts, n + 1);
    for (size_t i = 0; i < graph->nodes.n; i++)
        graph->nodes.at[i]->stage = parts[graph->nodes.at[i]->stage].stage;
    status = note_ignored(s, cuts, parts);
    pst_free(parts);
    return status;
}

/* --- markers ------------------------------------------------------------ */

static bool is_marker(const struct pst_node *node)
{
    return (node->op->flags & PST_OP_MARKER) != 0;
}

static size_t count_markers(const struct pst_graph *graph)
{
    size_t n = 0;

    for (size_t i = 0; i < graph->nodes.n; i++)
        n += is_marker(graph->nodes.at[i]);
    return n;
}

static enum pst_status add_marker_cuts(struct pst_splitter *s,
                                       struct pst_cuts *ret)
{
    for (size_t i = 0; i < s->graph->nodes.n; i++) {
        const struct pst_node *node = s->graph->nodes.at[i];
        struct pst_cut cut = {i, NULL};

        if (!is_marker(node))
            continue;
        cut.what = pst_arena_printf(
            &s->plan->arena, "marker %zu (module \"%.100s\", %.100s)",
            ret->list.n + 1, node->call->name,
            node->source[0] != '\0' ? node->source : "no source");
        if (cut.what == NULL || !pst_vec_push(TAG, &ret->list, cut))
            return pst_diag_nomem(s->diag, sizeof(cut));
    }
    return PST_OK;
}

/* --- policies ----------------------------------------------------------- */

enum policy { MARKERS, NAMES, LAYERS, FLOPS, MEMORY, N_POLICIES };

static const char *const policies[N_POLICIES] = {
    [MARKERS] = "markers",
    [LAYERS] = "layers",
    [FLOPS] = "flops",
    [MEMORY] = "memory",
};

static enum pst_status find_policy(struct pst_splitter *s, size_t markers,
                                   enum policy *ret)
{
    const struct pst_split_options *o = s->options;
    unsigned k = 0;

    if (o->policy == NULL) {
        *ret = o->n_at > 0                     ? NAMES
               : markers > 0 || o->stages <= 1 ? MARKERS
                                               : FLOPS;
        return PST_OK;
    }
    while (k < N_POLICIES &&
           (policies[k] == NULL || strcmp(policies[k], o->policy) != 0))
        k++;
    if (k == N_POLICIES)
        return pst_diag_set(s->diag, PST_E_CUT_UNKNOWN_POLICY,
                            "unknown policy \"%.100s\"; there are markers, "
                            "layers, flops, memory and file:FILE",
                            o->policy);
    *ret = k;
    return PST_OK;
}

static enum pst_status check_options(struct pst_splitter *s, size_t markers,
                                     enum policy policy)
{
    const struct pst_split_options *o = s->options;

    if (o->n_at > 0 && markers > 0)
        return pst_diag_set(s->diag, PST_E_CUT_OPTIONS,
                            "the model has markers of its own: use them or "
                            "names to cut at, not both, since stages would "
                            "depend on which of them come first");
    if (o->n_at > 0 && policy != NAMES)
        return pst_diag_set(s->diag, PST_E_CUT_OPTIONS,
                            "cut at names or by a policy, not both");
    if (o->n_costs > 0 && o->policy != NULL && policy != FLOPS &&
        policy != LAYERS)
        return pst_diag_set(s->diag, PST_E_CUT_OPTIONS,
                            "measured costs are for the policies flops and "
                            "layers");
    if (o->policy != NULL && policy == MARKERS && markers == 0)
        return pst_diag_set(s->diag, PST_E_CUT_TOO_MANY,
                            "the model has no markers; --policy flops cuts "
                            "without");
    return PST_OK;
}

static enum pst_status check_count(struct pst_splitter *s, const char *what)
{
    const unsigned want = s->options->stages;

    if (want == 0 || want == s->n_stages)
        return PST_OK;
    return pst_diag_set(s->diag, PST_E_CUT_TOO_MANY,
                        "%s make %u stages, not %u; --policy flops cuts into "
                        "as many as you like",
                        what, s->n_stages, want);
}

/* Records in the plan which times the cut was chosen by: other times may give
 * another cut. */
static enum pst_status name_times(struct pst_splitter *s)
{
    const struct pst_rates *rates = s->options->rates;
    struct pst_str text = {0};

    if (s->options->n_costs > 0)
        pst_str_add(&text, "measured times of modules");
    else
        pst_rates_describe(rates != NULL ? rates : &pst_rates_reference, &text);
    s->plan->cut_by =
        text.failed ? NULL
                    : pst_arena_strdup(&s->plan->arena, pst_str_text(&text));
    pst_str_fini(&text);
    return s->plan->cut_by != NULL ? PST_OK : pst_diag_nomem(s->diag, 1);
}

static enum pst_status cut_by_cost(struct pst_splitter *s, enum policy policy,
                                   const bool *allowed)
{
    const unsigned n_stages = PST_MAX(s->options->stages, 1u);
    struct pst_cost_model cost;
    enum pst_status status = policy == MEMORY ? pst_cost_bytes(s, &cost)
                                              : pst_cost_seconds(s, &cost);

    if (status == PST_OK && policy != MEMORY && n_stages > 1)
        status = name_times(s);
    return status == PST_OK ? pst_split_balance(s, &cost, n_stages, allowed)
                            : status;
}

/* Makes one stage per layer or, if a number of stages is requested, that many
 * stages of similar cost. */
static enum pst_status cut_by_layer(struct pst_splitter *s,
                                    struct pst_cuts *cuts)
{
    enum pst_status status;
    bool *allowed;

    status = pst_cuts_by_layer(s, cuts);
    if (status != PST_OK || s->options->stages == 0)
        return status == PST_OK ? apply_cuts(s, cuts) : status;
    allowed = pst_calloc(TAG, s->graph->nodes.n + 1, sizeof(*allowed));
    if (allowed == NULL)
        return pst_diag_nomem(s->diag, s->graph->nodes.n);
    for (size_t i = 0; i < cuts->list.n; i++)
        allowed[cuts->list.at[i].node] = true;
    status = cut_by_cost(s, LAYERS, allowed);
    pst_free(allowed);
    return status;
}

static enum pst_status cut_by_policy(struct pst_splitter *s, enum policy policy,
                                     struct pst_cuts *cuts)
{
    enum pst_status status;

    if (policy == MARKERS) {
        status = add_marker_cuts(s, cuts);
        if (status == PST_OK)
            status = apply_cuts(s, cuts);
        return status == PST_OK ? check_count(s, "the markers") : status;
    }
    pst_graph_dce(s->graph, true);
    if (policy == LAYERS)
        return cut_by_layer(s, cuts);
    if (policy != NAMES)
        return cut_by_cost(s, policy, NULL);
    status = pst_cuts_by_name(s, cuts);
    if (status == PST_OK)
        status = apply_cuts(s, cuts);
    return status == PST_OK ? check_count(s, "these names") : status;
}

/* --- conversions of parameters ------------------------------------------- */

struct uses {
    int *stage; /* by value id: first stage that reads it; INT_MAX: none */
    int reader;
};

static void mark_stage(void *ctx, struct pst_value **slot, unsigned arg)
{
    const struct uses *u = ctx;
    int *stage = &u->stage[(*slot)->id];

    (void)arg;
    *stage = PST_MIN(*stage, u->reader);
}

static bool is_conversion(const struct pst_node *node)
{
    return node != NULL &&
           (node->op == &pst_op__to_copy || node->op == &pst_op_to_dtype ||
            node->op == &pst_op_to_dtype_layout ||
            node->op == &pst_op_to_device || node->op == &pst_op_to_other ||
            node->op == &pst_op_type_as);
}

bool pst_split_converts_state(const struct pst_node *node)
{
    const struct pst_value *of =
        is_conversion(node) ? pst_value_storage(node->args[0].value) : NULL;

    while (of != NULL && is_conversion(of->def))
        of = pst_value_storage(of->def->args[0].value);
    return of != NULL &&
           (of->kind == PST_VALUE_PARAM || of->kind == PST_VALUE_CONST);
}

/* Moves conversions of parameters, with the views before them, to the first
 * stage that reads the result: a cut between conversion and reader would send
 * the parameter with each microbatch. No stage loses its last node. */
static enum pst_status sink_conversions(struct pst_splitter *s)
{
    const struct pst_graph *graph = s->graph;
    struct uses u = {.stage =
                         pst_calloc(TAG, graph->values.n + 1, sizeof(int))};
    unsigned *left = pst_calloc(TAG, s->n_stages + 1, sizeof(*left));
    const bool made = u.stage != NULL && left != NULL;

    for (size_t i = 0; made && i < graph->values.n; i++)
        u.stage[i] = INT_MAX;
    for (size_t i = 0; made && i < graph->nodes.n; i++)
        left[graph->nodes.at[i]->stage]++;
    for (size_t i = graph->nodes.n; made && i-- > 0;) {
        struct pst_node *node = graph->nodes.at[i];
        const struct pst_value *out = node->n_outs > 0 ? node->outs[0] : NULL;
        const int to = out != NULL ? u.stage[out->id] : INT_MAX;
        const bool moves =
            pst_split_converts_state(node) ||
            (out != NULL && out->base != NULL && u.stage[out->id] != INT_MAX &&
             out->base->kind == PST_VALUE_PARAM);

        if (moves && to != INT_MAX && to > node->stage &&
            left[node->stage] > 1) {
            left[node->stage]--;
            left[to]++;
            node->stage = to;
        }
        u.reader = node->stage;
        pst_node_uses(node, mark_stage, &u);
    }
    pst_free(left);
    pst_free(u.stage);
    return made ? PST_OK : pst_diag_nomem(s->diag, graph->values.n);
}

enum pst_status pst_split_assign(struct pst_splitter *s)
{
    const size_t markers = count_markers(s->graph);
    struct pst_cuts cuts = {0};
    enum policy policy = MARKERS;
    enum pst_status status = find_policy(s, markers, &policy);

    if (status == PST_OK)
        status = check_options(s, markers, policy);
    if (status == PST_OK && markers > 0 && policy != MARKERS)
        status =
            pst_split_note(s, "%zu markers of the model are ignored", markers);
    if (status == PST_OK)
        status = cut_by_policy(s, policy, &cuts);
    if (status == PST_OK)
        status = sink_conversions(s);
    pst_vec_fini(&cuts.list);
    return status;
}
