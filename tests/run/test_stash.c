// SPDX-License-Identifier: Apache-2.0
/* Tests microbatches that wait for their backward outside the arena
 * (--stash). */
#include <sys/resource.h>

#include "stages/run/rank/rank.h"
#include "stages/tune/choose.h"
#include "tests/folder.h"

#define CHANCE_MB 14
#include "tests/run/chance.h"
#include "tests/run/job.h"

/* spills: more microbatches are in flight than there are slots. */
struct row {
    const char *name;
    unsigned stages, ranks, microbatches;
    bool spills;
};

static const struct row rows[] = {
    {"gpipe", 1, 1, 9, true},
    {"gpipe", 4, 2, 7, true},
    {"1f1b", 4, 1, 7},
    {"1f1b", 4, 4, 9},
    {"interleaved-1f1b", 4, 2, 8},
    {"interleaved-1f1b", 4, 1, 6},
    {"looped-bfs", 4, 2, 6, true},
    {"zb-h1", 2, 2, 9},
    {"zb-h1", 4, 4, 12, true},
    {"zb-v", 4, 2, 9},
    {"dualpipe-v", 4, 2, 8},
};

static struct pst_exec_options options_of(const struct row *row,
                                          const char *stash)
{
    struct pst_exec_options ret =
        net_options(row->name, row->ranks, row->microbatches, "adamw");

    ret.stash = stash;
    ret.verify = true; /* slots of evicted microbatches are overwritten */
    return ret;
}

/* --- the same numbers ----------------------------------------------------- */

static void keeps_the_bits(void **state)
{
    static const char *const again[] = {NULL, "b,f", "0=full"};
    uint64_t moved = 0;

    (void)state;
    for (size_t i = 0; i < PST_COUNT(rows); i++)
        for (unsigned keep = 2; keep <= 4; keep++) {
            struct pst_exec_options plain = options_of(&rows[i], NULL);
            struct pst_exec_options options =
                options_of(&rows[i], keep % 2 == 0 ? "ram" : "disk:.");
            struct run want, got;
            struct job job;

            plain.recompute = options.recompute = again[keep - 2];
            options.stash_keep = keep;
            want = run_as(rows[i].stages, 0, &plain);
            got = run_as(rows[i].stages, 0, &options);
            assert_same_dump(want.dump, got.dump);
            assert_true(want.loss == got.loss && want.norm == got.norm);
            pst_dump_free(want.dump);
            pst_dump_free(got.dump);
            job_init(&job, rows[i].stages, &options);
            run_steps(&job, 0, 1);
            for (unsigned k = 0; k < pst_engine_n_local(job.engine); k++) {
                const struct pst_stash_totals t =
                    pst_engine_stash(job.engine, k);

                assert_int_equal(t.bytes_in, t.bytes_out);
                assert_int_equal(t.bytes_in + t.bytes_out,
                                 pst_engine_memory(job.engine, k).moved);
                moved += t.bytes_in;
            }
            job_fini(&job);
        }
    assert_true(moved > 0);
    assert_int_equal(folder_count(), 0); /* the files are unlinked */
}

/* Schedules in a random order that can run, with many microbatches in flight,
 * keep the bits. */
static void keeps_the_bits_of_lists_by_chance(void **state)
{
    unsigned moved = 0;

    (void)state;
    for (unsigned seed = 1; seed <= 30; seed++) {
        struct chance c = {.seed = seed};
        struct pst_str lists = {0};
        struct row row = {"csv:lists", CHANCE_STAGES, 0, 0, true};
        struct pst_exec_options options;
        struct pst_memory memory[CHANCE_STAGES];
        struct run want, got;
        struct net net;

        chance_make(&c, &lists);
        assert_int_equal(pst_file_write("lists", lists.text, lists.len, NULL),
                         PST_OK);
        pst_str_fini(&lists);
        row.ranks = c.ranks;
        row.microbatches = c.m;
        options = options_of(&row, NULL);
        want = run_as(CHANCE_STAGES, NET_STILL, &options);
        options.stash = "ram";
        got = run_as(CHANCE_STAGES, NET_STILL, &options);
        assert_same_dump(want.dump, got.dump);
        pst_dump_free(want.dump);
        pst_dump_free(got.dump);
        net_init_as(&net, CHANCE_STAGES, NET_STILL);
        assert_ok(pst_exec_plan(net.plan, &options, memory, &net.diag),
                  &net.diag);
        for (unsigned k = 0; k < c.ranks; k++)
            moved += memory[k].moved > 0;
        net_fini(&net);
    }
    assert_true(moved > 20);
    assert_int_equal(unlink("lists"), 0);
}

