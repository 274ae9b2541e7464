// SPDX-License-Identifier: Apache-2.0
/*
 * Tests the small model on real ranks, one per process. Rank 0 compares with
 * the uncut model on transport self.
 *
 *   mpiexec -n N test-exec-ranks STAGES [REPLICAS]
 */
#include "stages/run/measure.h"
#include "tests/ranks.h"
#include "tests/run/chance.h"
#include "tests/run/net.h"

#include <unistd.h>

#define STEPS     3
#define TIMELINES 20 /* timelines of which one has to be in order */

static unsigned stages, replicas = 1;
static bool still; /* no buffer changes */
static struct pst_transport *mpi;

/* Fills on rank 0; fails on the other ranks, which have no data. */
static enum pst_status fill_at_first(void *ctx, uint64_t step,
                                     unsigned microbatch, unsigned input,
                                     void *dst, struct pst_diag *diag)
{
    if (mpi->ops->rank(mpi) != 0)
        return pst_diag_set(diag, PST_E_INTERNAL_BUG, "asked the wrong rank");
    return net_fill(ctx, step, microbatch, input, dst, diag);
}

static char folder[] = "/tmp/pst-ranks-XXXXXX"; /* the same on all ranks */

/* Replaces the engine by another one, which loads a checkpoint of it. */
static void replace_engine(struct pst_engine **engine, struct net *net,
                           struct pst_transport *transport,
                           const struct pst_exec_options *options,
                           uint64_t steps, struct pst_diag *diag)
{
    uint64_t step = 0;

    assert_ok(pst_engine_save(*engine, folder, steps, 1, NULL, diag), diag);
    pst_engine_free(*engine);
    assert_ok(pst_engine_new(net->plan, transport, options, engine, diag),
              diag);
    assert_ok(net_load(*engine, folder, &step, diag), diag);
    assert_int_equal(step, steps);
}

/* Runs all steps; returns the dump of the first one with the state after the
 * last. */
static struct pst_dump *run(struct pst_transport *transport, unsigned n_stages,
                            const struct pst_exec_options *options,
                            struct pst_diag *diag)
{
    struct pst_dump *dump = NULL;
    struct pst_engine *engine;
    struct net_data data;
    struct net net;

    net_init_as(&net, n_stages, still ? NET_STILL : 0);
    data = net_data(&net);
    assert_ok(pst_engine_new(net.plan, transport, options, &engine, diag),
              diag);
    for (unsigned s = 0; s < STEPS; s++) {
        struct pst_step_result result;

        assert_ok(pst_engine_step(engine, s,
                                  options->scatter ? fill_at_first : net_fill,
                                  &data, 40 + s, &result, diag),
                  diag);
        assert_int_equal(result.control, 40 + s);
        if (s == 0)
            assert_ok(pst_engine_dump_first(engine, &dump, diag), diag);
        if (s == 1 && transport == mpi && options->shard != PST_SHARING_NONE)
            replace_engine(&engine, &net, transport, options, s + 1, diag);
    }
    assert_ok(pst_engine_dump_state(engine, dump, diag), diag);
    for (unsigned k = 0; k < pst_engine_n_local(engine); k++)
        assert_int_equal(pst_engine_high_water(engine, k),
                         pst_engine_memory(engine, k).arena);
    pst_engine_free(engine);
    net_fini(&net);
    return dump;
}

/* Asserts that every schedule gives the results of a job with one rank per
 * replica. */
static void keep_the_bits(const char *optimizer, enum pst_sharing shard,
                          struct pst_transport *self, struct pst_diag *diag)
{
    static const struct {
        const char *name;
        unsigned per_rank; /* stages per rank; 0: any number */
    } schedules[] = {
        {"gpipe", 0},     {"1f1b", 0},       {"interleaved-1f1b", 1},
        {"zb-h1", 1},     {"looped-bfs", 1}, {"interleaved-1f1b", 2},
        {"zb-h1", 2},     {"looped-bfs", 2}, {"zb-v", 2},
        {"dualpipe-v", 2}};
    const unsigned pipeline = mpi->ops->size(mpi) / replicas;
    const unsigned m = shard >= PST_SHARING_ZERO2 ? 2 * replicas : 5;
    struct pst_exec_options alone = net_options("gpipe", 1, m, optimizer);
    const size_t n = strcmp(optimizer, "adamw") == 0 ? PST_COUNT(schedules) : 2;
    struct pst_dump *want, *got;

