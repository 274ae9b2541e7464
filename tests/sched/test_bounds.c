// SPDX-License-Identifier: Apache-2.0
/*
 * Tests the table of docs/schedules.md: bubble and memory of each schedule if
 * F, I and W take the same time everywhere and messages take none; and the cost
 * of microbatch numbers that PyTorch refuses.
 */
#include "stages/sched/simulate.h"

#include <stdlib.h>
#include <string.h>

#include "tests/sched/every.h"
#include "tests/sched/lines.h"
#include "tests/sched/made.h"

static double bubble_of(const struct pst_schedule *s)
{
    struct pst_costs costs;
    struct pst_diag diag;
    struct pst_sim sim;
    double bubble;

    assert_ok(pst_costs_init(&costs, s->n_stages, &diag), &diag);
    for (unsigned k = 0; k < s->n_stages; k++)
        costs.stages[k].seconds = (struct pst_seconds){1, 1, 1};
    assert_ok(pst_schedule_simulate(s, &costs, &sim, &diag), &diag);
    bubble = sim.bubble;
    pst_sim_fini(&sim);
    pst_costs_fini(&costs);
    return bubble;
}

typedef unsigned (*held_fn)(unsigned ranks, unsigned per_rank, unsigned n,
                            unsigned rank);

/* Expects the idle units of a step per rank, `gaps` times P - 1, and the
 * largest number of (stage, microbatch) pairs that a rank holds. */
static void assert_bounds(const char *name, unsigned ranks, unsigned per_rank,
                          unsigned n, double gaps, held_fn held)
{
    struct pst_schedule *s = made(name, ranks, per_rank * ranks, n);
    const double idle = gaps * (ranks - 1), work = 3.0 * n * per_rank;

    print_message("%s P=%u V=%u n=%u\n", name, ranks, per_rank, n);
    assert_float_equal(bubble_of(s), idle / (work + idle), 1e-9);
    for (unsigned r = 0; r < ranks; r++)
        assert_int_equal(peak_of_rank(s, r), held(ranks, per_rank, n, r));
    pst_schedule_free(s);
}

static unsigned held_all(unsigned ranks, unsigned per_rank, unsigned n,
                         unsigned rank)
{
    (void)ranks;
    (void)rank;
    return n * per_rank;
}

static unsigned held_1f1b(unsigned ranks, unsigned per_rank, unsigned n,
                          unsigned rank)
{
    (void)per_rank;
    (void)n;
    return ranks - rank;
}

static unsigned held_interleaved(unsigned ranks, unsigned per_rank, unsigned n,
                                 unsigned rank)
{
    const unsigned most = (per_rank - 1) * ranks + 2 * (ranks - 1 - rank) + 1;

    return most < n * per_rank ? most : n * per_rank;
}

static unsigned held_zb(unsigned ranks, unsigned per_rank, unsigned n,
                        unsigned rank)
{
    (void)n;
    (void)rank;
    return per_rank * ranks;
}

static unsigned held_dualpipe(unsigned ranks, unsigned per_rank, unsigned n,
                              unsigned rank)
{
    return held_zb(ranks, per_rank, n, rank) + 1;
}

/* The table, for each number of stages per rank from per_rank to most. */
static const struct {
    const char *name;
    unsigned per_rank, most;
    double gaps;
    held_fn held;
} rows[] = {
    {"gpipe", 1, 1, 3, held_all},
    {"1f1b", 1, 1, 3, held_1f1b},
    {"interleaved-1f1b", 1, 3, 3, held_interleaved},
    {"looped-bfs", 1, 3, 3, held_all},
    {"zb-h1", 1, 3, 1, held_zb},
    {"zb-v", 2, 2, 1, held_zb},
    {"dualpipe-v", 2, 2, 1, held_dualpipe},
};

static void bubbles_and_memory(void **state)
{
    (void)state;
    for (size_t i = 0; i < PST_COUNT(rows); i++)
        for (unsigned p = 2; p <= 8; p++)
            for (unsigned n = 2 * p; n <= 4 * p; n += 2 * p)
                for (unsigned v = rows[i].per_rank; v <= rows[i].most; v++)
                    assert_bounds(rows[i].name, p, v, n, rows[i].gaps,
                                  rows[i].held);
}

static const char *name_of(size_t row)
{
    return rows[row].name;
}

static void every_schedule_has_its_bounds(void **state)
{
    (void)state;
    assert_every_schedule(name_of, PST_COUNT(rows));
}

/* Rounds of unequal size are never worse than omitting microbatches, and the
 * text states the gain of an even number. */
static void remainders_cost_little(void **state)
{
    static const char *const names[] = {"interleaved-1f1b", "zb-h1"};

    (void)state;
    for (unsigned k = 0; k < 2; k++)
        for (unsigned n = 1; n <= 24; n++) {
            const struct pst_schedule_options o = {.name = names[k],
                                                   .ranks = 4,
                                                   .stages = 8,
                                                   .microbatches = n,
                                                   .train = true};
            struct pst_schedule *s = made(names[k], 4, 8, n);
            struct pst_str text = {0};
            struct pst_diag diag;

            assert_ok(pst_schedule_explain(s, &o, &text, &diag), &diag);
            assert_int_equal(text.len > 0, n % (n < 4 ? 1 : n / 4) != 0);
            if (n == 13)
                assert_non_null(strstr(pst_str_text(&text),
                                       "13 microbatches make 3 rounds of 5 and "
                                       "4, bubble "));
            if (n == 13)
                assert_non_null(strstr(pst_str_text(&text), "; with 15, "));
            if (n > 4 && n % 4) {
                struct pst_schedule *even = made(names[k], 4, 8, n - n % 4);

                assert_true(bubble_of(s) < bubble_of(even) + 0.03);
                pst_schedule_free(even);
            }
            pst_str_fini(&text);
            pst_schedule_free(s);
        }
}

