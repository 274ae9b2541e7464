// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_SPLIT_ASSIGN_TREES_H
#define PENSTOCK_STAGES_SPLIT_ASSIGN_TREES_H
/* Two trees over places 0 .. n-1 for balance.c; each call takes O(log n). All
 * memory is an arena's; init returns false if that is out. */
#include "stages/base/arena.h"

#include <stdbool.h>
#include <stddef.h>

/* Prefix sums that change (Fenwick). */
struct pst_sums {
    double *at;
    size_t n;
};
bool pst_sums_init(struct pst_sums *t, struct pst_arena *arena, size_t n);
void pst_sums_clear(struct pst_sums *t);
void pst_sums_add(struct pst_sums *t, size_t place, double x);
/* The largest e with before[e] - before[begin] + unit * (sum of the places
 * below e) <= limit, at least begin. Places below begin must be 0 and no place
 * negative. */
size_t pst_sums_reach(const struct pst_sums *t, const double *before,
                      size_t begin, double unit, double limit);

/* The least of base + all that was added to the place. */
struct pst_minima {
    double *least, *added; /* of nodes 1 .. 2 * width - 1 */
    size_t width;          /* leaves, a power of two */
};
bool pst_minima_init(struct pst_minima *t, struct pst_arena *arena, size_t n);
/* Every base HUGE_VAL, nothing added. */
void pst_minima_clear(struct pst_minima *t);
/* Sets the base; what was added stays. */
void pst_minima_set(struct pst_minima *t, size_t place, double base);
/* Adds to the places from `begin` below `end`. */
void pst_minima_add(struct pst_minima *t, size_t begin, size_t end, double x);
double pst_minima_least(const struct pst_minima *t);
/* The first place with the least. */
size_t pst_minima_find(const struct pst_minima *t);

#endif