    alone.replicas = replicas;
    alone.optim.ema = n == 2 ? 0.75 : 0;
    /* zero1 sums in the same order as without sharding. */
    alone.shard = shard == PST_SHARING_ZERO1 ? PST_SHARING_NONE : shard;
    if (replicas > 1)
        alone.optim.clip_norm = 0;
    want = run(self, 1, &alone, diag);
    for (size_t k = 0; k < n; k++) {
        struct pst_exec_options options = alone;

        if ((schedules[k].per_rank > 0 &&
             schedules[k].per_rank * pipeline != stages) ||
            (strcmp(schedules[k].name, "dualpipe-v") == 0 &&
             m / replicas < stages))
            continue;
        options.schedule = schedules[k].name;
        options.ranks = pipeline;
        options.shard = shard;
        got = run(mpi, stages, &options, diag);
        if (mpi->ops->rank(mpi) == 0)
            assert_same_dump(want, got);
        pst_dump_free(got);
    }
    pst_dump_free(want);
}

/* Optimizers besides adamw need whole parameters, and have averages. */
static void ranks_keep_the_bits(void **state)
{
    static const char *const optimizers[] = {"adamw", "lamb", "muon",
                                             "adafactor"};
    const enum pst_sharing last =
        replicas > 1 ? PST_SHARING_ZERO3 : PST_SHARING_NONE;
    struct pst_transport *self;
    struct pst_diag diag;
    char size[8];

    (void)state;
    pst_diag_init(&diag);
    snprintf(size, sizeof(size), "%u", replicas);
    assert_ok(pst_transport_self.open(size, &self, &diag), &diag);
    for (size_t k = 0; k < PST_COUNT(optimizers); k++)
        for (enum pst_sharing shard = PST_SHARING_NONE; shard <= last; shard++)
            keep_the_bits(optimizers[k], shard, self, &diag);
    pst_transport_self.close(self);
}

/* Rank 0 reads and sends; data that it cannot read ends the step on all ranks.
 */
static void first_rank_reads_for_all(void **state)
{
    static const char *const schedules[] = {"gpipe", "1f1b"};
    struct pst_exec_options alone = net_options("gpipe", 1, 5, "adamw");
    struct pst_exec_options options =
        net_options("gpipe", mpi->ops->size(mpi) / replicas, 5, "adamw");
    struct pst_step_result result;
    struct pst_transport *self;
    struct pst_dump *want, *got;
    struct pst_engine *engine;
    struct net_data data;
    struct pst_diag diag;
    struct net net;
    char size[8];

    (void)state;
    pst_diag_init(&diag);
    alone.replicas = options.replicas = replicas;
    options.scatter = true;
    snprintf(size, sizeof(size), "%u", replicas);
    assert_ok(pst_transport_self.open(size, &self, &diag), &diag);
    want = run(self, 1, &alone, &diag);
    for (size_t k = 0; k < PST_COUNT(schedules); k++) {
        options.schedule = schedules[k];
        got = run(mpi, stages, &options, &diag);
        if (mpi->ops->rank(mpi) == 0)
            assert_same_dump(want, got);
        pst_dump_free(got);
    }
    pst_dump_free(want);
    pst_transport_self.close(self);

    net_init(&net, stages);
    data = (struct net_data){net.plan, 0, 3, true};
    assert_ok(pst_engine_new(net.plan, mpi, &options, &engine, &diag), &diag);
    assert_int_equal(
        pst_engine_step(engine, 0, fill_at_first, &data, 0, &result, &diag),
        PST_ERR_RANGE);
    assert_non_null(strstr(diag.text, "no such sample"));
    assert_non_null(strstr(diag.text, "microbatch 3"));
    assert_ok(
        pst_engine_step(engine, 1, fill_at_first, &data, 0, &result, &diag),
        &diag);
    pst_engine_free(engine);
    net_fini(&net);
}

static unsigned draw(unsigned *seed, unsigned n)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (*seed >> 16) % n;
}

