// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_SIZES_SIZES_H
#define PENSTOCK_STAGES_OPS_SIZES_SIZES_H
/*
 * What free sizes the results of a node follow from: the expressions beside
 * what inference says. A rule computes a size from the operands' with
 * stages/graph/extent.h; where it does not come to what inference says, or an
 * operator has no rule, nobody knows how the size follows. The file says it of
 * values that it names, so rules matter for what compositions compute between
 * them.
 */
#include "stages/graph/extent.h"
#include "stages/ops/core/op.h"

/* A node whose results get expressions. */
struct pst_site {
    struct pst_build *b;
    struct pst_node *node;
};
typedef void (*pst_sizes_fn)(const struct pst_site *s);

/* --- site.c ------------------------------------------------------------- */

/* The value that argument i is; NULL: it is none. */
const struct pst_value *pst_site_in(const struct pst_site *s, unsigned i);
/* The argument of that name; NULL if the operator has none or it is None. */
const struct pst_arg *pst_site_arg(const struct pst_site *s, const char *name);
/* A dimension of v, 0..rank-1; -1 if it is none. */
int pst_site_dim(const struct pst_value *v, const struct pst_arg *dim,
                 int64_t otherwise);
/* Is dimension d of x among those of the argument (NULL, none: all are)? */
bool pst_site_reduces(const struct pst_value *x, const struct pst_arg *dim,
                      unsigned d);
struct pst_extent pst_site_size(const struct pst_site *s,
                                const struct pst_value *v, unsigned d);
/* Dimension d of result k, if it has that many. */
void pst_site_set(const struct pst_site *s, unsigned k, unsigned d,
                  struct pst_extent size);
void pst_site_unknown(const struct pst_site *s, unsigned k, unsigned d);
/* Results from `first` on have the sizes of v, if they have its rank. */
void pst_site_like(const struct pst_site *s, unsigned first,
                   const struct pst_value *v);

/* --- rules, by what the results' sizes are: elements.c, views.c
 * ----------------------------------------- */

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
