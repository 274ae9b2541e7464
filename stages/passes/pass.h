// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_PASSES_PASS_H
#define PENSTOCK_STAGES_PASSES_PASS_H
/*
 * A compiler as a table of passes: each row names the facts that it needs, the
 * facts that it gives and those that no longer hold behind it. One driver runs
 * the rows in order; the graph is verified behind each that edits it. The front
 * end (stages/frontend/passes.c) and the compiler of stages
 * (stages/compile/passes.c) are such tables.
 *
 * Any thread, one at a time per subject. Tables are constant.
 */
#include "stages/graph/graph.h"

/* What a pass does to that of the graph which is verified: this is done again
 * behind a pass that may have edited something. */
enum pst_pass_edits {
    PST_EDITS_NOTHING,
    PST_EDITS_BY_COUNT, /* with as many values and nodes it is as it was */
    PST_EDITS_ANYTHING,
};

struct pst_pass {
    const char *name;             /* unique in its table */
    const char *what;             /* one line for people */
    unsigned needs, gives, drops; /* facts, as bits */
    enum pst_pass_edits edits;
    enum pst_status (*run)(void *subject, struct pst_diag *diag);
};

struct pst_pass_table {
    const char *name;
    const struct pst_pass *passes;
    size_t n;
    const char *const *facts; /* their names, from bit 0 on */
    size_t n_facts;
    unsigned lowered; /* fact: inference holds of the graph no more */
    /* The graph of a subject, NULL as long as there is none. */
    const struct pst_graph *(*graph)(void *subject);
    /* What the facts that hold behind a pass say beyond the graph, found again
     * and compared; or NULL. */
    enum pst_status (*check)(void *subject, unsigned facts,
                             struct pst_diag *diag);
};

/* How far a subject has come; zero at first. */
struct pst_pass_state {
    unsigned facts;
    size_t next; /* row to run */
    bool verify; /* the table's check behind each pass, as debug builds do */
};

/* True for a name that the table has. */
bool pst_passes_have(const struct pst_pass_table *table, const char *name);

/*
 * Runs the rows behind *state, up to and with the one called last (NULL: all).
 * A pass whose needs are not given is a fault of the table
 * (PST_ERR_INTERNAL), as is a graph that does not verify behind a pass. A
 * failing pass leaves *state before it.
 */
enum pst_status pst_passes_run(const struct pst_pass_table *table,
                               struct pst_pass_state *state, void *subject,
                               const char *last,
                               struct pst_diag *diag) PST_MUST_CHECK;

/* One line a row: name, what it does, what it needs, gives and drops. */
void pst_passes_print(const struct pst_pass_table *table, struct pst_str *out);

#endif
