// SPDX-License-Identifier: Apache-2.0
/* Tests microbatches of other sizes than the model was exported with, against
 * the numbers of PyTorch for that many rows
 * (tests/golden/make/frontend/make_dynamic.py). */
#include "tests/run/golden.h"

#include "stages/run/data/tokens.h"

static struct pst_model *model, *rows_model;
static struct pst_plan *plan, *rows_plan;

static int setup(void **state)
{
    const struct pst_split_options options = {0};

    (void)state;
    pst_diag_init(&diag);
    assert_ok(pst_model_open(golden_path("dynamic.pt2"), &model, &diag), &diag);
    assert_ok(pst_split(model, &options, &plan, &diag), &diag);
    assert_ok(pst_model_open(golden_path("rows.pt2"), &rows_model, &diag),
              &diag);
    assert_ok(pst_split(rows_model, &options, &rows_plan, &diag), &diag);
    assert_ok(
        pst_safetensors_open(golden_path("dynamic.safetensors"), &data, &diag),
        &diag);
    assert_ok(pst_safetensors_load(data, &diag), &diag);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    pst_safetensors_close(data);
    pst_plan_free(plan);
    pst_plan_free(rows_plan);
    pst_model_close(model);
    pst_model_close(rows_model);
    return 0;
}

static void bound_plans_are_pytorchs(void **state)
{
    static const char *const sets[] = {"2", "3", "5", "10"};

    (void)state;
    for (size_t i = 0; i < PST_COUNT(sets); i++) {
        for (unsigned ranks = 1; ranks <= 3; ranks += 2) {
            struct pst_exec_options options = options_for(ranks, 1);
            struct fill fill = {plan, sets[i]};
            struct pst_plan *bound;
            struct pst_dump *dump;

            assert_ok(pst_plan_bind(plan, atoi(sets[i]), &bound, &diag), &diag);
            dump = step_run(bound, &options, fill_whole, &fill);
            compare(dump, sets[i], "output.0", "loss");
            compare(dump, sets[i], "output.1", "output.1");
            compare(dump, sets[i], "output.2", "output.2");
            compare_grads(dump, sets[i]);
            pst_dump_free(dump);
            pst_plan_free(bound);
        }
    }
}

/* --- a batch that microbatches do not divide ------------------------------ */

struct uneven {
    struct pst_plan *larger, *tail;
    struct pst_exec_options options;
};

/* Binds plans for 10 rows in 4 microbatches: 3, 3, 2, 2. */
static struct uneven uneven_init(struct pst_plan *from, unsigned ranks)
{
    struct uneven u = {.options = options_for(ranks, 4)};

    assert_ok(pst_plan_bind(from, 3, &u.larger, &diag), &diag);
    assert_ok(pst_plan_bind(from, 2, &u.tail, &diag), &diag);
    u.options.tail = u.tail;
    u.options.n_tail = 2;
    return u;
}

static void uneven_fini(struct uneven *u)
{
    pst_plan_free(u->larger);
    pst_plan_free(u->tail);
}

static enum pst_status fill_part(void *ctx, uint64_t step, unsigned microbatch,
                                 unsigned input, void *dst, struct pst_diag *d)
{
    static const size_t first[] = {0, 3, 6, 8, 10};
    const struct fill *fill = ctx;
    const struct pst_safetensors_entry *e =
        entry(fill->set, fill->plan->inputs.at[input].name);
    const size_t row = e->bytes / 10;
    const size_t rows = first[microbatch + 1] - first[microbatch];

    (void)step;
    (void)d;
    memcpy(dst, (const char *)e->data + first[microbatch] * row, rows * row);
    return PST_OK;
}

/* Counts the targets that the loss does not ignore. */
static unsigned count_targets(const char *set, unsigned from, unsigned to)
{
    const struct pst_safetensors_entry *e = entry(set, "target");
    const unsigned row = (unsigned)(pst_meta_numel(&e->meta) / 10);
    unsigned n = 0;

    for (unsigned i = from * row; i < to * row; i++)
        n += pst_load_i64(PST_I64, e->data, i) != -100;
    return n;
}

