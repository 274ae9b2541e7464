// SPDX-License-Identifier: Apache-2.0
#include "stages/base/arena.h"

#include "stages/base/checked.h"
#include "stages/base/str.h"

#include <stdarg.h>
#include <string.h>

#define FIRST_CHUNK ((size_t)4 << 10)
#define LAST_CHUNK  ((size_t)1 << 20)

/* Header of a chunk: 32 bytes, so that the data after it is aligned like the
 * block. */
struct pst_arena_chunk {
    struct pst_arena_chunk *next;
    size_t size, used;
    size_t unused;
};

void pst_arena_init(struct pst_arena *arena, enum pst_tag tag)
{
    *arena = (struct pst_arena){.tag = tag};
}

void pst_arena_fini(struct pst_arena *arena)
{
    struct pst_arena_chunk *c = arena->head;

    while (c) {
        struct pst_arena_chunk *next = c->next;

        pst_free(c);
        c = next;
    }
    arena->head = NULL;
    arena->bytes = 0;
}

/* Adds a chunk. Chunk sizes grow with the bytes allocated so far. A large block
 * that does not fit into the first chunk gets a chunk of its own size, which
 * becomes the second one, so that the free part of the first one stays in use.
 */
static struct pst_arena_chunk *add_chunk(struct pst_arena *arena, size_t size)
{
    const size_t usual =
        PST_MIN(PST_MAX(arena->bytes, FIRST_CHUNK), LAST_CHUNK);
    const int alone = arena->head && size > usual / 2;
    const size_t capacity = alone ? size : PST_MAX(size, usual);
    struct pst_arena_chunk *c;

    c = pst_calloc(arena->tag, 1, sizeof(*c) + capacity);
    if (!c)
        return NULL;
    c->size = capacity;
    if (alone) {
        c->next = arena->head->next;
        arena->head->next = c;
    } else {
        c->next = arena->head;
        arena->head = c;
    }
    return c;
}

/* The returned memory is zero: chunks are allocated zeroed, which often costs
 * the system nothing, and no part of a chunk is returned twice. */
void *pst_arena_alloc(struct pst_arena *arena, size_t size)
{
    struct pst_arena_chunk *c = arena->head;
    char *p;

    if (size > SIZE_MAX / 4)
        return NULL;
    size = (PST_MAX(size, (size_t)1) + 15) & ~(size_t)15;
    if (!c || c->size - c->used < size)
        c = add_chunk(arena, size);
    if (!c)
        return NULL;
    p = (char *)(c + 1) + c->used;
    c->used += size;
    arena->bytes += size;
    return p;
}

void *pst_arena_calloc(struct pst_arena *arena, size_t n, size_t size)
{
    size_t bytes;

    if (PST_MUL(n, size, &bytes))
        return NULL;
    return pst_arena_alloc(arena, bytes);
}

void *pst_arena_memdup(struct pst_arena *arena, const void *data, size_t size)
{
    void *p = pst_arena_alloc(arena, size);

    if (p && size)
        memcpy(p, data, size);
    return p;
}

char *pst_arena_strdup(struct pst_arena *arena, const char *text)
{
    return pst_arena_memdup(arena, text, strlen(text) + 1);
}

char *pst_arena_strndup(struct pst_arena *arena, const char *text, size_t len)
{
    const size_t n = strnlen(text, len);
    char *p = n < SIZE_MAX ? pst_arena_alloc(arena, n + 1) : NULL;

    return p ? memcpy(p, text, n) : NULL;
}

char *pst_arena_printf(struct pst_arena *arena, const char *fmt, ...)
{
    va_list ap, again;
    char *p = NULL;
    char text[128]; /* holds most texts, which are then formatted only once */
    int n;

    va_start(ap, fmt);
    va_copy(again, ap);
    n = pst_vformat(text, sizeof(text), fmt, ap);
    if (n >= 0)
        p = pst_arena_alloc(arena, (size_t)n + 1);
    if (p && (size_t)n < sizeof(text))
        memcpy(p, text, (size_t)n + 1);
    else if (p)
        pst_vformat(p, (size_t)n + 1, fmt, again);
    va_end(again);
    va_end(ap);
    return p;
}
