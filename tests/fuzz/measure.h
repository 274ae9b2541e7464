// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_TESTS_FUZZ_MEASURE_H
#define PENSTOCK_TESTS_FUZZ_MEASURE_H
/* Time and memory that a reader takes for some bytes, in a process of its own:
 * the best of some tries. */
#include "stages/base/diag.h"

#include <stdbool.h>
#include <stddef.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED true /* whose own time and memory count */
#else
#define SANITIZED false
#endif

#define ROOM ((size_t)64 << 20) /* of bytes */
/* What the heap takes at least. */
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

/* None yet, and ROOM for them. */
struct bytes map_bytes(void);
void put(struct bytes *b, const void *data, size_t n);
/* How often it is tried, if no try before stays within both limits: another
 * one could tell nothing new. */
struct tries {
    unsigned most;
    double ms;
    size_t grown;
};

struct measured measure(reader_fn read, const struct bytes *b,
                        struct tries tries);

#endif
