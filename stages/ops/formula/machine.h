// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_FORMULA_MACHINE_H
#define PENSTOCK_STAGES_OPS_FORMULA_MACHINE_H
/*
 * Evaluation of a formula. A value of the language is a struct pst_arg: tensor,
 * list, number, text, dtype, None; PST_ARG_IGNORED is the zero of an absent
 * gradient. After a failure of the builder every expression gives None.
 */
#include "stages/ops/core/op.h"

#define PST_FORMULA_NAMES 24
#define PST_FORMULA_ARGS  16

struct pst_formula_name {
    const char *text; /* text of the definition; NULL: `value` is valid */
    char name[32];
    struct pst_arg value;
};

struct pst_formula {
    struct pst_build *build;
    const struct pst_schema *schema;
    const struct pst_arg *args;
    const char *begin, *at;
    bool skip; /* parse without evaluating */
    /* With `skip`: reports names and calls that do not exist
     * (pst_formula_check). */
    bool check;
    /* Operators that are not in the registry yet. */
    const struct pst_op_added *own;
    unsigned n_own;
    enum pst_error error; /* entry of the error catalogue for errors in the
                           * formula */
    struct pst_formula_name names[PST_FORMULA_NAMES];
    unsigned n_names;
    unsigned depth;
};

/* A call with its arguments in order; keys[i]: keyword of argument i, "" for a
 * positional one. */
struct pst_formula_call {
    char name[64];
    char keys[PST_FORMULA_ARGS][32];
    struct pst_arg args[PST_FORMULA_ARGS];
    unsigned n;
};

/* Reports an error of the formula itself. Returns None. */
struct pst_arg pst_formula_fail(struct pst_formula *f, const char *fmt, ...)
    PST_PRINTF(2, 3);

static inline bool pst_formula_is_number(const struct pst_arg *a)
{
    return a->kind == PST_ARG_INT || a->kind == PST_ARG_FLOAT ||
           a->kind == PST_ARG_BOOL;
}
double pst_formula_number(const struct pst_arg *a);

/* --- formula.c ---------------------------------------------------------- */

/* Begins to read the formula of op. args: the values of a call; NULL if the
 * formula is only checked. */
void pst_formula_init(struct pst_formula *f, struct pst_build *build,
                      const struct pst_op *op, const struct pst_schema *schema,
                      const struct pst_arg *args);
/* Binds NAME to value; false if there are too many names. */
bool pst_formula_bind(struct pst_formula *f, const char *name,
                      struct pst_arg value);
/* Records all leading "NAME = expr;" without evaluating them. */
void pst_formula_record_definitions(struct pst_formula *f);
/* Reads `token`; if another token follows, consumes nothing and returns
 * false. */
bool pst_formula_accept(struct pst_formula *f, const char *token);
/* Reads NAME and `mark` ("=" or ":", but not "=="); returns false and consumes
 * nothing if the text has something else. */
bool pst_formula_read_key(struct pst_formula *f, const char *mark,
                          char out[32]);
struct pst_arg pst_formula_expr(struct pst_formula *f);
/* Fails unless the whole text has been read. */
void pst_formula_end(struct pst_formula *f);

/* --- apply.c ------------------------------------------------------------ */

struct pst_arg pst_formula_infix(struct pst_formula *f, const char *op,
                                 struct pst_arg a, struct pst_arg b);
struct pst_arg pst_formula_negate(struct pst_formula *f, struct pst_arg a,
                                  bool logical);
struct pst_arg pst_formula_where(struct pst_formula *f, struct pst_arg cond,
                                 struct pst_arg a, struct pst_arg b);
struct pst_arg pst_formula_apply(struct pst_formula *f,
                                 struct pst_formula_call *call);
/* Checks, without emitting a node, that the function exists and has the
 * arguments of the call. */
void pst_formula_check_call(struct pst_formula *f,
                            const struct pst_formula_call *call);
struct pst_arg pst_formula_list(struct pst_formula *f,
                                const struct pst_arg *items, unsigned n);
struct pst_arg pst_formula_item(struct pst_formula *f, struct pst_arg list,
                                struct pst_arg index);

/* --- builtins.c --------------------------------------------------------- */

/* If the function is a built-in that returns a property (rank, size, ...), sets
 * *ret and returns true. */
bool pst_formula_builtin(struct pst_formula *f,
                         const struct pst_formula_call *call,
                         struct pst_arg *ret);

bool pst_formula_is_builtin(const char *name);

/* --- shapes.c ------------------------------------------------------------ */

/* If the function is a built-in that emits views, sets *ret and returns
 * true. */
bool pst_formula_shape(struct pst_formula *f,
                       const struct pst_formula_call *call,
                       struct pst_arg *ret);

bool pst_formula_is_shape(const char *name);

#endif
