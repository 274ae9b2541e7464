// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_GRAPH_SYMBOL_H
#define PENSTOCK_STAGES_GRAPH_SYMBOL_H
/*
 * Sizes that a model leaves free. A graph is concrete everywhere: a symbol has
 * a value, and numbers that follow from it stand in the graph as numbers, with
 * the text of the expression that they came from beside them. So a graph can
 * be made again for other values.
 *
 * Expressions are untrusted text: infix ("2*s77 + 1"), calls ("Max(1, s77)")
 * and SymPy's srepr, in which .pt2 files have them, in any mixture. Integers
 * and fractions are exact or an error; floats are doubles, as in Python.
 *
 * One thread. Texts live in the arena of whoever holds them.
 */
#include "stages/base/arena.h"
#include "stages/base/diag.h"
#include "stages/base/vec.h"

#include <stdbool.h>
#include <stdint.h>

enum pst_number_kind { PST_NUMBER_EXACT, PST_NUMBER_FLOAT, PST_NUMBER_BOOL };

struct pst_number {
    enum pst_number_kind kind;
    int64_t n, d; /* EXACT: the fraction n/d, lowest terms, d > 0; 1: an
                     integer. BOOL: n is 0 or 1 */
    double f;     /* FLOAT */
};

/* --- expressions -------------------------------------------------------- */

struct pst_expr_row;

struct pst_expr {
    const struct pst_expr_row *row; /* NULL: constant or symbol */
    const char *symbol;             /* or NULL */
    struct pst_number value;        /* of a constant */
    unsigned n;
    unsigned levels; /* of operands within operands, as it is printed */
    const struct pst_expr **args;
};

/* An operation: exact where its operands are. `why` says what is wrong, with
 * false. */
struct pst_expr_row {
    const char *name;
    unsigned min, max; /* operands */
    bool (*eval)(const struct pst_number *args, unsigned n,
                 struct pst_number *ret, const char **why);
    const char *infix; /* how it is printed; NULL: as a call */
    unsigned binds;    /* of infix ones: 1 loosest */
};

const struct pst_expr_row *pst_expr_find(const char *name, size_t len);

enum pst_status pst_expr_parse(struct pst_arena *arena, const char *text,
                               const struct pst_expr **ret,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* The one text of an expression; it reads back. */
struct pst_str;
void pst_expr_add(const struct pst_expr *expr, struct pst_str *out);
/* The same in the arena. */
enum pst_status pst_expr_print(struct pst_arena *arena,
                               const struct pst_expr *expr, const char **ret,
                               struct pst_diag *diag) PST_MUST_CHECK;

/* --- symbols ------------------------------------------------------------ */

struct pst_symbol {
    const char *name;
    bool known;
    int64_t value;
};

/* What must hold of an expression. */
struct pst_range {
    const char *expr;
    int64_t min, max; /* INT64_MIN, INT64_MAX: none; of a bool: 1, 1 */
};

struct pst_symbols {
    struct pst_arena arena;
    struct PST_VEC(struct pst_symbol) at;
    struct PST_VEC(struct pst_range) ranges;
};

void pst_symbols_init(struct pst_symbols *symbols);
void pst_symbols_fini(struct pst_symbols *symbols);
enum pst_status pst_symbols_copy(const struct pst_symbols *from,
                                 struct pst_symbols *to,
                                 struct pst_diag *diag) PST_MUST_CHECK;

/* NULL if there is none of that name. */
struct pst_symbol *pst_symbols_find(const struct pst_symbols *symbols,
                                    const char *name);
enum pst_status pst_symbols_add(struct pst_symbols *symbols, const char *name,
                                bool known, int64_t value,
                                struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pst_symbols_limit(struct pst_symbols *symbols, const char *expr,
                                  int64_t min, int64_t max,
                                  struct pst_diag *diag) PST_MUST_CHECK;

/* Adds, unknown, the symbols of the expression that are not there. */
enum pst_status pst_symbols_declare(struct pst_symbols *symbols,
                                    const char *expr,
                                    struct pst_diag *diag) PST_MUST_CHECK;
/* Is every symbol of it known? Of what cannot be read none is. */
enum pst_status pst_symbols_know(const struct pst_symbols *symbols,
                                 const char *expr, bool *ret,
                                 struct pst_diag *diag) PST_MUST_CHECK;

enum pst_status pst_symbols_eval(const struct pst_symbols *symbols,
                                 const char *expr, struct pst_number *ret,
                                 struct pst_diag *diag) PST_MUST_CHECK;
/* The same of what must be an integer. */
enum pst_status pst_symbols_int(const struct pst_symbols *symbols,
                                const char *expr, int64_t *ret,
                                struct pst_diag *diag) PST_MUST_CHECK;
/* Gives the only unknown symbol of the expression the value that makes it
 * `want`; it must stand there as in 3*s + 1. */
enum pst_status pst_symbols_solve(struct pst_symbols *symbols, const char *expr,
                                  int64_t want,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* All ranges whose symbols are known; the first that is not kept is named. */
enum pst_status pst_symbols_check(const struct pst_symbols *symbols,
                                  struct pst_diag *diag) PST_MUST_CHECK;

#endif
