// SPDX-License-Identifier: Apache-2.0
/* Microbatches of other weights have the same gradients for every schedule,
 * also if the last stage gives the gradient of the loss back as it is. */
#include "tests/run/net.h"

#include "stages/base/str.h"

#define MOST 7

/* The last of three stages only adds, so what it sends back is the weight of
 * the microbatch itself. */
static const char *const parts[] = {
    "graph next_id=40 {\n"
    "  input %x: f32[2, 3]\n"
    "  param %w \"a.weight\" grad: f32[3]\n"
    "  param %v \"b.weight\" grad: f32[3]\n"
    "  %p: f32[2, 3] = aten.mul.Tensor(%x, %w)  # a - F id=0\n"
    "  %q: f32[2, 3] = aten.tanh.default(%p)  # a - F id=1\n"
    "  %aux: f32[] = aten.sum.default(%p)  # - - F id=2\n",
    "  %m: f32[2, 3] = aten.mul.Tensor(%q, %v)  # b - F id=3\n"
    "  %l: f32[] = aten.sum.default(%m)  # - - F id=4\n",
    "  %loss: f32[] = aten.add.Tensor(%l, %aux)  # - - F id=5\n"
    "  output user %loss \"0\"\n"
    "}\n"};

/* Schedules and ranks for three stages. */
static const struct row {
    const char *name;
    unsigned ranks;
} rows[] = {
    {"gpipe", 1},
    {"gpipe", 3},
    {"1f1b", 2},
    {"1f1b", 3},
    {"looped-bfs", 2},
    {"looped-bfs", 3},
    {"zb-h1", 2},
    {"zb-h1", 3},
    {"interleaved-1f1b", 2},
    {"interleaved-1f1b", 3},
};

static enum pst_status fill(void *ctx, uint64_t step, unsigned microbatch,
                            unsigned input, void *dst, struct pst_diag *diag)
{
    unsigned seed = (unsigned)step * 100 + microbatch;

    (void)ctx;
    (void)input;
    (void)diag;
    for (unsigned i = 0; i < 6; i++)
        ((float *)dst)[i] = model_number(&seed);
    return PST_OK;
}

static enum pst_status set_weights(void *ctx, uint64_t step, double *ret,
                                   struct pst_diag *diag)
{
    const unsigned *n = ctx;

    (void)step;
    (void)diag;
    for (unsigned k = 0; k < *n; k++)
        ret[k] = 1 + k % 3;
    return PST_OK;
}

/* Returns the gradients of one step; the model is cut unless `schedule` is
 * NULL. */
static struct pst_dump *step_of(const char *schedule, unsigned ranks,
                                unsigned n)
{
    static const char *const modules[] = {"a", "b"};
    static const char cut[] = "  pippy._pipe_split.default()  # - - F id=%u\n";
    const struct pst_split_options split = {0};
    struct pst_exec_options options =
        net_options(schedule == NULL ? "gpipe" : schedule, ranks, n, "none");
    struct pst_step_result result = {0};
    struct pst_transport *transport;
    struct pst_engine *engine;
    struct pst_str text = {0};
    struct pst_model model;
    struct pst_plan *plan;
    struct pst_dump *ret;
    struct pst_diag diag;
    char number[16];

    pst_diag_init(&diag);
    for (unsigned i = 0; i < PST_COUNT(parts); i++) {
        pst_str_add(&text, parts[i]);
        if (schedule != NULL && i + 1 < PST_COUNT(parts))
            pst_str_addf(&text, cut, 30 + i);
    }
    options.weigh = set_weights;
    options.weigh_ctx = &n;
    model_init(&model, pst_str_text(&text), modules, PST_COUNT(modules));
    assert_ok(pst_split(&model, &split, &plan, &diag), &diag);
    (void)snprintf(number, sizeof(number), "%u", ranks);
    assert_ok(pst_transport_self.open(number, &transport, &diag), &diag);
    assert_ok(pst_engine_new(plan, transport, &options, &engine, &diag), &diag);
    assert_ok(pst_engine_step(engine, 0, fill, NULL, 0, &result, &diag), &diag);
    assert_ok(pst_engine_dump_first(engine, &ret, &diag), &diag);
    pst_engine_free(engine);
    pst_transport_self.close(transport);
    pst_plan_free(plan);
    model_fini(&model);
    pst_str_fini(&text);
    return ret;
}

static void schedules_keep_the_weights(void **state)
{
    (void)state;
    for (unsigned n = 1; n <= MOST; n++) {
        struct pst_dump *whole = step_of(NULL, 1, n);

        for (size_t i = 0; i < PST_COUNT(rows); i++) {
            struct pst_dump *cut = step_of(rows[i].name, rows[i].ranks, n);

            print_message("%s on %u ranks, %u microbatches\n", rows[i].name,
                          rows[i].ranks, n);
            assert_same_dump(whole, cut);
            pst_dump_free(cut);
        }
        pst_dump_free(whole);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(schedules_keep_the_weights),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
