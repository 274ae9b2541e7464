// SPDX-License-Identifier: Apache-2.0
/* Which stage each node belongs to. */
#include "stages/ops/op.h"
#include "stages/split/split.h"

#include <stdlib.h>
#include <string.h>

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

/* --- markers ------------------------------------------------------------ */

/* Counts up at each marker; returns the highest stage. */
static unsigned assign_markers(struct pst_graph *graph)
{
    unsigned stage = 0;

    for (size_t i = 0; i < graph->nodes.n; i++) {
        struct pst_node *node = graph->nodes.at[i];

        stage += is_marker(node);
        node->stage = (int)stage;
    }
    return stage;
}

/* --- names -------------------------------------------------------------- */

/* Is the module `path` the module `fqn` or inside of it, by components? */
static bool is_inside(const char *path, const char *fqn)
{
    const size_t n = strlen(fqn);

    return strncmp(path, fqn, n) == 0 && (path[n] == '\0' || path[n] == '.');
}

/* "FQN:end" -> FQN in out and true for end. */
static enum pst_status parse_at(struct pst_splitter *s, const char *spec,
                                char **ret, bool *end)
{
    const char *colon = strrchr(spec, ':');
    size_t n = strlen(spec);

    *end = false;
    if (colon != NULL) {
        *end = strcmp(colon, ":end") == 0;
        if (!*end && strcmp(colon, ":begin") != 0)
            return pst_diag_set(s->diag, PST_ERR_USAGE,
                                "\"%.200s\": a cut is written FQN, FQN:begin "
                                "or FQN:end",
                                spec);
        n = (size_t)(colon - spec);
    }
    *ret = pst_arena_strndup(&s->plan->arena, spec, n);
    return *ret == NULL ? pst_diag_nomem(s->diag, n) : PST_OK;
}

static enum pst_status unknown_module(struct pst_splitter *s, const char *fqn)
{
    const int near =
        pst_nearest(fqn, s->model->modules.at, s->model->modules.n);

    if (near >= 0)
        return pst_diag_set(s->diag, PST_ERR_INPUT,
                            "the model has no module \"%.200s\"; the nearest "
                            "name is \"%.200s\"",
                            fqn, s->model->modules.at[near]);
    return pst_diag_set(s->diag, PST_ERR_INPUT,
                        "the model has no module \"%.200s\"", fqn);
}

static bool has_module(const struct pst_splitter *s, const char *fqn)
{
    for (size_t i = 0; i < s->model->modules.n; i++)
        if (strcmp(s->model->modules.at[i], fqn) == 0)
            return true;
    return false;
}

/*
 * A call of a module is a run of nodes inside of it. Two calls may follow each
 * other directly: then the module that the run began with comes again under
 * another call index.
 */
static size_t mark_calls(struct pst_graph *graph, const char *fqn, bool end,
                         bool *cut)
{
    const struct pst_node *first = NULL;
    size_t calls = 0;

    for (size_t i = 0; i < graph->nodes.n; i++) {
        const struct pst_node *node = graph->nodes.at[i];
        const bool inside = is_inside(node->module, fqn);
        const bool again = inside && first != NULL &&
                           strcmp(node->module, first->module) == 0 &&
                           node->call != first->call;

        if (first != NULL && (!inside || again)) {
            cut[i] = cut[i] || end;
            first = NULL;
        }
        if (inside && first == NULL) {
            first = node;
            calls++;
            cut[i] = cut[i] || !end;
        }
    }
    return calls;
}

static enum pst_status mark_at(struct pst_splitter *s, bool *cut,
                               const char *spec)
{
    char *fqn = NULL;
    bool end = false;
    enum pst_status status = parse_at(s, spec, &fqn, &end);

    if (fqn == NULL)
        return status;
    if (fqn[0] == '\0' || !has_module(s, fqn))
        return unknown_module(s, fqn);
    if (mark_calls(s->graph, fqn, end, cut) == 0)
        return pst_diag_set(s->diag, PST_ERR_INPUT,
                            "the module \"%.200s\" has no operator in the "
                            "graph, so there is nothing to cut at",
                            fqn);
    return PST_OK;
}

static enum pst_status assign_at(struct pst_splitter *s, unsigned *ret_last)
{
    struct pst_graph *graph = s->graph;
    enum pst_status status = PST_OK;
    unsigned stage = 0;
    bool *cut;

