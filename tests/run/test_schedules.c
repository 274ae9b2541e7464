// SPDX-License-Identifier: Apache-2.0
/* Every schedule on the small model gives the bits of one stage in one process.
 */
#include <unistd.h>

#include "stages/tune/choose.h"
#include "tests/run/chance.h"
#include "tests/run/job.h"
#include "tests/sched/every.h"

/* Numbers of ranks and microbatches that the schedule accepts for 4 stages. */
struct row {
    const char *name;
    unsigned ranks, microbatches;
};

static const struct row rows[] = {
    {"gpipe", 4, 5},
    {"1f1b", 4, 1},
    {"1f1b", 3, 5},
    {"interleaved-1f1b", 1, 4},
    {"interleaved-1f1b", 2, 4},
    {"interleaved-1f1b", 2, 5},
    {"interleaved-1f1b", 4, 7},
    {"looped-bfs", 1, 3},
    {"looped-bfs", 2, 4},
    {"looped-bfs", 4, 5},
    {"zb-h1", 1, 4},
    {"zb-h1", 2, 1},
    {"zb-h1", 2, 5},
    {"zb-h1", 4, 8},
    {"zb-v", 2, 1},
    {"zb-v", 2, 4},
    {"zb-v", 2, 9},
    {"dualpipe-v", 2, 4},
    {"dualpipe-v", 2, 7},
};

static struct run uncut(unsigned m, unsigned flags)
{
    const struct pst_exec_options options = net_options("gpipe", 1, m, "adamw");

    return run_as(1, flags, &options);
}

static void keeps_the_bits(const char *name, unsigned stages, unsigned flags,
                           unsigned ranks, unsigned m)
{
    const struct pst_exec_options options =
        net_options(name, ranks, m, "adamw");
    struct run whole = uncut(m, flags), cut = run_as(stages, flags, &options);

    assert_same_dump(whole.dump, cut.dump);
    assert_true(whole.norm == cut.norm && whole.loss == cut.loss);
    pst_dump_free(whole.dump);
    pst_dump_free(cut.dump);
}

static void generated_ones(void **state)
{
    (void)state;
    for (size_t i = 0; i < PST_COUNT(rows); i++) {
        print_message("%s on %u ranks, %u microbatches\n", rows[i].name,
                      rows[i].ranks, rows[i].microbatches);
        keeps_the_bits(rows[i].name, 4, 0, rows[i].ranks, rows[i].microbatches);
    }
}

/* --- lists made by hand --------------------------------------------------- */

