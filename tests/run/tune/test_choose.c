// SPDX-License-Identifier: Apache-2.0
/* Tests options that trade time for memory: each estimate is right, and a
 * memory limit selects the fastest option that fits. */
#include "stages/tune/choose.h"
#include "tests/run/net.h"

static struct pst_exec_options open_options(unsigned replicas,
                                            unsigned microbatches)
{
    struct pst_exec_options ret =
        net_options("gpipe", 2, microbatches, "adamw");

    ret.replicas = replicas;
    ret.recompute = "auto";
    ret.shard_by = "auto";
    ret.stash = "disk:/tmp";
    return ret;
}

static const char *unless_none(const char *word)
{
    return strcmp(word, "none") == 0 ? NULL : word;
}

/* Returns the peak bytes of the fullest rank with this option, laid out on its
 * own. */
static size_t peak_of(struct net *net, struct pst_exec_options o)
{
    struct pst_memory memory[2];

    o.memory_limit = 0;
    assert_ok(pst_exec_plan(net->plan, &o, memory, &net->diag), &net->diag);
    return PST_MAX(memory[0].arena, memory[1].arena);
}

static struct pst_exec_options with_choice(struct pst_exec_options o,
                                           const struct pst_choice *c)
{
    o.recompute = unless_none(c->recompute);
    o.shard_by = unless_none(c->shard);
    o.stash = unless_none(c->stash);
    o.stash_keep = 2;
    return o;
}

static void reports_what_each_way_needs(void **state)
{
    const struct pst_exec_options options = open_options(2, 12);
    struct pst_choices choices;
    unsigned possible = 0;
    struct net net;

    (void)state;
    net_init(&net, 4);
    assert_ok(pst_exec_choices(net.plan, &options, false, &choices, &net.diag),
              &net.diag);
    assert_int_equal(choices.all.n, 6 * 4 * 2);
    for (size_t i = 0; i < choices.all.n; i++) {
        const struct pst_choice *c = &choices.all.at[i];

        /* the model has neither attention nor layers */
        assert_int_equal(c->possible, strcmp(c->recompute, "none") == 0 ||
                                          strcmp(c->recompute, "full") == 0);
        if (!c->possible)
            continue;
        possible++;
        assert_true(c->step > 0 && c->fits);
        assert_int_equal(c->peak, peak_of(&net, with_choice(options, c)));
    }
    assert_int_equal(possible, 2 * 4 * 2);
    pst_choices_fini(&choices);
    net_fini(&net);
}

/* Returns the fastest option that fits; among equally fast ones, the one that
 * trades least. */
static const struct pst_choice *best_of(const struct pst_choices *choices,
                                        size_t limit)
{
    const struct pst_choice *best = NULL;

    for (size_t i = 0; i < choices->all.n; i++) {
        const struct pst_choice *c = &choices->all.at[i];

        if (c->possible && c->peak <= limit &&
            (best == NULL || c->step < best->step))
            best = c;
    }
    return best;
}

static void takes_what_fits(void **state)
{
    struct pst_exec_options options = open_options(2, 12);
    struct pst_choices choices;
    struct pst_diag diag;
    size_t least = SIZE_MAX;
    unsigned outside = 0;
    struct net net;

    (void)state;
    net_init(&net, 4);
    assert_ok(pst_exec_choices(net.plan, &options, false, &choices, &net.diag),
              &net.diag);
    for (size_t i = 0; i < choices.all.n; i++) {
        const size_t limit = choices.all.at[i].peak;
        struct pst_exec_options o = options;

        if (!choices.all.at[i].possible)
            continue;
        least = PST_MIN(least, limit);
        o.memory_limit = (double)limit;
        assert_ok(pst_exec_choose(net.plan, &o, &diag), &diag);
        assert_true(peak_of(&net, o) <= limit);
        for (size_t k = 0; k < choices.all.n; k++) {
            const struct pst_choice *c = &choices.all.at[k];

            if (c->possible && unless_none(c->recompute) == o.recompute &&
                unless_none(c->shard) == o.shard_by &&
                unless_none(c->stash) == o.stash)
                assert_true(0.98 * c->step <= best_of(&choices, limit)->step);
        }
        if (o.stash == NULL)
            continue;
        outside++;
        o.stash_keep++;
        assert_true(peak_of(&net, o) > limit || o.stash_keep > 6);
    }
    assert_true(outside > 0);
    options.memory_limit = (double)least - 64;
    assert_ok(pst_exec_choose(net.plan, &options, &diag), &diag);
    assert_int_equal(peak_of(&net, options), least);
    pst_choices_fini(&choices);
    net_fini(&net);
}

static void keeps_what_was_asked_for(void **state)
{
    struct pst_exec_options options = open_options(2, 12);
    struct pst_choices choices;
    struct net net;

    (void)state;
    net_init(&net, 4);
    options.memory_limit = 1;
    options.recompute = "full";
    options.shard_by = "zero2";
    options.stash_keep = 3;
    assert_ok(pst_exec_choose(net.plan, &options, &net.diag), &net.diag);
    assert_string_equal(options.recompute, "full");
    assert_string_equal(options.shard_by, "zero2");
    assert_string_equal(options.stash, "disk:/tmp");
    assert_int_equal(options.stash_keep, 3);
    /* without a limit only requested options are used */
    options = open_options(2, 12);
    assert_ok(pst_exec_choose(net.plan, &options, &net.diag), &net.diag);
    assert_null(options.recompute);
    assert_null(options.shard_by);
    assert_string_equal(options.stash, "disk:/tmp");
    /* two replicas cannot have equal shares of 11 microbatches, which zero2 and
     * zero3 need */
    options = open_options(2, 11);
    assert_ok(pst_exec_choices(net.plan, &options, false, &choices, &net.diag),
              &net.diag);
    for (size_t i = 0; i < choices.all.n; i++)
        if (choices.all.at[i].shard[0] == 'z')
            assert_true(!choices.all.at[i].possible ||
                        strcmp(choices.all.at[i].shard, "zero1") == 0);
    pst_choices_fini(&choices);
    net_fini(&net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reports_what_each_way_needs),
        cmocka_unit_test(takes_what_fits),
        cmocka_unit_test(keeps_what_was_asked_for),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
