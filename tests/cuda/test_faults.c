// SPDX-License-Identifier: Apache-2.0
/* Tests the faults that kernels of the device "cuda" find in indices, as the
 * host reads them, on the emulated CUDA driver (driver.cpp). */
#include "tests/ops/on_device.h"
#include "tests/ops/samples/sample.h"

#include "stages/ops/cuda/cuda.h"

#include <string.h>

#define MOST    4
#define BAD     77
#define CLASSES 6

struct fault_case {
    struct sample sample;
    unsigned index; /* the operand that has the indices */
    enum pst_fault_code code;
};

static struct pst_device_memory device;

#define SAMPLE(line)                                                           \
    {                                                                          \
        .text = line                                                           \
    }
static const struct fault_case cases[] = {
    {SAMPLE("input %x: F[4, 6]; input %i6: i64[4]; %r = "
            "aten.cross_entropy_loss.default(%x, %i6)"),
     1, PST_FAULT_TARGET_RANGE},
    {SAMPLE("input %g: F[]; input %x: F[4, 6]; input %i6: i64[4]; %r = "
            "penstock.cross_entropy_backward.default(%g, %x, %i6, None, 2, "
            "-100, 0.0)"),
     2, PST_FAULT_TARGET_RANGE},
    {SAMPLE("input %x: F[6, 3]; input %i6: i64[4]; %r = "
            "aten.embedding.default(%x, %i6)"),
     1, PST_FAULT_INDEX_RANGE},
    {SAMPLE("input %x: F[4, 3]; input %i6: i64[4]; %r = "
            "aten.embedding_dense_backward.default(%x, %i6, 6, -1, False)"),
     1, PST_FAULT_INDEX_RANGE},
};

static void *zeros(size_t size)
{
    void *p = pst_calloc(PST_TAG_TEST, size + 64, 1);

    assert_non_null(p);
    return p;
}

/* Runs the case with the numbers 0, 1, bad, 3 as indices; returns the first
 * result, which the caller frees. */
static float *run(const struct fault_case *f, int64_t bad,
                  struct pst_fault *fault)
{
    struct pst_operand in[MOST], out = {0};
    struct on_device_block blocks[MOST + 3];
    const struct pst_kernel *kernel;
    struct pst_graph *graph;
    struct pst_diag diag;
    struct pst_call call = {.in = in, .out = &out, .n_out = 1, .fault = fault};

    pst_diag_init(&diag);
    assert_ok(sample_parse(&f->sample, PST_F32, &graph, &diag), &diag);
    const struct pst_node *node = sample_node(graph);
    call.args = node->args;
    call.n_in = pst_call_count_in(node->schema, node->args);
    assert_true(call.n_in <= MOST);
    pst_call_bind_metas(node->schema, node->args, in);
    out.meta = &node->outs[0]->meta;
    kernel =
        pst_kernel_find(&pst_device_cuda, node->op, &call, PST_ISA_ANY, NULL);
    assert_non_null(kernel);
    assert_true((kernel->flags & PST_K_QUEUED) != 0);
    call.site = 5;
    call.rng.microbatch = 3;
    for (unsigned i = 0; i < call.n_in; i++) {
        const size_t size = in[i].meta != NULL ? pst_meta_bytes(in[i].meta) : 0;

        in[i].data = in[i].meta != NULL ? zeros(size) : NULL;
        blocks[i] = (struct on_device_block){in[i].data, size};
    }
    memcpy(in[f->index].data, ((int64_t[]){0, 1, bad, 3}), 4 * sizeof(bad));
    out.data = zeros(pst_meta_bytes(out.meta));
    if (kernel->scratch != NULL) {
        call.scratch_size = kernel->scratch(&call, 1);
        call.scratch = zeros(call.scratch_size);
    }
    blocks[call.n_in] =
        (struct on_device_block){out.data, pst_meta_bytes(out.meta)};
    blocks[call.n_in + 1] =
        (struct on_device_block){call.scratch, call.scratch_size};
    blocks[call.n_in + 2] = (struct on_device_block){fault, sizeof(*fault)};
    on_device_run(&device, kernel, &call, blocks, call.n_in + 3);
    for (unsigned i = 0; i < call.n_in; i++)
        pst_free(in[i].data);
    pst_free(call.scratch);
    pst_graph_free(graph);
    return out.data;
}

static void reports_indices(void **state)
{
    (void)state;
    for (size_t k = 0; k < PST_COUNT(cases); k++) {
        struct pst_fault fault = {0};
        const int64_t bad[] = {BAD, -1, CLASSES};

        pst_free(run(&cases[k], 2, &fault));
        assert_int_equal(fault.set, 0);
        for (size_t i = 0; i < PST_COUNT(bad); i++) {
            fault = (struct pst_fault){0};
            pst_free(run(&cases[k], bad[i], &fault));
            assert_int_equal(fault.set, 1);
            assert_int_equal(fault.code, cases[k].code);
            assert_int_equal(fault.site, 5);
            assert_int_equal(fault.microbatch, 3);
            assert_int_equal(fault.numbers[0].i, bad[i]);
            assert_int_equal(fault.numbers[1].i, CLASSES);
        }
    }
}

/* A fault that is already set is not replaced. */
static void keeps_the_first(void **state)
{
    struct pst_fault fault = {.set = 1, .code = PST_FAULT_SINGULAR, .site = 2};

    (void)state;
    pst_free(run(&cases[0], BAD, &fault));
    assert_int_equal(fault.code, PST_FAULT_SINGULAR);
    assert_int_equal(fault.site, 2);
}

static int setup(void **state)
{
    (void)state;
    return on_device_open(&device, (size_t)1 << 20);
}

static int teardown(void **state)
{
    (void)state;
    pst_device_close(&device);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reports_indices),
        cmocka_unit_test(keeps_the_first),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
