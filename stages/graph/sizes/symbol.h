// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_GRAPH_SIZES_SYMBOL_H
#define PENSTOCK_STAGES_GRAPH_SIZES_SYMBOL_H
/*
 * Symbolic sizes of a model and expressions of them.
 *
 * A graph always has concrete numbers: every symbol has a value, and a number
 * that follows from symbols is stored together with its expression, so that the
 * graph can be rebuilt for other values.
 *
 * Expressions are untrusted text: infix ("2*s77 + 1"), calls ("Max(1, s77)")
 * and SymPy's srepr, which .pt2 files use, in any mixture. Integers and
 * fractions are exact or an error; floats are doubles, as in Python.
 *
 * One thread. Strings live in the caller's arena.
 */
#include "stages/base/arena.h"
#include "stages/base/diag.h"
#include "stages/base/vec.h"

#include <stdbool.h>
#include <stdint.h>

enum pst_number_kind { PST_NUMBER_EXACT, PST_NUMBER_FLOAT, PST_NUMBER_BOOL };

struct pst_number {
    enum pst_number_kind kind;
    int64_t n, d; /* EXACT: the fraction n/d in lowest terms, d > 0; an integer
                   * if d is 1. BOOL: n is 0 or 1 */
    double f;     /* FLOAT: the number */
};

/* --- expressions -------------------------------------------------------- */

struct pst_expr_row;

struct pst_expr {
    const struct pst_expr_row *row; /* NULL: constant or symbol */
    const char *symbol;             /* NULL: not a symbol */
    struct pst_number value;        /* value of a constant */
    unsigned n;
    unsigned levels; /* nesting depth of the operands in the printed text */
    const struct pst_expr **args;
};

/* An operation. The result is exact if all operands are. eval returns false and
 * sets `why` on error. */
struct pst_expr_row {
    const char *name;
    unsigned min, max; /* fewest and most operands */
    bool (*eval)(const struct pst_number *args, unsigned n,
                 struct pst_number *ret, const char **why);
    const char *infix;   /* infix sign; NULL: printed as a call */
    unsigned precedence; /* precedence of infix signs; 1 is lowest */
};

const struct pst_expr_row *pst_expr_find(const char *name, size_t len);

enum pst_status pst_expr_parse(struct pst_arena *arena, const char *text,
                               const struct pst_expr **ret,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* Prints the canonical text of an expression, which parses back. */
struct pst_str;
void pst_expr_add(const struct pst_expr *expr, struct pst_str *out);
/* Sets *ret to the canonical text of the expression, in the arena. */
enum pst_status pst_expr_print(struct pst_arena *arena,
                               const struct pst_expr *expr, const char **ret,
                               struct pst_diag *diag) PST_MUST_CHECK;

/* --- symbols ------------------------------------------------------------ */

struct pst_symbol {
    const char *name;
    bool known;
    bool constant; /* not a size: computed from constants of the file, perhaps
                    * later */
    int64_t value;
};

/* A constraint: the value of `expr` is in [min, max]. */
struct pst_range {
    const char *expr;
    int64_t min, max; /* INT64_MIN, INT64_MAX: unbounded; both 1 if expr is a
                       * condition that must hold */
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

/* Returns NULL if there is no such symbol. */
struct pst_symbol *pst_symbols_find(const struct pst_symbols *symbols,
                                    const char *name);
enum pst_status pst_symbols_add(struct pst_symbols *symbols, const char *name,
                                bool known, int64_t value,
                                struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pst_symbols_limit(struct pst_symbols *symbols, const char *expr,
                                  int64_t min, int64_t max,
                                  struct pst_diag *diag) PST_MUST_CHECK;

/* Adds the expression's symbols that are missing, without values. */
enum pst_status pst_symbols_declare(struct pst_symbols *symbols,
                                    const char *expr,
                                    struct pst_diag *diag) PST_MUST_CHECK;
/* Sets *ret to true if all symbols of the expression have values or are
 * constant. An expression that cannot be parsed is not known, and no error. */
enum pst_status pst_symbols_are_known(const struct pst_symbols *symbols,
                                      const char *expr, bool *ret,
                                      struct pst_diag *diag) PST_MUST_CHECK;

enum pst_status pst_symbols_eval(const struct pst_symbols *symbols,
                                 const char *expr, struct pst_number *ret,
                                 struct pst_diag *diag) PST_MUST_CHECK;
/* Evaluates an expression that must be an integer. */
enum pst_status pst_symbols_int(const struct pst_symbols *symbols,
                                const char *expr, int64_t *ret,
                                struct pst_diag *diag) PST_MUST_CHECK;
/* Sets the only symbol without a value so that the expression equals `want`.
 * The expression must be linear in the symbol, as in 3*s + 1. */
enum pst_status pst_symbols_solve(struct pst_symbols *symbols, const char *expr,
                                  int64_t want,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* Replaces constant symbols in *expr by their values; *expr becomes NULL if no
 * symbol is left. The new text is in the arena. */
enum pst_status pst_symbols_replace_constants(
    const struct pst_symbols *symbols, struct pst_arena *arena,
    const char **expr, struct pst_diag *diag) PST_MUST_CHECK;
/* Removes constant symbols. */
void pst_symbols_drop_constants(struct pst_symbols *symbols);
/* Checks all ranges whose symbols have values; the error names the first that
 * is violated. */
enum pst_status pst_symbols_check(const struct pst_symbols *symbols,
                                  struct pst_diag *diag) PST_MUST_CHECK;

#endif
