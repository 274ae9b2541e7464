// SPDX-License-Identifier: Apache-2.0
/* Tests generators, placement, lowering (compared with PyTorch's) and
 * estimates. */
#include "stages/sched/sched.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sched/lines.h"
#include "tests/test.h"

static const char *golden_path;

static struct pst_schedule *make(const char *name, unsigned ranks,
                                 unsigned stages, unsigned n, bool train,
                                 const double *costs)
{
    const struct pst_schedule_options o = {name, ranks, stages,
                                           n,    train, costs};
    struct pst_schedule *s = NULL;
    struct pst_diag diag;

    assert_ok(pst_schedule_make(&o, &s, &diag), &diag);
    return s;
}

static void assert_lists(const struct pst_schedule *s, const char *want)
{
    struct pst_str text = {0};

    print_lines(s, &text);
    assert_string_equal(pst_str_text(&text), want);
    pst_str_fini(&text);
}

static void chain(struct pst_link *links, unsigned stages)
{
    for (unsigned s = 0; s + 1 < stages; s++)
        links[s] = (struct pst_link){(int)s, (int)s + 1, true};
}

static void one_golden(const char *header, const char *want)
{
    char kind[16], name[16], peaks[64];
    struct pst_schedule *s;
    unsigned ranks, n;

    assert_int_equal(
        sscanf(header, "%15s %15s %u %u %63s", kind, name, &ranks, &n, peaks),
        5);
    s = make(name, ranks, ranks, n, true, NULL);
    if (strcmp(kind, "lowered") == 0) {
        struct pst_link links[8];
        struct pst_diag diag;

        chain(links, ranks);
        assert_ok(pst_schedule_lower(s, links, ranks - 1, NULL, 0, 0, &diag),
                  &diag);
        assert_ok(pst_schedule_check(s, links, ranks - 1, NULL, 0, &diag),
                  &diag);
    } else {
        char *at = peaks;

        for (unsigned r = 0; r < ranks; r++, at += *at == ',')
            assert_int_equal(pst_schedule_peak(s, r), strtoul(at, &at, 10));
    }
    assert_lists(s, want);
    pst_schedule_free(s);
}

/* Compares with golden.txt, whose blocks are a header, one line per rank and an
 * empty line. */
static void equals_pytorch(void **state)
{
    FILE *file = fopen(golden_path, "r");
    char line[4096], header[128] = "";
    struct pst_str want = {0};
    unsigned rank = 0, blocks = 0;
    bool more = true;

    (void)state;
    assert_non_null(file);
    while (more) {
        more = fgets(line, sizeof(line), file) != NULL;
        if (more && line[0] == '#')
            continue;
        if (!more || line[0] == '\n') {
            if (header[0]) {
                one_golden(header, pst_str_text(&want));
                blocks++;
            }
            header[0] = '\0';
            pst_str_fini(&want);
            rank = 0;
        } else if (!header[0]) {
            snprintf(header, sizeof(header), "%.127s", line);
        } else {
            pst_str_addf(&want, "r%u %s", rank++, line);
        }
    }
    fclose(file);
    assert_int_equal(blocks, 154);
}

static void groups_act_like_one_stage(void **state)
{
    struct pst_schedule *s = make("1f1b", 2, 4, 2, true, NULL);

    (void)state;
    assert_lists(s, "r0 0F0 1F0 0F1 1F1 1B0 0B0 1B1 0B1\n"
                    "r1 2F0 3F0 3B0 2B0 2F1 3F1 3B1 2B1\n");
    pst_schedule_free(s);
    /* Fewer microbatches than ranks. */
    s = make("1f1b", 3, 3, 1, true, NULL);
    assert_lists(s, "r0 0F0 0B0\nr1 1F0 1B0\nr2 2F0 2B0\n");
    pst_schedule_free(s);
    s = make(NULL, 2, 3, 2, false, NULL);
    assert_string_equal(s->name, "inference");
    assert_lists(s, "r0 0F0 0F1\nr1 1F0 2F0 1F1 2F1\n");
    pst_schedule_free(s);
}

static double costliest(const double *costs, const int *rank_of, unsigned n)
{
    double most = 0, sum = 0;

    for (unsigned s = 0; s < n; s++) {
        sum = s && rank_of[s] == rank_of[s - 1] ? sum + costs[s] : costs[s];
        most = most > sum ? most : sum;
    }
    return most;
}

