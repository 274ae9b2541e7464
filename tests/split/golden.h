// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_TESTS_SPLIT_GOLDEN_H
#define PENSTOCK_TESTS_SPLIT_GOLDEN_H
/* The splitter's goldens (tests/data): models with PyTorch's graphs, the
 * split that is right, the numbers of the uncut model, what PyTorch does. One
 * entry per way of cutting. */
#include "tests/test.h"

#include "stages/split/plan.h"

#include <jansson.h>

#define GOLDEN_MAX 200

struct golden {
    char name[128]; /* "11-begin-and-end #2" */
    char model[512], numbers[512];
    json_t *file, *split;
};

/* Reads the folder; 0 if it is not there. Every entry is freed by clear. */
size_t golden_load(const char *dir, struct golden *ret);
void golden_clear(struct golden *goldens, size_t n);

/* Where the case is cut, for pst_split; lives until the next call. Any loss.
 * Buffers that change are stage 0's if several stages write them. */
struct pst_split_options golden_options(const struct golden *golden);

const char *golden_text(const json_t *object, const char *key);

#endif
