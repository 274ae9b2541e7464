// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_TESTS_RUN_CHANCE_H
#define PENSTOCK_TESTS_RUN_CHANCE_H
/* Makes random schedules that can run, with stages on random ranks. */
#include <stdbool.h>

#include "stages/base/str.h"
#include "tests/test.h"

#ifndef CHANCE_MB
#define CHANCE_MB 5
#endif
#define CHANCE_STAGES 4

struct chance {
    unsigned seed;
    unsigned ranks, m;
    unsigned rank_of[CHANCE_STAGES];
    bool f[CHANCE_STAGES][CHANCE_MB], i[CHANCE_STAGES][CHANCE_MB];
    bool w[CHANCE_STAGES][CHANCE_MB];
    struct pst_str lists[CHANCE_STAGES];
};

static inline unsigned chance_draw(struct chance *c, unsigned n)
{
    c->seed = c->seed * 1664525u + 1013904223u;
    return (c->seed >> 16) % n;
}

/* Appends the next action of a (stage, microbatch) pair to the list of its
 * rank; false if none can run now. */
static inline bool chance_append(struct chance *c, unsigned s, unsigned m)
{
    struct pst_str *list = &c->lists[c->rank_of[s]];
    char what;

    if (!c->f[s][m]) {
        for (unsigned k = 0; k < s; k++)
            if (!c->f[k][m])
                return false;
        c->f[s][m] = true;
        what = 'F';
    } else if (!c->i[s][m]) {
        for (unsigned k = 0; k < CHANCE_STAGES; k++)
            if (!c->f[k][m] || (k > s && !c->i[k][m]))
                return false;
        c->i[s][m] = true;
        c->w[s][m] = chance_draw(c, 2) == 0;
        what = c->w[s][m] ? 'B' : 'I';
    } else if (!c->w[s][m]) {
        c->w[s][m] = true;
        what = 'W';
    } else {
        return false;
    }
    pst_str_addf(list, "%s%u%c%u", list->len > 0 ? "," : "", s, what, m);
    return true;
}

/* Makes schedules in PyTorch's grammar. c->ranks 0: it is set to a random
 * number. */
static inline void chance_make(struct chance *c, struct pst_str *ret)
{
    unsigned left, misses = 0;

    c->seed *= 2654435761u;
    if (c->ranks == 0)
        c->ranks = 1 + chance_draw(c, CHANCE_STAGES);
    c->m = 1 + chance_draw(c, CHANCE_MB);
    for (unsigned s = 0; s < CHANCE_STAGES; s++)
        c->rank_of[s] = s < c->ranks ? s : chance_draw(c, c->ranks);
    for (unsigned s = CHANCE_STAGES; s-- > 1;) {
        const unsigned k = chance_draw(c, s + 1), was = c->rank_of[s];

        c->rank_of[s] = c->rank_of[k];
        c->rank_of[k] = was;
    }
    do {
        left = 0;
        if (!chance_append(c, chance_draw(c, CHANCE_STAGES),
                           chance_draw(c, c->m)))
            misses++;
        for (unsigned s = 0; s < CHANCE_STAGES; s++)
            for (unsigned m = 0; m < c->m; m++)
                left += !c->w[s][m];
    } while (left > 0 && misses < 1000000);
    assert_int_equal(left, 0);
    for (unsigned r = 0; r < c->ranks; r++) {
        pst_str_addf(ret, "%s\n", pst_str_text(&c->lists[r]));
        pst_str_fini(&c->lists[r]);
    }
}

#endif
