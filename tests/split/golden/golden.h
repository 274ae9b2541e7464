// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_TESTS_SPLIT_GOLDEN_GOLDEN_H
#define PENSTOCK_TESTS_SPLIT_GOLDEN_GOLDEN_H
/* The splitter's goldens (tests/data): models with PyTorch's graphs, the
 * expected split, the numbers of the uncut model, and PyTorch's own behaviour.
 * One entry per way of cutting. */
#include "tests/test.h"

#include "stages/split/plan.h"

#include <jansson.h>

#define GOLDEN_MAX 200

struct golden {
    char name[128]; /* such as "11-begin-and-end #2" */
    char model[512], numbers[512];
    json_t *file, *split;
};

/* Reads the folder; returns the number of entries, 0 if it does not exist.
 * Release them with golden_clear. */
size_t golden_load(const char *dir, struct golden *ret);
void golden_clear(struct golden *goldens, size_t n);

/* Returns the options of pst_split for the case, without a loss, valid until
 * the next call. Changing buffers belong to stage 0 if several stages write
 * them. */
struct pst_split_options golden_options(const struct golden *golden);

const char *golden_text(const json_t *object, const char *key);

#endif