/* Refusals name the nearest valid numbers. */
static void refusals_name_the_way_out(void **state)
{
    static const struct {
        const char *name;
        unsigned ranks, stages, n;
        const char *place, *text;
        bool exact;
    } rows[] = {
        {"zb-v", 4, 4, 4, NULL, "split into 8 stages, or take 2 ranks", false},
        {"zb-v", 4, 7, 4, NULL, "split into 8 stages", false},
        {"dualpipe-v", 2, 4, 3, NULL, "take 4", false},
        {"dualpipe-v", 2, 6, 9, NULL, "or take 3 ranks", false},
        {"zb-v", 2, 4, 4, "0=0,1=1,2=1,3=0", "leave --place out", false},
        {"zb-h1", 4, 8, 9, NULL, "nearest are 8 and 10", true},
        {"1f1b", 2, 3, 4, "0=0,2=1", "stage 1 of 3", false},
        {"1f1b", 2, 3, 4, "0=0,1=1,1=0,2=1", "name it once", false},
        {"1f1b", 2, 3, 4, "0-2=0", "rank 1 of 2", false},
        {"1f1b", 2, 3, 4, "0-3=0", "stages 0 to 2", false},
        {"1f1b", 2, 3, 4, "0=0,1=2,2=1", "ranks 0 to 1", false},
        {"1f1b", 2, 3, 4, "0=0;1=1", "character 4", false},
        {"1f1b", 2, 3, 4, "99999999999=0", "STAGE=RANK", false},
        {"1f1b", 2, 3, 4, "", "STAGE=RANK", false},
        {"inference", 2, 3, 4, NULL, "forward only", false},
    };

    (void)state;
    for (size_t i = 0; i < PST_COUNT(rows); i++) {
        const struct pst_schedule_options o = {.name = rows[i].name,
                                               .ranks = rows[i].ranks,
                                               .stages = rows[i].stages,
                                               .microbatches = rows[i].n,
                                               .train = true,
                                               .place = rows[i].place,
                                               .exact = rows[i].exact};
        struct pst_schedule *s = NULL;
        struct pst_diag diag;

        assert_int_equal(pst_schedule_make(&o, &s, &diag), PST_ERR_USAGE);
        if (!strstr(diag.text, rows[i].text))
            fail_msg("row %zu: %s", i, diag.text);
    }
}

/* Messages for files name the fault and its position. */
static void lists_are_refused_by_line_and_column(void **state)
{
    static const struct {
        const char *lists, *text;
    } rows[] = {
        {"0F0,0B0\n1F0,1X0\n", "line 2, column 5: '1X0' is not an action"},
        {"0F0,0F1junk\n", "line 1, column 5"},
        {"0F0,(0F1;0F2)OVERLAP_F_B\n", "line 1, column 5"},
        {"0F0\n0B0\n", "stage 0 is on rank 0 and on rank 1"},
        {"0F1073741823\n", "microbatch"},
        {"4096F0\n", "line 1, column 1"},
        {"-1F0\n", "line 1, column 1"},
        {"01F0\n", "line 1, column 1"},
        {"\n\n", "no action"},
        {"", "no action"},
        {",,,", "no action"},
    };

    (void)state;
    for (size_t i = 0; i < PST_COUNT(rows); i++) {
        struct pst_schedule *s = NULL;
        struct pst_diag diag;

        assert_int_equal(pst_schedule_parse(rows[i].lists,
                                            strlen(rows[i].lists), "x.csv", &s,
                                            &diag),
                         PST_ERR_INPUT);
        if (!strstr(diag.text, rows[i].text))
            fail_msg("row %zu: %s", i, diag.text);
    }
}

/* Damaged text is refused or accepted, without any crash. */
static void damaged_lists(void **state)
{
    static const char good[] = "0F0,0SEND_F0,0UNSHARD,,0RECV_B0<3,0B0\r\n"
                               "3RECV_F0,(3F0;3B1)OVERLAP_F_B,0REDUCE_GRAD#7";
    unsigned seed = 3;

    (void)state;
    for (unsigned i = 0; i < 20000; i++) {
        char text[sizeof(good)];
        struct pst_schedule *s = NULL;
        size_t len = sizeof(good) - 1;

        memcpy(text, good, sizeof(good));
        for (unsigned k = 0; k < 1 + i % 3; k++) {
            seed = seed * 1664525u + 1013904223u;
            text[(seed >> 8) % len] = (seed >> 28) % 2
                                          ? good[(seed >> 16) % len]
                                          : (char)(seed >> 24);
        }
        len -= i % 7 == 0 ? i % len : 0;
        if (pst_schedule_parse(text, len, "x.csv", &s, NULL) == PST_OK)
            pst_schedule_free(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bubbles_and_memory),
        cmocka_unit_test(every_schedule_has_its_bounds),
        cmocka_unit_test(remainders_cost_little),
        cmocka_unit_test(refusals_name_the_way_out),
        cmocka_unit_test(lists_are_refused_by_line_and_column),
        cmocka_unit_test(damaged_lists),
    };

    return cmocka_run_group_tests_name("sched-bounds", tests, NULL, NULL);
}
