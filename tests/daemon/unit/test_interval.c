// SPDX-License-Identifier: Apache-2.0
/* Tests when a run with --checkpoint-cost saves. Runs of steps and saves are
 * simulated, with a virtual clock. */
#include "daemon/exec/saves/interval.h"

#include "tests/test.h"

#define START 1000.0

struct course {
    double step_s;
    double stall_s; /* part of a save in which no step runs */
    double write_s; /* part of a save in which steps continue */
    double slower;  /* factor by which steps are slower during a save */
};

struct outcome {
    unsigned saves;
    /* Seconds lost by saves, and seconds of the whole run; time of the first
     * save, -1: none; shortest pause between two saves. */
    double lost, seconds;
    double first, closest;
};

/* Simulates `seconds` of a run whose saves may take `share` of the time. */
static struct outcome simulate_saves(const struct course *c, double share,
                                     double seconds)
{
    struct pstd_interval v;
    struct outcome o = {.closest = seconds, .first = -1};
    double now = START, open = 0, ended = 0;

    pstd_interval_init(&v, share, now);
    for (unsigned i = 0; now < START + seconds; i++) {
        const bool beside = open > 0;
        const double plain =
            i < 2 ? 3 * c->step_s : c->step_s; /* the first steps are slow */
        const double step = beside ? c->slower * plain : plain;

        if (!beside && pstd_interval_is_due(&v, now)) {
            if (ended > 0 && now - ended < o.closest)
                o.closest = now - ended;
            o.first = o.first < 0 ? now - START : o.first;
            pstd_interval_begin(&v, now);
            now += c->stall_s;
            open = now;
            o.saves++;
            o.lost += c->stall_s;
            continue;
        }
        now += step;
        o.lost += step - plain;
        pstd_interval_step(&v, step, beside);
        if (beside && now - open >= c->write_s) {
            (void)pstd_interval_end(&v, c->stall_s, now);
            open = 0;
            ended = now;
        }
    }
    o.seconds = now - START;
    return o;
}

static void stays_below_its_share(void **state)
{
    static const struct course courses[] = {
        {.01, .002, .5, 1},     {.01, .002, .5, 1.2}, {.3, .05, 2, 1.1},
        {2e-5, .001, .01, 1.5}, {20, 1, 60, 1.02},    {.1, 3, 0, 1},
    };

    (void)state;
    for (size_t i = 0; i < PST_COUNT(courses); i++)
        for (double share = .01; share < .3; share *= 3) {
            const struct course *c = &courses[i];
            const double one =
                c->stall_s + (c->slower - 1) / c->slower * c->write_s;
            const double rest =
                PST_MAX(1, 2 * (c->stall_s + c->write_s)) + c->step_s;
            const double seconds = PST_MAX(60 * one / share, 20 * rest);
            const struct outcome o =
                simulate_saves(c, share, PST_MAX(seconds, 400 * c->step_s));

            assert_true(o.saves > 3);
            /* The cost of the newest save (`one`) and a step may exceed the
             * share. */
            assert_true(o.lost - one - c->step_s <= share * o.seconds);
            assert_true(o.closest >= rest - c->step_s - 1e-6);
            /* Saves are as frequent as allowed: they use most of the share, or
             * follow each other after the shortest pause. */
            assert_true(o.lost >= .75 * share * o.seconds ||
                        o.closest <= rest + c->step_s + c->write_s * .2);
        }
}

static void the_first_comes_soon(void **state)
{
    static const struct course quick = {.01, .5, 0, 1}, slow = {60, 1, 0, 1};

    (void)state;
    assert_true(simulate_saves(&quick, .01, 10).first < 1.1);
    /* 2 slow steps and 2 others */
    assert_true(simulate_saves(&slow, .01, 1000).first <= 8 * 60);
}

static void none_unless_asked_for(void **state)
{
    static const struct course c = {.01, .002, .5, 1};

    (void)state;
    assert_int_equal(simulate_saves(&c, 0, 1000).saves, 0);
}

/* A requested save is due once, as soon as the pause after the last save is
 * over. */
static void what_is_wanted_is_due(void **state)
{
    struct pstd_interval v;

    (void)state;
    pstd_interval_init(&v, 0, START);
    pstd_interval_request(&v);
    assert_false(pstd_interval_is_due(&v, START + .5));
    assert_true(pstd_interval_is_due(&v, START + 1));
    pstd_interval_begin(&v, START + 1);
    (void)pstd_interval_end(&v, .1, START + 4);
    assert_false(pstd_interval_is_due(&v, START + 100));
    pstd_interval_request(&v);
    assert_false(pstd_interval_is_due(&v, START + 9));
    assert_true(pstd_interval_is_due(&v, START + 10));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stays_below_its_share),
        cmocka_unit_test(the_first_comes_soon),
        cmocka_unit_test(none_unless_asked_for),
        cmocka_unit_test(what_is_wanted_is_due),
    };

    return cmocka_run_group_tests_name("interval", tests, NULL, NULL);
}
