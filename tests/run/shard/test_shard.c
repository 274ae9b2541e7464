// SPDX-License-Identifier: Apache-2.0
/* Replicas that each store a share of a stage's state compute the same numbers.
 */
#include <math.h>

#include "stages/layout/layout.h"
#include "stages/run/rank/step/device.h"
#include "stages/run/state/saver.h"
#include "stages/tune/choose.h"
#include "tests/folder.h"
#include "tests/run/job.h"
#include "tests/sanitized.h"

static struct pst_exec_options options_of(unsigned ranks, unsigned replicas,
                                          const char *schedule,
                                          const char *optimizer,
                                          enum pst_sharing shard)
{
    struct pst_exec_options options =
        net_options(schedule, ranks, 5, optimizer);

    if (shard >= PST_SHARING_ZERO2) /* all replicas need the same number */
        options.microbatches = 2 * replicas;
    options.replicas = replicas;
    options.shard = shard;
    options.optim.clip_norm = 0; /* the norm is summed in another order */
    return options;
}

/* Chunks have the same size, the last ones are shorter (5x2 elements over 4
 * owners). */
static void divides_vectors(void **state)
{
    static const int64_t want[][4] = {{3, 3, 3, 1}, {1, 1, 0, 0}, {2, 2, 2, 2}};
    static const int64_t numel[] = {10, 2, 8};

    (void)state;
    for (size_t i = 0; i < PST_COUNT(numel); i++) {
        int64_t at = 0;

        for (unsigned k = 0; k < 4; k++) {
            int64_t begin, n;

            pst_flat_share(numel[i], 1, 4, k, &begin, &n);
            assert_int_equal(begin, at);
            assert_int_equal(n, want[i][k]);
            at += n;
        }
        assert_int_equal(at, numel[i]);
    }
}

/* Rows stay whole: 5 x 2 over 4 owners is 2, 2, 1 and 0 rows. */
static void divides_rows(void **state)
{
    static const struct {
        int64_t numel, unit, want[4];
    } cases[] = {{10, 2, {4, 4, 2, 0}},
                 {12, 3, {3, 3, 3, 3}},
                 {7, 7, {7, 0, 0, 0}},
                 {0, 1, {0, 0, 0, 0}}};

    (void)state;
    for (size_t i = 0; i < PST_COUNT(cases); i++) {
        int64_t at = 0;

        for (unsigned k = 0; k < 4; k++) {
            int64_t begin, n;

            pst_flat_share(cases[i].numel, cases[i].unit, 4, k, &begin, &n);
            assert_int_equal(begin, at);
            assert_int_equal(n, cases[i].want[k]);
            at += n;
        }
        assert_int_equal(at, cases[i].numel);
    }
}

/* Division by rows and by elements gives the same bits in every mode; every
 * owner has whole rows. */
static void divides_with_the_same_bits(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 3 * 3 * 3; i++) {
        const unsigned stages = 1 + i % 3, replicas = 2 + i / 9;
        struct pst_exec_options options =
            options_of(PST_MIN(stages, 2), replicas, "1f1b", "adamw",
                       (enum pst_sharing)(PST_SHARING_ZERO1 + i / 3 % 3));
        struct run flat = run_as(stages, 0, &options), rows;
        const struct pst_rank_param *p;
        struct job job;

        options.shard_rows = true;
        options.verify = true;
        rows = run_as(stages, 0, &options);
        assert_same_dump(flat.dump, rows.dump);
        pst_dump_free(flat.dump);
        pst_dump_free(rows.dump);
        job_init(&job, stages, &options);
        p = pst_layout_param(
            pst_rank_layout(job.engine->ranks[0]),
            (unsigned)pst_plan_find_param(job.net.plan, "a.weight"));
        assert_int_equal(p->n, (8 + replicas - 1) / replicas * 6);
        job_fini(&job);
    }
}

