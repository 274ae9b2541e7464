// SPDX-License-Identifier: Apache-2.0
/* Tests buffers that several stages write: how they are cut, who owns them, and
 * plans that contradict that. split-random tests the numbers. */
#include "tests/split/forge.h"
#include "tests/split/model.h"
#include "tests/step.h"

#include "stages/run/dump.h"
#include "stages/split/convert/join.h"

#include <stdio.h>
#include <unistd.h>

#define NODE " # m.k zoo.py:3 F id=0\n"
#define CUT  "  pippy._pipe_split.default()" NODE

static struct pst_diag diag;

static struct pst_plan *split(struct pst_model *model, const char *text,
                              const char *owner)
{
    const struct pst_split_options options = {.owner = &owner, .n_owner = 1};
    struct pst_plan *plan;

    model_init(model, text, NULL, 0);
    assert_ok(pst_split(model, &options, &plan, &diag), &diag);
    return plan;
}

static const struct pst_edge *carrying(const struct pst_plan *plan, unsigned to)
{
    const struct pst_edge *found = NULL;

    for (size_t i = 0; i < plan->edges.n; i++)
        if (plan->edges.at[i].carries != NULL &&
            plan->edges.at[i].to_stage == to) {
            assert_null(found);
            found = &plan->edges.at[i];
        }
    assert_non_null(found);
    assert_int_equal(found->grad_parts, 0);
    return found;
}

static const struct pst_output *update_of(const struct pst_plan *plan,
                                          unsigned stage)
{
    const struct pst_graph *graph = plan->stages.at[stage].graph;
    const struct pst_output *last = &graph->outputs.at[graph->outputs.n - 1];

    return graph->outputs.n > 0 && last->kind == PST_OUTPUT_BUFFER_UPDATE
               ? last
               : NULL;
}

/* Stages 0 and 1 write the buffer, stage 2 reads the old value. Stage 2, the
 * last one to use it, sends the buffer to the next microbatch. It receives the
 * new value like any other value. */
static void the_last_user_sends(void **state)
{
    static const char text[] =
        "graph next_id=1 {\n"
        "  input %x: f32[3]\n"
        "  buffer %n \"n\" persistent: f32[3]\n"
        "  %a = aten.add.Tensor(%x, %n)" NODE CUT
        "  %b = aten.mul.Tensor(%a, %a)" NODE CUT
        "  %c = aten.sub.Tensor(%b, %n)" NODE "  output user %c \"0\"\n"
        "  output buffer %b -> %n \"\"\n"
        "}\n";
    struct pst_model model;
    struct pst_plan *plan = split(&model, text, "n=0");
    const struct pst_plan_param *n = &plan->params.at[0];
    const struct pst_edge *edge = carrying(plan, 0);

    (void)state;
    assert_true(n->carried);
    assert_int_equal(n->writer, 2);
    assert_int_equal(n->owner_stage, 0);
    assert_int_equal(n->n_stages, 2); /* stage 1 does not read the old value */
    assert_int_equal(n->stages[1], 2);
    assert_int_equal(edge->from_stage, 2);
    assert_null(update_of(plan, 0));
    assert_null(update_of(plan, 1));
    assert_non_null(update_of(plan, 2));
    /* The new value arrives as an input of stage 2, which sends it on. */
    assert_string_equal(update_of(plan, 2)->arg.value->name, "b_carried");
    assert_ptr_equal(
        plan->stages.at[2].graph->outputs.at[edge->from_output].arg.value,
        update_of(plan, 2)->arg.value);
    pst_plan_free(plan);
    model_fini(&model);
}

/* A new value with other strides than the buffer, or one that is not the result
 * of a node, is copied before it is sent. */
static void what_is_sent_lies_like_the_buffer(void **state)
{
    static const char turned[] =
        "graph next_id=1 {\n"
        "  input %x: f32[3, 2]\n"
        "  buffer %n \"n\" persistent: f32[2, 3]\n"
        "  %s = aten.sum.default(%n)" NODE CUT
        "  %a = aten.add.Tensor(%x, %s)" NODE
        "  %t: f32[2, 3]:(1, 2) view of %a + 0 = aten.t.default(%a)" NODE
        "  output user %a \"0\"\n"
        "  output buffer %t -> %n \"\"\n"
        "}\n";
    static const char given[] =
        "graph next_id=1 {\n"
        "  input %x: f32[3]\n"
        "  buffer %n \"n\" persistent: f32[3]\n"
        "  %a = aten.add.Tensor(%x, %n)" NODE CUT
        "  %b = aten.sub.Tensor(%a, %n)" NODE "  output user %b \"0\"\n"
        "  output buffer %x -> %n \"\"\n"
        "}\n";
    const char *const texts[] = {turned, given};

    (void)state;
    for (size_t i = 0; i < PST_COUNT(texts); i++) {
        struct pst_model model;
        struct pst_plan *plan = split(&model, texts[i], "n=1");
        const struct pst_output *update = update_of(plan, 1);

        assert_int_equal(plan->params.at[0].owner_stage, 1);
        assert_true(pst_meta_is_contiguous(&carrying(plan, 0)->meta));
        assert_non_null(update);
        assert_non_null(strstr(update->arg.value->name, "_carried"));
        pst_plan_free(plan);
        model_fini(&model);
    }
}