/* Compares with all ways to cut eight stages. */
static void placement_is_best(void **state)
{
    unsigned seed = 7;

    (void)state;
    for (unsigned round = 0; round < 200; round++) {
        const unsigned n = 1 + round % 8, ranks = 1 + (round / 8) % n;
        struct pst_schedule *s;
        double costs[8], best = 1e30;

        for (unsigned i = 0; i < n; i++) {
            seed = seed * 1103515245u + 12345u;
            costs[i] = (seed >> 16) % 10;
        }
        for (unsigned cuts = 0; cuts < 1u << (n - 1); cuts++) {
            int rank_of[8] = {0};

            for (unsigned i = 1; i < n; i++)
                rank_of[i] = rank_of[i - 1] + (cuts >> (i - 1) & 1);
            if (rank_of[n - 1] == (int)ranks - 1) {
                const double cost = costliest(costs, rank_of, n);

                best = cost < best ? cost : best;
            }
        }
        s = make("gpipe", ranks, n, 1, true, costs);
        assert_int_equal(s->rank_of[0], 0);
        assert_int_equal(s->rank_of[n - 1], ranks - 1);
        for (unsigned i = 1; i < n; i++)
            assert_in_range(s->rank_of[i] - s->rank_of[i - 1], 0, 1);
        assert_true(costliest(costs, s->rank_of, n) == best);
        pst_schedule_free(s);
    }
}

static void refuses_with_the_way_out(void **state)
{
    struct pst_schedule_options o = {"1f1", 2, 2, 2, true, NULL};
    struct pst_schedule *s = NULL;
    struct pst_diag diag;

    (void)state;
    assert_int_equal(pst_schedule_make(&o, &s, &diag), PST_ERR_USAGE);
    assert_non_null(strstr(diag.text, "gpipe, "));
    assert_non_null(strstr(diag.text, " 1f1b, "));
    o.train = false;
    assert_int_equal(pst_schedule_make(&o, &s, &diag), PST_ERR_USAGE);
    o = (struct pst_schedule_options){"1f1b", 5, 4, 2, true, NULL};
    assert_int_equal(pst_schedule_make(&o, &s, &diag), PST_ERR_USAGE);
    assert_non_null(strstr(diag.text, "data parallelism"));
    o = (struct pst_schedule_options){"1f1b", 1, 1, 0, true, NULL};
    assert_int_equal(pst_schedule_make(&o, &s, &diag), PST_ERR_USAGE);
    o.microbatches = ~0u;
    assert_int_equal(pst_schedule_make(&o, &s, &diag), PST_ERR_USAGE);
    assert_null(s);
}

static void skips_and_reductions(void **state)
{
    const struct pst_link links[] = {
        {0, 2, true}, {0, 1, true}, {1, 2, true}, {0, 3, false}, {2, 3, true}};
    const unsigned owners[] = {0, 3}, all[] = {0, 1, 2};
    const struct pst_shared shared[] = {{7, all, 3}, {2, owners, 2}};
    struct pst_schedule *s = make("gpipe", 2, 4, 1, true, NULL);
    struct pst_diag diag;

    (void)state;
    assert_ok(pst_schedule_lower(s, links, 5, shared, 2, 0, &diag), &diag);
    assert_ok(pst_schedule_check(s, links, 5, shared, 2, &diag), &diag);
    assert_lists(
        s, "r0 0F0 0COPY_F0 0SEND_F0>2 0SEND_F0>3 1F0 1SEND_F0 1RECV_B0 "
           "0RECV_B0<2 1B0 1COPY_B0 0B0 0REDUCE_GRAD#2 0REDUCE_GRAD#7\n"
           "r1 2RECV_F0<0 3RECV_F0<0 2RECV_F0 2F0 2COPY_F0 3F0 3B0 3COPY_B0 "
           "2B0 2SEND_B0 2SEND_B0>0 0REDUCE_GRAD#2 0REDUCE_GRAD#7\n");
    assert_int_equal(s->ranks[0].at[s->ranks[0].n - 1].param, 7);
    pst_schedule_free(s);
}

