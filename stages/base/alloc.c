// SPDX-License-Identifier: Apache-2.0
#include "stages/base/alloc.h"
#include "stages/base/untrusted/budget.h"

#include "stages/base/checked.h"
#include "stages/base/host/alive.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Header before each block; keeps the 16-byte alignment of malloc. */
struct head {
    size_t size;
    size_t tag;
};

_Static_assert(sizeof(struct head) == 16, "blocks must stay 16-byte aligned");

static pthread_once_t once = PTHREAD_ONCE_INIT;
static atomic_uint_least64_t n_calls;
static atomic_uint_least64_t live[PST_N_TAGS];
/* allocation calls until one fails; 0: no call fails */
static atomic_uint_least64_t countdown;

static void read_environment(void)
{
    const char *text = getenv("PST_ALLOC_FAIL_AT");

    if (text)
        atomic_store(&countdown, strtoull(text, NULL, 10));
}

/* Counts the call; true if this one has to fail. */
static int must_fail(void)
{
    uint_least64_t left;

    pthread_once(&once, read_environment);
    atomic_fetch_add_explicit(&n_calls, 1, memory_order_relaxed);
    left = atomic_load_explicit(&countdown, memory_order_relaxed);
    while (left) {
        if (atomic_compare_exchange_weak(&countdown, &left, left - 1))
            return left == 1;
    }
    return 0;
}

/* --- budgets ------------------------------------------------------------- */

/* innermost budget of this thread */
static _Thread_local struct pst_budget *budgets;

uint64_t pst_budget_of(uint64_t bytes)
{
    uint64_t most;

    if (PST_MUL(bytes, (uint64_t)PST_BUDGET_TIMES, &most) ||
        PST_ADD(most, PST_BUDGET_LEAST, &most) || most > INT64_MAX)
        most = INT64_MAX;
    return most;
}

void pst_budget_begin(struct pst_budget *budget, uint64_t bytes)
{
    *budget =
        (struct pst_budget){.most = pst_budget_of(bytes), .outer = budgets};
    budgets = budget;
}

void pst_budget_end(struct pst_budget *budget)
{
    budgets = budget->outer;
}

/* True if all budgets allow `size` more bytes. */
static int may_take(size_t size)
{
    for (struct pst_budget *b = budgets; b != NULL; b = b->outer)
        if (b->used > 0 ? size > b->most - (uint64_t)b->used : size > b->most) {
            b->exceeded = true;
            return 0;
        }
    return 1;
}

static void count_bytes(size_t taken, size_t freed)
{
    for (struct pst_budget *b = budgets; b != NULL; b = b->outer)
        b->used += (int64_t)taken - (int64_t)freed;
}

/* --- blocks -------------------------------------------------------------- */

static struct head *head_of(void *p)
{
    return (struct head *)p - 1;
}

static void *count_block(struct head *h, enum pst_tag tag, size_t size)
{
    *h = (struct head){size, (size_t)tag};
    count_bytes(size, 0);
    pst_alive_progress(); /* long operations outside of a step allocate often */
    atomic_fetch_add_explicit(&live[tag], size, memory_order_relaxed);
    return h + 1;
}

void *pst_alloc(enum pst_tag tag, size_t size)
{
    struct head *h;

    if (must_fail() || size > SIZE_MAX / 2 || !may_take(size))
        return NULL;
    h = malloc(sizeof(*h) + size);
    return h ? count_block(h, tag, size) : NULL;
}

void *pst_calloc(enum pst_tag tag, size_t n, size_t size)
{
    struct head *h;
    size_t bytes;

    if (must_fail() || PST_MUL(n, size, &bytes) || bytes > SIZE_MAX / 2 ||
        !may_take(bytes))
        return NULL;
    h = calloc(1, sizeof(*h) + bytes);
    return h ? count_block(h, tag, bytes) : NULL;
}

void *pst_realloc(enum pst_tag tag, void *p, size_t size)
{
    struct head *old, *h;
    struct head was;

    if (!p)
        return pst_alloc(tag, size);
    old = head_of(p);
    was = *old;
    if (must_fail() || size > SIZE_MAX / 2 ||
        (size > was.size && !may_take(size - was.size)))
        return NULL;
    h = realloc(old, sizeof(*h) + size);
    if (!h)
        return NULL;
    count_bytes(0, was.size);
    atomic_fetch_sub_explicit(&live[was.tag], was.size, memory_order_relaxed);
    return count_block(h, tag, size);
}

char *pst_strdup(enum pst_tag tag, const char *text)
{
    const size_t n = strlen(text) + 1;
    char *copy = pst_alloc(tag, n);

    return copy ? memcpy(copy, text, n) : NULL;
}

void pst_free(void *p)
{
    struct head *h;

    if (!p)
        return;
    h = head_of(p);
    count_bytes(0, h->size);
    atomic_fetch_sub_explicit(&live[h->tag], h->size, memory_order_relaxed);
    free(h);
}

uint64_t pst_alloc_calls(void)
{
    return atomic_load_explicit(&n_calls, memory_order_relaxed);
}

uint64_t pst_alloc_live(enum pst_tag tag)
{
    return atomic_load_explicit(&live[tag], memory_order_relaxed);
}

void pst_alloc_fail_at(uint64_t n)
{
    pthread_once(&once, read_environment);
    atomic_store(&countdown, n);
}