/* An automatic cut separates the buffer's users only if an owner is named. */
static void automatic_cuts_may_part_it(void **state)
{
    static const char text[] =
        "graph next_id=1 {\n"
        "  input %x: f32[3]\n"
        "  buffer %n \"n\" persistent: f32[3]\n"
        "  %a = aten.add.Tensor(%x, %n)" NODE "  %b = aten.exp.default(%a)" NODE
        "  %c = aten.sub.Tensor(%b, %n)" NODE "  output user %c \"0\"\n"
        "  output buffer %c -> %n \"\"\n"
        "}\n";
    static const char *const owner[] = {"n=1"};
    struct pst_split_options options = {.policy = "flops", .stages = 2};
    struct pst_model model;
    struct pst_plan *plan;

    (void)state;
    model_init(&model, text, NULL, 0);
    assert_int_equal(pst_split(&model, &options, &plan, &diag), PST_ERR_INPUT);
    options.owner = owner;
    options.n_owner = 1;
    assert_ok(pst_split(&model, &options, &plan, &diag), &diag);
    assert_true(plan->params.at[0].carried);
    pst_plan_free(plan);
    model_fini(&model);
}

/* --- a step --------------------------------------------------------------- */

static enum pst_status fill(void *ctx, uint64_t step, unsigned microbatch,
                            unsigned input, void *dst, struct pst_diag *d)
{
    (void)ctx, (void)step, (void)d;
    for (unsigned i = 0; i < 3; i++)
        ((float *)dst)[i] = (float)(microbatch * 5 + input * 3 + i) / 7;
    return PST_OK;
}

/* Stage 2 writes the buffer on the same rank where stage 1, independent of it,
 * has yet to read the old value. */
static void old_values_wait_for_their_readers(void **state)
{
    static const char text[] =
        "graph next_id=1 {\n"
        "  input %x: f32[3]\n"
        "  param %w \"w\" grad: f32[3]\n"
        "  buffer %n \"n\" persistent: f32[3]\n"
        "  %a = aten.exp.default(%x)" NODE CUT
        "  %b = aten.add.Tensor(%x, %n)" NODE CUT
        "  %c = aten.add.Tensor(%a, %n)" NODE
        "  %d = aten.mul.Tensor(%c, %w)" NODE
        "  %loss = aten.mean.default(%d)" NODE "  output user %loss \"0\"\n"
        "  output user %b \"1\"\n"
        "  output buffer %c -> %n \"\"\n"
        "}\n";
    static const char lists[] =
        "0F0,2F0,1F0,0F1,2F1,1F1,2B0,1B0,0B0,2B1,1B1,0B1\n";
    char name[] = "csv:/tmp/penstock-carry-XXXXXX";
    struct pst_exec_options options = {.schedule = name,
                                       .ranks = 1,
                                       .microbatches = 2,
                                       .train = true,
                                       .keep_outputs = true,
                                       .threads = 1};
    const int file = mkstemp(name + 4);
    const struct pst_dump_item *want, *got;
    struct pst_dump *whole, *cut;
    struct pst_model model;
    struct pst_plan *plan = split(&model, text, "n=1"), *one;

    (void)state;
    assert_true(file >= 0);
    assert_int_equal(write(file, lists, strlen(lists)), strlen(lists));
    (void)close(file);
    assert_ok(pst_plan_join(plan, &one, &diag), &diag);
    cut = step_run(plan, &options, fill, NULL);
    options.schedule = "gpipe";
    whole = step_run(one, &options, fill, NULL);
    for (unsigned i = 0; i < 2; i++) {
        want = pst_dump_find(whole, i ? "output.1" : "buffer.n");
        got = pst_dump_find(cut, i ? "output.1" : "buffer.n");
        assert_non_null(want);
        assert_non_null(got);
        assert_memory_equal(want->data, got->data, pst_meta_bytes(&want->meta));
    }
    pst_dump_free(whole);
    pst_dump_free(cut);
    (void)unlink(name + 4);
    pst_plan_free(one);
    pst_plan_free(plan);
    model_fini(&model);
}

