// SPDX-License-Identifier: Apache-2.0
/* Replicas of a pipeline: R x P ranks share a batch (conformance 69). */
#include <math.h>

#include "tests/exec/job.h"

/* Largest difference of a float tensor in proportion to its largest value. */
static double distance(const struct pst_dump_item *a,
                       const struct pst_dump_item *b)
{
    double most = 1e-30, off = 0;

    for (int64_t i = 0; i < pst_meta_numel(&a->meta); i++) {
        double u = ((const float *)a->data)[i];
        double v = ((const float *)b->data)[i];

        most = fmax(most, fabs(u));
        off = fmax(off, fabs(u - v));
        if (isnan(u) || isnan(v))
            return NAN;
    }
    return off / most;
}

static void assert_near(const struct pst_dump *a, const struct pst_dump *b,
                        double tolerance)
{
    size_t n, n_b;
    const struct pst_dump_item *items = pst_dump_items(a, &n);

    (void)pst_dump_items(b, &n_b);
    assert_int_equal(n, n_b);
    for (size_t i = 0; i < n; i++) {
        const struct pst_dump_item *twin = pst_dump_find(b, items[i].name);

        assert_non_null(twin);
        assert_true(pst_meta_same(&twin->meta, &items[i].meta));
        if (items[i].meta.dtype == PST_F32 &&
            !(distance(&items[i], twin) <= tolerance))
            fail_msg("%s differs by %g", items[i].name,
                     distance(&items[i], twin));
    }
}

static struct run replicated(unsigned stages, unsigned ranks, unsigned replicas,
                             unsigned microbatches, const char *schedule)
{
    struct pst_exec_options options =
        net_options(schedule, ranks, microbatches, "adamw");

    options.replicas = replicas;
    return run_as(stages, NET_STILL, &options);
}

/* Any number of replicas: the same numbers to 1e-6, the same bits each time
 * and for every cut and schedule of the pipeline. */
static void averages_gradients(void **state)
{
    static const unsigned microbatches[] = {4, 5, 7};

    (void)state;
    for (size_t i = 0; i < PST_COUNT(microbatches); i++) {
        const unsigned m = microbatches[i];
        struct run whole = replicated(1, 1, 1, m, "gpipe");

        for (unsigned replicas = 2; replicas <= 4; replicas++) {
            struct run alone = replicated(1, 1, replicas, m, "gpipe");

            assert_near(whole.dump, alone.dump, 1e-6);
            assert_true(fabs(whole.loss - alone.loss) < 1e-6);
            for (unsigned stages = 2; stages <= 4; stages++) {
                struct run cut =
                    replicated(stages, PST_MIN(stages, 3), replicas, m,
                               replicas % 2 ? "gpipe" : "1f1b");

                assert_same_dump(alone.dump, cut.dump);
                assert_true(alone.loss == cut.loss && alone.norm == cut.norm);
                pst_dump_free(cut.dump);
            }
            pst_dump_free(alone.dump);
        }
        pst_dump_free(whole.dump);
    }
}

/* Losses and outputs of the first step come back in the order of the batch. */
static void keeps_the_order_of_the_batch(void **state)
{
    struct run whole = replicated(2, 2, 1, 5, "1f1b");
    struct run shared = replicated(2, 2, 2, 5, "1f1b");

    (void)state;
    assert_memory_equal(pst_dump_find(whole.dump, "losses")->data,
                        pst_dump_find(shared.dump, "losses")->data,
                        5 * sizeof(float));
    assert_memory_equal(pst_dump_find(whole.dump, "output.1")->data,
                        pst_dump_find(shared.dump, "output.1")->data,
                        100 * sizeof(float));
    pst_dump_free(whole.dump);
    pst_dump_free(shared.dump);
}

static void refuses_what_cannot_be_shared(void **state)
{
    struct pst_exec_options options = net_options("1f1b", 2, 3, "sgd");
    struct pst_memory memory[2];
    struct net net;

    (void)state;
    net_init(&net, 2);
    options.replicas = 4;
    assert_int_equal(pst_exec_plan(net.plan, &options, memory, &net.diag),
                     PST_ERR_USAGE);
    options.replicas = 2;
    assert_int_equal(pst_exec_plan(net.plan, &options, memory, &net.diag),
                     PST_ERR_UNSUPPORTED);
    assert_non_null(strstr(net.diag.text, "n.seen"));
    net_fini(&net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(averages_gradients),
        cmocka_unit_test(keeps_the_order_of_the_batch),
        cmocka_unit_test(refuses_what_cannot_be_shared),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