/* Every element of every trained parameter has one owner, in order. */
static void gives_every_element_one_owner(void **state)
{
    (void)state;
    for (unsigned stages = 1; stages <= 4; stages++) {
        struct pst_flats flats;
        struct pst_arena heap;
        const int64_t block = stages % 3 == 1 ? 1 : 256;
        unsigned char modes[16];
        size_t whole[16] = {0};
        struct net net;

        net_init(&net, stages);
        assert_true(net.plan->params.n <= PST_COUNT(modes));
        memset(modes, PST_SHARING_ZERO1 + stages % 2, sizeof(modes));
        modes[1] = PST_SHARING_ZERO3;
        for (unsigned i = 0; i < net.plan->params.n; i += 1 + stages % 2)
            whole[i] = 4 * (size_t)pst_meta_numel(&net.plan->params.at[i].meta);
        pst_arena_init(&heap, PST_TAG_TEST);
        assert_ok(pst_flats_make(&(struct pst_uses){net.plan, true}, modes,
                                 whole, 7, stages > 2, block, &heap, &flats,
                                 &net.diag),
                  &net.diag);
        for (unsigned i = 0; i < net.plan->params.n; i++)
            for (unsigned n = 7; n > 0 && flats.first[i] >= 0; n--) {
                int64_t at = 0;
                unsigned owners = 0;

                for (unsigned k = 0; k < n; k++) {
                    int64_t begin, numel;

                    pst_flats_range(&flats, i, n, k, &begin, &numel);
                    assert_true(numel == 0 || begin == at);
                    assert_true(numel == 0 || begin % block == 0);
                    at += numel;
                    owners += numel > 0;
                }
                assert_true(owners == 1 || whole[i] == 0);
                assert_int_equal(at,
                                 pst_meta_numel(&net.plan->params.at[i].meta));
            }
        pst_flats_fini(&flats);
        pst_arena_fini(&heap);
        net_fini(&net);
    }
}

/* The memory of the first replica, which plan reports, suffices: no other
 * replica needs more, and whole parameters are divided between replicas as far
 * as their sizes allow. */
static void first_replica_has_the_most(void **state)
{
    static const char *const optimizers[] = {"lamb", "muon", "adafactor"};

    (void)state;
    for (unsigned i = 0; i < 3 * 3 * 3 * 3; i++) {
        const unsigned stages = 1 + i % 3, ranks = PST_MIN(stages, 2);
        const unsigned replicas = 2 + i / 3 % 3;
        struct pst_exec_options options =
            options_of(ranks, replicas, "1f1b", optimizers[i / 9 % 3],
                       (enum pst_sharing)(PST_SHARING_ZERO1 + i / 27));
        unsigned others = 0;
        struct job job;

        options.optim.ema = i % 2 ? 0.5 : 0;
        job_init(&job, stages, &options);
        for (unsigned k = ranks; k < ranks * replicas; k++) {
            const struct pst_memory first =
                pst_engine_memory(job.engine, k % ranks);
            const struct pst_memory m = pst_engine_memory(job.engine, k);

            if (m.arena > first.arena)
                fail_msg("%s, %s, %u stages, replica %u of %u: %zu of optim in "
                         "%zu bytes, the first has %zu in %zu",
                         optimizers[i / 9 % 3], pst_sharing_word(options.shard),
                         stages, k / ranks, replicas, m.optim, m.arena,
                         first.optim, first.arena);
            others += m.optim > 0;
        }
        assert_true(others > 0);
        job_fini(&job);
    }
}

/* Compares dumps of the first step and of the state, for every cut. */
static void comes_to_the_same_bits(void **state)
{
    size_t n, number = 0;
    const struct pst_optim *const *rows = pst_optim_rows(&n);

    (void)state;
    for (unsigned flags = 0; flags <= NET_TRANSMIT; flags += NET_TRANSMIT)
        for (unsigned replicas = 1; replicas <= 4; replicas++)
            for (unsigned stages = 1; stages <= 4; stages++) {
                const unsigned ranks = PST_MIN(stages, 3);
                const char *optimizer = rows[number++ % n]->name;
                struct pst_exec_options whole = options_of(
                    ranks, replicas, "1f1b", optimizer, PST_SHARING_NONE);
                struct pst_exec_options shared =
                    options_of(ranks, replicas, stages % 2 ? "gpipe" : "zb-h1",
                               optimizer, PST_SHARING_ZERO1);
                struct run a = run_as(stages, flags, &whole);
                struct run b = run_as(stages, flags, &shared);

                assert_same_dump(a.dump, b.dump);
                assert_true(a.loss == b.loss);
                pst_dump_free(a.dump);
                pst_dump_free(b.dump);
            }
}

/* With one microbatch per replica, sums have the same order as without
 * sharding. With more they have another order, but the same one for every cut,
 * schedule and sharding mode. */