static void receives_are_posted_early(void **state)
{
    const struct pst_link link = {0, 1, true};
    struct pst_schedule *s = make("1f1b", 2, 2, 3, true, NULL);
    struct pst_diag diag;

    (void)state;
    assert_ok(pst_schedule_lower(s, &link, 1, NULL, 0, 1, &diag), &diag);
    assert_ok(pst_schedule_check(s, &link, 1, NULL, 0, &diag), &diag);
    assert_lists(s, "r0 0F0 0SEND_F0 0RECV_B0 0F1 0SEND_F1 0B0 0RECV_B1 0F2 "
                    "0SEND_F2 0RECV_B2 0B1 0B2\n"
                    "r1 1RECV_F0 1RECV_F1 1F0 1B0 1SEND_B0 1RECV_F2 1F1 1B1 "
                    "1SEND_B1 1F2 1B2 1SEND_B2\n");
    pst_schedule_free(s);
}

/* Stage 3 sends a buffer on to stage 0. A schedule that allows this is
 * unchanged; otherwise the forwards that others wait for move up, and backwards
 * keep their order. */
static void buffers_go_from_microbatch_to_microbatch(void **state)
{
    const struct pst_link links[] = {
        {0, 1, true}, {1, 2, true}, {2, 3, true}, {3, 0, false}};
    struct pst_schedule *s = make("1f1b", 4, 4, 3, true, NULL);
    struct pst_str before = {0}, after = {0};
    struct pst_diag diag;

    (void)state;
    print_lines(s, &before);
    assert_ok(pst_schedule_carry(s, links, 4, &diag), &diag);
    print_lines(s, &after);
    assert_string_equal(pst_str_text(&before), pst_str_text(&after));
    pst_str_fini(&before);
    pst_str_fini(&after);
    pst_schedule_free(s);

    s = make("looped-bfs", 2, 4, 2, true, NULL);
    assert_int_equal(pst_schedule_lower(s, links, 4, NULL, 0, 0, &diag),
                     PST_ERR_INPUT);
    assert_non_null(strstr(diag.text, "deadlocks"));
    pst_schedule_free(s);

    s = make("looped-bfs", 2, 4, 2, true, NULL);
    assert_lists(s, "r0 0F0 0F1 2F0 2F1 2B1 2B0 0B1 0B0\n"
                    "r1 1F0 1F1 3F0 3F1 3B1 3B0 1B1 1B0\n");
    assert_ok(pst_schedule_carry(s, links, 4, &diag), &diag);
    assert_lists(s, "r0 0F0 2F0 0F1 2F1 2B1 2B0 0B1 0B0\n"
                    "r1 1F0 3F0 1F1 3F1 3B1 3B0 1B1 1B0\n");
    assert_ok(pst_schedule_lower(s, links, 4, NULL, 0, 0, &diag), &diag);
    assert_ok(pst_schedule_check(s, links, 4, NULL, 0, &diag), &diag);
    pst_schedule_free(s);
}

/* A failing allocation at any call causes no leak and no crash. */
static void survives_lack_of_memory(void **state)
{
    const struct pst_schedule_options o = {"1f1b", 2, 3, 3, true, NULL};
    const uint64_t live = pst_alloc_live(PST_TAG_PLAN);
    enum pst_status status = PST_ERR_NOMEM;
    struct pst_link links[3] = {[2] = {2, 0, false}};

    (void)state;
    chain(links, 3);
    for (uint64_t n = 1; status != PST_OK; n++) {
        struct pst_schedule *s = NULL;
        struct pst_diag diag;

        assert_in_range(n, 1, 500);
        pst_alloc_fail_at(n);
        status = pst_schedule_make(&o, &s, &diag);
        if (status == PST_OK)
            status = pst_schedule_carry(s, links, 3, &diag);
        if (status == PST_OK)
            status = pst_schedule_lower(s, links, 3, NULL, 0, 2, &diag);
        if (status == PST_OK)
            status = pst_schedule_check(s, links, 3, NULL, 0, &diag);
        pst_alloc_fail_at(0);
        if (status != PST_OK)
            assert_int_equal(status, PST_ERR_NOMEM);
        pst_schedule_free(s);
        assert_int_equal(pst_alloc_live(PST_TAG_PLAN), live);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_pytorch),
        cmocka_unit_test(groups_act_like_one_stage),
        cmocka_unit_test(placement_is_best),
        cmocka_unit_test(refuses_with_the_way_out),
        cmocka_unit_test(skips_and_reductions),
        cmocka_unit_test(receives_are_posted_early),
        cmocka_unit_test(buffers_go_from_microbatch_to_microbatch),
        cmocka_unit_test(survives_lack_of_memory),
    };

    if (argc < 2)
        return 2;
    golden_path = argv[1];
    return cmocka_run_group_tests_name("sched-generate", tests, NULL, NULL);
}
