// SPDX-License-Identifier: Apache-2.0
/* einsum of complex operands; complex.c describes the layout. */
#include "stages/ops/core/rewrite.h"
#include "stages/ops/core/rows.h"

enum {
    EQUATION,
    TENSORS,
    PATH,
    MAX_OPERANDS = 4, /* each operand doubles the number of real einsums */
};

/* Emits the einsum of one part of each operand: bit k of `which` chooses the
 * imaginary part of operand k. */
static struct pst_value *emit_part(struct pst_rewrite *w,
                                   struct pst_value *parts[][2], unsigned n,
                                   unsigned which)
{
    struct pst_value *chosen[MAX_OPERANDS];

    for (unsigned k = 0; k < n; k++)
        chosen[k] = parts[k][which >> k & 1];
    return pst_rw(
        w, &pst_op_einsum,
        PST_ARGS(w->args[EQUATION], pst_values(chosen, n), w->args[PATH]));
}

/* Multiplies out the product of complex operands: sums the real einsums of all
 * 2^n choices of a part of each operand. A choice with j imaginary parts has
 * the factor i^j. */
static enum pst_status einsum(struct pst_rewrite *w)
{
    const struct pst_arg *in = &w->args[TENSORS];
    struct pst_value *parts[MAX_OPERANDS][2], *sum[2] = {NULL, NULL};

    if (in->n < 1 || in->n > MAX_OPERANDS)
        return pst_rewrite_refuse(w, "%u complex operands", in->n);
    for (unsigned k = 0; k < in->n; k++)
        for (unsigned i = 0; i < 2; i++)
            parts[k][i] =
                pst_rw(w, &pst_op_select_int,
                       PST_ARGS(pst_v(in->values[k]), pst_i(-1), pst_i(i)));
    for (unsigned which = 0; which < 1U << in->n; which++) {
        unsigned j = 0;
        struct pst_value *p = emit_part(w, parts, in->n, which), **to;

        for (unsigned k = 0; k < in->n; k++)
            j += which >> k & 1;
        to = &sum[j % 2];
        if (*to == NULL) /* the first term of a sum has j 0 or 1, so its sign is
                          * plus */
            *to = p;
        else if (j % 4 < 2)
            *to = pst_rw_add(w, *to, p);
        else
            *to = pst_rw_sub(w, *to, p);
    }
    return pst_rewrite_out(
        w, 0,
        pst_rw(w, &pst_op_stack, PST_ARGS(pst_values(sum, 2), pst_i(-1))));
}

PST_REWRITE(complex_einsum,
            "complex::einsum(str equation, Tensor[] tensors, *, "
            "int[]? path=None) -> Tensor",
            einsum);
