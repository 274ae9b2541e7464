// SPDX-License-Identifier: Apache-2.0
#include "stages/passes/pass.h"

#include <string.h>

bool pst_passes_have(const struct pst_pass_table *table, const char *name)
{
    for (size_t i = 0; i < table->n; i++)
        if (strcmp(table->passes[i].name, name) == 0)
            return true;
    return false;
}

static const char *fact_name(const struct pst_pass_table *table, unsigned bit)
{
    return bit < table->n_facts ? table->facts[bit] : "?";
}

static enum pst_status check_needs(const struct pst_pass_table *table,
                                   const struct pst_pass *pass, unsigned facts,
                                   struct pst_diag *diag)
{
    const unsigned missing = pass->needs & ~facts;
    unsigned bit = 0;

    if (missing == 0)
        return PST_OK;
    while (!(missing >> bit & 1))
        bit++;
    return pst_diag_set(diag, PST_E_INTERNAL_BUG,
                        "%s: pass '%s' needs '%s', which no pass before it "
                        "gives",
                        table->name, pass->name, fact_name(table, bit));
}

/* Numbers of values and nodes. Values are never removed and keep their ids. */
struct counts {
    size_t values, nodes;
};

static struct counts count_graph(const struct pst_pass_table *table,
                                 void *subject)
{
    const struct pst_graph *graph = table->graph(subject);

    return graph != NULL ? (struct counts){graph->values.n, graph->nodes.n}
                         : (struct counts){0};
}

static bool has_edited(const struct pst_pass_table *table,
                       const struct pst_pass *pass, void *subject,
                       struct counts was)
{
    const struct counts is = count_graph(table, subject);

    return pass->edits == PST_EDITS_ANYTHING ||
           (pass->edits == PST_EDITS_BY_COUNT &&
            (is.values != was.values || is.nodes != was.nodes));
}

/* Verifies the graph if the pass may have edited it (`was`: counts before the
 * pass), and runs the table's check if enabled. */
static enum pst_status verify_pass(const struct pst_pass_table *table,
                                   const struct pst_pass *pass,
                                   const struct pst_pass_state *state,
                                   void *subject, struct counts was,
                                   struct pst_diag *diag)
{
    const unsigned before = state->facts | pass->gives;
    const unsigned facts = (state->facts & ~pass->drops) | pass->gives;
    const struct pst_graph *graph = table->graph(subject);
    enum pst_status status = PST_OK;

    if (graph != NULL && has_edited(table, pass, subject, was))
        status = before & table->lowered ? pst_graph_verify_lowered(graph, diag)
                                         : pst_graph_verify(graph, diag);
    if (status == PST_OK && (state->verify || PST_DEBUG) &&
        table->check != NULL)
        status = table->check(subject, facts, diag);
    if (status != PST_OK)
        pst_diag_prefix(diag, "%s, after pass '%s'", table->name, pass->name);
    return status;
}

static enum pst_status run_pass(const struct pst_pass_table *table,
                                const struct pst_pass *pass,
                                const struct pst_pass_state *state,
                                void *subject, struct pst_diag *diag)
{
    const struct counts was = count_graph(table, subject);
    enum pst_status status = check_needs(table, pass, state->facts, diag);

    if (status == PST_OK)
        status = pass->run(subject, diag);
    return status == PST_OK
               ? verify_pass(table, pass, state, subject, was, diag)
               : status;
}

enum pst_status pst_passes_run(const struct pst_pass_table *table,
                               struct pst_pass_state *state, void *subject,
                               const char *last, struct pst_diag *diag)
{
    while (state->next < table->n) {
        const struct pst_pass *pass = &table->passes[state->next];
        enum pst_status status = run_pass(table, pass, state, subject, diag);

        if (status != PST_OK)
            return status;
        state->facts = (state->facts & ~pass->drops) | pass->gives;
        state->next++;
        if (last != NULL && strcmp(pass->name, last) == 0)
            break;
    }
    return PST_OK;
}

static void print_facts(const struct pst_pass_table *table, const char *verb,
                        unsigned facts, struct pst_str *out)
{
    const char *before = verb;

    for (unsigned bit = 0; facts >> bit != 0; bit++) {
        if (!(facts >> bit & 1))
            continue;
        pst_str_addf(out, "%s %s", before, fact_name(table, bit));
        before = ",";
    }
}

void pst_passes_print(const struct pst_pass_table *table, struct pst_str *out)
{
    for (size_t i = 0; i < table->n; i++) {
        const struct pst_pass *pass = &table->passes[i];

        pst_str_addf(out, "%-8s  %-11s  %s", table->name, pass->name,
                     pass->what);
        print_facts(table, "; needs", pass->needs, out);
        print_facts(table, "; gives", pass->gives, out);
        print_facts(table, "; drops", pass->drops, out);
        pst_str_add(out, "\n");
    }
}