/* Replicas keep the bits, also if some have more microbatches than others. */
static void keeps_the_bits_of_replicas(void **state)
{
    const struct row row = {"gpipe", 3, 2, 14, true};
    struct pst_exec_options options = options_of(&row, NULL);
    struct run want, got;

    (void)state;
    for (unsigned shard = 0; shard <= PST_SHARING_ZERO3; shard++) {
        options.replicas = 2;
        options.shard = (enum pst_sharing)shard;
        options.stash = NULL;
        want = run_as(3, 0, &options);
        options.stash = "ram";
        got = run_as(3, 0, &options);
        assert_same_dump(want.dump, got.dump);
        pst_dump_free(want.dump);
        pst_dump_free(got.dump);
    }
}

/* --- memory --------------------------------------------------------------- */

/* The arena is smaller by exactly the bytes that are stored elsewhere. */
static void makes_the_arena_smaller(void **state)
{
    (void)state;
    for (size_t i = 0; i < PST_COUNT(rows); i++) {
        struct pst_exec_options options = options_of(&rows[i], NULL);
        struct pst_memory plain[4], less[4];
        size_t outside = 0;
        struct net net;

        net_init(&net, rows[i].stages);
        assert_ok(pst_exec_plan(net.plan, &options, plain, &net.diag),
                  &net.diag);
        options.stash = "ram";
        assert_ok(pst_exec_plan(net.plan, &options, less, &net.diag),
                  &net.diag);
        for (unsigned k = 0; k < rows[i].ranks; k++) {
            assert_true(less[k].stash <= plain[k].stash);
            assert_int_equal(plain[k].arena - less[k].arena,
                             plain[k].stash - less[k].stash);
            assert_true(less[k].outside >= plain[k].stash - less[k].stash);
            assert_true((less[k].moved > 0) == (less[k].outside > 0));
            outside += less[k].outside;
        }
        assert_true(outside > 0 || !rows[i].spills);
        options.stash_keep = rows[i].microbatches;
        assert_ok(pst_exec_plan(net.plan, &options, less, &net.diag),
                  &net.diag);
        for (unsigned k = 0; k < rows[i].ranks; k++) {
            assert_int_equal(less[k].arena, plain[k].arena);
            assert_int_equal(less[k].outside, 0);
        }
        net_fini(&net);
    }
}

/* gpipe with one stage needs three slots for any number of microbatches: where
 * forward becomes backward, one is evicted, one is computed and one is read
 * next. */
static void needs_three_slots(void **state)
{
    struct row row = {"gpipe", 1, 1, 1, true};
    size_t one = 0;
    struct net net;

    (void)state;
    net_init(&net, 1);
    for (row.microbatches = 1; row.microbatches < 40; row.microbatches++) {
        const struct pst_exec_options options = options_of(&row, "ram");
        struct pst_memory m;

        assert_ok(pst_exec_plan(net.plan, &options, &m, &net.diag), &net.diag);
        if (row.microbatches == 1)
            one = m.stash;
        else
            assert_int_equal(m.stash, PST_MIN(row.microbatches, 3) * one);
    }
    net_fini(&net);
}

/* --- faults --------------------------------------------------------------- */

