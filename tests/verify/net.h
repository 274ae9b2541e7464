// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_TESTS_VERIFY_NET_H
#define PENSTOCK_TESTS_VERIFY_NET_H
/* Verifies the random models of tests/run/net.h, and models of a few nodes. */
#include "tests/run/net.h"

#include "stages/verify/verify.h"

#include <stdlib.h>

static inline struct pst_exec_options options_of(unsigned ranks)
{
    return net_options("1f1b", ranks, 3, "none");
}

static inline enum pst_status verify(struct net *net, unsigned ranks,
                                     struct pst_verify_report *report)
{
    struct pst_exec_options options = options_of(ranks);
    struct net_data data = net_data(net);

    *report = (struct pst_verify_report){0};
    return pst_verify(net->plan, &options, net_fill, &data, NULL, report,
                      &net->diag);
}

/* Verifies a model whose loss is computed from %h, which is linear in a weight
 * of zeros; inputs are random. */
static inline void expect_of_zero(const char *nodes, const char *reported,
                                  bool right)
{
    static const char *const modules[] = {"a"};
    struct pst_exec_options options = options_of(1);
    struct pst_verify_report report = {0};
    struct pst_split_options split = {0};
    struct pst_model model;
    struct pst_plan *plan;
    struct pst_diag diag;
    struct pst_weight *weight;
    struct pst_str text = {0};
    enum pst_status status;

    pst_diag_init(&diag);
    pst_str_addf(&text,
                 "graph next_id=9 {\n"
                 "  input %%x: f32[4, 1]\n"
                 "  input %%m: i64[4, 3]\n"
                 "  param %%w \"a.weight\" grad: f32[3, 1]\n"
                 "  %%h: f32[4, 3] = aten.linear.default(%%x, %%w)"
                 "  # a - F id=0\n"
                 "%s"
                 "  %%loss: f32[] = aten.mean.default(%%z)  # - - F id=8\n"
                 "  output user %%loss \"0\"\n"
                 "}\n",
                 nodes);
    model_init(&model, pst_str_text(&text), modules, 1);
    weight = pst_map_get(&model.weights_by_fqn, "a.weight");
    free((void *)weight->data);
    weight->data = calloc(3, sizeof(float));
    assert_non_null(weight->data);
    assert_ok(pst_split(&model, &split, &plan, &diag), &diag);
    status = pst_verify(plan, &options, NULL, NULL, NULL, &report, &diag);
    if (right)
        assert_ok(status, &diag);
    assert_int_equal(status, right ? PST_OK : PST_ERR_DIFFERENT);
    if (strstr(pst_str_text(&report.text), reported) == NULL)
        fail_msg("%s", pst_str_text(&report.text));
    pst_verify_report_fini(&report);
    pst_plan_free(plan);
    model_fini(&model);
    pst_str_fini(&text);
}

static inline void expect_at_zero(const char *nodes, const char *reported)
{
    expect_of_zero(nodes, reported, true);
}

#endif
