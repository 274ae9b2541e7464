// SPDX-License-Identifier: Apache-2.0
/* Tests which rank is named as the straggler, for durations with random
 * noise. */
#include "daemon/exec/health/straggler.h"

#include <math.h>

#include "tests/test.h"

#define RANKS 4

struct rig {
    struct pstd_stragglers s;
    uint64_t seed;
    double noise;       /* relative variation of a duration */
    double base[RANKS]; /* computing time in seconds */
    double slow[RANKS]; /* slowdown factor of each rank */
    double all;         /* slowdown factor of all ranks */
    double wait;        /* seconds of a step besides computing */
    unsigned named, gone, measures;
    struct pstd_straggler newest;
};

/* Returns a random number between 0 and 1. */
static double draw(struct rig *r)
{
    r->seed = r->seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(r->seed >> 40) / (double)(1 << 24);
}

/* Returns a random factor for a duration. One in twenty is doubled, as if the
 * machine had other work. */
static double noise(struct rig *r)
{
    const double x = 1 + r->noise * draw(r);

    return draw(r) < .05 ? 2 * x : x;
}

static void rig_init(struct rig *r, uint64_t seed, unsigned per_replica)
{
    struct pst_diag diag;

    *r = (struct rig){
        .seed = seed * 7919 + 1, .noise = .1, .all = 1, .wait = .01};
    for (unsigned k = 0; k < RANKS; k++) {
        r->base[k] = per_replica < RANKS ? .02 + .01 * (k % per_replica)
                                         : .02 + .02 * draw(r);
        r->slow[k] = 1;
    }
    assert_ok(pstd_stragglers_init(&r->s, RANKS, per_replica, &diag), &diag);
}

static void collect_changes(struct rig *r)
{
    for (unsigned i = 0; i < r->s.n_changes; i++) {
        r->newest = r->s.changes[i];
        r->named += r->newest.named;
        r->gone += !r->newest.named;
    }
}

static void step(struct rig *r)
{
    double longest = 0;

    for (unsigned k = 0; k < RANKS; k++) {
        r->s.work[k] =
            (struct pstd_work){r->base[k] * r->slow[k] * r->all * noise(r), 4};
        longest = fmax(longest, r->s.work[k].seconds);
    }
    pstd_stragglers_step(&r->s, r->s.work, longest + r->wait * r->all);
    collect_changes(r);
}

static void steps(struct rig *r, unsigned n)
{
    while (n-- > 0)
        step(r);
}

/* In each of 50 jobs the slow rank is named within 30 steps, and its recovery
 * is reported. */
static void names_the_slow_rank(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 50; seed++) {
        const unsigned who = seed % RANKS;
        unsigned n = 0;
        struct rig r;

        rig_init(&r, seed, RANKS);
        steps(&r, 100);
        assert_int_equal(r.named, 0);
        r.slow[who] = 1.5;
        for (; r.named == 0 && n < 30; n++)
            step(&r);
        assert_int_equal(r.named, 1);
        assert_int_equal(r.newest.rank, who);
        assert_false(r.newest.communication);
        assert_true(r.newest.ratio > 1.3 && r.newest.ratio < 1.8);
        assert_int_equal(pstd_stragglers_count(&r.s), 1);
        steps(&r, 200); /* rank `who` is named only once */
        assert_int_equal(r.named, 1);
        assert_int_equal(r.gone, 0);
        r.slow[who] = 1;
        steps(&r, 30);
        assert_int_equal(r.gone, 1);
        assert_int_equal(r.newest.rank, who);
        assert_int_equal(pstd_stragglers_count(&r.s), 0);
        pstd_stragglers_fini(&r.s);
    }
}

/* No rank is named in 10 000 clean steps, even while all ranks are equally
 * slow. */
static void names_nobody(void **state)
{
    unsigned alarms = 0;

    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct rig r;

        rig_init(&r, seed, seed % 2 == 0 ? RANKS : 2);
        steps(&r, 250);
        r.all = 2; /* another user's job */
        steps(&r, 250);
        r.all = 1;
        alarms += r.named + r.s.suspicious;
        pstd_stragglers_fini(&r.s);
    }
    assert_int_equal(alarms, 0);
}

/* With replicas, a rank that is slow from the first step on is named, since it
 * is compared with the rank of the other replica. */
static void knows_what_replicas_take(void **state)
{
    struct rig r;

    (void)state;
    rig_init(&r, 5, 2);
    r.slow[2] = 1.6;
    steps(&r, 60);
    assert_int_equal(r.named, 1);
    assert_int_equal(r.newest.rank, 2);
    pstd_stragglers_fini(&r.s);
}

/* If steps get longer without more computing, the rank with slow messages is
 * named. */
static void names_slow_messages(void **state)
{
    double messages[RANKS] = {.001, .002, .035, .001};
    struct rig r;
    unsigned n = 0;

    (void)state;
    rig_init(&r, 7, RANKS);
    steps(&r, 100);
    r.wait += .05;
    for (; !r.s.suspicious && n < 30; n++)
        step(&r);
    assert_true(r.s.suspicious);
    pstd_stragglers_measured(&r.s, messages);
    collect_changes(&r);
    assert_int_equal(r.named, 1);
    assert_int_equal(r.newest.rank, 2);
    assert_true(r.newest.communication);
    assert_int_equal(pstd_stragglers_count(&r.s), 1);
    steps(&r, 50);
    assert_false(r.s.suspicious); /* the straggler is already known */
    r.wait -= .05;
    steps(&r, 30);
    assert_int_equal(r.gone, 1);
    assert_true(r.newest.communication);
    /* Messages do not explain the delay: no rank is named, and a step is
     * measured only rarely. */
    r.wait += .05;
    messages[2] = .003;
    for (n = 0; n < 1000; n++) {
        step(&r);
        if (r.s.suspicious) {
            r.measures++;
            pstd_stragglers_measured(&r.s, messages);
            collect_changes(&r);
        }
    }
    assert_int_equal(r.named, 1);
    assert_in_range(r.measures, 2, 6);
    /* With another model, the detection begins anew. */
    r.slow[1] = 2;
    steps(&r, 30);
    assert_int_equal(r.newest.rank, 1);
    pstd_stragglers_reset(&r.s);
    collect_changes(&r);
    assert_int_equal(r.gone, 2);
    assert_int_equal(pstd_stragglers_count(&r.s), 0);
    steps(&r, 100); /* the slow rank's time is the normal one now */
    assert_int_equal(r.named, 2);
    pstd_stragglers_fini(&r.s);
}

/* A single rank cannot be a straggler. */
static void leaves_one_rank_alone(void **state)
{
    const struct pstd_work work = {.seconds = 1, .microbatches = 1};
    struct pstd_stragglers s;
    struct pst_diag diag;

    (void)state;
    assert_ok(pstd_stragglers_init(&s, 1, 1, &diag), &diag);
    for (unsigned i = 0; i < 100; i++)
        pstd_stragglers_step(&s, &work, i < 50 ? 1 : 3);
    assert_false(s.suspicious);
    assert_int_equal(s.n_changes, 0);
    assert_int_equal(pstd_stragglers_count(&s), 0);
    pstd_stragglers_fini(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_the_slow_rank),
        cmocka_unit_test(names_nobody),
        cmocka_unit_test(knows_what_replicas_take),
        cmocka_unit_test(names_slow_messages),
        cmocka_unit_test(leaves_one_rank_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
