// SPDX-License-Identifier: Apache-2.0
/*
 * Tests every gradient against central differences in f64. For a sample with
 * results y, L is the sum of s y with random s. The derivatives of L that
 * autodiff's nodes compute must equal (L(x + h) - L(x - h)) / 2h. Where
 * autodiff gives no gradient, this difference must be zero.
 */
#include "tests/ops/samples/sample.h"

#include "stages/passes/autodiff.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define STEP 1e-5
/* Finite differences have errors of about 1e-9 themselves. */
#define TOLERANCE 2e-7
#define MAX_GIVEN 16

/* One sample: its graph, and the same graph with backward nodes appended. */
struct check {
    const struct sample *sample;
    struct pst_graph *forward, *both;
    double *data[MAX_GIVEN]; /* indexed by input of the forward graph */
    double *seeds[PST_MAX_OUTS];
    struct pst_diag diag;
};

static const struct pst_rng_key key = {.seed = 7, .step = 3, .microbatch = 1};

static bool is_float(const struct pst_value *value)
{
    return value->meta.dtype == PST_F64;
}

/* Runs a graph on the inputs in c->data. */
static struct pst_eval *run(struct check *c, const struct pst_graph *graph)
{
    struct pst_eval *eval;

    assert_ok(pst_eval_new(graph, &eval, &c->diag), &c->diag);
    for (size_t i = 0; i < c->forward->inputs.n; i++)
        assert_ok(pst_eval_set(eval, graph->inputs.at[i], c->data[i], &c->diag),
                  &c->diag);
    if (graph == c->both)
        for (size_t i = 0, k = 0; i < graph->extras.n; i++)
            if (graph->extras.at[i]->kind == PST_VALUE_SEED)
                assert_ok(pst_eval_set(eval, graph->extras.at[i], c->seeds[k++],
                                       &c->diag),
                          &c->diag);
    if (pst_eval_run(eval, true, &key, &c->diag) != PST_OK)
        fail_msg("%s: %s", c->sample->text, c->diag.text);
    return eval;
}

static double loss(struct check *c)
{
    const struct pst_node *node = sample_node(c->forward);
    struct pst_eval *eval = run(c, c->forward);
    unsigned s = 0;
    double sum = 0.0;

    for (unsigned k = 0; k < node->n_outs; k++) {
        const struct pst_value *out = node->outs[k];
        const double *y = pst_eval_get(eval, out);

        if (!is_float(out))
            continue;
        for (int64_t i = 0; i < pst_meta_numel(&out->meta); i++)
            sum += y[pst_meta_offset(&out->meta, i)] * c->seeds[s][i];
        s++;
    }
    pst_eval_free(eval);
    return sum;
}

/* Adds seeds for the floating results of the last node. */
static size_t add_seeds(struct check *c, struct pst_seed *seeds)
{
    const struct pst_node *node = sample_node(c->both);
    size_t n = 0;

    for (unsigned k = 0; k < node->n_outs; k++) {
        struct pst_meta meta = node->outs[k]->meta;

        if (!is_float(node->outs[k]))
            continue;
        pst_meta_set_contiguous(&meta);
        seeds[n].value = node->outs[k];
        seeds[n].seed =
            pst_graph_add_value(c->both, PST_VALUE_SEED, "normal", NULL, &meta);
        assert_non_null(seeds[n].seed);
        c->seeds[n] = sample_fill(seeds[n].seed);
        n++;
    }
    return n;
}

/* Compares the gradient of input k with central differences of the loss. got:
 * NULL if the gradient is 0. */
static void compare(struct check *c, unsigned k, const struct pst_value *grad,
                    const double *got)
{
    const struct pst_meta *m = &c->forward->inputs.at[k]->meta;

    for (int64_t i = 0; i < pst_meta_numel(m); i++) {
        double *x = &c->data[k][pst_meta_offset(m, i)], up, down;
        const double kept = *x;
        const double have =
            got == NULL ? 0.0 : got[pst_meta_offset(&grad->meta, i)];
        double want;

        *x = kept + STEP;
        up = loss(c);
        *x = kept - STEP;
        down = loss(c);
        *x = kept;
        want = (up - down) / (2.0 * STEP);
        if (!(fabs(have - want) <= TOLERANCE * (1.0 + fabs(want) + fabs(up))))
            fail_msg("%s: gradient of input %u at %lld is %.9g, not %.9g",
                     c->sample->text, k, (long long)i, have, want);
    }
}

static void differentiate(struct check *c)
{
    struct pst_autodiff_result result;
    struct pst_seed seeds[PST_MAX_OUTS];
    struct pst_value *wanted[MAX_GIVEN];
    unsigned input[MAX_GIVEN];
    size_t n_seeds = add_seeds(c, seeds), n = 0;
    struct pst_eval *eval;

    for (size_t i = 0; i < c->both->inputs.n; i++)
        if (is_float(c->both->inputs.at[i]) &&
            c->both->inputs.at[i]->name[0] != 'c') {
            input[n] = (unsigned)i;
            wanted[n++] = c->both->inputs.at[i];
        }
    if (pst_autodiff(c->both, seeds, n_seeds, wanted, n, &result, &c->diag) !=
        PST_OK)
        fail_msg("%s: %s", c->sample->text, c->diag.text);
    eval = run(c, c->both);
    for (size_t i = 0; i < n; i++) {
        const struct pst_value *grad = result.wanted[i];

        compare(c, input[i], grad,
                grad == NULL ? NULL : pst_eval_get(eval, grad));
    }
    pst_eval_free(eval);
}

static void gradient_is_right(void **state)
{
    struct check c = {.sample = *state};

    pst_diag_init(&c.diag);
    if (sample_parse(c.sample, PST_F64, &c.forward, &c.diag) != PST_OK ||
        sample_parse(c.sample, PST_F64, &c.both, &c.diag) != PST_OK)
        fail_msg("%s: %s", c.sample->text, c.diag.text);
    assert_true(c.forward->inputs.n <= MAX_GIVEN);
    for (size_t i = 0; i < c.forward->inputs.n; i++) {
        c.data[i] = sample_fill(c.forward->inputs.at[i]);
        assert_non_null(c.data[i]);
    }
    if (sample_node(c.both)->op->vjp != pst_vjp_none)
        differentiate(&c);
    for (size_t i = 0; i < MAX_GIVEN; i++)
        pst_free(c.data[i]);
    for (size_t i = 0; i < PST_MAX_OUTS; i++)
        pst_free(c.seeds[i]);
    pst_graph_free(c.forward);
    pst_graph_free(c.both);
}

static int setup(void **state)
{
    struct pst_diag diag;

    (void)state;
    pst_diag_init(&diag);
    return pst_registry_init(&diag) == PST_OK ? 0 : -1;
}

int main(void)
{
    const unsigned n = sample_count();
    struct CMUnitTest *tests = calloc(n, sizeof(*tests));
    unsigned used = 0;
    int failed;

    if (tests == NULL)
        return 1;
    for (unsigned i = 0; i < n; i++) {
        if ((sample_at(i)->flags & SAMPLE_NO_GRADIENT) != 0)
            continue;
        tests[used++] = (struct CMUnitTest){
            .name = sample_at(i)->text,
            .test_func = gradient_is_right,
            .initial_state = (void *)(uintptr_t)sample_at(i),
        };
    }
    failed = _cmocka_run_group_tests("vjp", tests, used, setup, NULL);
    free(tests);
    return failed;
}