/* --- forgers -------------------------------------------------------------- */

/* Forgeries of the edges of a plan whose stage 1 writes a buffer that stage 0
 * begins with: edge 1 carries it. */
enum { NO_NAME, A_PARAM, FORWARD, NOBODY, ALONE, GRADIENT, ELSEWHERE, HOME };

static void forge_carried(Penstock__Plan__Plan *pb, int what)
{
    Penstock__Plan__Edge *edge = pb->edges[1];

    switch (what) {
    case NO_NAME:
        edge->carries = "nothing";
        break;
    case A_PARAM:
        edge->carries = "w";
        break;
    case FORWARD:
        pb->edges[0]->carries = "n";
        break;
    case NOBODY:
        edge->carries = "";
        break;
    case ALONE:
        pb->params[1]->n_stages = pb->params[1]->n_uses = 1;
        break;
    case GRADIENT:
        edge->grad_parts = 1;
        break;
    case ELSEWHERE:
        edge->from_output = 1; /* the value %d */
        break;
    default:
        pb->params[1]->home = 2;
    }
}

static void forged_plans_are_refused(void **state)
{
    static const char *const said[] = {
        [NO_NAME] = "edge 1 carries no buffer",
        [A_PARAM] = "edge 1 carries no buffer",
        [FORWARD] = "edge 0 has no ends",
        [NOBODY] = "edge 1 has no ends",
        [ALONE] = "stage 1 is not among the readers of \"n\"",
        [GRADIENT] = "edge 1 carries no buffer",
        [ELSEWHERE] = "edge 1 carries \"n\" from where it is not changed",
        [HOME] = "\"n\" is not stored with its owner"};
    static const char carried[] =
        "graph next_id=1 {\n"
        "  input %x: f32[3]\n"
        "  param %w \"w\" grad: f32[3]\n"
        "  buffer %n \"n\" persistent: f32[3]\n"
        "  %a = aten.mul.Tensor(%x, %w)" NODE
        "  %b = aten.add.Tensor(%a, %n)" NODE
        "  pippy._pipe_split.default()" NODE "  %c = aten.tanh.default(%b)" NODE
        "  %d = aten.exp.default(%c)" NODE
        "  %loss = aten.mean.default(%d)" NODE "  output user %loss \"0\"\n"
        "  output user %d \"1\"\n"
        "  output buffer %c -> %n \"\"\n"
        "}\n";
    static const char *const owner[] = {"n=0"};
    const struct pst_split_options options = {.owner = owner, .n_owner = 1};
    struct pst_model model;
    struct pst_plan *plan;
    size_t size;
    void *data;

    (void)state;
    model_init(&model, carried, NULL, 0);
    assert_ok(pst_split(&model, &options, &plan, &diag), &diag);
    assert_ok(pst_plan_body(plan, &data, &size, &diag), &diag);
    assert_int_equal(forge_unpack(data, size, PST_PLAN_VERSION, &diag), PST_OK);
    for (int i = 0; i < (int)PST_COUNT(said); i++) {
        Penstock__Plan__Plan *pb =
            penstock__plan__plan__unpack(NULL, size, data);
        Penstock__Plan__Edge kept = *pb->edges[1], first = *pb->edges[0];
        uint8_t *body = malloc(size + 64);
        size_t n;

        assert_non_null(body);
        forge_carried(pb, i);
        n = penstock__plan__plan__pack(pb, body);
        assert_int_equal(forge_unpack(body, n, PST_PLAN_VERSION, &diag),
                         PST_ERR_INPUT);
        if (strstr(diag.text, said[i]) == NULL)
            fail_msg("%d: %s", i, diag.text);
        *pb->edges[1] = kept;
        *pb->edges[0] = first;
        free(body);
        penstock__plan__plan__free_unpacked(pb, NULL);
    }
    pst_free(data);
    pst_plan_free(plan);
    model_fini(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_user_sends),
        cmocka_unit_test(what_is_sent_lies_like_the_buffer),
        cmocka_unit_test(automatic_cuts_may_part_it),
        cmocka_unit_test(old_values_wait_for_their_readers),
        cmocka_unit_test(forged_plans_are_refused),
    };

    pst_diag_init(&diag);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