static void sum_in_each_microbatch(const char *optimizer)
{
    static const char *const schedules[] = {"gpipe", "1f1b", "zb-h1"};

    for (unsigned flags = 0; flags <= NET_TRANSMIT; flags += NET_TRANSMIT)
        for (unsigned i = 0; i < 3 * 2; i++) {
            const unsigned replicas = 2 + i % 3, m = replicas * (1 + i / 3);
            struct pst_exec_options whole =
                options_of(1, replicas, "gpipe", optimizer, PST_SHARING_NONE);
            struct run want, first = {0};

            whole.microbatches = m;
            want = run_as(1, flags & NET_STILL, &whole);
            for (unsigned stages = 1; stages <= 4; stages++)
                for (int s = PST_SHARING_ZERO2; s <= PST_SHARING_ZERO3; s++) {
                    struct pst_exec_options options =
                        options_of(PST_MIN(stages, 3), replicas,
                                   schedules[(stages + (unsigned)s) % 3],
                                   optimizer, (enum pst_sharing)s);
                    struct run got;

                    options.microbatches = m;
                    got = run_as(stages, flags, &options);
                    if (m == replicas)
                        assert_same_dump(want.dump, got.dump);
                    assert_near(want.dump, got.dump, 1e-6);
                    if (first.dump == NULL) {
                        first = got;
                        continue;
                    }
                    if (flags == 0) /* transmitted parameters are not shared */
                        assert_same_dump(first.dump, got.dump);
                    pst_dump_free(got.dump);
                }
            pst_dump_free(want.dump);
            pst_dump_free(first.dump);
        }
}

static void sums_in_each_microbatch(void **state)
{
    (void)state;
    sum_in_each_microbatch("adamw");
    sum_in_each_microbatch("adafactor"); /* owners have whole parameters */
}

static void assert_same_item(const struct run *a, const struct run *b,
                             const char *name)
{
    const struct pst_dump_item *x = pst_dump_find(a->dump, name);
    const struct pst_dump_item *y = pst_dump_find(b->dump, name);

    assert_non_null(x);
    assert_non_null(y);
    assert_memory_equal(x->data, y->data, pst_meta_bytes(&x->meta));
}

/* Each parameter has a sharding mode of its own, and the bits of that mode.
 * With one microbatch per replica all of them have the bits of no sharding. */
static void mixes_ways_to_share(void **state)
{
    static const struct {
        const char *text;
        enum pst_sharing a, b, e; /* modes of a.weight, b.weight, e.weight */
    } cases[] = {
        {"zero3,a=none", PST_SHARING_NONE, PST_SHARING_ZERO3,
         PST_SHARING_ZERO3},
        {"a=zero1,b.weight=zero2,e=zero3", PST_SHARING_ZERO1, PST_SHARING_ZERO2,
         PST_SHARING_ZERO3},
        {"e=zero2,none,a.bias=zero3", PST_SHARING_NONE, PST_SHARING_NONE,
         PST_SHARING_ZERO2},
        {"a=zero2,a.weight=zero3,a.bias=zero1", PST_SHARING_ZERO3,
         PST_SHARING_NONE, PST_SHARING_NONE},
        {"0=zero3,b=zero1,e.weight=zero2", PST_SHARING_ZERO3, PST_SHARING_ZERO1,
         PST_SHARING_ZERO2},
    };

    (void)state;
    for (unsigned i = 0; i < PST_COUNT(cases) * 6; i++) {
        const unsigned stages = 1 + i % 3, m = i % 2 ? 2 : 4;
        struct pst_exec_options options =
            options_of(PST_MIN(stages, 2), 2, i % 2 ? "1f1b" : "gpipe", "adamw",
                       PST_SHARING_NONE);
        struct run got, by[4];

        options.microbatches = m;
        for (int s = PST_SHARING_NONE; s <= PST_SHARING_ZERO3; s++) {
            options.shard = (enum pst_sharing)s;
            by[s] = run_as(stages, 0, &options);
        }
        options.shard = PST_SHARING_NONE;
        options.shard_by = cases[i / 6].text;
        options.verify = true;
        got = run_as(stages, 0, &options);
        assert_same_item(&got, &by[cases[i / 6].a], "grad.a.weight");
        assert_same_item(&got, &by[cases[i / 6].b], "grad.b.weight");
        assert_same_item(&got, &by[cases[i / 6].e], "grad.e.weight");
        if (m == options.replicas)
            assert_same_dump(got.dump, by[PST_SHARING_NONE].dump);
        assert_near(got.dump, by[PST_SHARING_NONE].dump, 1e-6);
        for (int s = PST_SHARING_NONE; s <= PST_SHARING_ZERO3; s++)
            pst_dump_free(by[s].dump);
        pst_dump_free(got.dump);
    }
}

