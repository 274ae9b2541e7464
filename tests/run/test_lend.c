// SPDX-License-Identifier: Apache-2.0
/* Tests what a rank may read outside of its memory: inputs of a step (lend.h),
 * parameters and buffers of another rank (borrow.h). Each reason to refuse is
 * met once, and its neighbour, which is none, too. */
#include "stages/ops/core/op.h"
#include "stages/run/rank/borrow.h"
#include "stages/run/rank/lend.h"
#include "stages/run/rank/step/traffic.h"
#include "tests/test.h"

#include <string.h>

enum { AT = 64, BYTES = 32, REGIONS = 40 };

/* A program with two inputs, one kernel in each list, and one result. */
struct fixture {
    struct pst_value input[2], view, result, *inputs[2];
    struct pst_loc places[4], in[PST_N_LISTS], out[PST_N_LISTS];
    struct pst_exec_node nodes[PST_N_LISTS];
    struct pst_output output;
    struct pst_graph graph;
    struct pst_program program;
};

static void fixture_init(struct fixture *f)
{
    const int64_t size = BYTES / sizeof(float), half = size / 2;

    memset(f, 0, sizeof(*f));
    for (unsigned i = 0; i < 2; i++) {
        f->input[i].id = i;
        f->input[i].kind = PST_VALUE_INPUT;
        f->input[i].meta = pst_meta_make(PST_F32, 1, &size);
        f->places[i] = (struct pst_loc){PST_R_IN_I, AT + i * BYTES};
        f->inputs[i] = &f->input[i];
    }
    f->view = f->input[0];
    f->view.id = 2;
    f->view.base = &f->input[0];
    f->view.offset = half;
    f->view.meta.size[0] = half;
    f->result = f->input[0];
    f->result.id = 3;
    f->result.kind = PST_VALUE_NODE;
    f->places[3] = (struct pst_loc){PST_R_IN_I, AT + 2 * BYTES};
    f->output.arg.kind = PST_ARG_VALUE;
    f->output.arg.value = &f->result;
    f->graph.inputs.at = f->inputs;
    f->graph.inputs.n = 2;
    f->graph.outputs.at = &f->output;
    f->graph.outputs.n = 1;
    for (int l = 0; l < PST_N_LISTS; l++) {
        f->in[l] = (struct pst_loc){PST_R_IN_I, AT + 8};
        f->out[l] = (struct pst_loc){PST_R_WORK, AT};
        f->nodes[l].in = &f->in[l];
        f->nodes[l].out = &f->out[l];
        f->nodes[l].call.n_in = f->nodes[l].call.n_out = 1;
        f->program.lists[l].at = &f->nodes[l];
        f->program.lists[l].n = 1;
    }
    f->program.options.device = &pst_device_cpu;
    f->program.graph = &f->graph;
    f->program.places = f->places;
}

static bool is_free(const struct fixture *f)
{
    return pst_input_is_free(&f->program, 0);
}

static void inputs_with_a_region_of_the_rank(void **state)
{
    struct fixture f;

    (void)state;
    fixture_init(&f);
    for (unsigned region = 0; region < PST_R_BOUNDARY + 2; region++) {
        f.places[0].region = region;
        assert_true(is_free(&f) ==
                    (region == PST_R_IN_F || region == PST_R_IN_I ||
                     region == PST_R_IN_W));
    }
    fixture_init(&f);
    f.input[0].empty_before = true;
    assert_false(is_free(&f));
    fixture_init(&f);
    f.input[0].empty_after = true;
    assert_false(is_free(&f));
    f.input[0].empty_after = false;
    f.input[1].empty_after = true;
    assert_true(is_free(&f));
}

static void inputs_that_are_results(void **state)
{
    struct fixture f;

    (void)state;
    fixture_init(&f);
    assert_true(is_free(&f)); /* the result lies after the inputs */
    f.output.arg.value = &f.input[0];
    assert_false(is_free(&f));
    f.output.arg.value = &f.view;
    assert_false(is_free(&f));
    assert_true(pst_input_is_free(&f.program, 1));
    f.output.arg.kind = PST_ARG_INT; /* no tensor */
    assert_true(is_free(&f));
}

static void inputs_that_kernels_write(void **state)
{
    struct fixture f;

    (void)state;
    for (int l = 0; l < PST_N_LISTS; l++) {
        fixture_init(&f);
        f.out[l] = (struct pst_loc){PST_R_IN_I, AT};
        assert_false(is_free(&f));
        f.out[l].offset = AT + BYTES - 1;
        assert_false(is_free(&f));
        assert_true(pst_input_is_free(&f.program, 1));
        f.out[l].offset = AT - 1;
        assert_true(is_free(&f));
        f.out[l].offset = AT + BYTES;
        assert_true(is_free(&f));
        assert_false(pst_input_is_free(&f.program, 1));
    }
}

/* A device's kernels on the host have a copy of the rank's memory only. */
static void inputs_that_the_host_reads(void **state)
{
    static const struct pst_device device = {.fallback = &pst_device_cpu};
    static const struct pst_kernel queued = {.flags = PST_K_QUEUED}, hosted;
    struct fixture f;

    (void)state;
    for (int l = 0; l < PST_N_LISTS; l++) {
        fixture_init(&f);
        f.program.options.device = &device;
        for (int k = 0; k < PST_N_LISTS; k++)
            f.nodes[k].kernel = &queued;
        assert_true(is_free(&f));
        f.nodes[l].kernel = &hosted;
        assert_false(is_free(&f));
        assert_true(pst_input_is_free(&f.program, 1));
        f.nodes[l].computed_elsewhere = true;
        assert_true(is_free(&f));
        f.nodes[l].computed_elsewhere = false;
        f.in[l].offset = AT + BYTES;
        assert_true(is_free(&f));
        assert_false(pst_input_is_free(&f.program, 1));
    }
}

