// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_SPLIT_ASSIGN_TREES_H
#define PENSTOCK_STAGES_SPLIT_ASSIGN_TREES_H
/* Two trees over positions 0 to n - 1, for balance.c; each call takes O(log n).
 * Memory comes from an arena; init returns false if memory runs out. */
#include "stages/base/arena.h"

#include <stdbool.h>
#include <stddef.h>

/* Prefix sums with updates (Fenwick tree). */
struct pst_sums {
    double *at;
    size_t n;
};
bool pst_sums_init(struct pst_sums *t, struct pst_arena *arena, size_t n);
void pst_sums_clear(struct pst_sums *t);
void pst_sums_add(struct pst_sums *t, size_t place, double x);
/* Returns the largest e >= begin for which before[e] - before[begin] + unit *
 * (sum of positions below e) <= limit. Positions below begin must be 0, and
 * none may be negative. */
size_t pst_sums_find_end(const struct pst_sums *t, const double *before,
                         size_t begin, double unit, double limit);

/* Minimum over positions; each has a base plus all amounts added to it. */
struct pst_minima {
    /* by tree node, 1 to 2 * width - 1. least: minimum of the positions below
     * it; added: amount added to all of them. */
    double *least, *added;
    size_t width; /* number of leaves, a power of two */
};
bool pst_minima_init(struct pst_minima *t, struct pst_arena *arena, size_t n);
/* Sets every base to HUGE_VAL and all amounts to 0. */
void pst_minima_clear(struct pst_minima *t);
/* Sets the base of a position; the amounts added to it stay. */
void pst_minima_set(struct pst_minima *t, size_t place, double base);
/* Adds x to positions in [begin, end). */
void pst_minima_add(struct pst_minima *t, size_t begin, size_t end, double x);
double pst_minima_least(const struct pst_minima *t);
/* Returns the first position with the minimum. */
size_t pst_minima_find(const struct pst_minima *t);

#endif