static void refuses_what_cannot_be_shared(void **state)
{
    static const struct {
        unsigned flags;
        const char *text, *says;
    } cases[] = {
        {0, "zero4", "\"zero4\" is none of none, zero1"},
        {0, "a", "\"a\" is none of none"},
        {0, "=zero3", "a name is missing"},
        {0, "7=zero3", "there are 2 stages"},
        {0, "q=zero3", "no parameter and no module of that name"},
        {0, "zero3,a.wei=zero3", "no parameter and no module"},
        {0, "f=zero3", "'f.weight' is not trained"},
        {0, "u.weight=zero1", "'u.weight' is not trained"},
        {0, "n=zero2", "'n.seen' is not a parameter"},
        {NET_TRANSMIT, "e=zero2", "'e.weight' is transmitted"},
        {0, "0=zero1,1=zero3", "'e.weight' is of stages 0 and 1"},
    };

    (void)state;
    for (size_t i = 0; i < PST_COUNT(cases); i++) {
        struct pst_exec_options options =
            options_of(1, 2, "gpipe", "adamw", PST_SHARING_NONE);
        struct pst_memory memory;
        struct net net;

        options.microbatches = 4;
        options.shard_by = cases[i].text;
        net_init_as(&net, 2, cases[i].flags);
        assert_int_equal(pst_exec_plan(net.plan, &options, &memory, &net.diag),
                         PST_ERR_USAGE);
        if (strstr(net.diag.text, cases[i].says) == NULL)
            fail_msg("%s: \"%s\"", cases[i].text, net.diag.text);
        options.shard_by = "zero1,f=none,e=none";
        assert_ok(pst_exec_plan(net.plan, &options, &memory, &net.diag),
                  &net.diag);
        net_fini(&net);
    }
}

/* The norm is summed in another order, and clipping depends on it. */
static void clips_by_the_norm_of_all(void **state)
{
    (void)state;
    for (unsigned stages = 1; stages <= 4; stages++) {
        struct pst_exec_options whole = options_of(
            PST_MIN(stages, 3), 3, "1f1b", "adamw", PST_SHARING_NONE);
        struct pst_exec_options shared;
        struct run a, b;

        whole.optim.clip_norm = 0.01;
        whole.microbatches = 6;
        shared = whole;
        shared.shard = 1 + stages % 3;
        a = run_as(stages, 0, &whole);
        b = run_as(stages, 0, &shared);
        assert_true(a.norm > whole.optim.clip_norm);
        assert_true(fabs(a.norm - b.norm) <= 1e-6 * a.norm);
        assert_true(fabs(a.loss - b.loss) <= 1e-6 * fabs(a.loss));
        pst_dump_free(a.dump);
        pst_dump_free(b.dump);
    }
}

/* Optimizer states take 1/R of the memory, except for alignment. */
static void keeps_a_share_of_the_states(void **state)
{
    struct pst_memory whole, shared;
    struct net net;

    (void)state;
    net_init(&net, 1);
    for (unsigned replicas = 2; replicas <= 4; replicas++) {
        struct pst_exec_options options =
            options_of(1, replicas, "gpipe", "adamw", PST_SHARING_NONE);

        assert_ok(pst_exec_plan(net.plan, &options, &whole, &net.diag),
                  &net.diag);
        options.shard = PST_SHARING_ZERO1;
        assert_ok(pst_exec_plan(net.plan, &options, &shared, &net.diag),
                  &net.diag);
        assert_int_equal(shared.grads, whole.grads);
        assert_true(shared.optim <= whole.optim / replicas + 10 * 64);
        assert_true(shared.arena < whole.arena);
    }
    net_fini(&net);
}

static struct pst_checkpoint *open_checkpoint(const char *dir)
{
    const struct pst_checkpoint_query query = {
        .dir = dir, .step = 2, .verify = true};
    struct pst_checkpoint *ret;
    struct pst_diag diag;

    pst_diag_init(&diag);
    assert_ok(pst_checkpoint_open(&query, &ret, &diag), &diag);
    return ret;
}

