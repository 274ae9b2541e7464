// SPDX-License-Identifier: Apache-2.0
/* Tests copies within a rank: a step copies only what cannot be read in
 * place. */
#include "stages/layout/actions.h"
#include "tests/run/job.h"
#include "tests/test.h"

struct counts {
    unsigned handed; /* copies between stages, of all ranks */
    unsigned other;            /* copies for kept outputs and buffers */
};

static struct counts count(const struct pst_engine *engine)
{
    struct counts ret = {0};

    for (unsigned i = 0; i < engine->n_local; i++) {
        const struct pst_actions *a = pst_rank_actions(engine->ranks[i]);

        for (unsigned k = 0; k < a->n; k++)
            for (unsigned j = 0; j < a->at[k].n_instrs; j++) {
                if (a->at[k].instrs[j].kind != PST_INSTR_COPY)
                    continue;
                if (a->at[k].a.kind <= PST_ACT_W)
                    ret.other++;
                else
                    ret.handed++;
            }
    }
    return ret;
}

static void expect_no_copies(const char *schedule, unsigned stages,
                             unsigned ranks)
{
    const struct pst_exec_options options =
        net_options(schedule, ranks, 3, "sgd");
    struct job job;

    job_init(&job, stages, &options);
    assert_true(job.net.plan->edges.n > 0);
    assert_int_equal(count(job.engine).handed, 0);
    job_fini(&job);
}

static void stages_of_a_rank_copy_nothing(void **state)
{
    (void)state;
    expect_no_copies("gpipe", 2, 1);
    expect_no_copies("gpipe", 4, 1);
    expect_no_copies("1f1b", 4, 2);
    expect_no_copies("zb-v", 4, 2);
    expect_no_copies("interleaved-1f1b", 4, 2);
    expect_no_copies("looped-bfs", 4, 1);
}

/* Counts copies for three forward microbatches on one rank. */
static struct counts count_of(const char *text)
{
    static const char *const modules[] = {"n"};
    const struct pst_exec_options options = {
        .schedule = "gpipe", .ranks = 1, .microbatches = 3, .threads = 1};
    const struct pst_split_options how = {0};
    struct pst_transport *self;
    struct pst_engine *engine;
    struct pst_model model;
    struct pst_plan *plan;
    struct pst_diag diag;
    struct counts ret;

    pst_diag_init(&diag);
    model_init(&model, text, modules, PST_COUNT(modules));
    assert_ok(pst_split(&model, &how, &plan, &diag), &diag);
    assert_ok(pst_transport_self.open("1", &self, &diag), &diag);
    assert_ok(pst_engine_new(plan, self, &options, &engine, &diag), &diag);
    ret = count(engine);
    pst_engine_free(engine);
    pst_transport_self.close(self);
    pst_plan_free(plan);
    model_fini(&model);
    return ret;
}

/* The second stage reads half of a storage. That half is copied: otherwise the
 * whole storage would have to live until then. */
static void a_part_is_copied(void **state)
{
    (void)state;
    assert_int_equal(
        count_of("graph next_id=9 {\n"
                 "  input %x: f32[4, 32]\n"
                 "  %h: f32[4, 32] = aten.tanh.default(%x)  # - - F id=0\n"
                 "  %p: f32[2, 32] view of %h + 0 = "
                 "aten.slice.Tensor(%h, 0, 0, 2)  # - - F id=1\n"
                 "  pippy._pipe_split.default()  # - - F id=2\n"
                 "  %y: f32[2, 32] = aten.exp.default(%p)  # - - F id=3\n"
                 "  output user %y \"0\"\n"
                 "}\n")
            .handed,
        3);
}

/* Returns the number of copies of new values of a buffer that is used as in
 * `lines`, in three microbatches. */
static unsigned updates(const char *lines)
{
    struct pst_str text = {0};
    struct counts ret;

    pst_str_add(&text, "graph next_id=9 {\n"
                       "  input %x: f32[8]\n"
                       "  buffer %seen \"n.seen\" persistent: f32[8]\n");
    pst_str_add(&text, lines);
    pst_str_add(&text, "  output user %y \"0\"\n"
                       "  output buffer %new -> %seen \"n.seen\"\n"
                       "}\n");
    ret = count_of(pst_str_text(&text));
    pst_str_fini(&text);
    return ret.other;
}

static void buffers_change_in_place(void **state)
{
    (void)state;
    /* Updated in place by the kernel that reads the buffer last. */
    assert_int_equal(
        updates("  %y: f32[8] = aten.mul.Tensor(%x, %seen)  # - - F id=1\n"
                "  %new: f32[8] = aten.add.Tensor(%seen, %x)  # - - F id=2\n"),
        0);
    /* Updated in place by a later kernel. */
    assert_int_equal(
        updates("  %y: f32[8] = aten.mul.Tensor(%x, %seen)  # - - F id=1\n"
                "  %new: f32[8] = aten.exp.default(%y)  # - - F id=2\n"),
        0);
    /* Copied, because the old value is read again. */
    assert_int_equal(
        updates("  %new: f32[8] = aten.add.Tensor(%seen, %x)  # - - F id=1\n"
                "  %y: f32[8] = aten.mul.Tensor(%x, %seen)  # - - F id=2\n"),
        3);
    /* Copied, because the kernel may not overwrite its input. */
    assert_int_equal(
        updates("  %y: f32[8] = aten.exp.default(%x)  # - - F id=1\n"
                "  %new: f32[8] = aten.flip.default(%seen, [0])"
                "  # - - F id=2\n"),
        3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages_of_a_rank_copy_nothing),
        cmocka_unit_test(a_part_is_copied),
        cmocka_unit_test(buffers_change_in_place),
    };
    struct pst_diag diag;

    pst_diag_init(&diag);
    if (pst_registry_init(&diag) != PST_OK)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