/* Writes "0=1,1=0,2=1": each rank has at least one stage. */
static void random_place(unsigned *seed, unsigned ranks, char out[64])
{
    unsigned rank[4];
    int len = 0;

    for (unsigned s = 0; s < stages; s++)
        rank[s] = s < ranks ? s : draw(seed, ranks);
    for (unsigned s = stages; s-- > 1;) {
        const unsigned k = draw(seed, s + 1), was = rank[s];

        rank[s] = rank[k];
        rank[k] = was;
    }
    for (unsigned s = 0; s < stages; s++)
        len += snprintf(out + len, 64 - (size_t)len, "%s%u=%u", s ? "," : "", s,
                        rank[s]);
}

/* Random schedules with random placement; all ranks draw the same. */
static void placements_by_chance(void **state)
{
    static const char *const names[] = {
        "gpipe", "1f1b", "interleaved-1f1b", "looped-bfs", "zb-h1", "auto"};
    struct pst_transport *self;
    struct pst_diag diag;
    unsigned seed = 1;

    (void)state;
    pst_diag_init(&diag);
    assert_ok(pst_transport_self.open("1", &self, &diag), &diag);
    for (unsigned i = 0; i < 17; i++) {
        const unsigned m = 1 + draw(&seed, 5);
        struct pst_exec_options alone = net_options("gpipe", 1, m, "sgd");
        struct pst_exec_options options =
            net_options(names[draw(&seed, PST_COUNT(names))],
                        mpi->ops->size(mpi), m, "sgd");
        struct pst_dump *want, *got;
        char place[64];

        random_place(&seed, options.ranks, place);
        options.place = place;
        got = run(mpi, stages, &options, &diag);
        if (mpi->ops->rank(mpi) == 0) {
            print_message("%s %s, %u microbatches\n", options.schedule, place,
                          m);
            want = run(self, 1, &alone, &diag);
            assert_same_dump(want, got);
            pst_dump_free(want);
        }
        pst_dump_free(got);
    }
    pst_transport_self.close(self);
}

/* Writes the schedule to a file. Every process writes the same one, named after
 * their common parent. */
static void write_lists(const char *path, const struct pst_str *lists)
{
    char own[80];
    FILE *f;

    snprintf(own, sizeof(own), "%s.%d", path, (int)getpid());
    f = fopen(own, "w");
    assert_non_null(f);
    assert_true(fputs(pst_str_text(lists), f) >= 0);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(rename(own, path), 0);
}

/* Schedules in any order that can run, with stages on any rank, keep the bits.
 */
static void ranks_keep_the_bits_of_chance(void **state)
{
    const unsigned n = mpi->ops->size(mpi);
    struct pst_diag diag;

    (void)state;
    pst_diag_init(&diag);
    still = true;
    for (unsigned seed = 1; seed <= 17; seed++) {
        struct chance c = {.seed = 100 * n + seed, .ranks = n};
        struct pst_exec_options options;
        struct pst_transport *self;
        struct pst_str lists = {0};
        struct pst_dump *want, *got;
        char name[64];

        chance_make(&c, &lists);
        snprintf(name, sizeof(name), "csv:/tmp/penstock-chance-%d-%u",
                 (int)getppid(), seed);
        write_lists(name + 4, &lists);
        pst_str_fini(&lists);
        options = net_options("gpipe", 1, c.m, "adamw");
        assert_ok(pst_transport_self.open("1", &self, &diag), &diag);
        want = run(self, 1, &options, &diag);
        pst_transport_self.close(self);
        options = net_options(name, n, c.m, "adamw");
        got = run(mpi, CHANCE_STAGES, &options, &diag);
        if (mpi->ops->rank(mpi) == 0) {
            assert_same_dump(want, got);
            (void)unlink(name + 4);
        }
        pst_dump_free(want);
        pst_dump_free(got);
    }
    still = false;
}

/* True if each stage uses a value after the stage before has made it. */
static bool is_in_order(const struct pst_timeline *t)
{
    for (size_t i = 0; i < t->spans.n; i++)
        for (size_t k = 0; k < t->spans.n; k++) {
            const struct pst_span *a = &t->spans.at[i], *b = &t->spans.at[k];

            if (a->kind == PST_SPAN_F && b->kind == PST_SPAN_F &&
                a->microbatch == b->microbatch && a->stage + 1 == b->stage &&
                b->start <= a->end - 2e-3)
                return false;
        }
    return true;
}

/* Clocks of processes are aligned: a rank uses a value after it was made. The
 * process that answers a ping may have to wait for a core, which moves its
 * clock, so one of several timelines has to be in order. */