/* Compares names, shapes and bytes of the tensors with that prefix; returns
 * their number. */
static unsigned assert_same_checkpoint(const char *dir, const char *other,
                                       const char *prefix)
{
    struct pst_checkpoint *a = open_checkpoint(dir),
                          *b = open_checkpoint(other);
    unsigned n = 0, compared = 0;

    for (unsigned k = 0; k < a->n_shards; k++)
        for (size_t i = 0; i < pst_safetensors_count(a->shards[k]); i++, n++) {
            const struct pst_safetensors_entry *e =
                pst_safetensors_at(a->shards[k], i);
            const struct pst_safetensors_entry *match =
                pst_checkpoint_find(b, e->name);
            unsigned char bytes[1024], others[1024];
            struct pst_diag diag;

            pst_diag_init(&diag);
            assert_non_null(match);
            assert_true(pst_meta_same(&e->meta, &match->meta));
            if (strncmp(e->name, prefix, strlen(prefix)) != 0)
                continue;
            assert_ok(pst_safetensors_read(e, 0, e->bytes, bytes, &diag),
                      &diag);
            assert_ok(pst_safetensors_read(match, 0, e->bytes, others, &diag),
                      &diag);
            assert_memory_equal(bytes, others, e->bytes);
            compared++;
        }
    for (unsigned k = 0; k < b->n_shards; k++)
        n -= (unsigned)pst_safetensors_count(b->shards[k]);
    assert_int_equal(n, 0);
    pst_checkpoint_close(a);
    pst_checkpoint_close(b);
    return compared;
}

/* A checkpoint saved by some owners is loaded by another number, and every byte
 * is the same. */
static void resumes_with_any_number_of_owners(void **state)
{
    static const struct {
        unsigned ranks, replicas;
        enum pst_sharing shard;
        bool rows;
    } cases[] = {
        {1, 2, PST_SHARING_ZERO1, false}, {2, 3, PST_SHARING_ZERO1, true},
        {2, 1, PST_SHARING_NONE, false},  {3, 2, PST_SHARING_NONE, false},
        {3, 4, PST_SHARING_ZERO1, false}, {2, 2, PST_SHARING_ZERO2, true},
        {1, 3, PST_SHARING_ZERO3, true},  {3, 2, PST_SHARING_ZERO3, false}};

    (void)state;
    for (size_t i = 0; i < PST_COUNT(cases) * PST_COUNT(cases); i++) {
        const size_t k[2] = {i / PST_COUNT(cases), i % PST_COUNT(cases)};
        char dirs[2][128];
        struct job jobs[2];
        uint64_t step = 0;

        if (SANITIZED && (k[0] + k[1]) % 2 == 0)
            continue;
        for (size_t j = 0; j < 2; j++) {
            struct pst_exec_options options =
                options_of(cases[k[j]].ranks, cases[k[j]].replicas, "1f1b",
                           "adamw", cases[k[j]].shard);

            options.shard_rows = cases[k[j]].rows;
            job_init(&jobs[j], cases[k[j]].ranks, &options);
            snprintf(dirs[j], sizeof(dirs[j]), "%zu-%zu", i, j);
        }
        run_steps(&jobs[0], 0, 2);
        assert_ok(pst_engine_save(jobs[0].engine, dirs[0], 2, 2, NULL,
                                  &jobs[0].net.diag),
                  &jobs[0].net.diag);
        assert_ok(net_load(jobs[1].engine, dirs[0], &step, &jobs[1].net.diag),
                  &jobs[1].net.diag);
        assert_int_equal(step, 2);
        assert_ok(pst_engine_save(jobs[1].engine, dirs[1], 2, 2, NULL,
                                  &jobs[1].net.diag),
                  &jobs[1].net.diag);
        assert_int_equal(assert_same_checkpoint(dirs[0], dirs[1], ""), 15);
        job_fini(&jobs[0]);
        job_fini(&jobs[1]);
    }
}

