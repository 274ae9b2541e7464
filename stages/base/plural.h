// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_BASE_PLURAL_H
#define PENSTOCK_STAGES_BASE_PLURAL_H
/* Counts in messages: "%u step%s" with pst_plural(n). Any thread. */
#include <stdint.h>

static inline const char *pst_plural(uint64_t n)
{
    return n == 1 ? "" : "s";
}

/* Returns the ending for nouns like "microbatch": "%u microbatch%s". */
static inline const char *pst_plural_es(uint64_t n)
{
    return n == 1 ? "" : "es";
}

#endif
