// SPDX-License-Identifier: Apache-2.0
/* Tests calls by one caller whose operands are at other locations each time. A
 * file of cases cannot express this. */
#include "stages/alias/call.h"
#include "stages/ops/core/op.h"
#include "tests/test.h"

#define N 8

static const char *const name_a = "a", *const name_b = "b";
static const char *const out_m = "m", *const out_y = "y";

/* a *= 10; y = a + b. */
static const struct pst_alias_program_arg write_args[] = {
    {.kind = PST_PROGRAM_NAME, .names = &name_a, .n = 1},
    {.literal = {.kind = PST_ARG_INT, .i = 10}},
};
static const struct pst_alias_program_arg add_args[] = {
    {.kind = PST_PROGRAM_NAME, .names = &name_a, .n = 1},
    {.kind = PST_PROGRAM_NAME, .names = &name_b, .n = 1},
};
static const struct pst_alias_program_op ops[] = {
    {.op = "aten.mul_.Scalar",
     .args = write_args,
     .outs = &out_m,
     .n_args = 2,
     .n_outs = 1},
    {.op = "aten.add.Tensor",
     .args = add_args,
     .outs = &out_y,
     .n_args = 2,
     .n_outs = 1},
};
static const struct pst_alias_program program = {
    .ops = ops, .n_ops = 2, .returns = &out_y, .n_returns = 1};

struct call {
    float data[2][N];
    struct pst_call_storage storages[2];
    struct pst_alias_program_operand operands[2];
    struct pst_call_result result;
};

/* Calls the program with two operands of three elements, at offsets a and b of
 * the storage. */
static void run(struct pst_caller *caller, struct call *c, unsigned storage,
                int64_t a, int64_t b)
{
    const int64_t three = 3;
    struct pst_diag diag;

    pst_diag_init(&diag);
    for (unsigned s = 0; s < 2; s++) {
        for (unsigned i = 0; i < N; i++)
            c->data[s][i] = (float)(i + 1 + 100 * s);
        c->storages[s] =
            (struct pst_call_storage){c->data[s], sizeof(c->data[s])};
    }
    for (unsigned k = 0; k < 2; k++) {
        c->operands[k] = (struct pst_alias_program_operand){
            .as = {.name = k == 0 ? name_a : name_b,
                   .tensor = k,
                   .storage = storage,
                   .meta = pst_meta_make(PST_F32, 1, &three),
                   .offset = k == 0 ? a : b}};
    }
    assert_ok(pst_caller_call(caller, c->operands, 2, c->storages, 2,
                              &c->result, &diag),
              &diag);
}

static void check(const struct call *c, unsigned storage, int64_t a, int64_t b)
{
    const float *y = c->result.returns[0];

    for (unsigned s = 0; s < 2; s++)
        for (int64_t i = 0; i < N; i++) {
            const float was = (float)(i + 1 + 100 * (int64_t)s);
            const bool written = s == storage && i >= a && i < a + 3;

            assert_float_equal(c->data[s][i], written ? 10 * was : was, 0);
        }
    for (int64_t i = 0; i < 3; i++)
        assert_float_equal(
            y[i], c->data[storage][a + i] + c->data[storage][b + i], 0);
}

/* One plan serves all locations with the same sharing pattern. */
static void plans_follow_their_operands(void **state)
{
    static const struct pst_call_options options = {0};
    struct pst_caller *caller;
    struct pst_diag diag;
    struct call c;

    (void)state;
    pst_diag_init(&diag);
    assert_ok(pst_caller_new(&program, &options, &caller, &diag), &diag);
    run(caller, &c, 0, 0, 1);
    assert_true(c.result.is_new);
    assert_int_equal(c.result.bound->alias.n_bases, 1);
    check(&c, 0, 0, 1);
    run(caller, &c, 0, 3, 4); /* the same storage, another offset */
    assert_false(c.result.is_new);
    check(&c, 0, 3, 4);
    run(caller, &c, 1, 1, 2); /* another storage */
    assert_false(c.result.is_new);
    check(&c, 1, 1, 2);
    run(caller, &c, 1, 0, 3); /* a and b do not overlap */
    assert_true(c.result.is_new);
    assert_int_equal(c.result.bound->alias.n_bases, 0);
    check(&c, 1, 0, 3);
    run(caller, &c, 0, 4, 1); /* no overlap, in the reverse order */
    assert_true(c.result.is_new);
    check(&c, 0, 4, 1);
    run(caller, &c, 0, 2, 5);
    assert_false(c.result.is_new);
    check(&c, 0, 2, 5);
    assert_int_equal(pst_caller_plans(caller), 3);
    pst_caller_free(caller);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_follow_their_operands),
    };
    struct pst_diag diag;

    pst_diag_init(&diag);
    if (pst_registry_init(&diag) != PST_OK)
        return 1;
    return cmocka_run_group_tests_name("alias-call", tests, NULL, NULL);
}
