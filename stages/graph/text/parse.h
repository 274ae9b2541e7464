// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_GRAPH_TEXT_PARSE_H
#define PENSTOCK_STAGES_GRAPH_TEXT_PARSE_H
/* Parser of graph text: parse.c reads lines, args.c arguments in brackets.
 * Private to this folder. */
#include "stages/graph/build.h"
#include "stages/graph/oprow.h"
#include "stages/graph/text/scan.h"

#define PST_PARSE_ARGS 64 /* maximum number of arguments of an operator */

/* One result as stated in the text. Without a meta, it has the inferred one. */
struct pst_stated {
    const char *name;
    bool has_meta;
    struct pst_meta meta;
    const char *const *dims;
    struct pst_value *base; /* NULL: no view */
    int64_t offset;
    struct pst_value *version_of; /* NULL: none */
};

struct pst_parser {
    struct pst_scan scan;
    struct pst_arena arena; /* temporary: freed after the parse */
    struct pst_graph *graph;
    struct pst_build build;
    struct pst_stated outs[PST_MAX_OUTS];
    const char *names[PST_MAX_OUTS];
    unsigned n_outs;
};

/* Reads "%name" of a value that is already defined. */
enum pst_status pst_parse_value(struct pst_parser *p,
                                struct pst_value **ret) PST_MUST_CHECK;
/* Reads one argument: "%a", "1.5", "[1, 2]". */
enum pst_status pst_parse_arg(struct pst_parser *p,
                              struct pst_arg *ret) PST_MUST_CHECK;
/* Reads "(%a, 1, dim=2)" into args; all schema->n_args entries are set. */
enum pst_status pst_parse_args(
    struct pst_parser *p, const struct pst_schema *schema,
    struct pst_arg args[PST_PARSE_ARGS]) PST_MUST_CHECK;

#endif
