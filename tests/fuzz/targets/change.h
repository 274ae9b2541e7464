// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_TESTS_FUZZ_TARGETS_CHANGE_H
#define PENSTOCK_TESTS_FUZZ_TARGETS_CHANGE_H
/*
 * Changes of an input that keep its format: lengths, offsets and numbers of
 * elements fit afterwards, so that most changed inputs get past the first check
 * of their reader. A change of any bytes remains one of the choices. One
 * thread.
 */
#include <stddef.h>
#include <stdint.h>

#include "tests/fuzz/mutate.h"

/* Returns a little-endian number of at most 4 bytes. */
static inline uint32_t fuzz_get(const uint8_t *at, unsigned bytes)
{
    uint32_t ret = 0;

    for (unsigned i = 0; i < bytes; i++)
        ret |= (uint32_t)at[i] << (8 * i);
    return ret;
}

struct fuzz_chance {
    struct mutator random;
    /* Changes any bytes, of at most `most`; returns the new size. */
    size_t (*bytes)(uint8_t *data, size_t size, size_t most);
};

/* Changes the input in place; returns its new size, at most `most`. */
typedef size_t (*fuzz_change_fn)(struct fuzz_chance *c, uint8_t *data,
                                 size_t size, size_t most);

/* Any bytes. */
size_t fuzz_change_bytes(struct fuzz_chance *c, uint8_t *data, size_t size,
                         size_t most);
size_t fuzz_change_flight(struct fuzz_chance *c, uint8_t *data, size_t size,
                          size_t most);
/* JSON: values, kinds and lists (mutate.h). */
size_t fuzz_change_json(struct fuzz_chance *c, uint8_t *data, size_t size,
                        size_t most);
/* Words of a command line, one per line. */
size_t fuzz_change_options(struct fuzz_chance *c, uint8_t *data, size_t size,
                           size_t most);
/* Words and lines of a text. */
size_t fuzz_change_text(struct fuzz_chance *c, uint8_t *data, size_t size,
                        size_t most);
/* A protobuf message: fields at all depths. */
size_t fuzz_change_wire(struct fuzz_chance *c, uint8_t *data, size_t size,
                        size_t most);
/* An archive of stored entries: their content, mostly of the JSON. */
size_t fuzz_change_zip(struct fuzz_chance *c, uint8_t *data, size_t size,
                       size_t most);

/* Replaces bytes [from, to) of the data by n bytes; returns the new size.
 * A size above `most` leaves the data as it is. */
size_t fuzz_replace(uint8_t *data, size_t size, size_t most, size_t from,
                    size_t to, const void *with, size_t n);
/* Returns a random number below n; 0 if n is 0. */
size_t fuzz_pick(struct fuzz_chance *c, size_t n);

#endif
