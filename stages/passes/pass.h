// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_PASSES_PASS_H
#define PENSTOCK_STAGES_PASSES_PASS_H
/*
 * A compiler as a table of passes.
 *
 * Each row names the facts that the pass needs, establishes and invalidates.
 * One driver runs the rows in order and verifies the graph after each pass that
 * edits it. The front end (stages/frontend/passes.c) and the stage compiler
 * (stages/compile/passes.c) are such tables.
 *
 * Any thread, one at a time per subject. Tables are constant.
 */
#include "stages/graph/graph.h"

/* Edits that a pass may make to the graph, which is then verified again. */
enum pst_pass_edits {
    PST_EDITS_NOTHING,
    PST_EDITS_BY_COUNT, /* edited only if the number of values or nodes
                           changed */
    PST_EDITS_ANYTHING,
};

struct pst_pass {
    const char *name;             /* unique in its table */
    const char *what;             /* one-line description */
    unsigned needs, gives, drops; /* facts, as bits */
    enum pst_pass_edits edits;
    enum pst_status (*run)(void *subject, struct pst_diag *diag);
};

struct pst_pass_table {
    const char *name;
    const struct pst_pass *passes;
    size_t n;
    const char *const *facts; /* names of the facts, from bit 0 on */
    size_t n_facts;
    unsigned lowered; /* bit of "the graph no longer matches inference" */
    /* Returns the graph of a subject, NULL as long as there is none. */
    const struct pst_graph *(*graph)(void *subject);
    /* Checks those facts that pst_graph_verify does not check; or NULL. */
    enum pst_status (*check)(void *subject, unsigned facts,
                             struct pst_diag *diag);
};

/* Progress of a subject; zero at first. */
struct pst_pass_state {
    unsigned facts;
    size_t next; /* next row to run */
    bool verify; /* run the table's check after each pass, as debug builds do */
};

/* True if the table has a pass of that name. */
bool pst_passes_have(const struct pst_pass_table *table, const char *name);

/*
 * Runs the remaining rows, up to and including the one named `last` (NULL:
 * all). PST_ERR_INTERNAL if a fact that a pass needs is missing or if a graph
 * does not verify after a pass. A pass that fails leaves *state unchanged.
 */
enum pst_status pst_passes_run(const struct pst_pass_table *table,
                               struct pst_pass_state *state, void *subject,
                               const char *last,
                               struct pst_diag *diag) PST_MUST_CHECK;

/* Prints one line per row: name, description, facts needed, given and
 * dropped. */
void pst_passes_print(const struct pst_pass_table *table, struct pst_str *out);

#endif