/* If a state is NaN in the part of the last replica, the checkpoint is bad. */
static void marks_a_bad_part(void **state)
{
    struct pst_exec_options options =
        options_of(1, 3, "1f1b", "adamw", PST_SHARING_ZERO1);
    const struct pst_rank_param *p;
    struct pst_checkpoint *ckpt;
    struct pst_rank *r;
    struct job job;
    char bad[PST_CHECKPOINT_REASON];
    const struct pst_save_note note = {.ret_bad = bad};
    struct pst_saver *s;
    enum pst_status status;
    float *m;
    void *at;

    (void)state;
    job_init(&job, 1, &options);
    run_steps(&job, 0, 2);
    assert_ok(pst_engine_save(job.engine, "good", 2, 2, &note, &job.net.diag),
              &job.net.diag);
    assert_string_equal(bad, "");
    r = job.engine->ranks[2];
    p = pst_layout_param(pst_rank_layout(r), (unsigned)pst_plan_find_param(
                                                 job.net.plan, "e.weight"));
    assert_true(p->n > 0 && p->begin > 0);
    at = pst_rank_at(pst_rank_device(r), p->state[0]);
    m = pst_device_pull(&pst_rank_device(r)->mem, at,
                        (size_t)p->n * sizeof(float));
    m[p->n - 1] = NAN;
    pst_device_push(&pst_rank_device(r)->mem, at, (size_t)p->n * sizeof(float));
    assert_ok(pst_engine_save(job.engine, "bad", 2, 2, &note, &job.net.diag),
              &job.net.diag);
    ckpt = open_checkpoint("bad");
    assert_true(ckpt->info.bad);
    assert_non_null(strstr(ckpt->info.reason, "e.weight"));
    assert_string_equal(ckpt->info.reason, bad);
    pst_checkpoint_close(ckpt);
    /* A save beside the steps reports it too. */
    assert_ok(pst_saver_new(&s, &job.net.diag), &job.net.diag);
    assert_ok(
        pst_saver_begin(s, job.engine, "worse", 2, 0, NULL, &job.net.diag),
        &job.net.diag);
    while ((status = pst_saver_continue(s, &job.net.diag)) == PST_AGAIN)
        pst_saver_wait(s);
    assert_ok(status, &job.net.diag);
    assert_string_equal(pst_saver_why_bad(s), bad);
    pst_saver_free(s);
    job_fini(&job);
}

static const char *same_name(void *ctx, const char *fqn)
{
    (void)ctx;
    return fqn;
}

/* States move with their parameters into an engine that divides them otherwise,
 * and so do sharded values. */
static void adopts_shares(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 16; i++) {
        struct pst_exec_options options = options_of(
            1, 3, "gpipe", "adamw", (enum pst_sharing)(1 + (i + i / 4) % 3));
        char dirs[2][32];
        struct job old, new;

        snprintf(dirs[0], sizeof(dirs[0]), "old-%u", i);
        snprintf(dirs[1], sizeof(dirs[1]), "new-%u", i);
        job_init(&old, 1 + i / 4, &options);
        run_steps(&old, 0, 2);
        options.shard_rows = options.shard == PST_SHARING_ZERO3;
        job_init(&new, 1 + i % 4, &options);
        assert_ok(
            pst_engine_copy_state(new.engine, old.engine,
                                  &(struct pst_adoption){same_name, same_name},
                                  &new.net.diag),
            &new.net.diag);
        assert_ok(
            pst_engine_save(old.engine, dirs[0], 2, 2, NULL, &old.net.diag),
            &old.net.diag);
        assert_ok(
            pst_engine_save(new.engine, dirs[1], 2, 2, NULL, &new.net.diag),
            &new.net.diag);
        assert_int_equal(assert_same_checkpoint(dirs[0], dirs[1], "adamw."), 8);
        if (options.shard == PST_SHARING_ZERO3)
            assert_int_equal(assert_same_checkpoint(dirs[0], dirs[1], "param."),
                             6);
        job_fini(&new);
        job_fini(&old);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(divides_vectors),
        cmocka_unit_test(divides_rows),
        cmocka_unit_test(divides_with_the_same_bits),
        cmocka_unit_test(gives_every_element_one_owner),
        cmocka_unit_test(first_replica_has_the_most),
        cmocka_unit_test(comes_to_the_same_bits),
        cmocka_unit_test(sums_in_each_microbatch),
        cmocka_unit_test(mixes_ways_to_share),
        cmocka_unit_test(refuses_what_cannot_be_shared),
        cmocka_unit_test(clips_by_the_norm_of_all),
        cmocka_unit_test(keeps_a_share_of_the_states),
        cmocka_unit_test(resumes_with_any_number_of_owners),
        cmocka_unit_test(marks_a_bad_part),
        cmocka_unit_test(adopts_shares),
    };

    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
