// SPDX-License-Identifier: Apache-2.0
#include "tests/test.h"

#include "stages/compile/memplan.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define N 60

static unsigned long seed;

static unsigned draw(unsigned below)
{
    seed = seed * 6364136223846793005ul + 1442695040888963407ul;
    return (unsigned)(seed >> 33) % below;
}

static void draw_intervals(struct pst_interval *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        list[i] = (struct pst_interval){.size = draw(2000), .begin = draw(40)};
        list[i].end = list[i].begin + draw(12);
        if (draw(10) == 0)
            list[i].size = 0;
    }
}

static void pack_intervals(struct pst_interval *list, size_t n, size_t *ret)
{
    struct pst_diag diag;

    assert_ok(pst_mem_pack(list, n, ret, &diag), &diag);
}

/* Buffers that are live at the same time share no byte. The range is large
 * enough, and not smaller than the peak of live bytes. */
static void check(const struct pst_interval *list, size_t n, size_t size)
{
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(list[i].offset % PST_MEM_ALIGN, 0);
        assert_true(list[i].offset + list[i].size <= size);
        for (size_t k = 0; k < i; k++) {
            const struct pst_interval *a = &list[i], *b = &list[k];

            if (a->begin <= b->end && b->begin <= a->end && a->size > 0 &&
                b->size > 0)
                assert_true(a->offset + a->size <= b->offset ||
                            b->offset + b->size <= a->offset);
        }
    }
    for (unsigned t = 0; t < 60; t++) {
        size_t alive = 0;

        for (size_t i = 0; i < n; i++)
            if (list[i].begin <= t && t <= list[i].end)
                alive += pst_mem_round(list[i].size);
        assert_true(size >= alive);
    }
}

static void packs_without_overlap(void **state)
{
    (void)state;
    seed = 1;
    for (int round = 0; round < 200; round++) {
        struct pst_interval list[N], again[N];
        size_t n = 1 + draw(N), size, size_again;

        draw_intervals(list, n);
        memcpy(again, list, sizeof(list));
        pack_intervals(list, n, &size);
        check(list, n, size);
        pack_intervals(again, n, &size_again);
        assert_int_equal(size, size_again);
        assert_memory_equal(list, again, n * sizeof(list[0]));
    }
}

/* Buffers with successive lifetimes share memory. */
static void reuses_memory(void **state)
{
    struct pst_interval list[] = {
        {.size = 100, .begin = 0, .end = 1},
        {.size = 130, .begin = 1, .end = 2},
        {.size = 90, .begin = 2, .end = 3},
        {.size = 64, .begin = 3, .end = 3},
    };
    size_t size;

    (void)state;
    pack_intervals(list, PST_COUNT(list), &size);
    check(list, PST_COUNT(list), size);
    assert_int_equal(size, 192 + 128);
}

static bool conflicts(const struct pst_interval *a,
                      const struct pst_interval *b)
{
    return a->begin <= b->end && b->begin <= a->end &&
           a->offset < b->offset + pst_mem_round(b->size) &&
           b->offset < a->offset + pst_mem_round(a->size);
}

/* Finds the lowest offset for list[i] by trying 0 and the ends of all buffers
 * before it. */
static void place_slowly(struct pst_interval *list, size_t i)
{
    size_t best = SIZE_MAX;

    for (size_t k = 0; k <= i; k++) {
        bool good = true;

        list[i].offset =
            k == i ? 0 : list[k].offset + pst_mem_round(list[k].size);
        for (size_t other = 0; other < i; other++)
            good = good && !conflicts(&list[i], &list[other]);
        if (good && list[i].offset < best)
            best = list[i].offset;
    }
    list[i].offset = best;
}

/* Offsets equal those of the slow search, however long the lifetimes are. Sizes
 * decrease, so that buffers are placed in the order of the list. */
static void places_as_all_others_say(void **state)
{
    static const unsigned lengths[] = {1, 30, 64, 65, 1000, 1u << 30};

    (void)state;
    seed = 2;
    for (int round = 0; round < 300; round++) {
        const unsigned length = lengths[round % PST_COUNT(lengths)];
        struct pst_interval list[N], want[N];
        size_t size;

        for (unsigned i = 0; i < N; i++) {
            list[i] = (struct pst_interval){.size = 64 * (N - i) + draw(64),
                                            .begin = draw(length)};
            list[i].end =
                list[i].begin + draw(draw(4) > 0 ? length / 16 + 1 : length);
        }
        memcpy(want, list, sizeof(list));
        for (size_t i = 0; i < N; i++)
            place_slowly(want, i);
        pack_intervals(list, N, &size);
        assert_memory_equal(list, want, sizeof(list));
    }
}

static void packs_empty_lists(void **state)
{
    size_t size = 7;

    (void)state;
    pack_intervals(NULL, 0, &size);
    assert_int_equal(size, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packs_without_overlap),
        cmocka_unit_test(reuses_memory),
        cmocka_unit_test(places_as_all_others_say),
        cmocka_unit_test(packs_empty_lists),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
