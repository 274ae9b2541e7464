// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_FORMULA_FORMULA_H
#define PENSTOCK_STAGES_OPS_FORMULA_FORMULA_H
/*
 * Gradients and compositions written as formulas. The definition of an operator
 * has the text, this folder emits the nodes:
 *
 *     .vjp = pst_vjp_formula, .formula = "self: grad * cos(self)"
 *     .rewrite = pst_rewrite_formula, .formula = "mul(self, self)"
 *
 *     formula    = { NAME "=" expr ";" } results
 *     results    = expr { "," expr }                   of a rewrite
 *                | NAME ":" expr { ";" NAME ":" expr }  of a gradient
 *     expr       = compare [ "?" expr ":" expr ]
 *     compare    = sum [ ("<" | "<=" | ">" | ">=" | "==" | "!=") sum ]
 *     sum        = term { ("+" | "-") term }
 *     term       = unary { ("*" | "/" | "//" | "%") unary }
 *     unary      = [ "-" | "!" ] primary { "[" expr "]" }
 *     primary    = NUMBER | "'text'" | NAME | NAME "(" arguments ")"
 *                | "(" expr ")" | "[" [ expr { "," expr } ] "]"
 *     arguments  = [ NAME "=" ] expr { "," [ NAME "=" ] expr }
 *
 * A NAME is an argument of the schema or a definition. A gradient can also use
 * `grad`, `grad1`, ..., the gradients of the first 8 results (an absent
 * gradient is zero), and `result`, `result1`, ...; for an operator that returns
 * a list, also the lists `grads` and `results`. A definition is evaluated when
 * first used, a branch when taken.
 *
 * Numbers are computed at once, tensors by nodes: a + b is add.Tensor or
 * add.Scalar; c ? a : b is `where` for a tensor c. // and % round the quotient
 * of numbers down. A function is the operator of that name: NAME or
 * NAME.OVERLOAD in namespace aten or penstock, complex.NAME in the namespace of
 * complex numbers, or SPACE::NAME of a plugin. An operator with several results
 * gives a list; an operator on a tensor that is applied to a list of tensors
 * gives a list. Functions that return properties (builtins.c): is, rank, size,
 * sizes, numel, dtype, floating, dims, ... Functions that give shapes
 * (shapes.c): kept, along, others, shaped.
 *
 * A gradient is summed and converted to its input's shape and dtype. The
 * gradient of a list of tensors is a list of the same length.
 */
#include "stages/ops/core/rewrite.h"

enum pst_status pst_vjp_formula(struct pst_vjp *v);
enum pst_status pst_rewrite_formula(struct pst_rewrite *w);

/* Checks the gradient formula of operator i of n operators that are not in the
 * registry yet: the formula must parse, and its names, operators and their
 * arguments must exist. Shapes are checked when a model is differentiated. */
enum pst_status pst_formula_check(const struct pst_op_added *rows, unsigned n,
                                  unsigned i,
                                  struct pst_diag *diag) PST_MUST_CHECK;

/* Defines an operator that is the composition `text_`. */
#define PST_REWRITE_FORMULA(id, schema_, text_)                                \
    const struct pst_op pst_op_##id = {.schema = (schema_),                    \
                                       .rewrite = pst_rewrite_formula,         \
                                       .formula = (text_)}
/* Does the same for an ATen operator; schema_ lacks the prefix "aten::". */
#define PST_COMPOSE(id, schema_, text_)                                        \
    PST_REWRITE_FORMULA(id, "aten::" schema_, text_)

#endif