static void draws_one_clock(void **state)
{
    struct pst_exec_options options =
        net_options("1f1b", mpi->ops->size(mpi), 6, "sgd");
    bool in_order = false;
    struct pst_step_result result;
    struct pst_timeline t;
    struct pst_engine *engine;
    struct net_data data;
    struct pst_diag diag;
    struct net net;

    (void)state;
    pst_diag_init(&diag);
    net_init(&net, stages);
    data = net_data(&net);
    assert_ok(pst_engine_new(net.plan, mpi, &options, &engine, &diag), &diag);
    for (unsigned s = 0; s < 4; s++)
        assert_ok(
            pst_engine_step(engine, s, net_fill, &data, 0, &result, &diag),
            &diag);
    for (unsigned i = 0; i < TIMELINES; i++) {
        assert_ok(
            pst_engine_step(engine, i + 4, net_fill, &data, 0, &result, &diag),
            &diag);
        assert_ok(pst_engine_timeline(engine, &t, &diag), &diag);
        assert_true((t.spans.n > 0) == (mpi->ops->rank(mpi) == 0));
        in_order = in_order || is_in_order(&t);
        pst_timeline_fini(&t);
    }
    assert_true(in_order);
    pst_engine_free(engine);
    net_fini(&net);
}

/* One rank sees an invalid label: all get the same message, and continue. */
static void faults_reach_all(void **state)
{
    struct pst_exec_options options =
        net_options("1f1b", mpi->ops->size(mpi), 4, "sgd");
    struct pst_step_result result;
    struct pst_engine *engine;
    struct net_data data;
    struct pst_diag diag;
    struct net net;
    char want[64];

    (void)state;
    pst_diag_init(&diag);
    net_init(&net, stages);
    data = (struct net_data){net.plan, 0, 3, false};
    assert_ok(pst_engine_new(net.plan, mpi, &options, &engine, &diag), &diag);
    assert_int_equal(
        pst_engine_step(engine, 0, net_fill, &data, 0, &result, &diag),
        PST_ERR_RANGE);
    snprintf(want, sizeof(want), "rank %u, stage %u, microbatch 3",
             options.ranks - 1, stages - 1);
    assert_non_null(strstr(diag.text, want));
    data.bad_step = -1;
    assert_ok(pst_engine_step(engine, 0, net_fill, &data, 0, &result, &diag),
              &diag);
    pst_engine_free(engine);
    net_fini(&net);
}

/* All ranks detect options that differ, before anything runs. */
static void refuses_unequal_ranks(void **state)
{
    struct pst_exec_options options =
        net_options("1f1b", mpi->ops->size(mpi), 4, "sgd");
    struct pst_engine *engine;
    struct pst_diag diag;
    struct net net;

    (void)state;
    pst_diag_init(&diag);
    net_init(&net, stages);
    options.optim.weight_decay = mpi->ops->rank(mpi) == 1 ? 0.5 : 0;
    assert_int_equal(pst_engine_new(net.plan, mpi, &options, &engine, &diag),
                     PST_ERR_MISMATCH);
    assert_non_null(strstr(diag.text, "rank 1"));
    net_fini(&net);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest shared[] = {
        cmocka_unit_test(ranks_keep_the_bits),
        cmocka_unit_test(first_rank_reads_for_all),
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_keep_the_bits),
        cmocka_unit_test(placements_by_chance),
        cmocka_unit_test(ranks_keep_the_bits_of_chance),
        cmocka_unit_test(draws_one_clock),
        cmocka_unit_test(faults_reach_all),
        cmocka_unit_test(refuses_unequal_ranks),
    };
    struct pst_diag diag;
    int64_t n;
    int failed;

    if (argc < 2 || !pst_parse_i64(argv[1], &n) || n < 1 || n > 4)
        return 64;
    stages = (unsigned)n;
    if (argc > 2 && pst_parse_i64(argv[2], &n) && n > 1 && n <= 4)
        replicas = (unsigned)n;
    pst_diag_init(&diag);
    mpi = ranks_open(folder, sizeof(folder));
    if (mpi == NULL)
        return 1;
    failed = replicas > 1 ? cmocka_run_group_tests(shared, NULL, NULL)
                          : cmocka_run_group_tests(tests, NULL, NULL);
    return ranks_close(mpi, folder, failed);
}
