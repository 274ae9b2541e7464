// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_BASE_ARENA_H
#define PENSTOCK_STAGES_BASE_ARENA_H
/*
 * Bump allocator for objects with one lifetime (a graph, a plan). One thread at
 * a time. Pointers stay valid until fini.
 */
#include "stages/base/alloc.h"

struct pst_arena_chunk;

struct pst_arena {
    enum pst_tag tag;
    struct pst_arena_chunk *head;
    size_t bytes; /* bytes allocated so far */
};

void pst_arena_init(struct pst_arena *arena, enum pst_tag tag);
void pst_arena_fini(struct pst_arena *arena);
/* Allocates zeroed memory, 16-byte aligned; NULL on failure. */
void *pst_arena_alloc(struct pst_arena *arena, size_t size) PST_MUST_CHECK;
void *pst_arena_calloc(struct pst_arena *arena, size_t n,
                       size_t size) PST_MUST_CHECK;
void *pst_arena_memdup(struct pst_arena *arena, const void *data,
                       size_t size) PST_MUST_CHECK;
char *pst_arena_strdup(struct pst_arena *arena,
                       const char *text) PST_MUST_CHECK;
char *pst_arena_strndup(struct pst_arena *arena, const char *text,
                        size_t len) PST_MUST_CHECK;
char *pst_arena_printf(struct pst_arena *arena, const char *fmt, ...)
    PST_PRINTF(2, 3) PST_MUST_CHECK;

#endif
