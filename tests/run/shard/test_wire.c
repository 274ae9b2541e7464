// SPDX-License-Identifier: Apache-2.0
/* Replicas send each other as many bytes in a step as the formula says: for a
 * group of n bytes, each of D owners sends (D - 1) / D * n bytes whenever the
 * group is gathered or summed. */
#include "stages/layout/memory/residency.h"
#include "tests/run/job.h"

#define GROUPS   4
#define SIDE     64
#define REPLICAS 4
#define EACH     3 /* microbatches per replica */
#define N        (sizeof(float) * GROUPS * SIDE * SIDE)

static struct pst_transport_ops counting;
static size_t sent; /* bytes sent by all ranks, which run one at a time */

static enum pst_status count(struct pst_transport *t, unsigned self_rank,
                             unsigned peer, int tag, const void *buf,
                             size_t len, struct pst_request *req)
{
    if (tag < PST_MSG_OTHERS || tag >= PST_MSG_PARTS)
        sent += len;
    return pst_transport_self.isend(t, self_rank, peer, tag, buf, len, req);
}

static void write_model(struct pst_str *text)
{
    pst_str_addf(text, "graph next_id=20 {\n  input %%y0: f32[4, %d]\n", SIDE);
    for (unsigned i = 0; i < GROUPS; i++)
        pst_str_addf(text, "  param %%w%u \"h.%u.weight\" grad: f32[%d, %d]\n",
                     i, i, SIDE, SIDE);
    for (unsigned i = 0; i < GROUPS; i++)
        pst_str_addf(text,
                     "  %%y%u: f32[4, %d] = aten.linear.default(%%y%u, "
                     "%%w%u)  # h.%u - F id=%u\n",
                     i + 1, SIDE, i, i, i, i);
    pst_str_addf(text,
                 "  %%loss: f32[] = aten.mean.default(%%y%d)  # - - F id=9\n"
                 "  output user %%loss \"0\"\n}\n",
                 GROUPS);
}

static enum pst_status fill(void *ctx, uint64_t step, unsigned microbatch,
                            unsigned input, void *dst, struct pst_diag *diag)
{
    unsigned seed = (unsigned)step * 100 + microbatch + input;

    (void)ctx;
    (void)diag;
    for (int i = 0; i < 4 * SIDE; i++)
        ((float *)dst)[i] = model_number(&seed);
    return PST_OK;
}

/* Returns the bytes that one replica sends in a step; *ret_gathers: number of
 * gathers. */
static double bytes_of(struct pst_plan *plan,
                       const struct pst_exec_options *options,
                       unsigned *ret_gathers)
{
    struct pst_transport *transport;
    struct pst_step_result result;
    struct pst_engine *engine;
    struct pst_diag diag;

    pst_diag_init(&diag);
    assert_ok(pst_transport_self.open("4", &transport, &diag), &diag);
    counting = *transport->ops;
    counting.isend = count;
    transport->ops = &counting;
    assert_ok(pst_engine_new(plan, transport, options, &engine, &diag), &diag);
    *ret_gathers = 0;
    for (size_t i = 0; i < pst_rank_layout(engine->ranks[0])->residency.n; i++)
        *ret_gathers +=
            pst_rank_layout(engine->ranks[0])->residency.at[i].task ==
            PST_RESIDENCY_GATHER;
    assert_ok(pst_engine_step(engine, 0, fill, NULL, 0, &result, &diag), &diag);
    sent = 0; /* the job's initial messages are over */
    assert_ok(pst_engine_step(engine, 1, fill, NULL, 0, &result, &diag), &diag);
    pst_engine_free(engine);
    pst_transport_self.close(transport);
    return (double)sent / REPLICAS;
}

static void sends_the_bytes_of_the_formula(void **state)
{
    static const char *const modules[] = {"h", "h.0", "h.1", "h.2", "h.3"};
    static const char *const schedules[] = {"gpipe", "1f1b"};
    const struct pst_split_options whole = {0};
    const double part = (REPLICAS - 1) / (double)REPLICAS * N;
    struct pst_str text = {0};
    struct pst_model model;
    struct pst_plan *plan;
    struct pst_diag diag;

    (void)state;
    pst_diag_init(&diag);
    write_model(&text);
    model_init(&model, pst_str_text(&text), modules, PST_COUNT(modules));
    pst_str_fini(&text);
    assert_ok(pst_split(&model, &whole, &plan, &diag), &diag);
    for (unsigned i = 0; i < 4 * PST_COUNT(schedules) * 3; i++) {
        const enum pst_sharing shard = (enum pst_sharing)(i % 4);
        struct pst_exec_options options = net_options(
            schedules[i / 4 % PST_COUNT(schedules)], 1, REPLICAS * EACH, "sgd");
        /* gradients go to the owners, and sums or values come back */
        double got, want = 2 * part;
        unsigned gathers;

        options.replicas = REPLICAS;
        options.shard = shard;
        options.optim.clip_norm = 0;
        options.unshard_window = i / 8;
        options.gather_bf16 = shard == PST_SHARING_ZERO3 && i / 8 == 2;
        got = bytes_of(plan, &options, &gathers);
        if (shard == PST_SHARING_ZERO2)
            want = (EACH + 1) * part;
        if (shard == PST_SHARING_ZERO3) {
            assert_true(gathers <= 2 * EACH * GROUPS);
            assert_true(gathers >= EACH * GROUPS);
            want = EACH * part +
                   (options.gather_bf16 ? .5 : 1) * (gathers * part / GROUPS);
        }
        if (got != want)
            fail_msg("%u: %.0f bytes, not %.0f", i, got, want);
    }
    pst_plan_free(plan);
    model_fini(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sends_the_bytes_of_the_formula),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
