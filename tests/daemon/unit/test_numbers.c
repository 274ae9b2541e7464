// SPDX-License-Identifier: Apache-2.0
/* Tests how a run continues after steps whose numbers are not finite, and how
 * spikes of the loss are detected. */
#include "daemon/exec/numbers.h"

#include <math.h>

#include "stages/base/str.h"
#include "tests/test.h"

static struct pstd_numbers numbers(const char *policy)
{
    return (struct pstd_numbers){.policy = policy, .limit = 3};
}

static void stops(void **state)
{
    struct pstd_numbers n = numbers("stop");

    (void)state;
    assert_int_equal(pstd_numbers_decide(&n, 5, 4), PSTD_NUMBERS_STOP);
}

static void skips_so_many_in_a_row(void **state)
{
    struct pstd_numbers n = numbers("skip");

    (void)state;
    for (uint64_t step = 5; step < 8; step++)
        assert_int_equal(pstd_numbers_decide(&n, step, 0), PSTD_NUMBERS_SKIP);
    assert_int_equal(pstd_numbers_decide(&n, 8, 0), PSTD_NUMBERS_STOP);
    pstd_numbers_count_applied(&n);
    assert_int_equal(pstd_numbers_decide(&n, 9, 0), PSTD_NUMBERS_SKIP);
    assert_int_equal(n.in_a_row, 1);
}

/* --on-nan rollback rolls back once per step, and a limited number of times per
 * checkpoint. */
static void rolls_back(void **state)
{
    struct pstd_numbers n = numbers("rollback");

    (void)state;
    assert_int_equal(pstd_numbers_decide(&n, 5, 4), PSTD_NUMBERS_ROLLBACK);
    pstd_numbers_count_applied(&n);
    assert_int_equal(pstd_numbers_decide(&n, 5, 4), PSTD_NUMBERS_SKIP);
    assert_int_equal(pstd_numbers_decide(&n, 6, 4), PSTD_NUMBERS_ROLLBACK);
    assert_int_equal(pstd_numbers_decide(&n, 7, 4), PSTD_NUMBERS_ROLLBACK);
    assert_int_equal(pstd_numbers_decide(&n, 8, 4), PSTD_NUMBERS_STOP);
    n = numbers("rollback");
    for (uint64_t step = 10; step < 100; step += 10)
        assert_int_equal(pstd_numbers_decide(&n, step + 1, step),
                         PSTD_NUMBERS_ROLLBACK);
    n = numbers("rollback"); /* the newest checkpoint is 0: there is none */
    assert_int_equal(pstd_numbers_decide(&n, 1, 0), PSTD_NUMBERS_ROLLBACK);
    assert_int_equal(pstd_numbers_decide(&n, 1, 0), PSTD_NUMBERS_SKIP);
    assert_int_equal(pstd_numbers_decide(&n, 2, 0), PSTD_NUMBERS_ROLLBACK);
    assert_int_equal(pstd_numbers_decide(&n, 3, 0), PSTD_NUMBERS_ROLLBACK);
    assert_int_equal(pstd_numbers_decide(&n, 4, 0), PSTD_NUMBERS_STOP);
    assert_int_equal(pstd_numbers_decide(&n, 5, 4), PSTD_NUMBERS_ROLLBACK);
}

static double noise(unsigned *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (double)(*seed >> 8) / (1 << 24) - .5;
}

/* A falling loss with noise has no spike; a value far above the others is
 * reported once. */
