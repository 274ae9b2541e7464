// SPDX-License-Identifier: Apache-2.0
/*
 * Times single kernels of the device "cuda", for tests/cuda/speed.py.
 *
 *     time-kernels MIB    MIB: memory for operands and results
 *
 * Reads lines "RUNS TEXT". TEXT is a graph in the format of
 * tests/ops/samples/sample.h, whose last node is timed; its inputs are f32 or
 * of 16 bits, and random. Prints for each line the name of the kernel, or
 * "none" if the device has no kernel for the node, and the milliseconds of each
 * run between two events of the device.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stages/base/macros.h"
#include "stages/ops/core/rows.h"
#include "stages/ops/cuda/cuda.h"
#include "tests/ops/samples/sample.h"

#define LINE      1024
#define ALIGN     ((size_t)256)
#define MOST      16
#define MOST_RUNS 1000
#define WARM_UP   3

static struct pst_device_memory memory;
static size_t used; /* bytes of `memory` that are in use */

static void *alloc_on_device(size_t size)
{
    void *ret = memory.base + used;

    used += (size + 2 * ALIGN - 1) / ALIGN * ALIGN;
    if (used > memory.size) {
        (void)fprintf(stderr, "needs more than %zu bytes\n", memory.size);
        exit(1);
    }
    return ret;
}

/* Fills x, n elements, with random numbers from -1 to 1. */
static void fill(enum pst_dtype dtype, void *x, int64_t n)
{
    uint64_t state = 1;

    for (int64_t i = 0; i < n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        pst_store_f64(dtype, x, i, (double)(state >> 40) * 0x1p-23 - 1.0);
    }
}

static void *alloc_input(const struct pst_meta *meta)
{
    const size_t size = pst_meta_span(meta);
    void *ret = alloc_on_device(size);

    fill(meta->dtype, pst_device_host(&memory, ret),
         (int64_t)(size / pst_dtype_size(meta->dtype)));
    pst_device_push(&memory, ret, size);
    return ret;
}

/* Sets metas and addresses of the call. */
static void bind(const struct pst_node *node, struct pst_call *call)
{
    used = 0;
    pst_call_bind_metas(node->schema, node->args, call->in);
    for (unsigned i = 0; i < call->n_in; i++)
        if (call->in[i].meta != &pst_meta_absent)
            call->in[i].data = alloc_input(call->in[i].meta);
    for (unsigned i = 0; i < node->n_outs; i++) {
        call->out[i].meta = &node->outs[i]->meta;
        call->out[i].data = alloc_on_device(pst_meta_span(call->out[i].meta));
    }
}

/* Returns the device's own kernel for the call, or NULL. */
static const struct pst_kernel *kernel_of(const struct pst_node *node,
                                          const struct pst_call *call)
{
    const struct pst_kernels all = pst_op_kernels(&pst_device_cuda, node->op);

    for (unsigned i = 0; i < all.n; i++)
        if ((all.at[i].flags & PST_K_QUEUED) != 0 &&
            pst_kernel_fits(&all.at[i], call, PST_ISA_ANY))
            return &all.at[i];
    return NULL;
}

/* Launches with copies of the call and its operands, which the launch may
 * modify. */
static void launch(const struct pst_kernel *kernel, const struct pst_call *call)
{
    struct pst_operand in[MOST], out[MOST];
    struct pst_call frame = *call;

    memcpy(in, call->in, sizeof(in));
    memcpy(out, call->out, sizeof(out));
    frame.in = in;
    frame.out = out;
    memory.device->launch(&memory, kernel, &frame);
}

static void time_node(const struct pst_node *node, int runs)
{
    static struct pst_event events[MOST_RUNS + 1];
    struct pst_operand in[MOST] = {0}, out[MOST] = {0};
    struct pst_call call = {.in = in,
                            .out = out,
                            .n_in = pst_call_count_in(node->schema, node->args),
                            .n_out = node->n_outs,
                            .args = node->args};
    const struct pst_kernel *kernel;

    assert_true(call.n_in <= MOST && call.n_out <= MOST);
    assert_true(runs > 0 && runs <= MOST_RUNS);
    bind(node, &call);
    kernel = kernel_of(node, &call);
    if (kernel == NULL) {
        printf("none\n");
        return;
    }
    if (kernel->scratch != NULL) {
        call.scratch_size = kernel->scratch(&call, 1);
        call.scratch = alloc_on_device(call.scratch_size);
    }
    for (int i = 0; i < PST_MIN(WARM_UP, runs); i++)
        launch(kernel, &call);
    memory.device->record(&memory, PST_QUEUE_COMPUTE, &events[0]);
    for (int i = 0; i < runs; i++) {
        launch(kernel, &call);
        memory.device->record(&memory, PST_QUEUE_COMPUTE, &events[i + 1]);
    }
    if (pst_device_await(&memory, &events[runs]) != PST_OK) {
        (void)fprintf(stderr, "%s: %s\n", kernel->name,
                      memory.device->failure(&memory));
        exit(1);
    }
    printf("%s", kernel->name);
    for (int i = 0; i < runs; i++)
        printf(" %.6f", 1e3 * (memory.device->time(&memory, &events[i + 1]) -
                               memory.device->time(&memory, &events[i])));
    printf("\n");
}

int main(int argc, char **argv)
{
    const size_t size = argc > 1 ? strtoul(argv[1], NULL, 10) << 20 : 0;
    struct pst_diag diag;
    char line[LINE];

    pst_diag_init(&diag);
    if (pst_registry_init(&diag) != PST_OK ||
        pst_device_open(&pst_device_cuda, 0, size, &memory, &diag) != PST_OK) {
        (void)fprintf(stderr, "%s\n", diag.text);
        return 1;
    }
    while (fgets(line, sizeof(line), stdin) != NULL) {
        struct sample sample = {0};
        struct pst_graph *graph;
        char *end;
        const long runs = strtol(line, &end, 10);

        end[strcspn(end, "\n")] = '\0';
        sample.text = end;
        assert_ok(sample_parse(&sample, PST_F32, &graph, &diag), &diag);
        time_node(sample_node(graph), (int)runs);
        (void)fflush(stdout);
        pst_graph_free(graph);
    }
    pst_device_close(&memory);
    return 0;
}
