// SPDX-License-Identifier: Apache-2.0
#include "stages/split/assign/trees.h"

#include <math.h>
#include <string.h>

bool pst_sums_init(struct pst_sums *t, struct pst_arena *arena, size_t n)
{
    t->n = n;
    t->at = pst_arena_calloc(arena, n + 1, sizeof(*t->at));
    return t->at != NULL;
}

void pst_sums_clear(struct pst_sums *t)
{
    memset(t->at, 0, (t->n + 1) * sizeof(*t->at));
}

void pst_sums_add(struct pst_sums *t, size_t place, double x)
{
    for (size_t i = place + 1; i <= t->n; i += i & (0 - i))
        t->at[i] += x;
}

size_t pst_sums_find_end(const struct pst_sums *t, const double *before,
                         size_t begin, double unit, double limit)
{
    size_t e = 0, step = 1;
    double sum = 0.0;

    while (step * 2 <= t->n)
        step *= 2;
    for (; step > 0; step /= 2) {
        const size_t to = e + step;

        if (to > t->n)
            continue;
        if (to > begin &&
            before[to] - before[begin] + unit * (sum + t->at[to]) > limit)
            continue;
        e = to;
        sum += t->at[to];
    }
    return e > begin ? e : begin;
}

bool pst_minima_init(struct pst_minima *t, struct pst_arena *arena, size_t n)
{
    t->width = 1;
    while (t->width < n)
        t->width *= 2;
    t->least = pst_arena_calloc(arena, 2 * t->width, sizeof(*t->least));
    t->added = pst_arena_calloc(arena, 2 * t->width, sizeof(*t->added));
    return t->least != NULL && t->added != NULL;
}

void pst_minima_clear(struct pst_minima *t)
{
    for (size_t i = 0; i < 2 * t->width; i++) {
        t->least[i] = HUGE_VAL;
        t->added[i] = 0.0;
    }
}

/* Recomputes the ancestors of a node: the minimum of the children, plus the
 * amount added to all positions below. */
static void update_ancestors(struct pst_minima *t, size_t node)
{
    while (node > 1) {
        node /= 2;
        t->least[node] =
            fmin(t->least[2 * node], t->least[2 * node + 1]) + t->added[node];
    }
}

void pst_minima_set(struct pst_minima *t, size_t place, double base)
{
    const size_t node = t->width + place;

    t->least[node] = base + t->added[node];
    update_ancestors(t, node);
}

static void add_node(struct pst_minima *t, size_t node, double x)
{
    t->added[node] += x;
    t->least[node] += x;
}

void pst_minima_add(struct pst_minima *t, size_t begin, size_t end, double x)
{
    size_t l = t->width + begin, r = t->width + end;
    const size_t left = l, right = r - 1;

    if (begin >= end || x == 0.0)
        return;
    for (; l < r; l /= 2, r /= 2) {
        if (l & 1)
            add_node(t, l++, x);
        if (r & 1)
            add_node(t, --r, x);
    }
    update_ancestors(t, left);
    update_ancestors(t, right);
}

double pst_minima_least(const struct pst_minima *t)
{
    return t->least[1];
}

size_t pst_minima_find(const struct pst_minima *t)
{
    size_t node = 1;

    while (node < t->width)
        node = t->least[2 * node] <= t->least[2 * node + 1] ? 2 * node
                                                            : 2 * node + 1;
    return node - t->width;
}
