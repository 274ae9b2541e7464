// SPDX-License-Identifier: Apache-2.0
/* A run that is continued still draws each sample exactly once. */
#include "tests/test.h"

#include "stages/files/data/stream.h"

#include <string.h>

static struct pst_stream stream(uint64_t size, uint64_t window, uint64_t unit,
                                bool shuffle)
{
    return (struct pst_stream){.size = size,
                               .window = window,
                               .unit = unit,
                               .shuffle = shuffle,
                               .seed = 9};
}

/* Returns the stream of a run that continues after n samples of `from`. */
static struct pst_stream go_on(const struct pst_stream *from, uint64_t n,
                               uint64_t window)
{
    struct pst_stream ret =
        stream(from->size, window, from->unit, from->shuffle);
    uint64_t pass, at;

    pst_stream_place(from, n, &pass, &at);
    assert_true(pst_stream_begin(&ret, pass, at));
    return ret;
}

/* Wherever a run continues, the samples are those of an uninterrupted run. */
static void continues_with_the_same_samples(void **state)
{
    (void)state;
    for (unsigned k = 0; k < 2000; k++) {
        const uint64_t unit = k % 3 + 1, window = k % 5 + 1;
        const uint64_t size = unit * (k % 11 + 1) * window + k % window;
        const bool shuffle = k & 64;
        const struct pst_stream whole =
            stream(size, window, shuffle ? unit : 1, shuffle);
        struct pst_stream part = whole;
        uint64_t n = 0;

        assert_true(pst_stream_begin(&part, 0, 0));
        for (unsigned run = 0; run < 4; run++) {
            const uint64_t drawn = (k + run) % 5 * (k % 4 + 1);

            for (uint64_t i = 0; i < drawn; i++, n++)
                assert_int_equal(pst_stream_at(&part, i),
                                 pst_stream_at(&whole, n));
            part = go_on(&part, drawn, window);
        }
    }
}

/* Windows of another length begin where the last one ended, until the end of
 * the pass; later passes begin at the start of the file. */
static void other_windows_go_on_in_order(void **state)
{
    const struct pst_stream before = stream(100, 3, 1, false);
    struct pst_stream now = go_on(&before, 12, 5), later;

    (void)state;
    for (uint64_t i = 0; i < 12; i++)
        assert_int_equal(pst_stream_at(&now, i), 36 + 5 * i);
    /* The last 4 tokens of the pass are too few for a window. */
    assert_int_equal(pst_stream_at(&now, 12), 0);
    assert_int_equal(pst_stream_at(&now, 12 + 20), 0);
    later = go_on(&now, 12, 4); /* windows of 4 tokens use these 4 */
    assert_int_equal(pst_stream_at(&later, 0), 96);
    assert_int_equal(pst_stream_at(&later, 1), 0);
    later = go_on(&now, 32, 4);
    assert_int_equal(pst_stream_at(&later, 0), 0);
    later = go_on(&now, 14, 4);
    assert_int_equal(pst_stream_at(&later, 0), 10);
}

/* The rest of a shuffled pass is as long as before: the 60 tokens that are left
 * give 10 windows of the new length. */
static void other_windows_of_a_shuffled_pass(void **state)
{
    const struct pst_stream before = stream(120, 3, 1, true);
    const struct pst_stream now = go_on(&before, 20, 6); /* 60 tokens drawn */
    uint64_t seen = 0;

    (void)state;
    for (uint64_t i = 0; i < 10; i++)
        seen |= (uint64_t)1 << pst_stream_at(&now, i) / 6;
    assert_int_equal(__builtin_popcountll(seen), 10);
    seen = 0;
    for (uint64_t i = 10; i < 30; i++) /* the next pass draws all 20 windows */
        seen |= (uint64_t)1 << pst_stream_at(&now, i) / 6;
    assert_int_equal(seen, 0xfffff);
}

/* A position that a stream has reached is as many samples from its beginning,
 * wherever it began; an earlier position is none. */
static void counts_samples_to_a_position(void **state)
{
    (void)state;
    for (unsigned k = 0; k < 600; k++) {
        const uint64_t unit = k % 3 + 1, window = k % 5 + 1;
        const uint64_t size = unit * (k % 11 + 1) * window + k % window;
        const bool shuffle = k & 64;
        const struct pst_stream whole =
            stream(size, window, shuffle ? unit : 1, shuffle);
        const struct pst_stream begun =
            go_on(&whole, k % 17, PST_MIN(k % 4 + 1, window));
        const struct pst_stream part = go_on(&begun, k % 7, window);

        for (uint64_t n = 0; n < 40; n++) {
            const struct pst_stream later = go_on(&part, n, window);

            assert_int_equal(pst_stream_count(&part, later.pass, later.at), n);
            assert_int_equal(pst_stream_count(&later, part.pass, part.at), 0);
        }
    }
}

static void refuses_places_that_no_run_had(void **state)
{
    struct pst_stream s = stream(100, 3, 1, false);

    (void)state;
    assert_false(pst_stream_begin(&s, UINT64_MAX, 0));
    assert_false(pst_stream_begin(&s, UINT64_MAX / 100, 0));
    /* No overflow with a long file. */
    assert_true(pst_stream_begin(&s, 1000, UINT64_MAX));
    assert_int_equal(pst_stream_at(&s, 0), 0);
    s.shuffle = true;
    assert_true(pst_stream_begin(&s, 1000, UINT64_MAX));
    assert_true(pst_stream_at(&s, 0) < 100);
}

static void permutations_are_permutations(void **state)
{
    static unsigned char seen[70000];

    (void)state;
    for (uint64_t n = 1; n < 70000; n = n < 70 ? n + 1 : n * 3 - 1) {
        uint64_t fixed = 0;

        memset(seen, 0, n);
        for (uint64_t i = 0; i < n; i++) {
            const uint64_t j = pst_data_permute(7, 3, n, i);

            assert_true(j < n);
            assert_int_equal(seen[j]++, 0);
            fixed += i == j;
        }
        assert_true(n < 20 || fixed < 10);
    }
    assert_int_not_equal(pst_data_permute(7, 3, 1ull << 40, 5),
                         pst_data_permute(8, 3, 1ull << 40, 5));
    assert_true(pst_data_permute(7, 3, UINT64_MAX, UINT64_MAX - 1) <
                UINT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(continues_with_the_same_samples),
        cmocka_unit_test(counts_samples_to_a_position),
        cmocka_unit_test(other_windows_go_on_in_order),
        cmocka_unit_test(other_windows_of_a_shuffled_pass),
        cmocka_unit_test(permutations_are_permutations),
        cmocka_unit_test(refuses_places_that_no_run_had),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
