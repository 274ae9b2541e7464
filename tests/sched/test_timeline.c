// SPDX-License-Identifier: Apache-2.0
/* Tests the causes of waits, and timelines as text. */
#include "stages/sched/timeline.h"

#include <string.h>

#include "tests/test.h"

static const int rank_of[] = {0, 1};
static const struct pst_link links[] = {{0, 1, true}};

static void add(struct pst_timeline *t, int rank, enum pst_span_kind kind,
                int stage, int microbatch, double start, double end)
{
    assert_true(pst_timeline_add(t, rank, kind, stage, microbatch, start, end));
}

/* Two ranks, two microbatches, with gaps of each kind:
 *   rank 0  F0 0-2  F1 3-4 (reads data late)  B0 9-10  B1 12-13
 *   rank 1  F0 3-4  B0 4-6  F1 6-7  B1 8-11   O 14-15 */
static void make(struct pst_timeline *t)
{
    *t = (struct pst_timeline){.name = "measured", .n_ranks = 2, .step = 15};
    add(t, 1, PST_SPAN_B, 1, 1, 8, 11);
    add(t, 0, PST_SPAN_F, 0, 0, 0, 2);
    add(t, 0, PST_SPAN_F, 0, 1, 3, 4);
    add(t, 0, PST_SPAN_B, 0, 1, 12, 13);
    add(t, 0, PST_SPAN_B, 0, 0, 9, 10);
    add(t, 1, PST_SPAN_F, 1, 0, 3, 4);
    add(t, 1, PST_SPAN_B, 1, 0, 4, 6);
    add(t, 1, PST_SPAN_F, 1, 1, 6, 7);
    add(t, 1, PST_SPAN_OPTIM, 1, -1, 14, 15);
}

static void explain_timeline(struct pst_timeline *t)
{
    struct pst_diag diag;

    assert_ok(pst_timeline_explain(t, rank_of, 2, links, 1, &diag), &diag);
}

static void every_gap_has_its_cause(void **state)
{
    struct pst_shares shares[2];
    struct pst_timeline t;
    size_t n;

    (void)state;
    make(&t);
    explain_timeline(&t);
    n = t.spans.n;
    explain_timeline(&t); /* again: nothing is counted twice */
    assert_int_equal(t.spans.n, n);
    pst_timeline_shares(&t, shares);

    /* Rank 0 waits. 2-3: for no rank. 4-6: rank 1 has not computed B0. 6-9: B0
     * is on its way. 10-11: rank 1 has not computed B1, after the last forward.
     * 11-12: B1 is on its way. 13-15: no work is left. */
    assert_float_equal(shares[0].seconds[PST_SPAN_OTHER], 1, 1e-9);
    assert_float_equal(shares[0].seconds[PST_SPAN_WARM_UP], 2, 1e-9);
    assert_float_equal(shares[0].seconds[PST_SPAN_MESSAGE], 3 + 1, 1e-9);
    assert_float_equal(shares[0].seconds[PST_SPAN_DRAIN], 1 + 2, 1e-9);
    assert_float_equal(shares[0].seconds[PST_SPAN_IMBALANCE], 0, 1e-9);
    assert_float_equal(shares[0].bubble, 10.0 / 15, 1e-9);

    /* Rank 1 waits. 0-2 and 2-3: before F0. 7-8: before B1, for no rank. 11-14:
     * before the optimizer. */
    assert_float_equal(shares[1].seconds[PST_SPAN_WARM_UP], 2, 1e-9);
    assert_float_equal(shares[1].seconds[PST_SPAN_MESSAGE], 1, 1e-9);
    assert_float_equal(shares[1].seconds[PST_SPAN_OTHER], 1, 1e-9);
    assert_float_equal(shares[1].seconds[PST_SPAN_DRAIN], 3, 1e-9);
    assert_float_equal(shares[1].seconds[PST_SPAN_OPTIM], 1, 1e-9);
    for (unsigned r = 0; r < 2; r++) {
        double all = 0;

        for (int k = 0; k < PST_N_SPANS; k++)
            all += shares[r].seconds[k];
        assert_float_equal(all, 15, 1e-9);
    }
    pst_timeline_fini(&t);
}

/* In the middle of a step, the time that a rank waits for a slow rank counts as
 * imbalance. */
static void late_peers_are_imbalance(void **state)
{
    struct pst_timeline t = {.name = "x", .n_ranks = 2, .step = 12};
    struct pst_shares shares[2];

    (void)state;
    add(&t, 0, PST_SPAN_F, 0, 0, 0, 1);
    add(&t, 1, PST_SPAN_F, 1, 0, 1, 2);
    add(&t, 1, PST_SPAN_B, 1, 0, 2, 3);
    add(&t, 0, PST_SPAN_F, 0, 1, 1, 7); /* rank 0 is slow here */
    add(&t, 1, PST_SPAN_F, 1, 1, 7, 8);
    add(&t, 1, PST_SPAN_B, 1, 1, 8, 9);
    explain_timeline(&t);
    pst_timeline_shares(&t, shares);
    assert_float_equal(shares[1].seconds[PST_SPAN_IMBALANCE], 4, 1e-9);
    assert_float_equal(shares[1].seconds[PST_SPAN_WARM_UP], 1, 1e-9);
    assert_float_equal(shares[1].seconds[PST_SPAN_DRAIN], 3, 1e-9);
    pst_timeline_fini(&t);
}