static void limit_files(rlim_t bytes)
{
    struct rlimit limit;

    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = PST_MIN(bytes, limit.rlim_max);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* The step is not applied and says why; later steps are as if it had not been.
 */
static void loses_nothing_by_a_full_disk(void **state)
{
    const struct row row = {"gpipe", 4, 2, 9, true};
    const struct pst_exec_options options = options_of(&row, "disk:.");
    const struct pst_exec_options plain = options_of(&row, NULL);
    struct pst_dump *want, *got;
    struct job job, other;

    (void)state;
    job_init(&job, 4, &options);
    job_init(&other, 4, &plain);
    run_steps(&job, 0, 1);
    run_steps(&other, 0, 1);
    limit_files(256);
    assert_int_equal(job_step(&job, 1), PST_ERR_IO);
    limit_files(RLIM_INFINITY);
    assert_false(job.last.applied);
    assert_non_null(strstr(job.net.diag.text, "step 2 was not applied"));
    assert_non_null(
        strstr(job.net.diag.text, "cannot write the stash in .: File too"));
    run_steps(&job, 1, 3);
    run_steps(&other, 1, 3);
    want = job_dump(&other);
    got = job_dump(&job);
    assert_same_dump(want, got);
    pst_dump_free(want);
    pst_dump_free(got);
    job_fini(&job);
    job_fini(&other);
}

static struct pst_spills *spills_of(const struct job *job, unsigned rank)
{
    return (struct pst_spills *)&pst_rank_layout(job->engine->ranks[rank])
        ->spills;
}

static enum pst_status check(const struct job *job, struct pst_diag *diag)
{
    const struct pst_rank *r = job->engine->ranks[0];

    return prove_spills(pst_rank_role(r), pst_rank_layout(r),
                        pst_rank_actions(r), diag);
}

/* The check finds each wrong slot, location and order. */
static void proves_what_was_planned(void **state)
{
    for (size_t i = 0; i < PST_COUNT(rows); i++) {
        const struct pst_exec_options options = options_of(&rows[i], "ram");
        struct pst_spills *s;
        struct pst_diag diag;
        struct job job;

        (void)state;
        job_init(&job, rows[i].stages, &options);
        s = spills_of(&job, 0);
        assert_ok(check(&job, &diag), &diag);
        for (size_t k = 0; k < s->jobs.n; k++) {
            const struct pst_spill_job was = s->jobs.at[k];

            s->jobs.at[k].slot ^= 1;
            assert_int_equal(check(&job, &diag), PST_ERR_INTERNAL);
            assert_non_null(strstr(diag.text, "what stage "));
            s->jobs.at[k] = was;
            s->jobs.at[k].microbatch += was.microbatch > 0 ? -1 : 1;
            assert_int_equal(check(&job, &diag), PST_ERR_INTERNAL);
            s->jobs.at[k] = was;
            s->jobs.at[k].in = !was.in;
            assert_int_equal(check(&job, &diag), PST_ERR_INTERNAL);
            s->jobs.at[k] = was;
        }
        assert_ok(check(&job, &diag), &diag);
        job_fini(&job);
    }
}

/* If reloaded data differs from what was evicted, nothing is computed from
 * it. */
static void finds_a_wrong_place(void **state)
{
    const struct row row = {"gpipe", 1, 1, 6, true};
    const struct pst_exec_options options = options_of(&row, "ram");
    struct pst_spills *s;
    struct job job;
    size_t first;

    (void)state;
    job_init(&job, 1, &options);
    run_steps(&job, 0, 1);
    s = spills_of(&job, 0);
    for (first = 0; !s->jobs.at[first].in; first++)
        ;
    s->jobs.at[first].place ^= 1;
    assert_int_equal(job_step(&job, 1), PST_ERR_RANGE);
    assert_non_null(strstr(job.net.diag.text, "is not where it was put"));
    s->jobs.at[first].place ^= 1;
    s->jobs.at[first].outside ^= s->jobs.at[first].bytes > 0 ? 64 : 0;
    assert_int_equal(job_step(&job, 1), PST_ERR_RANGE);
    assert_non_null(strstr(job.net.diag.text, "has changed in memory"));
    s->jobs.at[first].outside ^= 64;
    run_steps(&job, 1, 2);
    job_fini(&job);
}

/* --- refused -------------------------------------------------------------- */

static void refuses_by_name(void **state)
{
    static const char *const wrong[] = {"", "disk", "disk:", "RAM", "tape"};
    const struct row row = {"gpipe", 1, 1, 6, true};
    const struct row short_row = {"gpipe", 1, 1, 1, true};
    struct pst_exec_options options;
    struct pst_transport *transport;
    struct pst_engine *engine;
    struct pst_memory memory;
    struct net net;

    (void)state;
    net_init(&net, 1);
    for (size_t i = 0; i < PST_COUNT(wrong); i++) {
        options = options_of(&row, wrong[i]);
        assert_int_equal(pst_exec_plan(net.plan, &options, &memory, &net.diag),
                         PST_ERR_USAGE);
        assert_non_null(strstr(net.diag.text, "--stash"));
    }
    for (unsigned i = 0; i < 2; i++) { /* with short_row, nothing is evicted */
        options = options_of(i == 0 ? &row : &short_row, "disk:nowhere");
        assert_ok(pst_transport_self.open("1", &transport, &net.diag),
                  &net.diag);
        assert_int_equal(
            pst_engine_new(net.plan, transport, &options, &engine, &net.diag),
            PST_ERR_IO);
        assert_non_null(strstr(net.diag.text, "nowhere"));
        pst_transport_self.close(transport);
    }
    net_fini(&net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_the_bits),
        cmocka_unit_test(keeps_the_bits_of_lists_by_chance),
        cmocka_unit_test(keeps_the_bits_of_replicas),
        cmocka_unit_test(makes_the_arena_smaller),
        cmocka_unit_test(needs_three_slots),
        cmocka_unit_test(loses_nothing_by_a_full_disk),
        cmocka_unit_test(proves_what_was_planned),
        cmocka_unit_test(finds_a_wrong_place),
        cmocka_unit_test(refuses_by_name),
    };

    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
