// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_FORMULA_FORMULA_H
#define PENSTOCK_STAGES_OPS_FORMULA_FORMULA_H
/*
 * Gradients and compositions written as formulas. A row has the text, this
 * folder emits the nodes:
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
 * Names are the schema's arguments, definitions, and of a gradient `grad`,
 * `grad1`, ... (a gradient that is absent is zero) and `result`, `result1`, ...
 * (of the first 8), if the result is a list also the lists `grads` and
 * `results`.
 * Definitions are evaluated when first used, branches when taken.
 *
 * Numbers are computed at once, tensors by nodes: a + b is add.Tensor or
 * add.Scalar, c ? a : b is where for a tensor c. A function is the operator of
 * that name, NAME or NAME.OVERLOAD in namespace aten or penstock,
 * complex.NAME in the namespace of pairs, or SPACE::NAME of a plugin; one with
 * several results gives a list; one of a tensor maps over a list of them. A
 * number that is divided with
 * // and % is rounded down. Functions that return properties (builtins.c): is,
 * rank, size, sizes, numel, dtype, floating, dims, ... Functions that give
 * shapes (shapes.c): kept, along, others, shaped.
 *
 * Gradients are summed and converted to their input's shape and dtype. That of
 * a list of tensors is a list of as many.
 */
#include "stages/ops/core/rewrite.h"

enum pst_status pst_vjp_formula(struct pst_vjp *v);
enum pst_status pst_rewrite_formula(struct pst_rewrite *w);

/* Checks the gradient formula of row i of n rows that are not in the registry
 * yet: that it can be parsed, and that names, operators and their arguments
 * exist. Whether shapes fit is known when a model is differentiated. */
enum pst_status pst_formula_check(const struct pst_op_added *rows, unsigned n,
                                  unsigned i,
                                  struct pst_diag *diag) PST_MUST_CHECK;

/* Defines a row that is the composition `text_`. */
#define PST_REWRITE_FORMULA(id, schema_, text_)                                \
    const struct pst_op pst_op_##id = {.schema = (schema_),                    \
                                       .rewrite = pst_rewrite_formula,         \
                                       .formula = (text_)}
/* Defines the row of an ATen operator in the same way; schema without
 * "aten::". */
#define PST_COMPOSE(id, schema_, text_)                                        \
    PST_REWRITE_FORMULA(id, "aten::" schema_, text_)

#endif