/* A name may contain anything; none of it becomes markup. */
static void text_is_escaped(void **state)
{
    struct pst_timeline t;
    const struct pst_timeline *const one[] = {&t};
    struct pst_str svg = {0}, trace = {0};

    (void)state;
    make(&t);
    explain_timeline(&t);
    t.name = "a<b>&\"c\n";
    pst_timeline_svg(one, 1, "<script>&'\"\x01", &svg);
    assert_null(strstr(pst_str_text(&svg), "<script"));
    assert_non_null(strstr(pst_str_text(&svg), "&lt;script&gt;&amp;"));
    assert_non_null(strstr(pst_str_text(&svg), "a&lt;b&gt;&amp;&quot;c\\n"));
    assert_null(strchr(pst_str_text(&svg), '\x01'));
    assert_non_null(strstr(pst_str_text(&svg), "rank 1"));
    assert_non_null(strstr(pst_str_text(&svg), "bubble 66.7%"));
    pst_timeline_trace(one, 1, &trace);
    assert_non_null(strstr(pst_str_text(&trace), "\"a<b>&\\\"c\\n\""));
    assert_non_null(strstr(pst_str_text(&trace),
                           "{\"name\":\"0F1\",\"cat\":\"forward\",\"ph\":\"X\","
                           "\"pid\":0,\"tid\":0,\"ts\":3000000.000,"
                           "\"dur\":1000000.000,\"args\":{\"stage\":0,"
                           "\"microbatch\":1}}"));
    pst_str_fini(&trace);
    pst_str_fini(&svg);
    pst_timeline_fini(&t);
}

/* Spans that touch also touch in whole nanoseconds. */
static void spans_do_not_overlap(void **state)
{
    struct pst_timeline t = {.name = "t", .n_ranks = 1, .step = 3e-9};
    const struct pst_timeline *const one[] = {&t};
    struct pst_str trace = {0};

    (void)state;
    add(&t, 0, PST_SPAN_F, 0, 0, 0.6e-9, 1.4e-9);
    add(&t, 0, PST_SPAN_F, 0, 1, 1.4e-9, 3e-9);
    pst_timeline_trace(one, 1, &trace);
    assert_non_null(strstr(pst_str_text(&trace), "\"ts\":0.001,\"dur\":0.000"));
    assert_non_null(strstr(pst_str_text(&trace), "\"ts\":0.001,\"dur\":0.002"));
    pst_str_fini(&trace);
    pst_timeline_fini(&t);
}

static void nothing_is_a_picture_too(void **state)
{
    struct pst_timeline t = {.name = "empty", .n_ranks = 1};
    const struct pst_timeline *const one[] = {&t};
    struct pst_str svg = {0};
    struct pst_shares shares;

    (void)state;
    explain_timeline(&t);
    pst_timeline_shares(&t, &shares);
    assert_float_equal(shares.bubble, 0, 0);
    pst_timeline_svg(one, 1, "", &svg);
    assert_non_null(strstr(pst_str_text(&svg), "</svg>"));
    assert_null(strstr(pst_str_text(&svg), "nan"));
    assert_null(strstr(pst_str_text(&svg), "inf"));
    pst_str_fini(&svg);
    pst_timeline_fini(&t);
}

static void survives_lack_of_memory(void **state)
{
    const uint64_t live = pst_alloc_live(PST_TAG_PLAN);
    enum pst_status status = PST_ERR_NOMEM;

    (void)state;
    for (uint64_t n = 1; status != PST_OK; n++) {
        struct pst_timeline t;
        struct pst_diag diag;

        make(&t);
        pst_alloc_fail_at(n);
        status = pst_timeline_explain(&t, rank_of, 2, links, 1, &diag);
        pst_alloc_fail_at(0);
        if (status != PST_OK)
            assert_int_equal(status, PST_ERR_NOMEM);
        pst_timeline_fini(&t);
        assert_int_equal(pst_alloc_live(PST_TAG_PLAN), live);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_gap_has_its_cause),
        cmocka_unit_test(late_peers_are_imbalance),
        cmocka_unit_test(text_is_escaped),
        cmocka_unit_test(spans_do_not_overlap),
        cmocka_unit_test(nothing_is_a_picture_too),
        cmocka_unit_test(survives_lack_of_memory),
    };

    return cmocka_run_group_tests_name("sched-timeline", tests, NULL, NULL);
}
