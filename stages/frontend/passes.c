// SPDX-License-Identifier: Apache-2.0
/* The front end: a table of passes that turn a file into a graph. */
#include "stages/frontend/front.h"

/* Facts about a model. */
enum fact {
    DOCUMENT = 1 << 0,  /* the file's JSON documents are parsed */
    WEIGHTS = 1 << 1,   /* every tensor of the state is a window of a record */
    SYMBOLS = 1 << 2,   /* symbolic sizes have values and ranges */
    TARGETS = 1 << 3,   /* every node of the document is classified */
    SUPPORTED = 1 << 4, /* everything in the document is supported */
    INPUTS = 1 << 5,    /* the graph has its inputs and state */
    NODES = 1 << 6,     /* the graph has its nodes, and is functional */
    RESULTS = 1 << 7,   /* the graph has its outputs and updates */
    LIVE = 1 << 8,      /* the graph has no dead nodes */
    SIZES = 1 << 9,     /* numbers that depend on symbolic sizes have
                           expressions */
};

static const char *const facts[] = {
    "document", "weights", "symbols", "targets", "support",
    "inputs",   "nodes",   "results", "live",    "sizes",
};

static enum pst_status run_document(void *subject, struct pst_diag *diag)
{
    return pst_front_document(subject, diag);
}

static enum pst_status run_weights(void *subject, struct pst_diag *diag)
{
    struct pst_front *f = subject;
    enum pst_status status = pst_import_weights(f->model, f->zip, f->name,
                                                "weights", &f->digests, diag);

    if (status == PST_OK)
        status = pst_import_weights(f->model, f->zip, f->name, "constants",
                                    &f->digests, diag);
    return status;
}

static enum pst_status run_symbols(void *subject, struct pst_diag *diag)
{
    struct pst_front *f = subject;

    return pst_import_symbols(f->model, f->doc, diag);
}

static enum pst_status run_targets(void *subject, struct pst_diag *diag)
{
    struct pst_front *f = subject;

    return pst_import_resolve(f->doc, diag);
}

static enum pst_status run_support(void *subject, struct pst_diag *diag)
{
    struct pst_front *f = subject;

    pst_import_init(&f->import, f->model, f->zip, f->doc, diag);
    return pst_import_scan(&f->import);
}

#define RUN(pass)                                                              \
    static enum pst_status run_##pass(void *subject, struct pst_diag *diag)    \
    {                                                                          \
        struct pst_front *f = subject;                                         \
                                                                               \
        (void)diag; /* errors are in import.diag */                            \
        return pst_import_##pass(&f->import);                                  \
    }
RUN(inputs)
RUN(body)
RUN(results)
#undef RUN

static enum pst_status run_dead_code(void *subject, struct pst_diag *diag)
{
    struct pst_front *f = subject;

    (void)diag;
    pst_graph_dce(f->model->graph, false);
    return PST_OK;
}

static enum pst_status run_lost(void *subject, struct pst_diag *diag)
{
    struct pst_front *f = subject;

    (void)diag;
    return pst_import_report_lost(&f->import);
}

static enum pst_status run_sizes(void *subject, struct pst_diag *diag)
{
    struct pst_front *f = subject;

    (void)diag;
    return pst_import_sizes(&f->import);
}

/*
 * Nodes become functional while they are added, in program order, because only
 * then is it known which version of a storage a read sees. So everything that
 * the importer does to single nodes (complex numbers as pairs, autocast,
 * storage order, decomposed dropout) is one row.
 */
static const struct pst_pass passes[] = {
    {"document", "the documents of the only model in the file", 0, DOCUMENT, 0,
     PST_EDITS_NOTHING, run_document},
    {"weights", "tensors of the state as windows on what the file stores",
     DOCUMENT, WEIGHTS, 0, PST_EDITS_NOTHING, run_weights},
    {"symbols", "free sizes, their values at the export and their ranges",
     DOCUMENT, SYMBOLS, 0, PST_EDITS_NOTHING, run_symbols},
    {"targets", "what every node of the document is to us", DOCUMENT, TARGETS,
     0, PST_EDITS_NOTHING, run_targets},
    {"support", "names all that is not supported in one message",
     SYMBOLS | TARGETS, SUPPORTED, 0, PST_EDITS_NOTHING, run_support},
    {"inputs", "a graph with inputs, parameters, buffers and constants",
     WEIGHTS | SUPPORTED, INPUTS, 0, PST_EDITS_ANYTHING, run_inputs},
    {"nodes", "the nodes in program order; writes make new versions", INPUTS,
     NODES, 0, PST_EDITS_ANYTHING, run_body},
    {"results", "outputs, and what was written to buffers and inputs", NODES,
     RESULTS, 0, PST_EDITS_ANYTHING, run_results},
    {"dead-code", "drops nodes whose results nobody wants", RESULTS, LIVE, 0,
     PST_EDITS_BY_COUNT, run_dead_code},
    {"gradients", "names operators whose gradient the file does not have", LIVE,
     0, 0, PST_EDITS_NOTHING, run_lost},
    {"sizes", "a number that nobody knows how to follow fixes the sizes", LIVE,
     SIZES, 0, PST_EDITS_NOTHING, run_sizes},
};

static const struct pst_graph *graph_of(void *subject)
{
    const struct pst_front *f = subject;

    return f->model->graph;
}

const struct pst_pass_table pst_frontend_passes = {
    .name = "frontend",
    .passes = passes,
    .n = PST_COUNT(passes),
    .facts = facts,
    .n_facts = PST_COUNT(facts),
    .graph = graph_of,
};
