// SPDX-License-Identifier: Apache-2.0
/* Tests traces that are sent to the client: they arrive unchanged, and
 * inconsistent ones are refused. */
#include "daemon/common/trace.h"

#include "stages/base/alloc.h"
#include "tests/test.h"

#include <math.h>
#include <string.h>

static struct pstd_trace *make(unsigned spans)
{
    struct pstd_trace *t = pst_calloc(PST_TAG_TEST, 1, sizeof(*t));

    assert_non_null(t);
    t->step = 7;
    t->measured = (struct pst_timeline){.n_ranks = 2, .step = 1};
    t->predicted = (struct pst_timeline){.n_ranks = 1, .step = 2};
    for (unsigned i = 0; i < spans; i++)
        assert_true(pst_timeline_add(&t->measured, (int)i % 2, PST_SPAN_F,
                                     (int)i % 3, (int)i, 1e-9 * i,
                                     1e-9 * (i + 1)));
    assert_true(
        pst_timeline_add(&t->predicted, 0, PST_SPAN_DRAIN, -1, -1, .5, 1.5));
    return t;
}

static void comes_back(void **state)
{
    struct pstd_trace *t = make(5), *back;
    Pst__Control__Trace message;
    struct pst_diag diag;

    (void)state;
    assert_ok(pstd_trace_to_message(t, &message, &diag), &diag);
    assert_ok(pstd_trace_read(&message, &back, &diag), &diag);
    assert_int_equal(back->step, 7);
    assert_int_equal(back->measured.n_ranks, 2);
    assert_int_equal(back->measured.spans.n, 5);
    for (unsigned i = 0; i < 5; i++) {
        const struct pst_span *a = &t->measured.spans.at[i];
        const struct pst_span *b = &back->measured.spans.at[i];

        assert_int_equal(a->rank, b->rank);
        assert_int_equal(a->kind, b->kind);
        assert_int_equal(a->stage, b->stage);
        assert_int_equal(a->microbatch, b->microbatch);
        assert_float_equal(a->start, b->start, 1e-9);
        assert_float_equal(a->end, b->end, 2e-9);
    }
    assert_int_equal(back->predicted.spans.at[0].stage, -1);
    assert_float_equal(back->predicted.step, 2, 0);
    assert_float_equal(back->shares[0].seconds[PST_SPAN_F], 3e-9, 1e-12);
    pstd_trace_free(back);
    pstd_trace_free_message(&message);
    pstd_trace_free(t);
}

static void what_is_too_large_is_refused(void **state)
{
    struct pstd_trace *t = make(60000);
    Pst__Control__Trace message;
    struct pst_diag diag;

    (void)state;
    t->measured.step = 100;
    assert_int_equal(pstd_trace_to_message(t, &message, &diag), PST_ERR_RANGE);
    assert_non_null(strstr(diag.text, "60001 spans"));
    pstd_trace_free(t);
}

static void damage(Pst__Control__Timeline *t, unsigned what)
{
    switch (what) {
    case 0:
        t->ranks = 1u << 31;
        break;
    case 1:
        t->rank[2] = 2;
        break;
    case 2:
        t->kind[0] = PST_N_SPANS;
        break;
    case 3:
        t->stage[1] = -2;
        break;
    case 4:
        t->microbatch[4] = INT32_MIN;
        break;
    case 5:
        t->start_ns[0] = UINT64_MAX;
        break;
    case 6:
        t->length_ns[3] = 2000000000u;
        break;
    case 7:
        t->step_seconds = NAN;
        break;
    case 8:
        t->step_seconds = -1;
        break;
    case 9:
        t->n_kind--;
        break;
    case 10:
        t->n_length_ns = 0;
        break;
    default:
        t->n_rank = 0;
    }
}

static void damage_is_refused(void **state)
{
    const uint64_t live = pst_alloc_live(PST_TAG_CLIENT);
    struct pstd_trace *t = make(5);

    (void)state;
    for (unsigned what = 0; what < 12; what++) {
        struct pstd_trace *back = NULL;
        Pst__Control__Trace message;
        struct pst_diag diag;

        assert_ok(pstd_trace_to_message(t, &message, &diag), &diag);
        damage(message.measured, what);
        if (pstd_trace_read(&message, &back, &diag) != PST_ERR_INPUT)
            fail_msg("damage %u was not seen", what);
        assert_null(back);
        assert_int_equal(pst_alloc_live(PST_TAG_CLIENT), live);
        pstd_trace_free_message(&message);
    }
    pstd_trace_free(t);
}

/* A daemon may leave out timelines that it has not measured. */
static void timelines_may_be_missing(void **state)
{
    Pst__Control__Trace message = PST__CONTROL__TRACE__INIT;
    struct pstd_trace *back;
    struct pst_diag diag;

    (void)state;
    assert_ok(pstd_trace_read(&message, &back, &diag), &diag);
    assert_int_equal(back->measured.n_ranks, 0);
    pstd_trace_free(back);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(comes_back),
        cmocka_unit_test(what_is_too_large_is_refused),
        cmocka_unit_test(damage_is_refused),
        cmocka_unit_test(timelines_may_be_missing),
    };

    return cmocka_run_group_tests_name("daemon-trace", tests, NULL, NULL);
}
