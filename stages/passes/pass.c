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
    return pst_diag_set(diag, PST_ERR_INTERNAL,
                        "%s: pass '%s' needs '%s', which no pass before it "
                        "gives",
                        table->name, pass->name, fact_name(table, bit));
}

/* The graph behind a pass that edits it; what else is known if that is wanted.
 */
static enum pst_status verify(const struct pst_pass_table *table,
                              const struct pst_pass *pass,
                              const struct pst_pass_state *state, void *subject,
                              struct pst_diag *diag)
{
    const unsigned before = state->facts | pass->gives;
    const unsigned facts = (state->facts & ~pass->drops) | pass->gives;
    const struct pst_graph *graph = pass->edits ? table->graph(subject) : NULL;
    enum pst_status status = PST_OK;

    if (graph != NULL)
        status = before & table->lowered ? pst_graph_verify_lowered(graph, diag)
                                         : pst_graph_verify(graph, diag);
    if (status == PST_OK && (state->verify || PST_DEBUG) &&
        table->check != NULL)
        status = table->check(subject, facts, diag);
    if (status != PST_OK)
        pst_diag_prefix(diag, "%s, behind pass '%s'", table->name, pass->name);
    return status;
}

static enum pst_status run_pass(const struct pst_pass_table *table,
                                const struct pst_pass *pass,
                                const struct pst_pass_state *state,
                                void *subject, struct pst_diag *diag)
{
    enum pst_status status = check_needs(table, pass, state->facts, diag);

    if (status == PST_OK)
        status = pass->run(subject, diag);
    return status == PST_OK ? verify(table, pass, state, subject, diag)
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