/* Writes the schedule to a file; sets name to "csv:PATH". */
static void write_csv(const char *lists, char name[64])
{
    FILE *f;
    int fd;

    (void)snprintf(name, 64, "csv:/tmp/penstock-lists-XXXXXX");
    fd = mkstemp(name + 4);
    assert_true(fd >= 0);
    f = fdopen(fd, "w");
    assert_non_null(f);
    assert_true(fputs(lists, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void csv_as(unsigned stages, unsigned flags, unsigned ranks, unsigned m,
                   const char *lists)
{
    char name[64];

    write_csv(lists, name);
    keeps_the_bits(name, stages, flags, ranks, m);
    (void)unlink(name + 4);
}

/* Expects a refusal for this reason, with as many microbatches as stages. */
static void expect_refusal(unsigned stages, unsigned ranks, const char *lists,
                           const char *why)
{
    struct pst_exec_options options;
    struct pst_memory memory[4];
    char name[64];
    struct net net;

    write_csv(lists, name);
    options = net_options(name, ranks, stages, "none");
    net_init(&net, stages);
    assert_int_equal(pst_exec_plan(net.plan, &options, memory, &net.diag),
                     PST_ERR_INPUT);
    if (!strstr(net.diag.text, why))
        fail_msg("%s: %s", lists, net.diag.text);
    net_fini(&net);
    (void)unlink(name + 4);
}

static void csv(unsigned stages, unsigned ranks, unsigned m, const char *lists)
{
    csv_as(stages, 0, ranks, m, lists);
}

/* Conformance 59: stages placed forth and back on two ranks, and three stages
 * on one rank with one on the other. */
static void case_59_placements(void **state)
{
    (void)state;
    csv(4, 2, 1, "0F0,3F0,3B0,0B0\n1F0,2F0,2B0,1B0\n");
    csv(4, 2, 1, "0F0,1F0,3F0,3B0,1B0,0B0\n2F0,2B0\n");
    csv(4, 3, 2,
        "0F0,0F1,3F0,3B0,3F1,3B1,0B0,0B1\n1F0,1F1,1B0,1B1\n"
        "2F0,2F1,2B0,2B1\n");
}

/* Conformance 60: messages in the schedule, backwards in another order. */
static void case_60_messages_given(void **state)
{
    static const char late[] =
        "0F0,0F1,0SEND_F0,0SEND_F1,0RECV_B1,0RECV_B0,0B1,0B0\n"
        "1RECV_F0,1RECV_F1,1F0,1F1,1B1,1B0,1SEND_B1,1SEND_B0\n";

    (void)state;
    if (net_carries()) /* 1F1 reads the buffer after 1F0 */
        expect_refusal(2, 2, late, "buffer \"c.tick\" goes from microbatch to");
    else
        csv(2, 2, 2, late);
    csv(2, 2, 2,
        "0UNSHARD,0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1,"
        "0REDUCE_GRAD,0RESHARD\n"
        "1UNSHARD,1RECV_F0,1F0,1RECV_F1,1I0,1SEND_B0,1F1,1I1,1SEND_B1,1W0,1W1,"
        "1REDUCE_GRAD,1RESHARD\n");
}

/* Conformance 61: I and W separate on four stages; also mixed with B, by stage
 * and by microbatch, and in a compound action. */
static void case_61_split_backward(void **state)
{
    (void)state;
    csv(4, 4, 2,
        "0F0,0F1,0I0,0W0,0I1,0W1\n1F0,1F1,1I0,1W0,1I1,1W1\n"
        "2F0,2F1,2I0,2W0,2I1,2W1\n3F0,3I0,3W0,3F1,3I1,3W1\n");
    csv(4, 2, 3,
        "0F0,0F1,0F2,2F0,2I0,2F1,2B1,2W0,2F2,2I2,0B2,0I0,2W2,0I1,0W1,0W0\n"
        "1F0,1F1,3F0,3B0,1F2,3F1,3I1,1I0,3F2,3I2,1B1,3W2,1I2,1W2,3W1,1W0\n");
    csv(4, 2, 2,
        "0F0,3F0,0F1,(3F1;3B0)OVERLAP_F_B,3I1,0B0,3W1,0B1\n"
        "1F0,2F0,1F1,2F1,2B0,1I0,2B1,1W0,1B1\n");
}

/* Conformance 62: stages of one rank use local copies; a single stage. */
static void case_62_one_rank(void **state)
{
    (void)state;
    csv(2, 1, 2, "0F0,1F0,0F1,1F1,1B0,0B0,1B1,0B1\n");
    csv(1, 1, 2, "0F0,0F1,0I0,0I1,0W0,0W1\n");
    csv(1, 1, 3, "0F0,0F1,0F2,0I2,0I1,0W1,0W2,0B0\n");
    csv(4, 1, 2,
        "0F0,1F0,2F0,3F0,0F1,1F1,2F1,3F1,3I1,3B0,2B0,3W1,2I1,1B0,1I1,0B0,"
        "0B1,1W1,2W1\n");
    /* The actions as they are executed, without messages. */
    csv(2, 1, 1,
        "0UNSHARD,1UNSHARD,0F0,1F0,1B0,1REDUCE_GRAD,1RESHARD,0B0,"
        "0REDUCE_GRAD,0RESHARD\n");
}

/* --- lists made by chance ------------------------------------------------- */

/* Schedules in a random order that can run, with random placement, give the
 * same bits. */
static void lists_by_chance(void **state)
{
    (void)state;
    for (unsigned seed = 1; seed <= 40; seed++) {
        struct chance c = {.seed = seed};
        struct pst_str lists = {0};

        chance_make(&c, &lists);
        csv_as(CHANCE_STAGES, NET_STILL, c.ranks, c.m, pst_str_text(&lists));
        pst_str_fini(&lists);
    }
}

/* A repeated action is refused even if the order of sums would be unaffected;
 * the message shows the schedule as in the file. */
static void refuses_lists_with_a_fault(void **state)
{
    static const struct {
        const char *lists, *text[2];
    } rows[] = {
        {"0F0,0F1,0B0,0W0,0B1\n",
         {"line 1 (rank 0), action 3 (0W0)", "0F1 0B0 >>0W0<< 0B1"}},
        {"0F0,0F1,0I0,0W0,0W0,0B1\n",
         {"line 1 (rank 0), action 4 (0W0)", "0I0 0W0 >>0W0<< 0B1"}},
        {"0F0,0F1,0B1,0W1,0B0\n",
         {"line 1 (rank 0), action 3 (0W1)", "0B1 >>0W1<<"}},
        {"0F0,0F1,0REDUCE_GRAD,0B1\n", {"line 1 (rank 0), at its end", "0B0"}},
    };

    (void)state;
    for (size_t i = 0; i < PST_COUNT(rows); i++) {
        struct pst_exec_options options;
        struct pst_memory memory;
        char name[64];
        struct net net;

        write_csv(rows[i].lists, name);
        options = net_options(name, 1, 2, "none");
        net_init(&net, 1);
        assert_int_equal(pst_exec_plan(net.plan, &options, &memory, &net.diag),
                         PST_ERR_INPUT);
        for (int k = 0; k < 2; k++)
            if (!strstr(net.diag.text, rows[i].text[k]))
                fail_msg("%s: %s", rows[i].lists, net.diag.text);
        net_fini(&net);
        (void)unlink(name + 4);
    }
}

/* Forwards out of order are refused if each microbatch changes a buffer. */
static void refuses_forwards_out_of_order(void **state)
{
    struct pst_exec_options options;
    struct pst_memory memory;
    char name[64];
    struct net net;

    (void)state;
    write_csv("0F1,0F0,0B0,0B1\n", name);
    options = net_options(name, 1, 2, "none");
    net_init(&net, 1);
    assert_int_equal(pst_exec_plan(net.plan, &options, &memory, &net.diag),
                     PST_ERR_UNSUPPORTED);
    assert_non_null(strstr(net.diag.text, "n.seen"));
    net_fini(&net);
    (void)unlink(name + 4);
}

/* Conformance 48: forward only, no gradients, nothing changes; also in V-shaped
 * schedules. */
static void case_48_forward_only(void **state)
{
    (void)state;
    for (size_t i = 0; i < PST_COUNT(rows); i++) {
        struct pst_exec_options options = net_options(
            rows[i].name, rows[i].ranks, rows[i].microbatches, "none");
        struct pst_dump *dump;
        struct job job;

        options.train = false;
        job_init(&job, 4, &options);
        run_steps(&job, 0, 2);
        dump = job_first(&job);
        assert_non_null(pst_dump_find(dump, "losses"));
        assert_non_null(pst_dump_find(dump, "output.1"));
        assert_null(pst_dump_find(dump, "grad.a.weight"));
        for (unsigned k = 0; k < pst_engine_n_local(job.engine); k++)
            assert_int_equal(pst_engine_memory(job.engine, k).grads +
                                 pst_engine_memory(job.engine, k).optim +
                                 pst_engine_memory(job.engine, k).stash,
                             0);
        pst_dump_free(dump);
        job_fini(&job);
    }
}

/* Conformance 49: outputs that nothing reads take no memory. */
static void case_49_no_outputs(void **state)
{
    struct pst_exec_options options = net_options("1f1b", 2, 4, "none");
    struct job job;
    char byte;

    (void)state;
    options.keep_outputs = false;
    job_init(&job, 2, &options);
    run_steps(&job, 0, 1);
    assert_int_equal(pst_engine_memory(job.engine, 1).outputs, 0);
    assert_int_equal(pst_engine_output(job.engine, 0, &byte, &job.net.diag),
                     PST_ERR_INTERNAL);
    job_fini(&job);
}

/* Microbatches in flight stay within the schedule's bound. The plan includes
 * the memory that is kept until W. */
static void plans_what_is_in_flight(void **state)
{
    struct pst_exec_options options = net_options("zb-h1", 4, 8, "none");
    struct pst_memory m[4], late[2], early[2];
    struct net net;

    (void)state;
    net_init(&net, 4);
    assert_ok(pst_exec_plan(net.plan, &options, m, &net.diag), &net.diag);
    for (unsigned r = 0; r < 4; r++) {
        assert_true(m[r].in_flight <= 4);
        assert_true((m[r].for_w > 0) ==
                    (r != 2)); /* rank 2 has no parameters */
    }
    options = net_options("looped-bfs", 2, 4, "none");
    assert_ok(pst_exec_plan(net.plan, &options, late, &net.diag), &net.diag);
    options = net_options("gpipe", 2, 4, "none");
    assert_ok(pst_exec_plan(net.plan, &options, early, &net.diag), &net.diag);
    for (unsigned r = 0; r < 2; r++)
        assert_true(late[r].for_w > 0 && early[r].for_w == 0);
    net_fini(&net);
}

static const char *name_of(size_t row)
{
    return rows[row].name;
}

static void every_schedule_is_run(void **state)
{
    (void)state;
    assert_every_schedule(name_of, PST_COUNT(rows));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(generated_ones),
        cmocka_unit_test(every_schedule_is_run),
        cmocka_unit_test(case_48_forward_only),
        cmocka_unit_test(case_49_no_outputs),
        cmocka_unit_test(case_59_placements),
        cmocka_unit_test(case_60_messages_given),
        cmocka_unit_test(case_61_split_backward),
        cmocka_unit_test(case_62_one_rank),
        cmocka_unit_test(lists_by_chance),
        cmocka_unit_test(refuses_lists_with_a_fault),
        cmocka_unit_test(refuses_forwards_out_of_order),
        cmocka_unit_test(plans_what_is_in_flight),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