static enum pst_status set_weight(void *ctx, uint64_t step, double *ret,
                                  struct pst_diag *d)
{
    const struct fill *fill = ctx;

    (void)step;
    (void)d;
    ret[0] = count_targets(fill->set, 0, 3);
    ret[1] = count_targets(fill->set, 3, 6);
    ret[2] = count_targets(fill->set, 6, 8);
    ret[3] = count_targets(fill->set, 8, 10);
    return PST_OK;
}

static float loss_of(const struct pst_dump *dump, const char *name, int i)
{
    return ((const float *)pst_dump_find(dump, name)->data)[i];
}

static void assert_same(const struct pst_dump *a, const struct pst_dump *b)
{
    size_t n;
    const struct pst_dump_item *items = pst_dump_items(a, &n);

    for (size_t i = 0; i < n; i++) {
        const struct pst_dump_item *match = pst_dump_find(b, items[i].name);

        if (match == NULL || !pst_meta_same(&match->meta, &items[i].meta) ||
            memcmp(match->data, items[i].data,
                   pst_meta_bytes(&items[i].meta)) != 0)
            fail_msg("%s differs", items[i].name);
    }
}

/* The arithmetic of the golden model depends on the rows of a microbatch
 * (arange, rows**0.5). So the reference is not the whole batch; it is the parts
 * of the batch, run one by one. */
static void microbatches_may_differ_in_rows(void **state)
{
    static const char *const schedules[] = {"gpipe", "1f1b"};
    static const double by_rows[] = {0.3, 0.3, 0.2, 0.2};
    struct uneven u = uneven_init(plan, 1);
    struct fill fill = {plan, "10"};
    struct pst_dump *whole = step_run(u.larger, &u.options, fill_part, &fill);
    double sum = 0;

    (void)state;
    assert_int_equal(pst_dump_find(whole, "output.1")->meta.size[0], 10);
    assert_int_equal(pst_dump_find(whole, "output.2")->meta.size[0], 4);
    for (int k = 0; k < 4; k++)
        sum += by_rows[k] * loss_of(whole, "losses", k);
    assert_true(fabs(sum - loss_of(whole, "loss", 0)) < 1e-6);
    for (unsigned ranks = 2; ranks <= 3; ranks++) {
        for (size_t k = 0; k < PST_COUNT(schedules); k++) {
            struct pst_dump *cut;

            u.options.ranks = ranks;
            u.options.schedule = schedules[k];
            cut = step_run(u.larger, &u.options, fill_part, &fill);
            assert_same(whole, cut);
            pst_dump_free(cut);
        }
    }
    u.options.ranks = 2;
    u.options.replicas = 2; /* one replica for each size */
    u.options.microbatches = 4;
    {
        struct pst_dump *twice =
            step_run(u.larger, &u.options, fill_part, &fill);

        assert_true(
            fabs(loss_of(twice, "loss", 0) - loss_of(whole, "loss", 0)) < 1e-6);
        pst_dump_free(twice);
    }
    pst_dump_free(whole);
    uneven_fini(&u);
}

static void weights_are_as_asked_for(void **state)
{
    struct uneven u = uneven_init(plan, 2);
    struct fill fill = {plan, "10"};
    struct pst_dump *dump;
    double sum = 0, all = count_targets("10", 0, 10), weights[4];

    (void)state;
    u.options.weigh_equal = true;
    dump = step_run(u.larger, &u.options, fill_part, &fill);
    for (int k = 0; k < 4; k++)
        sum += 0.25 * loss_of(dump, "losses", k);
    assert_true(fabs(sum - loss_of(dump, "loss", 0)) < 1e-6);
    pst_dump_free(dump);
    u.options.weigh = set_weight;
    u.options.weigh_ctx = &fill;
    dump = step_run(u.larger, &u.options, fill_part, &fill);
    assert_ok(set_weight(&fill, 0, weights, &diag), &diag);
    sum = 0;
    for (int k = 0; k < 4; k++)
        sum += weights[k] / all * loss_of(dump, "losses", k);
    assert_true(fabs(sum - loss_of(dump, "loss", 0)) < 1e-6);
    pst_dump_free(dump);
    uneven_fini(&u);
}

