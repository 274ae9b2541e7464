// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_SIZES_SIZES_H
#define PENSTOCK_STAGES_OPS_SIZES_SIZES_H
/*
 * Propagates symbolic sizes: finds expressions for the sizes that inference has
 * computed. A rule computes the expression of a size from the operands' sizes
 * with stages/graph/sizes/extent.h; if its value contradicts inference, or if
 * an operator has no rule, the size is unknown. The model file gives sizes of
 * the values that it names, so rules matter for the intermediate values of
 * compositions.
 */
#include "stages/graph/sizes/extent.h"
#include "stages/ops/core/op.h"

/* A node whose results get size expressions. */
struct pst_site {
    struct pst_build *b;
    struct pst_node *node;
};
typedef void (*pst_sizes_fn)(const struct pst_site *s);

/* --- site.c ------------------------------------------------------------- */

/* Returns the value of argument i; NULL if it is not a tensor. */
const struct pst_value *pst_site_in(const struct pst_site *s, unsigned i);
/* Returns the argument of that name; NULL if the operator has none or the
 * argument is None. */
const struct pst_arg *pst_site_arg(const struct pst_site *s, const char *name);
/* Returns the dimension of v, 0..rank-1, that an integer argument names, or
 * dimension `otherwise` if dim is NULL; -1 if the dimension does not exist. */
int pst_site_dim(const struct pst_value *v, const struct pst_arg *dim,
                 int64_t otherwise);
/* True if the argument names dimension d of x; NULL or an empty list names
 * all. */
bool pst_site_reduces(const struct pst_value *x, const struct pst_arg *dim,
                      unsigned d);
struct pst_extent pst_site_size(const struct pst_site *s,
                                const struct pst_value *v, unsigned d);
/* Sets dimension d of result k, if the result has it. */
void pst_site_set(const struct pst_site *s, unsigned k, unsigned d,
                  struct pst_extent size);
void pst_site_unknown(const struct pst_site *s, unsigned k, unsigned d);
/* Gives the results from `first` on the sizes of v; a result of another rank
 * gets unknown sizes. */
void pst_site_like(const struct pst_site *s, unsigned first,
                   const struct pst_value *v);

/* --- rules, named by the results' sizes: elements.c, views.c ------------- */

void pst_sizes_same(const struct pst_site *s);
void pst_sizes_like_1(const struct pst_site *s);
void pst_sizes_like_2(const struct pst_site *s);
void pst_sizes_elements(const struct pst_site *s);
void pst_sizes_reduced(const struct pst_site *s);
void pst_sizes_counted(const struct pst_site *s);
void pst_sizes_viewed(const struct pst_site *s);
void pst_sizes_sized(const struct pst_site *s);
void pst_sizes_resized(const struct pst_site *s);
void pst_sizes_made(const struct pst_site *s);
void pst_sizes_like_list_2(const struct pst_site *s);
void pst_sizes_windows(const struct pst_site *s);
void pst_sizes_of_columns(const struct pst_site *s);
void pst_sizes_expanded(const struct pst_site *s);
void pst_sizes_unsqueezed(const struct pst_site *s);
void pst_sizes_squeezed(const struct pst_site *s);
void pst_sizes_swapped(const struct pst_site *s);
void pst_sizes_permuted(const struct pst_site *s);
void pst_sizes_without_dim(const struct pst_site *s);
void pst_sizes_sliced(const struct pst_site *s);
void pst_sizes_narrowed(const struct pst_site *s);
void pst_sizes_moved(const struct pst_site *s);
void pst_sizes_cut(const struct pst_site *s);
void pst_sizes_on_diagonal(const struct pst_site *s);
void pst_sizes_joined(const struct pst_site *s);
void pst_sizes_stacked(const struct pst_site *s);
void pst_sizes_repeated(const struct pst_site *s);
void pst_sizes_padded(const struct pst_site *s);
void pst_sizes_counted_up(const struct pst_site *s);
void pst_sizes_unit(const struct pst_site *s);
void pst_sizes_multiplied(const struct pst_site *s);
void pst_sizes_paired(const struct pst_site *s);
void pst_sizes_linear(const struct pst_site *s);
void pst_sizes_added_product(const struct pst_site *s);
void pst_sizes_attended(const struct pst_site *s);
void pst_sizes_convolved(const struct pst_site *s);
void pst_sizes_looked_up(const struct pst_site *s);
void pst_sizes_of_rows(const struct pst_site *s);
void pst_sizes_selected(const struct pst_site *s);
void pst_sizes_pooled(const struct pst_site *s);
void pst_sizes_recurred(const struct pst_site *s);
void pst_sizes_counted_groups(const struct pst_site *s);
void pst_sizes_sampled(const struct pst_site *s);

#endif
