// SPDX-License-Identifier: Apache-2.0
/*
 * Runs single kernels on one thread, for tests/bench/kernels.py. Reads lines
 *
 *     RUNS FLAGS TEXT
 *
 * TEXT is a graph in the format of tests/ops/samples/sample.h, whose last node
 * is timed ("adamw N": the optimizer's loop). FLAGS is "-", "bf16" (with
 * operands converted in advance, as in a program) or "chain". Prints for each
 * line the name of the kernel and the nanoseconds of each run, in CPU time of
 * the thread.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/ops/samples/sample.h"

#include "stages/ops/cpu/simd/optim/optim.h"
#include "stages/ops/matmul/tiles.h"

#define LINE      4096
#define ALIGNMENT 64
#define CHAIN     1000

static int64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void *alloc_aligned(size_t bytes)
{
    void *ret = aligned_alloc(ALIGNMENT,
                              (bytes + 2 * ALIGNMENT) / ALIGNMENT * ALIGNMENT);

    assert_non_null(ret);
    memset(ret, 0, (bytes + 2 * ALIGNMENT) / ALIGNMENT * ALIGNMENT);
    return ret;
}

static void *fill_new(const struct pst_value *value)
{
    void *data = sample_fill(value), *ret;
    const size_t bytes = pst_meta_span(&value->meta);

    assert_non_null(data);
    ret = alloc_aligned(bytes);
    memcpy(ret, data, bytes);
    pst_free(data);
    return ret;
}

static void bind(struct pst_node *node, struct pst_call *call)
{
    unsigned k = 0;

    pst_call_bind_metas(node->schema, node->args, call->in);
    for (unsigned i = 0; i < node->schema->n_args; i++) {
        const struct pst_arg *arg = &node->args[i];
        const unsigned n = pst_call_count_arg(node->schema, i, arg);

        for (unsigned j = 0; j < n; j++, k++)
            if (arg->kind == PST_ARG_VALUE)
                call->in[k].data = fill_new(arg->value);
            else if (arg->kind == PST_ARG_VALUES && arg->values[j] != NULL)
                call->in[k].data = fill_new(arg->values[j]);
    }
    for (unsigned i = 0; i < node->n_outs; i++) {
        call->out[i].meta = &node->outs[i]->meta;
        call->out[i].data = alloc_aligned(pst_meta_span(&node->outs[i]->meta));
    }
}

static void make_tiles(struct pst_operand *x, struct pst_meta *meta,
                       enum pst_form form)
{
    const struct pst_op *op = pst_op_find("penstock.tiles.default");
    const int64_t k = x->meta->size[form == PST_FORM_PACKED_T];
    const int64_t n = x->meta->size[form != PST_FORM_PACKED_T];
    struct pst_arg args[2] = {[1] = pst_b(form == PST_FORM_PACKED_T)};
    struct pst_operand in = *x;
    struct pst_call call = {
        .in = &in, .out = x, .n_in = 1, .n_out = 1, .args = args};

    x->data = alloc_aligned((size_t)pst_tiles_numel(k, n) * sizeof(uint16_t));
    *meta = pst_tiles_meta(k, n);
    x->meta = meta;
    pst_op_reference(op)->run(&call);
}

/* Converts the operands to the layouts that the kernel prefers. A program does
 * this once for all readers, so it is not timed. Returns true if any was
 * converted. */
static bool prepare(struct pst_call *call, const struct pst_kernel *kernel)
{
    static struct pst_meta metas[32]; /* converted operands of one line */
    struct pst_operand made[32];
    bool any = false;

    for (unsigned i = 0; i < call->n_in; i++) {
        const struct pst_meta *meta = call->in[i].meta;
        const int64_t n =
            (int64_t)(pst_meta_span(meta) / pst_dtype_size(meta->dtype));

        const enum pst_form form =
            kernel->form == NULL ? PST_FORM_OWN : kernel->form(call, i);

        made[i] = call->in[i];
        if (form == PST_FORM_OWN || form == PST_FORM_NONE ||
            form == PST_FORM_ANY)
            continue;
        any = true;
        if (form != PST_FORM_BF16) {
            make_tiles(&made[i], &metas[i], form);
            continue;
        }
        metas[i] = *meta;
        metas[i].dtype = PST_BF16;
        made[i].meta = &metas[i];
        made[i].data = alloc_aligned((size_t)n * 2);
        for (int64_t k = 0; k < n; k++)
            pst_store_f64(PST_BF16, made[i].data, k,
                          pst_load_f64(meta->dtype, call->in[i].data, k));
    }
    for (unsigned i = 0; i < call->n_in; i++)
        if (made[i].data != call->in[i].data) {
            free(call->in[i].data);
            call->in[i] = made[i];
        }
    return any;
}