/* Conformance 24: 10 rows in 4 microbatches train as one batch would, and
 * outputs have 10 rows. */
static void uneven_steps_are_the_whole_batchs(void **state)
{
    static const char *const sets[] = {"full", "ignored"};

    (void)state;
    for (size_t i = 0; i < PST_COUNT(sets); i++) {
        for (unsigned ranks = 1; ranks <= 2; ranks++) {
            struct uneven u = uneven_init(rows_plan, ranks);
            struct fill fill = {rows_plan, sets[i]};
            struct pst_tokens *tokens = NULL;
            struct pst_dump *dump;

            if (i == 1) {
                assert_ok(pst_tokens_new(u.larger, u.tail, 4, 2, fill_part,
                                         &fill, &tokens, &diag),
                          &diag);
                u.options.weigh = pst_tokens_weigh;
                u.options.weigh_ctx = tokens;
            }
            dump = step_run(u.larger, &u.options, fill_part, &fill);
            compare(dump, sets[i], "output.0", "loss");
            compare(dump, sets[i], "output.1", "output.1");
            compare_grads(dump, sets[i]);
            pst_dump_free(dump);
            pst_tokens_free(tokens);
            uneven_fini(&u);
        }
    }
}

/* Fills a microbatch; microbatch 1 has some ignored targets, which the golden
 * model flattens first. */
static enum pst_status fill_ignored(void *ctx, uint64_t step,
                                    unsigned microbatch, unsigned input,
                                    void *dst, struct pst_diag *d)
{
    const struct fill *fill = ctx;
    const struct pst_safetensors_entry *e =
        entry(fill->set, fill->plan->inputs.at[input].name);

    (void)step;
    (void)d;
    memcpy(dst, e->data, e->bytes / 2);
    for (int i = 0; microbatch == 1 && input == 2 && i < 25; i++)
        ((int64_t *)dst)[i] = -100;
    return PST_OK;
}

static void tokens_are_counted(void **state)
{
    struct pst_exec_options options = options_for(2, 2);
    struct fill fill = {plan, "10"};
    struct pst_dump *dump, *want;
    struct pst_tokens *tokens;
    const struct pst_dump_item *items;
    struct pst_plan *bound;
    double weights[2];
    size_t n;

    (void)state;
    assert_ok(pst_plan_bind(plan, 5, &bound, &diag), &diag);
    assert_ok(
        pst_tokens_new(bound, NULL, 2, 0, fill_ignored, &fill, &tokens, &diag),
        &diag);
    assert_ok(pst_tokens_weigh(tokens, 0, weights, &diag), &diag);
    assert_true(weights[0] == count_targets("10", 0, 5) && weights[1] == 0);
    options.weigh = pst_tokens_weigh;
    options.weigh_ctx = tokens;
    dump = step_run(bound, &options, fill_ignored, &fill);
    options = options_for(1, 1);
    want = step_run(bound, &options, fill_ignored, &fill);
    assert_true(loss_of(dump, "loss", 0) == loss_of(want, "loss", 0));
    items = pst_dump_items(want, &n);
    for (size_t i = 0; i < n; i++)
        if (strncmp(items[i].name, "grad.", 5) == 0)
            assert_memory_equal(pst_dump_find(dump, items[i].name)->data,
                                items[i].data, pst_meta_bytes(&items[i].meta));
    pst_dump_free(want);
    pst_dump_free(dump);
    pst_tokens_free(tokens);
    pst_plan_free(bound);
}

static enum pst_status fill_columns(void *ctx, uint64_t step,
                                    unsigned microbatch, unsigned input,
                                    void *dst, struct pst_diag *d)
{
    static const unsigned first[] = {0, 2, 4, 5};
    const unsigned n = first[microbatch + 1] - first[microbatch];
    float *x = dst;

    (void)ctx;
    (void)step;
    (void)d;
    if (input == 1)
        x[0] = 10, x[1] = 20, x[2] = 30;
    for (unsigned r = 0; r < 3 && input == 0; r++)
        for (unsigned c = 0; c < n; c++)
            x[r * n + c] = (float)(r * 5 + first[microbatch] + c);
    return PST_OK;
}

