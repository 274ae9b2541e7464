// SPDX-License-Identifier: Apache-2.0
/* A run that continues with other steps still draws each sample exactly once.
 */
#include "tests/test.h"

#include "stages/base/str.h"
#include "stages/files/data/stream.h"

#include <string.h>

#define MOST 64

static struct pst_stream stream(uint64_t size, uint64_t window, uint64_t unit,
                                uint64_t per_step, bool shuffle)
{
    return (struct pst_stream){.size = size,
                               .window = window,
                               .unit = unit,
                               .per_step = per_step,
                               .shuffle = shuffle,
                               .seed = 9};
}

/* Returns the stream of a run that continues from `from` before that step. */
static struct pst_stream go_on(const struct pst_stream *from, uint64_t step,
                               uint64_t window, uint64_t per_step)
{
    struct pst_stream ret =
        stream(from->size, window, from->unit, per_step, from->shuffle);
    struct pst_data_place place;

    pst_stream_place(from, step, &place);
    assert_true(place.known);
    assert_int_equal(place.unit, from->unit);
    assert_int_equal(place.step, from->per_step * from->window);
    assert_true(pst_stream_begin(&ret, step, place.pass, place.at));
    return ret;
}

/* Whatever a step draws, and however often that changes, the samples are those
 * of an uninterrupted run. */
static void other_steps_draw_the_same_samples(void **state)
{
    (void)state;
    for (unsigned k = 0; k < 2000; k++) {
        const uint64_t unit = k % 3 + 1, window = k % 5 + 1;
        const uint64_t size = unit * (k % 11 + 1) * window + k % window;
        const bool shuffle = k & 64;
        const struct pst_stream whole =
            stream(size, window, shuffle ? unit : 1, 1, shuffle);
        struct pst_stream part = whole;
        uint64_t n = 0, step = k % 7;

        part.per_step = k % 4 + 1;
        assert_true(pst_stream_begin(&part, step, 0, 0));
        for (unsigned run = 0; run < 4; run++) {
            const uint64_t steps = (k + run) % 5;

            for (uint64_t i = 0; i < steps * part.per_step; i++, n++)
                assert_int_equal(pst_stream_at(&part, i),
                                 pst_stream_at(&whole, n));
            step += steps;
            part = go_on(&part, step, window, (k + run) % 6 + 1);
        }
    }
}

/* Windows of another length begin where the last one ended, until the end of
 * the pass; later passes begin at the start of the file. */
static void other_windows_go_on_in_order(void **state)
{
    const struct pst_stream before = stream(100, 3, 1, 4, false);
    struct pst_stream now = go_on(&before, 3, 5, 2), later;

    (void)state;
    for (uint64_t i = 0; i < 12; i++)
        assert_int_equal(pst_stream_at(&now, i), 36 + 5 * i);
    /* The last 4 tokens of the pass are too few. */
    assert_int_equal(pst_stream_at(&now, 12), 0);
    assert_int_equal(pst_stream_at(&now, 12 + 20), 0);
    later = go_on(&now, 3 + 6, 4, 1); /* windows of 4 tokens use these 4 */
    assert_int_equal(pst_stream_at(&later, 0), 96);
    assert_int_equal(pst_stream_at(&later, 1), 0);
    later = go_on(&now, 3 + 6 + 10, 4, 1);
    assert_int_equal(pst_stream_at(&later, 0), 0);
    later = go_on(&now, 3 + 6 + 1, 4, 1);
    assert_int_equal(pst_stream_at(&later, 0), 10);
}

/* The rest of a shuffled pass is as long as before: the 60 tokens that are left
 * give 10 windows of the new length. */
static void other_windows_of_a_shuffled_pass(void **state)
{
    const struct pst_stream before = stream(120, 3, 1, 4, true);
    const struct pst_stream now = go_on(&before, 5, 6, 1); /* 60 tokens drawn */
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

static void refuses_places_that_no_run_had(void **state)
{
    struct pst_stream s = stream(100, 3, 1, 4, false);

    (void)state;
    assert_false(pst_stream_begin(&s, 0, UINT64_MAX, 0));
    assert_false(pst_stream_begin(&s, 0, UINT64_MAX / 100, 0));
    /* No overflow with a long file. */
    assert_true(pst_stream_begin(&s, 0, 1000, UINT64_MAX));
    assert_int_equal(pst_stream_at(&s, 0), 0);
    s.shuffle = true;
    assert_true(pst_stream_begin(&s, 0, 1000, UINT64_MAX));
    assert_true(pst_stream_at(&s, 0) < 100);
}

static void assert_list(const struct pst_stream *s, uint64_t n, uint64_t count,
                        const char *want)
{
    struct pst_str text = {0};

    pst_stream_list(s, n, count, &text);
    assert_string_equal(pst_str_text(&text), want);
    pst_str_fini(&text);
}

static void lists_neighbours_as_one(void **state)
{
    const struct pst_stream rows = stream(10, 1, 1, 4, false);
    const struct pst_stream tokens = stream(20, 3, 1, 4, false);

    (void)state;
    assert_list(&rows, 4, 4, "4 to 7");
    assert_list(&rows, 3, 1, "3");
    assert_list(&rows, 8, 4, "8 to 9, 0 to 1");
    assert_list(&tokens, 1, 2, "3 to 8");
    assert_list(&tokens, 5, 2, "15 to 17, 0 to 2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_steps_draw_the_same_samples),
        cmocka_unit_test(other_windows_go_on_in_order),
        cmocka_unit_test(other_windows_of_a_shuffled_pass),
        cmocka_unit_test(refuses_places_that_no_run_had),
        cmocka_unit_test(lists_neighbours_as_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