/* Runs the kernel once, or, with the flag "chain", CHAIN times as in a program
 * of that many small nodes. Pointers are set before each run, as the executor
 * does. */
static int64_t run_once(const struct pst_kernel *kernel, struct pst_call *call,
                        int times)
{
    const struct pst_operand in = call->in[0], out = call->out[0];
    const int64_t start = now_ns();

    for (int i = 0; i < times; i++) {
        call->in[0].data = (char *)in.data + (i & 1) * ALIGNMENT;
        call->out[0].data = (char *)out.data + (i & 1) * ALIGNMENT;
        kernel->run(call);
    }
    call->in[0] = in;
    call->out[0] = out;
    return now_ns() - start;
}

static void time_node(struct pst_node *node, const char *flags, int runs)
{
    struct pst_operand in[32] = {0}, out[32] = {0};
    struct pst_fault fault = {0};
    struct pst_call call = {.in = in,
                            .out = out,
                            .n_in = pst_call_count_in(node->schema, node->args),
                            .n_out = node->n_outs,
                            .args = node->args,
                            .fault = &fault,
                            .bf16 = strcmp(flags, "bf16") == 0};
    const int times = strcmp(flags, "chain") == 0 ? CHAIN : 1;
    const struct pst_kernel *kernel;

    assert_true(call.n_in <= 32 && call.n_out <= 32);
    bind(node, &call);
    kernel = pst_kernel_choose(node->op, &call, pst_cpu_isa(), NULL);
    assert_non_null(kernel);
    if (prepare(&call, kernel))
        kernel = pst_kernel_choose(node->op, &call, pst_cpu_isa(), NULL);
    assert_non_null(kernel);
    if (kernel->scratch != NULL) {
        call.scratch_size = kernel->scratch(&call, 1);
        call.scratch = alloc_aligned(call.scratch_size);
    }
    printf("%s", kernel->name);
    for (int i = 0; i < runs; i++)
        printf(" %" PRId64, run_once(kernel, &call, times));
    printf("\n");
    free(call.scratch);
    for (unsigned i = 0; i < call.n_in; i++)
        free(in[i].data);
    for (unsigned i = 0; i < call.n_out; i++)
        free(out[i].data);
}

static void time_adamw(int64_t n, int runs)
{
    float *memory = alloc_aligned((size_t)n * 4 * sizeof(float));

    for (int64_t i = 0; i < n; i++)
        memory[n + i] = (float)(i % 17) * 0.01f;
    printf("adamw");
    for (int i = 0; i < runs; i++) {
        const int64_t start = now_ns();

        (void)pst_simd_updates_best(pst_cpu_isa())
            ->adamw(n, memory, memory + n, memory + 2 * n, memory + 3 * n, 1e-3,
                    0.9, 0.999, 1e-8, 0.01, 0.1, 0.001, 1.0);
        printf(" %" PRId64, now_ns() - start);
    }
    printf("\n");
    free(memory);
}

int main(void)
{
    struct pst_diag diag;
    char line[LINE], flags[16];
    int runs, at;

    pst_diag_init(&diag);
    assert_ok(pst_registry_init(&diag), &diag);
    while (fgets(line, sizeof(line), stdin) != NULL) {
        struct sample sample = {0};
        struct pst_graph *graph;

        if (sscanf(line, "%d %15s %n", &runs, flags, &at) < 2)
            return 1;
        line[strcspn(line, "\n")] = '\0';
        sample.text = line + at;
        if (strncmp(sample.text, "adamw ", 6) == 0) {
            time_adamw(atoll(sample.text + 6), runs);
        } else {
            assert_ok(sample_parse(&sample, PST_F32, &graph, &diag), &diag);
            time_node(sample_node(graph), flags, runs);
            pst_graph_free(graph);
        }
        fflush(stdout);
    }
    return 0;
}