static void finds_spikes(void **state)
{
    struct pstd_spikes s = {0};
    unsigned seed = 1, spikes = 0;
    double far;

    (void)state;
    for (unsigned i = 0; i < 10000; i++)
        assert_true(pstd_spikes_add(&s, 2 + 5 * exp(i / -300.0) +
                                            .2 * noise(&seed)) == 0);
    assert_true(pstd_spikes_add(&s, (double)NAN) == 0);
    far = pstd_spikes_add(&s, 4);
    assert_true(far > 10);
    for (unsigned i = 0; i < 5; i++)
        spikes += pstd_spikes_add(&s, 4) > 0;
    assert_int_equal(spikes, 0);
    /* A loss that stays high is no spike for long. */
    for (unsigned i = 0; i < 1000; i++)
        spikes += pstd_spikes_add(&s, 4 + .2 * noise(&seed)) > 0;
    assert_true(spikes < 5);
    assert_true(fabs(s.mean - 4) < .1);
    s = (struct pstd_spikes){0}; /* the loss is constant */
    for (unsigned i = 0; i < 100; i++)
        assert_true(pstd_spikes_add(&s, 1.5) == 0);
    assert_true(pstd_spikes_add(&s, 1.6) > 6);
}

/* Until the window is full, mean and variance are those of all numbers; then
 * older ones have weights that fall exponentially. */
static void gauges(void **state)
{
    struct pstd_gauge g = {.window = 30, .threshold = 3}, read = g;
    const struct pstd_numbers did = {
        .in_a_row = 1, .furthest = 7, .rollbacks = 2, .rolled_to = 5};
    struct pstd_numbers back = {.limit = 9};
    uint64_t skipped = 0;
    double sum = 0, squares = 0, mean, variance;
    struct pst_str text = {0};
    char lines[160];
    unsigned seed = 5;

    (void)state;
    for (unsigned n = 1; n <= 30; n++) {
        const double x = 2 + noise(&seed);

        assert_true(n <= 20 ? isinf(pstd_gauge_compute_limit(&g, &g.loss))
                            : isfinite(pstd_gauge_compute_limit(&g, &g.loss)));
        pstd_gauge_add(&g, x, (double)NAN);
        sum += x;
        squares += x * x;
    }
    mean = sum / 30;
    variance = squares / 30 - mean * mean;
    assert_true(fabs(pstd_gauge_compute_limit(&g, &g.loss) -
                     (mean + 3 * sqrt(variance))) < 1e-9);
    assert_true(isinf(pstd_gauge_compute_limit(&g, &g.norm)));
    pstd_gauge_add(&g, 9, 1);
    variance = 29 / 30. * (variance + (9 - mean) * (9 - mean) / 30);
    mean += (9 - mean) / 30;
    assert_true(fabs(pstd_gauge_compute_limit(&g, &g.loss) -
                     (mean + 3 * sqrt(variance))) < 1e-9);
    pst_str_add(&text, "--lr=1\n");
    pstd_gauge_print(&g, lines, sizeof(lines));
    pst_str_add(&text, lines);
    pstd_numbers_print(&did, 3, lines, sizeof(lines));
    pst_str_addf(&text, "%sother=1\n", lines);
    pstd_gauge_read(&read, pst_str_text(&text));
    assert_memory_equal(&read, &g, sizeof(g));
    pstd_numbers_read(&back, &skipped, pst_str_text(&text));
    assert_int_equal(skipped, 3);
    assert_int_equal(back.in_a_row, 1);
    assert_int_equal(back.furthest, 7);
    assert_int_equal(back.rollbacks, 2);
    assert_int_equal(back.rolled_to, 5);
    assert_int_equal(back.limit, 9);
    pstd_gauge_read(&read, "spikes.loss=1 nan 0\nspikes.norm=2 1\n");
    assert_int_equal(read.loss.seen + read.norm.seen, 0);
    pst_str_fini(&text);
    /* A short window is full before 20 numbers are. */
    g = (struct pstd_gauge){.window = 2, .threshold = 1};
    pstd_gauge_add(&g, 1, 1);
    pstd_gauge_add(&g, 3, 1);
    assert_true(fabs(pstd_gauge_compute_limit(&g, &g.loss) - 3) < 1e-12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stops),      cmocka_unit_test(skips_so_many_in_a_row),
        cmocka_unit_test(rolls_back), cmocka_unit_test(finds_spikes),
        cmocka_unit_test(gauges),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
