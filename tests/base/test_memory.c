// SPDX-License-Identifier: Apache-2.0
/* Tests allocation, arenas, vectors and maps, each with failing allocations. */
#include "tests/test.h"

#include "stages/base/arena.h"
#include "stages/base/map.h"
#include "stages/base/vec.h"

#include <stdio.h>
#include <string.h>

static void counts_live_bytes(void **state)
{
    const uint64_t live = pst_alloc_live(PST_TAG_TEST);
    const uint64_t calls = pst_alloc_calls();
    char *p = pst_alloc(PST_TAG_TEST, 100);

    (void)state;
    assert_non_null(p);
    assert_int_equal((uintptr_t)p % 16, 0);
    assert_int_equal(pst_alloc_live(PST_TAG_TEST), live + 100);
    memset(p, 7, 100);
    p = pst_realloc(PST_TAG_TEST, p, 5000);
    assert_non_null(p);
    assert_int_equal(p[99], 7);
    assert_int_equal(pst_alloc_live(PST_TAG_TEST), live + 5000);
    assert_int_equal(pst_alloc_calls(), calls + 2);
    pst_free(p);
    assert_int_equal(pst_alloc_live(PST_TAG_TEST), live);
    pst_free(NULL);
}

static void refuses_overflow(void **state)
{
    struct pst_arena arena;
    struct PST_VEC(uint64_t) v = {0};

    (void)state;
    assert_null(pst_calloc(PST_TAG_TEST, SIZE_MAX / 2, 4));
    assert_null(pst_alloc(PST_TAG_TEST, SIZE_MAX - 3));
    pst_arena_init(&arena, PST_TAG_TEST);
    assert_null(pst_arena_alloc(&arena, SIZE_MAX - 3));
    assert_null(pst_arena_calloc(&arena, SIZE_MAX / 4, 8));
    pst_arena_fini(&arena);
    assert_false(pst_vec_reserve(PST_TAG_TEST, &v, SIZE_MAX / 4));
    assert_true(pst_vec_push(PST_TAG_TEST, &v, 3));
    assert_false(pst_vec_reserve(PST_TAG_TEST, &v, SIZE_MAX));
    assert_int_equal(v.n, 1);
    pst_vec_fini(&v);
}

static void fails_once_on_demand(void **state)
{
    void *p[4];

    (void)state;
    pst_alloc_fail_at(3);
    for (int i = 0; i < 4; i++)
        p[i] = pst_alloc(PST_TAG_TEST, 1);
    pst_alloc_fail_at(0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(p[i] == NULL, i == 2);
    for (int i = 0; i < 4; i++)
        pst_free(p[i]);
}

static void arena_blocks_are_zero_and_apart(void **state)
{
    const uint64_t live = pst_alloc_live(PST_TAG_TEST);
    struct pst_arena arena;
    unsigned char *blocks[2000];

    (void)state;
    pst_arena_init(&arena, PST_TAG_TEST);
    for (size_t i = 0; i < PST_COUNT(blocks); i++) {
        const size_t size = i % 97 == 0 ? 9000 + i : i % 61;

        blocks[i] = pst_arena_alloc(&arena, size);
        assert_non_null(blocks[i]);
        assert_int_equal((uintptr_t)blocks[i] % 16, 0);
        for (size_t j = 0; j < size; j++)
            assert_int_equal(blocks[i][j], 0);
        memset(blocks[i], (int)(i % 251), size);
    }
    for (size_t i = 0; i < PST_COUNT(blocks); i++) {
        const size_t size = i % 97 == 0 ? 9000 + i : i % 61;

        for (size_t j = 0; j < size; j++)
            assert_int_equal(blocks[i][j], i % 251);
    }
    assert_string_equal(pst_arena_strndup(&arena, "abcdef", 3), "abc");
    assert_string_equal(pst_arena_printf(&arena, "%s-%d", "x", 12), "x-12");
    pst_arena_fini(&arena);
    assert_int_equal(pst_alloc_live(PST_TAG_TEST), live);
}

static void map_keeps_order_while_it_grows(void **state)
{
    static int values[5000];
    struct pst_map map;
    char key[32];

    (void)state;
    pst_map_init(&map, PST_TAG_TEST);
    assert_null(pst_map_get(&map, "none"));
    for (int i = 0; i < 5000; i++) {
        snprintf(key, sizeof(key), "layers.%d.weight", i * 7919 % 5000);
        assert_true(pst_map_put(&map, key, &values[i]));
    }
    assert_true(pst_map_put(&map, "layers.0.weight", &values[42]));
    assert_true(pst_map_put(&map, "", NULL));
    assert_int_equal(map.n, 5001);
    for (int i = 1; i < 5000; i++) {
        snprintf(key, sizeof(key), "layers.%d.weight", i * 7919 % 5000);
        assert_ptr_equal(pst_map_get(&map, key), &values[i]);
        assert_string_equal(map.entries[i].key, key);
    }
    assert_ptr_equal(pst_map_get(&map, "layers.0.weight"), &values[42]);
    assert_true(pst_map_has(&map, ""));
    assert_null(pst_map_get(&map, ""));
    assert_false(pst_map_has(&map, "layers.5000.weight"));
    pst_map_fini(&map);
}

/* If an allocation fails, earlier entries are still there. */
static void map_survives_failing_memory(void **state)
{
    const uint64_t live = pst_alloc_live(PST_TAG_TEST);
    int done = 0;

    (void)state;
    for (uint64_t n = 1; !done; n++) {
        struct pst_map map;
        char key[16];
        int i;

        pst_map_init(&map, PST_TAG_TEST);
        pst_alloc_fail_at(n);
        for (i = 0; i < 60; i++) {
            snprintf(key, sizeof(key), "k%d", i);
            if (!pst_map_put(&map, key, &map))
                break;
        }
        pst_alloc_fail_at(0);
        done = i == 60;
        assert_int_equal(map.n, i);
        while (i-- > 0) {
            snprintf(key, sizeof(key), "k%d", i);
            assert_true(pst_map_has(&map, key));
        }
        pst_map_fini(&map);
    }
    assert_int_equal(pst_alloc_live(PST_TAG_TEST), live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_live_bytes),
        cmocka_unit_test(refuses_overflow),
        cmocka_unit_test(fails_once_on_demand),
        cmocka_unit_test(arena_blocks_are_zero_and_apart),
        cmocka_unit_test(map_keeps_order_while_it_grows),
        cmocka_unit_test(map_survives_failing_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
