// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_GRAPH_TEXT_PARSE_H
#define PENSTOCK_STAGES_GRAPH_TEXT_PARSE_H
/* A graph from text: parse.c reads lines, args.c what stands in brackets.
 * Private to this folder. */
#include "stages/graph/build.h"
#include "stages/graph/oprow.h"
#include "stages/graph/text/scan.h"

#define PST_PARSE_ARGS 64 /* of a schema */

/* One result as the text states it; without a meta it is taken as inferred. */
struct pst_stated {
    const char *name;
    bool has_meta;
    struct pst_meta meta;
    const char *const *dims;
    struct pst_value *base; /* NULL: no view */
    int64_t offset;
    struct pst_value *version_of; /* NULL: of none */
};

struct pst_parser {
    struct pst_scan scan;
    struct pst_arena arena; /* of what is not needed behind the parse */
    struct pst_graph *graph;
    struct pst_build build;
    struct pst_stated outs[PST_MAX_OUTS];
    const char *names[PST_MAX_OUTS];
    unsigned n_outs;
};

/* "%name" of a value that is there. */
enum pst_status pst_parse_value(struct pst_parser *p,
                                struct pst_value **ret) PST_MUST_CHECK;
/* "%a", "1.5", "[1, 2]". */
enum pst_status pst_parse_arg(struct pst_parser *p,
                              struct pst_arg *ret) PST_MUST_CHECK;
/* "(%a, 1, dim=2)" into args, all n_args of them. */
enum pst_status pst_parse_args(
    struct pst_parser *p, const struct pst_schema *schema,
    struct pst_arg args[PST_PARSE_ARGS]) PST_MUST_CHECK;

#endif
