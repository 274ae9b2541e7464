// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_TESTS_FUZZ_MUTATE_H
#define PENSTOCK_TESTS_FUZZ_MUTATE_H
/* Random changes of a JSON document that a program might have written. */
#include <jansson.h>
#include <stdint.h>

struct mutator {
    uint64_t state; /* of the generator; never 0 */
};

unsigned mutator_pick(struct mutator *m, unsigned n);
/* One change somewhere in the document: something removed, doubled, swapped,
 * given another kind, name or number, or taken from another place in it. */
void mutate(struct mutator *m, json_t *root);

#endif