/* Kernels that read a free input get its region; others keep theirs. */
static void inputs_are_redirected(void **state)
{
    struct fixture f;

    (void)state;
    fixture_init(&f);
    f.in[PST_LIST_B].offset = AT + BYTES + 4; /* the second input */
    f.in[PST_LIST_W].region = PST_R_STASH_W;
    f.out[PST_LIST_W] = f.places[1];
    pst_inputs_redirect(&f.program, REGIONS);
    assert_int_equal(f.in[PST_LIST_F].region, REGIONS);
    assert_int_equal(f.in[PST_LIST_F].offset, 8);
    assert_int_equal(f.in[PST_LIST_B].region, PST_R_IN_I);
    assert_int_equal(f.in[PST_LIST_B].offset, AT + BYTES + 4);
    assert_int_equal(f.in[PST_LIST_W].region, PST_R_STASH_W);
    assert_int_equal(f.in[PST_LIST_W].offset, AT + 8);
    pst_inputs_redirect(&f.program, REGIONS); /* does nothing again */
    assert_int_equal(f.in[PST_LIST_F].region, REGIONS);
    assert_int_equal(f.in[PST_LIST_F].offset, 8);
}

/* A rank with two stages, of which the second has a tail program, and an action
 * with a copy and a message. */
struct rank {
    struct fixture first, second, tail;
    struct pst_rank_stage stages[2];
    struct pst_layout layout;
    struct pst_instr instr;
    struct pst_message message;
    struct pst_rank_action action;
    struct pst_actions actions;
    unsigned char memory[4 * BYTES + AT], other[BYTES];
};

static void rank_init(struct rank *r)
{
    struct fixture *all[] = {&r->first, &r->second, &r->tail};

    memset(r, 0, sizeof(*r));
    for (unsigned i = 0; i < PST_COUNT(all); i++) {
        fixture_init(all[i]);
        for (int l = 0; l < PST_N_LISTS; l++)
            all[i]->in[l].region = PST_R_FIXED;
    }
    r->first.in[PST_LIST_P].offset = AT + BYTES;
    r->first.in[PST_LIST_B].region = PST_R_WORK;
    r->stages[0].program = &r->first.program;
    r->stages[1].program = &r->second.program;
    r->stages[1].tail = &r->tail.program;
    r->layout.stages = r->stages;
    r->instr.kind = PST_INSTR_COPY;
    r->instr.to = r->memory;
    r->instr.from = r->memory + AT + 4;
    r->message.data = r->memory + AT + BYTES;
    r->action.instrs = &r->instr;
    r->action.messages = &r->message;
    r->action.n_instrs = r->action.n_messages = 1;
    r->actions.at = &r->action;
    r->actions.n = 1;
}

static bool borrow(struct rank *r)
{
    return pst_rank_borrow(&r->layout, 2, &r->actions, r->memory, AT, BYTES,
                           r->other);
}

/* Requires that the rank refuses, and that nothing has changed. */
static void refuses(struct rank *r)
{
    struct rank before;

    memcpy(&before, r, sizeof(before));
    assert_false(borrow(r));
    assert_memory_equal(&before, r, sizeof(before));
}

static void parameters_that_the_rank_writes(void **state)
{
    static struct rank r;
    struct fixture *all[] = {&r.first, &r.second, &r.tail};

    (void)state;
    for (unsigned i = 0; i < PST_COUNT(all); i++)
        for (int l = 0; l < PST_N_LISTS; l++) {
            rank_init(&r);
            all[i]->out[l] = (struct pst_loc){PST_R_FIXED, AT + BYTES - 1};
            refuses(&r);
            all[i]->out[l].offset = AT + BYTES;
            assert_true(borrow(&r));
        }
    rank_init(&r);
    r.instr.to = r.memory + AT;
    refuses(&r);
    r.instr.to = r.memory + AT + BYTES;
    assert_true(borrow(&r));
}

static void parameters_that_the_rank_sends(void **state)
{
    static struct rank r;

    (void)state;
    rank_init(&r);
    r.message.data = r.memory + AT + BYTES - 1;
    refuses(&r);
    r.message.data = r.memory + AT - 1;
    assert_true(borrow(&r));
}

/* Returns the address that a kernel reads. */
static const void *address(const struct rank *r, const struct fixture *f,
                           enum pst_list list)
{
    return (const void *)((uintptr_t)r->memory + f->in[list].offset);
}

static void parameters_are_redirected(void **state)
{
    static struct rank r;

    (void)state;
    rank_init(&r);
    assert_true(borrow(&r));
    assert_ptr_equal(address(&r, &r.first, PST_LIST_F), r.other + 8);
    assert_ptr_equal(address(&r, &r.second, PST_LIST_B), r.other + 8);
    assert_ptr_equal(address(&r, &r.tail, PST_LIST_W), r.other + 8);
    assert_ptr_equal(r.instr.from, r.other + 4);
    assert_ptr_equal(r.instr.to, r.memory);
    assert_int_equal(r.first.in[PST_LIST_P].offset, AT + BYTES);
    assert_int_equal(r.first.in[PST_LIST_B].offset, AT + 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(inputs_with_a_region_of_the_rank),
        cmocka_unit_test(inputs_that_are_results),
        cmocka_unit_test(inputs_that_kernels_write),
        cmocka_unit_test(inputs_that_the_host_reads),
        cmocka_unit_test(inputs_are_redirected),
        cmocka_unit_test(parameters_that_the_rank_writes),
        cmocka_unit_test(parameters_that_the_rank_sends),
        cmocka_unit_test(parameters_are_redirected),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
