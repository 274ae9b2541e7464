// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_BASE_ALLOC_H
#define PENSTOCK_STAGES_BASE_ALLOC_H
/*
 * Heap allocation for the whole project. Any thread.
 *
 * Each allocation has a tag; live bytes and calls are counted per tag, so that
 * a test can show that a training step allocates nothing. PST_ALLOC_FAIL_AT=n
 * in the environment (or pst_alloc_fail_at) makes the n-th later call fail.
 */
#include "stages/base/macros.h"

#include <stdint.h>

#define PST_TAG_LIST(X)                                                        \
    X(BASE)                                                                    \
    X(GRAPH)                                                                   \
    X(ARCHIVE)                                                                 \
    X(PLAN) X(EXEC) X(ARENA) X(NET) X(OPTIM) X(DAEMON) X(CLIENT) X(TEST)

enum pst_tag {
#define PST_TAG_ROW(name) PST_TAG_##name,
    PST_TAG_LIST(PST_TAG_ROW)
#undef PST_TAG_ROW
        PST_N_TAGS
};

/* Allocates uninitialized memory, 16-byte aligned; NULL on failure. Size 0 is
 * legal. */
void *pst_alloc(enum pst_tag tag, size_t size) PST_MUST_CHECK;
/* Allocates n * size zeroed bytes; NULL also if n * size overflows. */
void *pst_calloc(enum pst_tag tag, size_t n, size_t size) PST_MUST_CHECK;
/* Resizes a block like realloc: p may be NULL; on failure p stays valid. */
void *pst_realloc(enum pst_tag tag, void *p, size_t size) PST_MUST_CHECK;
char *pst_strdup(enum pst_tag tag, const char *text) PST_MUST_CHECK;
void pst_free(void *p);

uint64_t pst_alloc_calls(void);
uint64_t pst_alloc_live(enum pst_tag tag);
/* Makes the n-th call from now on fail; 0 disables this. */
void pst_alloc_fail_at(uint64_t n);

#endif