/* Conformance 20 to 22: outputs are joined along the dimension that was
 * divided, here 5 columns as 2, 2, 1; replicated outputs are not joined. */
static void outputs_are_joined_where_inputs_were_divided(void **state)
{
    static const char text[] =
        "graph next_id=3 {\n"
        "  input %x: f32[3, 4{s}]\n"
        "  input %bias: f32[3]\n"
        "  %u: f32[3, 1] view of %bias + 0 = aten.unsqueeze.default(%bias, 1)"
        "  # - - F id=0\n"
        "  %y: f32[3, 4{s}] = aten.add.Tensor(%x, %u)  # - - F id=1\n"
        "  %t: f32[4{s}, 3]:(1, 4) view of %y + 0 = aten.permute.default(%y, "
        "[1, 0])  # - - F id=2\n"
        "  output user %y \"0\"\n"
        "  output user %t \"1\"\n"
        "}\n";
    const struct pst_split_options options = {.loss = "none"};
    struct pst_exec_options run_options = options_for(1, 3);
    const struct pst_dump_item *y, *t;
    struct pst_batch batch;
    struct pst_dump *dump;
    struct pst_model m;
    struct pst_plan *p;

    (void)state;
    model_init(&m, text, NULL, 0);
    pst_symbols_init(&m.symbols);
    assert_ok(pst_symbols_add(&m.symbols, "s", true, 4, &diag), &diag);
    assert_ok(pst_split(&m, &options, &p, &diag), &diag);
    assert_ok(pst_plan_chunk(p, "x=1", &diag), &diag);
    assert_ok(pst_plan_chunk(p, "bias=replicate", &diag), &diag);
    assert_ok(pst_batch_init(p, 0, 5, 3, &batch, &diag), &diag);
    run_options.train = false;
    run_options.tail = batch.tail;
    run_options.n_tail = batch.n_tail;
    dump = step_run(batch.plan, &run_options, fill_columns, NULL);
    y = pst_dump_find(dump, "output.0");
    t = pst_dump_find(dump, "output.1");
    assert_int_equal(y->meta.size[1], 5);
    assert_int_equal(t->meta.size[0], 5);
    for (int i = 0; i < 15; i++) {
        const float want = (float)(i + 10 * (i / 5 + 1));

        assert_true(((const float *)y->data)[i] == want);
        assert_true(((const float *)t->data)[i % 5 * 3 + i / 5] == want);
    }
    pst_dump_free(dump);
    pst_batch_fini(&batch);
    pst_plan_free(p);
    pst_symbols_fini(&m.symbols);
    model_fini(&m);
}

/* A loss made of two losses whose targets are of two kinds is refused. A loss
 * multiplied by a number has the targets of that loss. */
static void losses_of_two_kinds_are_refused(void **state)
{
    static const struct {
        const char *last;
        enum pst_status status;
    } cases[] = {
        {"aten.add.Tensor(%a, %b)", PST_ERR_UNSUPPORTED},
        {"aten.mul.Tensor(%a, %b)", PST_ERR_UNSUPPORTED},
        {"aten.neg.default(%a)", PST_ERR_UNSUPPORTED},
        {"aten.mul.Scalar(%a, 0.5)", PST_OK},
    };

    (void)state;
    for (size_t i = 0; i < PST_COUNT(cases); i++) {
        const struct pst_split_options options = {.loss = NULL};
        struct pst_tokens *tokens = NULL;
        struct pst_model m;
        struct pst_plan *p;
        char text[1024];

        (void)snprintf(
            text, sizeof(text),
            "graph next_id=4 {\n"
            "  param %%w \"w\" grad: f32[4, 3]\n"
            "  input %%y: i64[4]\n"
            "  input %%z: i64[4]\n"
            "  %%a: f32[] = aten.cross_entropy_loss.default(%%w, %%y)"
            "  # - - F id=0\n"
            "  %%b: f32[] = aten.cross_entropy_loss.default(%%w, %%z)"
            "  # - - F id=1\n"
            "  %%l: f32[] = %s  # - - F id=2\n"
            "  output user %%l \"0\"\n"
            "}\n",
            cases[i].last);
        model_init(&m, text, NULL, 0);
        assert_ok(pst_split(&m, &options, &p, &diag), &diag);
        assert_int_equal(
            pst_tokens_new(p, NULL, 1, 0, fill_part, NULL, &tokens, &diag),
            cases[i].status);
        pst_tokens_free(tokens);
        pst_plan_free(p);
        model_fini(&m);
    }
}