    pst_graph_dce(graph, true);
    cut = pst_calloc(PST_TAG_PLAN, graph->nodes.n + 1, sizeof(*cut));
    if (cut == NULL)
        return pst_diag_nomem(s->diag, graph->nodes.n);
    for (size_t i = 0; i < s->options->n_at && status == PST_OK; i++)
        status = mark_at(s, cut, s->options->at[i]);
    for (size_t i = 0; i < graph->nodes.n && status == PST_OK; i++) {
        stage += cut[i];
        graph->nodes.at[i]->stage = (int)stage;
    }
    /* A cut behind the last node or before the first is none. */
    if (status == PST_OK)
        *ret_last = stage;
    pst_free(cut);
    return status;
}

/* --- together ----------------------------------------------------------- */

/* Renumbers so that every stage has work; a stage of nothing but views joins
 * the next one (the last: the one before). */
static enum pst_status close_gaps(struct pst_splitter *s, unsigned last)
{
    struct pst_graph *graph = s->graph;
    int *map = pst_calloc(PST_TAG_PLAN, (size_t)last + 2, sizeof(*map));
    int next = 0;

    if (map == NULL)
        return pst_diag_nomem(s->diag, last);
    for (size_t i = 0; i < graph->nodes.n; i++)
        if (pst_split_is_work(graph->nodes.at[i]))
            map[graph->nodes.at[i]->stage] = 1;
    for (unsigned k = 0; k <= last; k++) {
        const bool work = map[k] != 0;

        map[k] = next;
        next += work;
    }
    for (size_t i = 0; i < graph->nodes.n; i++) {
        struct pst_node *node = graph->nodes.at[i];

        node->stage = PST_MAX(0, PST_MIN(map[node->stage], next - 1));
    }
    s->n_stages = (unsigned)PST_MAX(next, 1);
    pst_free(map);
    return PST_OK;
}

static enum pst_status note_ignored(struct pst_splitter *s, unsigned last)
{
    if (s->n_stages == last + 1)
        return PST_OK;
    return pst_split_note(s,
                          "%u of %u cuts were ignored: nothing is computed on "
                          "one side of them",
                          last + 1 - s->n_stages, last);
}

static enum pst_status check_count(struct pst_splitter *s, const char *what)
{
    const unsigned want = s->options->stages;

    if (want == 0 || want == s->n_stages)
        return PST_OK;
    return pst_diag_set(s->diag, PST_ERR_INPUT,
                        "%s make %u stages, not %u; --policy flops cuts into "
                        "as many as you like",
                        what, s->n_stages, want);
}

static enum pst_status by_cuts(struct pst_splitter *s, bool markers)
{
    enum pst_status status = PST_OK;
    unsigned last = 0;

    if (markers)
        last = assign_markers(s->graph);
    else
        status = assign_at(s, &last);
    pst_graph_dce(s->graph, true);
    if (status == PST_OK)
        status = close_gaps(s, last);
    if (status == PST_OK)
        status = note_ignored(s, last);
    if (status == PST_OK)
        status = check_count(s, markers ? "the markers" : "these names");
    return status;
}

enum pst_status pst_split_assign(struct pst_splitter *s)
{
    const struct pst_split_options *o = s->options;
    const size_t markers = count_markers(s->graph);
    const bool flops = o->policy != NULL && strcmp(o->policy, "flops") == 0;
    enum pst_status status = PST_OK;

    if (o->policy != NULL && !flops && strcmp(o->policy, "markers") != 0)
        return pst_diag_set(s->diag, PST_ERR_USAGE,
                            "unknown policy \"%.100s\"; there are markers and "
                            "flops",
                            o->policy);
    if (o->n_at > 0 && (markers > 0 || o->policy != NULL))
        return pst_diag_set(s->diag, PST_ERR_USAGE,
                            markers > 0
                                ? "the model has markers of its own: use them "
                                  "or names to cut at, not both"
                                : "cut at names or by a policy, not both");
    if (o->n_at > 0)
        return by_cuts(s, false);
    if (!flops && (markers > 0 || o->stages <= 1))
        return by_cuts(s, true);
    if (o->policy != NULL && !flops)
        return pst_diag_set(s->diag, PST_ERR_INPUT,
                            "the model has no markers; --policy flops cuts "
                            "without");
    if (markers > 0)
        status =
            pst_split_note(s, "%zu markers of the model are ignored", markers);
    pst_graph_dce(s->graph, true);
    if (status == PST_OK)
        status = pst_split_balance(s, PST_MAX(o->stages, 1u));
    return status;
}
