// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_GRAPH_TEXT_SCAN_H
#define PENSTOCK_STAGES_GRAPH_TEXT_SCAN_H
/*
 * Tokens of graph text, for parse.c.
 *
 * Every function skips blanks (not line ends) first. Strings are copied into
 * the arena. The text is untrusted.
 */
#include "stages/graph/graph.h"

struct pst_scan {
    const char *at; /* next character */
    unsigned line;  /* number of the line, from 1 */
    struct pst_arena *arena;
    struct pst_diag *diag;
};

/* Reports "graph text, line N: ..." with PST_ERR_INPUT. */
enum pst_status pst_scan_fail(const struct pst_scan *s, const char *fmt, ...)
    PST_PRINTF(2, 3);
/* Skips blanks, line ends and empty lines. */
void pst_scan_lines(struct pst_scan *s);
/* Consumes `token` and returns true if it comes next; a word must end there. */
bool pst_scan_accept(struct pst_scan *s, const char *token);
/* True if `token` comes next; consumes nothing. */
bool pst_scan_is_next(struct pst_scan *s, const char *token);
enum pst_status pst_scan_expect(struct pst_scan *s,
                                const char *token) PST_MUST_CHECK;
/* Reads letters, digits and the characters in `more`, or a quoted string. */
enum pst_status pst_scan_word(struct pst_scan *s, const char *more,
                              char **ret) PST_MUST_CHECK;
enum pst_status pst_scan_quoted(struct pst_scan *s, char **ret) PST_MUST_CHECK;
enum pst_status pst_scan_i64(struct pst_scan *s, int64_t *ret) PST_MUST_CHECK;
/* Reads a number: INT or FLOAT. */
enum pst_status pst_scan_number(struct pst_scan *s,
                                struct pst_arg *ret) PST_MUST_CHECK;
/* Reads an expression such as "{2*s}" after a number; NULL if there is none. */
enum pst_status pst_scan_expr(struct pst_scan *s,
                              const char **ret) PST_MUST_CHECK;
/* Reads a meta such as "f32[2, 3{s}]:(1, 2)"; *ret_dims as in struct
 * pst_value. */
enum pst_status pst_scan_meta(struct pst_scan *s, struct pst_meta *ret,
                              const char *const **ret_dims) PST_MUST_CHECK;

#endif
