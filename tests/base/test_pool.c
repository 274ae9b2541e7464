// SPDX-License-Identifier: Apache-2.0
/* The kernel pool runs every part once, loses no wake-up and allocates nothing.
 */
#include "tests/test.h"

#include "stages/base/alloc.h"
#include "stages/base/host/cpu.h"
#include "stages/base/host/pool.h"
#include "stages/base/host/thread.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ITEMS 1000

struct work {
    int64_t round;
    int64_t items[ITEMS];
    unsigned parts;
};

static void add_round(void *ctx, unsigned part, unsigned parts)
{
    struct work *w = ctx;
    int64_t begin, end;

    pst_pool_share(ITEMS, 7, part, parts, &begin, &end);
    for (int64_t i = begin; i < end; i++)
        w->items[i] += w->round;
    if (part == 0)
        w->parts = parts;
}

static void run_rounds(unsigned threads)
{
    struct timespec pause = {0, 200000};
    struct pst_diag diag;
    struct pst_pool *pool;
    struct work w = {0};
    int64_t sum = 0;
    uint64_t calls;

    assert_ok(pst_pool_new(threads, &pool, &diag), &diag);
    assert_int_equal(pst_pool_threads(pool), threads);
    calls = pst_alloc_calls();
    for (w.round = 1; w.round <= 3000; w.round++) {
        pst_pool_run(pool, add_round, &w);
        sum += w.round;
        if (w.round % 100 == 0)
            nanosleep(&pause, NULL); /* helper threads fall asleep */
        assert_int_equal(w.items[0], sum);
        assert_int_equal(w.items[ITEMS - 1], sum);
    }
    assert_int_equal(pst_alloc_calls(), calls);
    assert_int_equal(w.parts, threads);
    for (int i = 0; i < ITEMS; i++)
        assert_int_equal(w.items[i], sum);
    pst_pool_free(pool);
}

static void note_node(void *ctx, unsigned part, unsigned parts)
{
    const struct pst_node *const **seen = ctx;

    (void)parts;
    seen[part] = pst_thread_node;
}

/* A crash handler in a helper thread finds the node that the caller runs. */
static void hands_on_the_node(void **state)
{
    const struct pst_node *const nodes[2] = {NULL};
    const struct pst_node *const *seen[4];
    struct pst_diag diag;
    struct pst_pool *pool;

    (void)state;
    assert_ok(pst_pool_new(4, &pool, &diag), &diag);
    for (unsigned i = 0; i < 3; i++) {
        pst_thread_node = i < 2 ? &nodes[i] : NULL;
        pst_pool_run(pool, note_node, seen);
        for (unsigned part = 0; part < 4; part++)
            assert_ptr_equal(seen[part], pst_thread_node);
    }
    pst_pool_free(pool);
}

static void runs_every_part(void **state)
{
    (void)state;
    for (unsigned threads = 1; threads <= 4; threads++)
        run_rounds(threads);
}

static void null_is_one_thread(void **state)
{
    struct work w = {.round = 5};

    (void)state;
    pst_pool_run(NULL, add_round, &w);
    assert_int_equal(pst_pool_threads(NULL), 1);
    assert_int_equal(w.parts, 1);
    assert_int_equal(w.items[ITEMS - 1], 5);
    pst_pool_free(NULL);
}

static void refuses_silly_counts(void **state)
{
    struct pst_pool *pool = NULL;
    struct pst_diag diag;

    (void)state;
    assert_int_equal(pst_pool_new(0, &pool, &diag), PST_ERR_RANGE);
    assert_int_equal(pst_pool_new(1u << 20, &pool, &diag), PST_ERR_RANGE);
    pst_alloc_fail_at(1);
    assert_int_equal(pst_pool_new(2, &pool, &diag), PST_ERR_NOMEM);
    pst_alloc_fail_at(0);
    assert_null(pool);
}

/* Shares are in order and without gaps, begin at grains, and differ by at most
 * one grain. */
static void shares_cover_exactly(void **state)
{
    (void)state;
    for (int64_t n = 0; n < 70; n++) {
        for (int64_t grain = 1; grain <= 16; grain += 5) {
            for (unsigned parts = 1; parts <= 5; parts++) {
                int64_t at = 0;

                for (unsigned p = 0; p < parts; p++) {
                    const int64_t units = (n + grain - 1) / grain;
                    int64_t begin, end;

                    pst_pool_share(n, grain, p, parts, &begin, &end);
                    assert_int_equal(begin, at);
                    assert_true(end >= begin);
                    assert_true(end == n || end % grain == 0);
                    assert_true(end - begin <=
                                (units + parts - 1) / parts * grain);
                    at = end;
                }
                assert_int_equal(at, n);
            }
        }
    }
}

static void cpu_says_something(void **state)
{
    (void)state;
    assert_true(pst_cpu_count() >= 1);
    assert_true(strlen(pst_cpu_features()) > 0);
    /* main() has set PST_ISA_ANY. */
    assert_int_equal(pst_cpu_isa(), PST_ISA_ANY);
    assert_string_equal(pst_isa_name(PST_ISA_AVX2), "avx2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_every_part),
        cmocka_unit_test(hands_on_the_node),
        cmocka_unit_test(null_is_one_thread),
        cmocka_unit_test(refuses_silly_counts),
        cmocka_unit_test(shares_cover_exactly),
        cmocka_unit_test(cpu_says_something),
    };

    setenv("PST_ISA", "any", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
