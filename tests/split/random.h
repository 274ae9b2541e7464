// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_TESTS_SPLIT_RANDOM_H
#define PENSTOCK_TESTS_SPLIT_RANDOM_H
/*
 * Random models as graph text: up to 60 operators with near and far skips,
 * parameters that several modules share, modules that are called repeatedly,
 * values in integers, bool and scalars, views, dropout, a buffer that is
 * changed once, one that is changed repeatedly ("tick"), and outputs from
 * anywhere. The loss is the output "loss", to which scalars from anywhere are
 * added.
 */
#include "stages/base/str.h"

#include <stdbool.h>
#include <stdint.h>

struct random_model {
    struct pst_str text;
    unsigned n_nodes, n_cuts; /* n_cuts: number of markers */
    /* state of the random numbers, to continue from */
    unsigned seed;
};

/* Returns a random number of 0 .. n-1 and advances the seed. */
unsigned random_draw(unsigned *seed, unsigned n);
/* Makes the model of a seed; it has the same operators with and without
 * markers. */
void random_model_init(struct random_model *m, unsigned seed, bool markers);
void random_model_fini(struct random_model *m);

#define RANDOM_CLASSES 5 /* upper bound of integer inputs, exclusive */

#endif
