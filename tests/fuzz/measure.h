// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_TESTS_FUZZ_MEASURE_H
#define PENSTOCK_TESTS_FUZZ_MEASURE_H
/* Measures the time and memory that a reader takes for some bytes. Runs in a
 * process of its own, several times, and reports the best. */
#include "stages/base/diag.h"
#include "tests/sanitized.h"

#include <stdbool.h>
#include <stddef.h>

#define CAPACITY ((size_t)64 << 20) /* maximum bytes of an input */
/* Bytes of heap that even the smallest input may take. */
#define SLACK ((size_t)512 << 10)

struct bytes {
    unsigned char *at;
    size_t n;
};

typedef enum pst_status (*reader_fn)(const struct bytes *b,
                                     struct pst_diag *diag);

struct measured {
    enum pst_status status;
    double ms;
    size_t grown;
    char text[sizeof(((struct pst_diag *)NULL)->text)];
};

/* Returns an empty buffer with a capacity of CAPACITY. */
struct bytes map_bytes(void);
void put(struct bytes *b, const void *data, size_t n);
/* Inputs are read up to `most` times, until the best time and the best growth
 * of memory (bytes) are within these limits. */
struct tries {
    unsigned most;
    double ms;
    size_t grown;
};

struct measured measure(reader_fn read, const struct bytes *b,
                        struct tries tries);

#endif
