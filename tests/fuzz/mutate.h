// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_TESTS_FUZZ_MUTATE_H
#define PENSTOCK_TESTS_FUZZ_MUTATE_H
/* Random changes of a JSON document, as another program might have written it.
 */
#include <jansson.h>
#include <stdint.h>

struct mutator {
    uint64_t state; /* state of the generator; never 0 */
};

unsigned mutator_pick(struct mutator *m, unsigned n);
/* Makes one change somewhere in the document: something is removed, duplicated
 * or swapped, gets another kind, name or number, or is copied from elsewhere in
 * it. */
void mutate(struct mutator *m, json_t *root);

#endif