/* Models that shift labels themselves, in two ways, and models that do not:
 * leaving a label out by its index shifts nothing. */
static void labels_that_a_model_shifts(void **state)
{
    static const struct {
        const char *target;
        bool shifts;
    } cases[] = {
        {"  %t: i64[2, 3]:(4, 1) view of %y + 0 = "
         "aten.slice.Tensor(%y, 1, 0, 3)  # - - F id=0\n",
         false},
        {"  %t: i64[2, 3]:(4, 1) view of %y + 1 = "
         "aten.slice.Tensor(%y, 1, 1, 4)  # - - F id=0\n",
         true},
        {"  %p: i64[2, 5] = aten.constant_pad_nd.default(%y, [0, 1], -100)  "
         "# - - F id=0\n"
         "  %t: i64[2, 3]:(5, 1) view of %p + 2 = "
         "aten.slice.Tensor(%p, 1, 2, 5)  # - - F id=1\n",
         false}, /* shifts by two, which is not detected */
        {"  %p: i64[2, 4] = aten.constant_pad_nd.default(%y, [-1, 1], -100)  "
         "# - - F id=0\n"
         "  %t: i64[2, 3]:(4, 1) view of %p + 0 = "
         "aten.slice.Tensor(%p, 1, 0, 3)  # - - F id=1\n",
         true},
        {"  %b: bool[2, 4] = aten.eq.Scalar(%y, 3)  # - - F id=0\n"
         "  %p: i64[2, 4] = aten.masked_fill.Scalar(%y, %b, -100)  "
         "# - - F id=1\n"
         "  %t: i64[2, 3]:(4, 1) view of %p + 0 = "
         "aten.slice.Tensor(%p, 1, 0, 3)  # - - F id=2\n",
         false},
    };

    (void)state;
    for (size_t i = 0; i < PST_COUNT(cases); i++) {
        const struct pst_split_options options = {.loss = NULL};
        struct pst_model m;
        struct pst_plan *p;
        char text[1024];
        bool shifts;

        (void)snprintf(
            text, sizeof(text),
            "graph next_id=4 {\n"
            "  param %%w \"w\" grad: f32[2, 50, 3]\n"
            "  input %%y: i64[2, 4]\n"
            "%s"
            "  %%l: f32[] = aten.cross_entropy_loss.default(%%w, %%t)"
            "  # - - F id=3\n"
            "  output user %%l \"0\"\n"
            "}\n",
            cases[i].target);
        model_init(&m, text, NULL, 0);
        assert_ok(pst_split(&m, &options, &p, &diag), &diag);
        assert_ok(pst_tokens_shift(p, 0, &shifts, &diag), &diag);
        assert_int_equal(shifts, cases[i].shifts);
        pst_plan_free(p);
        model_fini(&m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bound_plans_are_pytorchs),
        cmocka_unit_test(uneven_steps_are_the_whole_batchs),
        cmocka_unit_test(outputs_are_joined_where_inputs_were_divided),
        cmocka_unit_test(microbatches_may_differ_in_rows),
        cmocka_unit_test(tokens_are_counted),
        cmocka_unit_test(labels_that_a_model_shifts),
        cmocka_unit_test(losses_of_two_kinds_are_refused),
        cmocka_unit_test(weights_are_as_asked_for),
    };

    return cmocka_run_group_tests_name("rows", tests, setup, teardown);
}
