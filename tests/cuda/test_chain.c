// SPDX-License-Identifier: Apache-2.0
/* Tests the kernel of chains at the ends of its operands, which may begin and
 * end anywhere, on the emulated CUDA driver (driver.cpp). test_chains.c
 * compares whole chains with their nodes. */
#include "tests/ops/on_device.h"
#include "tests/ops/samples/sample.h"

#include "stages/ops/core/rows.h"
#include "stages/ops/cuda/cuda.h"
#include "stages/ops/pointwise/chain.h"

#include <stdio.h>
#include <string.h>

#define MOST  11 /* elements */
#define GUARD 16 /* elements before and after a tensor */
#define BYTES ((MOST + 2 * GUARD) * sizeof(float))

static struct pst_device_memory device;

/* The chain of the graph: a = x * x, r = a + x. */
struct squares {
    struct pst_graph *graph;
    struct pst_chain_operand in[2][2];
    struct pst_chain_part parts[2];
    struct pst_chain chain;
};

static struct pst_chain_operand operand(enum pst_chain_place place,
                                        unsigned index,
                                        const struct pst_meta *meta)
{
    return (struct pst_chain_operand){
        .place = place, .index = index, .whole = *meta, .last = *meta};
}

static const struct pst_kernel *find(const struct pst_node *node)
{
    struct pst_operand in[2], out = {.meta = &node->outs[0]->meta};
    struct pst_call call = {
        .in = in, .out = &out, .n_in = 2, .n_out = 1, .args = node->args};
    const struct pst_kernel *ret;

    pst_call_bind_metas(node->schema, node->args, in);
    ret = pst_kernel_find(&pst_device_cuda, node->op, &call, PST_ISA_ANY, NULL);
    assert_non_null(ret);
    assert_true(pst_device_cuda.joins(ret, &call));
    return ret;
}

static void squares_init(struct squares *s, enum pst_dtype dtype, unsigned n)
{
    char text[128];
    const struct sample sample = {.text = text};
    const struct pst_meta *meta;
    struct pst_diag diag;

    pst_diag_init(&diag);
    (void)snprintf(text, sizeof(text),
                   "input %%x: F[%u]; %%a = aten.mul.Tensor(%%x, %%x); %%r = "
                   "aten.add.Tensor(%%a, %%x)",
                   n);
    memset(s, 0, sizeof(*s));
    assert_ok(sample_parse(&sample, dtype, &s->graph, &diag), &diag);
    meta = &s->graph->nodes.at[0]->outs[0]->meta;
    s->in[0][0] = s->in[0][1] = s->in[1][1] = operand(PST_CHAIN_IN, 0, meta);
    s->in[1][0] = operand(PST_CHAIN_OUT, 0, meta);
    for (unsigned i = 0; i < 2; i++)
        s->parts[i] =
            (struct pst_chain_part){.node = s->graph->nodes.at[i],
                                    .kernel = find(s->graph->nodes.at[i]),
                                    .n_in = 2,
                                    .in = s->in[i],
                                    .out = operand(PST_CHAIN_OUT, i, meta)};
    s->chain = (struct pst_chain){.parts = s->parts,
                                  .n_parts = 2,
                                  .numel = n,
                                  .cols = 1,
                                  .block = n,
                                  .blocks = 1,
                                  .n_in = 1};
}

/* Checks n elements from element GUARD + skip on, and what is around them. */
static void check(const char *x, enum pst_dtype dtype, unsigned n,
                  unsigned skip, double a, double b)
{
    for (unsigned i = 0; i < BYTES / pst_dtype_size(dtype); i++) {
        const double k = (double)i - GUARD - skip;
        const double have = pst_load_f64(dtype, x, i);

        if (k < 0.0 || k >= n)
            assert_true(have == 77.0);
        else
            assert_true(have == a * k * k + b * k);
    }
}

static void run(enum pst_dtype dtype, unsigned n, unsigned skip)
{
    PST_ALIGNED(16) char memory[3][BYTES];
    const size_t at = (GUARD + skip) * pst_dtype_size(dtype);
    struct pst_operand in, out[2];
    struct pst_call call = {.in = &in, .out = out, .n_in = 1, .n_out = 2};
    struct on_device_block blocks[3];
    const struct pst_kernel *kernel;
    struct squares s;

    squares_init(&s, dtype, n);
    for (unsigned i = 0; i < 3; i++) {
        const struct pst_operand x = {memory[i] + at, &s.parts[0].out.whole};

        blocks[i] = (struct on_device_block){memory[i], BYTES};
        *(i == 0 ? &in : &out[i - 1]) = x;
        for (unsigned k = 0; k < BYTES / pst_dtype_size(dtype); k++)
            pst_store_f64(dtype, memory[i], k, 77.0);
    }
    for (unsigned k = 0; k < n; k++)
        pst_store_f64(dtype, memory[0] + at, k, (double)k);
    call.chain = &s.chain;
    kernel = pst_kernel_find(&pst_device_cuda, &pst_op_chain, &call,
                             PST_ISA_ANY, NULL);
    assert_non_null(kernel);
    assert_true((kernel->flags & PST_K_QUEUED) != 0);
    on_device_run(&device, kernel, &call, blocks, 3);
    check(memory[0], dtype, n, skip, 0.0, 1.0);
    check(memory[1], dtype, n, skip, 1.0, 0.0);
    check(memory[2], dtype, n, skip, 1.0, 1.0);
    pst_graph_free(s.graph);
}

static void keeps_its_ends(void **state)
{
    (void)state;
    for (unsigned n = 1; n <= MOST; n++)
        for (unsigned skip = 0; skip < 4; skip++) {
            run(PST_F32, n, skip);
            run(PST_BF16, n, skip);
            run(PST_F16, n, skip);
        }
}

static int setup(void **state)
{
    (void)state;
    return on_device_open(&device, 1 << 20);
}

static int teardown(void **state)
{
    (void)state;
    pst_device_close(&device);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(keeps_its_ends)};

    return cmocka_run_group_tests(tests, setup, teardown);
}
