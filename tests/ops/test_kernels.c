// SPDX-License-Identifier: Apache-2.0
/*
 * Tests every kernel of every operator against the reference kernel of its row,
 * on all samples and floating dtypes that it takes. Each runs plain, adding to
 * the output, in place of an input, with one thread and with three, and with
 * other bytes for true (the reference, too). Outputs begin with garbage and are
 * between guards; inputs must not change. With PENSTOCK_DEVICE, tests that
 * device's own kernels instead, each at least once.
 */
#include "tests/ops/on_device.h"
#include "tests/ops/samples/sample.h"
#include "tests/sanitized.h"

#include "stages/base/host/pool.h"
#include "stages/ops/core/rows.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GUARD       64
#define MAX_IN      64
#define MAX_KERNELS 64

/* One sample in one dtype, with its inputs on the heap. */
struct bench {
    const struct sample *sample;
    enum pst_dtype dtype;
    struct pst_graph *graph;
    struct pst_node *node;
    struct pst_eval *eval;
    void *given[MAX_IN];
    struct pst_operand in[MAX_IN], out[PST_MAX_OUTS];
    unsigned n_in;
    struct pst_diag diag;
};

/* How a kernel is run. */
enum mode { PLAIN, ACCUMULATE, INPLACE_0, INPLACE_1, POOL, BYTES, N_MODES };

static const char *const mode_names[] = {
    "plain",      "accumulating",  "in place 0",
    "in place 1", "three threads", "other bytes for true"};
static const struct pst_rng_key key = {.seed = 7, .step = 3, .microbatch = 1};
static struct pst_pool *pool;
static struct pst_device_memory device; /* not open: the CPU */

#define DEVICE_SIZE ((size_t)8 << 20)

static void *require_memory(void *p)
{
    assert_non_null(p);
    return p;
}

/* --- one sample ---------------------------------------------------------- */

/* Collects metas and data of the operator's inputs, computed by the nodes
 * before it. */
static void bind(struct bench *b)
{
    struct pst_node *node = b->node;
    unsigned k = 0;

    b->n_in = pst_call_count_in(node->schema, node->args);
    assert_true(b->n_in <= MAX_IN);
    pst_call_bind_metas(node->schema, node->args, b->in);
    for (unsigned i = 0; i < node->schema->n_args; i++) {
        const struct pst_arg *arg = &node->args[i];
        const unsigned n = pst_call_count_arg(node->schema, i, arg);

        for (unsigned j = 0; j < n; j++, k++) {
            const struct pst_value *value =
                arg->kind == PST_ARG_VALUE    ? arg->value
                : arg->kind == PST_ARG_VALUES ? arg->values[j]
                                              : NULL;

            if (value != NULL)
                b->in[k].data =
                    require_memory((void *)pst_eval_get(b->eval, value));
        }
    }
    for (k = 0; k < node->n_outs; k++)
        b->out[k].meta = &node->outs[k]->meta;
}

/* True if the device of the test has kernels of its own for the operator. */
static bool has_kernels(const struct pst_op *op)
{
    const struct pst_device *on = pst_device_default();
    const struct pst_kernels all = pst_op_kernels(on, op);

    return on == &pst_device_cpu ||
           (all.n > 0 && (all.at[0].flags & PST_K_QUEUED) != 0);
}

/* Returns false if the operator does not take the dtype, or the device has no
 * kernels. */
static bool bench_init(struct bench *b, const struct sample *sample,
                       enum pst_dtype dtype)
{
    memset(b, 0, sizeof(*b));
    b->sample = sample;
    b->dtype = dtype;
    pst_diag_init(&b->diag);
    if (sample_parse(sample, dtype, &b->graph, &b->diag) != PST_OK) {
        if (dtype != PST_BF16 && dtype != PST_F16)
            fail_msg("%s: %s", sample->text, b->diag.text);
        return false;
    }
    b->node = sample_node(b->graph);
    if (!has_kernels(b->node->op))
        return false;
    assert_ok(pst_eval_new(b->graph, &b->eval, &b->diag), &b->diag);
    for (size_t i = 0; i < b->graph->inputs.n; i++) {
        b->given[i] = require_memory(sample_fill(b->graph->inputs.at[i]));
        assert_ok(pst_eval_set(b->eval, b->graph->inputs.at[i], b->given[i],
                               &b->diag),
                  &b->diag);
    }
    if (!pst_op_runs(b->node->op) ||
        (b->node->n_outs > 0 && b->node->outs[0]->base != NULL))
        return true; /* a view: nothing runs */
    /* This runs the operator too; the storage of its results stays allocated.
     * References would take much longer. */
    if (pst_eval_run(b->eval, false, &key, &b->diag) != PST_OK)
        fail_msg("%s: %s", sample->text, b->diag.text);
    bind(b);
    return true;
}

static void bench_fini(struct bench *b)
{
    for (size_t i = 0; b->graph != NULL && i < b->graph->inputs.n; i++)
        pst_free(b->given[i]);
    pst_eval_free(b->eval);
    pst_graph_free(b->graph);
}

/* --- one run ------------------------------------------------------------- */

struct run {
    struct pst_call call;
    struct pst_fault fault;
    struct pst_operand in[MAX_IN], out[PST_MAX_OUTS];
    struct pst_meta metas[MAX_IN];
    void *copies[MAX_IN];                /* copies of the inputs */
    unsigned char *memory[PST_MAX_OUTS]; /* outputs with their guards */
    void *scratch;
};

/* Returns the value of an output before a kernel accumulates to it. */
static double initial_value(int64_t i)
{
    return 0.25 * (double)(i % 9) - 1.0;
}

static void prepare_outputs(struct run *r, const struct bench *b,
                            enum mode mode)
{
    for (unsigned k = 0; k < b->node->n_outs; k++) {
        const struct pst_meta *m = b->out[k].meta;
        const size_t size = pst_meta_bytes(m);

        r->memory[k] =
            require_memory(pst_alloc(PST_TAG_TEST, size + 2 * GUARD));
        memset(r->memory[k], 0xa5, size + 2 * GUARD);
        r->out[k] = (struct pst_operand){r->memory[k] + GUARD, m};
        for (int64_t i = 0; mode == ACCUMULATE && i < pst_meta_numel(m); i++)
            pst_store_f64(m->dtype, r->out[k].data, i, initial_value(i));
    }
}

/* Copies the inputs, so that a write into them shows in the next run. */
static void prepare_inputs(struct run *r, const struct bench *b,
                           const struct pst_kernel *kernel, enum mode mode)
{
    for (unsigned k = 0; k < b->n_in; k++) {
        struct pst_meta *meta = &r->metas[k];

        r->in[k] = b->in[k];
        if (b->in[k].data == NULL)
            continue;
        *meta = *b->in[k].meta;
        if ((kernel->flags & PST_K_STRIDED) == 0)
            pst_meta_set_contiguous(meta);
        r->copies[k] = require_memory(
            pst_calloc(PST_TAG_TEST, pst_meta_span(meta) + 1, 1));
        pst_copy_strided(b->in[k].meta, b->in[k].data, meta, r->copies[k]);
        if (mode == BYTES)
            sample_other_bytes(meta, r->copies[k]);
        r->in[k] = (struct pst_operand){r->copies[k], meta};
        if ((mode == INPLACE_0 && k == 0) || (mode == INPLACE_1 && k == 1)) {
            memcpy(r->out[0].data, r->copies[k], pst_meta_bytes(meta));
            r->in[k].data = r->out[0].data;
        }
    }
}

static void check_guards(const struct run *r, const struct bench *b,
                         const struct pst_kernel *kernel)
{
    for (unsigned k = 0; k < b->node->n_outs; k++) {
        const size_t size = pst_meta_bytes(r->out[k].meta);

        for (size_t i = 0; i < GUARD; i++)
            if (r->memory[k][i] != 0xa5 ||
                r->memory[k][GUARD + size + i] != 0xa5)
                fail_msg("%s: %s writes outside of its output", b->sample->text,
                         kernel->name);
    }
}

/* Checks that no kernel writes an input, except the one that it overwrites in
 * place. */
static void check_inputs(const struct run *r, const struct bench *b,
                         const struct pst_kernel *kernel, enum mode mode)
{
    for (unsigned k = 0; k < b->n_in; k++) {
        const struct pst_meta *m = r->in[k].meta;
        void *kept;

        if (r->copies[k] == NULL)
            continue;
        kept =
            require_memory(pst_calloc(PST_TAG_TEST, pst_meta_span(m) + 1, 1));
        pst_copy_strided(b->in[k].meta, b->in[k].data, m, kept);
        if (mode == BYTES)
            sample_other_bytes(m, kept);
        if (memcmp(kept, r->copies[k], pst_meta_span(m)) != 0)
            fail_msg("%s: %s writes its input %u", b->sample->text,
                     kernel->name, k);
        pst_free(kept);
    }
}

static void launch(struct run *r, const struct bench *b,
                   const struct pst_kernel *kernel)
{
    struct on_device_block blocks[MAX_IN + PST_MAX_OUTS + 2];
    unsigned n = 0;

    if ((kernel->flags & PST_K_QUEUED) == 0) {
        kernel->run(&r->call);
        return;
    }
    for (unsigned k = 0; k < b->n_in; k++)
        if (r->copies[k] != NULL)
            blocks[n++] = (struct on_device_block){
                r->copies[k], pst_meta_span(&r->metas[k]) + 1};
    for (unsigned k = 0; k < b->node->n_outs; k++)
        blocks[n++] = (struct on_device_block){
            r->memory[k], pst_meta_bytes(r->out[k].meta) + 2 * (size_t)GUARD};
    blocks[n++] = (struct on_device_block){&r->fault, sizeof(r->fault)};
    blocks[n++] = (struct on_device_block){r->scratch, r->call.scratch_size};
    on_device_run(&device, kernel, &r->call, blocks, n);
}

static void run_init(struct run *r, const struct bench *b,
                     const struct pst_kernel *kernel, enum mode mode)
{
    memset(r, 0, sizeof(*r));
    prepare_outputs(r, b, mode);
    prepare_inputs(r, b, kernel, mode);
    r->call = (struct pst_call){
        .in = r->in,
        .out = r->out,
        .n_in = b->n_in,
        .n_out = b->node->n_outs,
        .args = b->node->args,
        .pool = mode == POOL ? pool : NULL,
        .fault = &r->fault,
        .rng = key,
        .accumulate = mode == ACCUMULATE,
    };
    r->call.rng.node = b->node->id;
    if (kernel->scratch != NULL) {
        const unsigned threads = pst_pool_threads(r->call.pool);

        r->call.scratch_size = kernel->scratch(&r->call, threads);
        r->scratch = require_memory(
            aligned_alloc(64, r->call.scratch_size / 64 * 64 + 64));
        r->call.scratch = r->scratch;
    }
    launch(r, b, kernel);
    if (r->fault.set) {
        char text[240];

        pst_fault_describe(&r->fault, NULL, text, sizeof(text));
        fail_msg("%s: %s: %s", b->sample->text, kernel->name, text);
    }
    check_guards(r, b, kernel);
    check_inputs(r, b, kernel, mode);
}

static void run_fini(struct run *r)
{
    for (unsigned k = 0; k < MAX_IN; k++)
        pst_free(r->copies[k]);
    for (unsigned k = 0; k < PST_MAX_OUTS; k++)
        pst_free(r->memory[k]);
    free(r->scratch);
}

/* --- comparison ---------------------------------------------------------- */

static bool same_bits(const struct pst_operand *a, const struct pst_operand *b)
{
    return memcmp(a->data, b->data, pst_meta_bytes(a->meta)) == 0;
}

static double element(const struct pst_operand *x, int64_t i)
{
    return pst_load_f64(x->meta->dtype, x->data, i);
}

/* Returns half a unit in the last place of the dtype: the cost of one rounding.
 */
static double half_ulp(enum pst_dtype dtype)
{
    switch (dtype) {
    case PST_BF16:
        return 1.0 / 256.0;
    case PST_F16:
        return 1.0 / 2048.0;
    case PST_F32:
        return 1.2e-7;
    case PST_F64:
        return 1e-15;
    default:
        return 0.0;
    }
}

static void compare(const struct bench *b, const struct pst_kernel *kernel,
                    enum mode mode, const struct pst_operand *want,
                    const struct pst_operand *got)
{
    const int64_t n = pst_meta_numel(want->meta);
    const double added =
        mode == ACCUMULATE ? 4.0 * half_ulp(want->meta->dtype) : 0.0;
    double largest = 0.0, tolerance = PST_MAX(kernel->tolerance, added);

    if (mode != ACCUMULATE && same_bits(want, got))
        return;
    if (tolerance > 0.0)
        /* both results are rounded */
        tolerance = PST_MAX(tolerance, 2.0 * half_ulp(want->meta->dtype));
    for (int64_t i = 0; i < n; i++)
        if (isfinite(element(want, i)))
            largest = PST_MAX(largest, fabs(element(want, i)));
    for (int64_t i = 0; i < n; i++) {
        const double y = element(got, i);
        double x = element(want, i);

        if (mode == ACCUMULATE)
            x += initial_value(i);
        if ((isnan(x) && isnan(y)) || x == y ||
            fabs(x - y) <= tolerance * (largest + (mode == ACCUMULATE)))
            continue;
        fail_msg("%s: %s (%s, %s), element %lld is %.9g, not %.9g",
                 b->sample->text, kernel->name,
                 pst_dtype_name(b->in[0].meta->dtype), mode_names[mode],
                 (long long)i, y, x);
    }
}

/* True if the mode can be run: in place only where the planner would do it
 * (contiguous, same size and dtype). */
static bool mode_fits(const struct bench *b, const struct pst_kernel *kernel,
                      enum mode mode)
{
    const unsigned k = mode == INPLACE_1;

    switch (mode) {
    case ACCUMULATE:
        return (kernel->flags & PST_K_ACCUMULATE) != 0 &&
               pst_dtype_kind(b->out[0].meta->dtype) == PST_KIND_FLOAT;
    case INPLACE_0:
    case INPLACE_1:
        return (kernel->flags & (k == 0 ? PST_K_INPLACE_0 : PST_K_INPLACE_1)) !=
                   0 &&
               k < b->n_in && b->in[k].data != NULL &&
               pst_meta_is_contiguous(b->in[k].meta) &&
               pst_meta_same(b->in[k].meta, b->out[0].meta);
    case POOL: /* small work is done on one thread; other devices have none */
        if (pst_device_default() != &pst_device_cpu)
            return false;
        for (unsigned i = 0; i < b->n_in; i++)
            if (pst_meta_numel(b->in[i].meta) >= 4096)
                return true;
        return false;
    case BYTES:
        for (unsigned i = 0; i < b->n_in; i++)
            if (b->in[i].data != NULL && b->in[i].meta->dtype == PST_BOOL)
                return true;
        return false;
    default:
        return true;
    }
}

/* Checks a kernel in all modes. want: the plain run of the reference, which is
 * not made a second time; with three threads it runs in one dtype. */
static void check_kernel(const struct bench *b, const struct pst_kernel *kernel,
                         const struct run *want)
{
    const bool is_reference = kernel == pst_op_reference(b->node->op);

    for (enum mode mode = PLAIN; mode < N_MODES; mode++) {
        struct run r;

        if (!mode_fits(b, kernel, mode) ||
            (is_reference &&
             (mode == PLAIN || (mode == POOL && b->dtype != PST_F32))))
            continue;
        run_init(&r, b, kernel, mode);
        for (unsigned k = 0; k < b->node->n_outs; k++)
            /* a kernel accumulates into result 0 alone */
            compare(b, kernel, mode == ACCUMULATE && k > 0 ? PLAIN : mode,
                    &want->out[k], &r.out[k]);
        run_fini(&r);
    }
}

/* --- which were tried ----------------------------------------------------- */

static const struct pst_kernel *tried[4096];
static unsigned n_tried;

/* Compares names: rows share kernels, and not every row can reach all of them.
 */
static bool was_tried(const struct pst_kernel *kernel)
{
    for (unsigned i = 0; i < n_tried; i++)
        if (strcmp(tried[i]->name, kernel->name) == 0)
            return true;
    return false;
}

static void note_tried(const struct pst_kernel *kernel)
{
    if (!was_tried(kernel) && n_tried < PST_COUNT(tried))
        tried[n_tried++] = kernel;
}

/* Runs last: checks that every kernel of the device was tried. Operators
 * without results have no samples, nor have chains, which only the compiler
 * makes (tests/run/test_chains.c). */
static void every_own_kernel_was_tried(void **state)
{
    const struct pst_device *on = pst_device_default();
    struct pst_str missing = {0};

    (void)state;
    for (unsigned i = 0; i < pst_registry_count(); i++) {
        const struct pst_op *op = pst_registry_at(i);
        const struct pst_kernels all = pst_op_kernels(on, op);

        for (unsigned k = 0; op != &pst_op_chain && k < all.n; k++)
            if ((all.at[k].flags & PST_K_QUEUED) != 0 &&
                pst_op_schema(op)->n_returns > 0 && !was_tried(&all.at[k]))
                pst_str_addf(&missing, " %s", all.at[k].name);
    }
    if (missing.len > 0)
        fail_msg("no sample runs%s", pst_str_text(&missing));
    pst_str_fini(&missing);
}

/* Collects the device's kernels that take the sample; returns their number. */
static unsigned find_kernels(struct bench *b,
                             const struct pst_kernel *ret[MAX_KERNELS])
{
    const struct pst_op *op = b->node->op;
    const struct pst_device *on = pst_device_default();
    const struct pst_kernels all = pst_op_kernels(on, op);
    struct pst_call call = {.in = b->in,
                            .out = b->out,
                            .n_in = b->n_in,
                            .n_out = b->node->n_outs,
                            .args = b->node->args};
    unsigned n = 0;

    for (unsigned k = 0; k < all.n; k++)
        if ((on == &pst_device_cpu || (all.at[k].flags & PST_K_QUEUED) != 0) &&
            pst_kernel_find(on, op, &call, pst_cpu_isa(), all.at[k].name) ==
                &all.at[k]) {
            assert_true(n < MAX_KERNELS);
            ret[n++] = &all.at[k];
        }
    return n;
}

static void check_sample(const struct sample *sample, enum pst_dtype dtype)
{
    struct bench b;

    if (bench_init(&b, sample, dtype) && b.node->n_outs > 0 &&
        b.node->outs[0]->base == NULL && pst_op_runs(b.node->op)) {
        const struct pst_kernel *found[MAX_KERNELS];
        const unsigned n = find_kernels(&b, found);
        struct run want;

        if (n > 0)
            run_init(&want, &b, pst_op_reference(b.node->op), PLAIN);
        for (unsigned k = 0; k < n; k++) {
            check_kernel(&b, found[k], &want);
            note_tried(found[k]);
        }
        if (n > 0)
            run_fini(&want);
    }
    bench_fini(&b);
}

static void kernels_agree(void **state)
{
    static const enum pst_dtype dtypes[] = {PST_F32, PST_F64, PST_BF16,
                                            PST_F16};
    const struct sample *sample = *state;

    for (size_t i = 0; i < PST_COUNT(dtypes); i++) {
        check_sample(sample, dtypes[i]);
        if (strstr(sample->text, "F") == NULL)
            break; /* there is no dtype to replace */
    }
}

/* --- the registry -------------------------------------------------------- */

static void every_row_has_a_sample(void **state)
{
    struct pst_str missing = {0};

    (void)state;
    for (unsigned i = 0; i < pst_registry_count(); i++) {
        const struct pst_op *op = pst_registry_at(i);
        /* Compositions are tested by tests/cases, chains with the compiler. */
        bool found = op->rewrite != NULL ||
                     (op->flags & PST_OP_COMPILED) != 0 ||
                     pst_op_schema(op)->n_returns == 0; /* no results */

        for (unsigned k = 0; k < sample_count() && !found; k++) {
            const char *text = sample_at(k)->text;
            const char *name = pst_op_schema(op)->name;
            const char *last = strrchr(text, ';');
            const char *at = strstr(last != NULL ? last : text, name);

            found = at != NULL && at[strlen(name)] == '(';
        }
        if (!found)
            pst_str_addf(&missing, " %s", pst_op_schema(op)->name);
    }
    if (missing.len > 0)
        fail_msg("no sample in tests/ops/samples/ of%s",
                 pst_str_text(&missing));
    pst_str_fini(&missing);
}

static int setup(void **state)
{
    struct pst_diag diag;

    (void)state;
    pst_diag_init(&diag);
    if (pst_registry_init(&diag) != PST_OK)
        return -1;
    if (pst_device_default() != &pst_device_cpu &&
        pst_device_open(pst_device_default(), 0, DEVICE_SIZE, &device, &diag) !=
            PST_OK) {
        (void)fprintf(stderr, "%s\n", diag.text);
        return -1;
    }
    return pst_pool_new(3, &pool, &diag) == PST_OK ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    pst_device_close(&device);
    pst_pool_free(pool);
    return 0;
}

/* Sanitizers take four times as long: each seed runs another quarter of
 * the samples. PST_TEST_PARTS=N: an N-th of them (scripts/gpu.sh). */
static bool has_turn(unsigned sample)
{
    const char *parts = getenv("PST_TEST_PARTS");
    const char *text = getenv("PST_TEST_SEED");
    unsigned long n = parts != NULL ? strtoul(parts, NULL, 10) : 1;
    unsigned long seed = 0;

    if (SANITIZED && parts == NULL && text != NULL) {
        n = 4;
        seed = strtoul(text, NULL, 10);
    }
    return n < 2 || (sample + seed) % n == 0;
}

/* True if the text of the sample has one of the words, or if there are none. */
static bool is_wanted(unsigned sample, char *const *words)
{
    bool ret = *words == NULL;

    for (; *words != NULL && !ret; words++)
        ret = strstr(sample_at(sample)->text, *words) != NULL;
    return ret;
}

/* Arguments: words, to run only samples with them. */
int main(int argc, char **argv)
{
    struct CMUnitTest *tests = calloc(sample_count() + 2, sizeof(*tests));
    unsigned n = 0;
    int failed;

    if (tests == NULL)
        return 1;
    for (unsigned i = 0; i < sample_count(); i++)
        if (has_turn(i) && is_wanted(i, argv + (argc > 0)))
            tests[n++] = (struct CMUnitTest){
                .name = sample_at(i)->text,
                .test_func = kernels_agree,
                .initial_state = (void *)(uintptr_t)sample_at(i),
            };
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(every_row_has_a_sample);
    if (n == sample_count() + 1) /* no sample was left out */
        tests[n++] =
            (struct CMUnitTest)cmocka_unit_test(every_own_kernel_was_tried);
    failed = _cmocka_run_group_tests("kernels", tests, n, setup, teardown);
    free(tests);
    return failed;
}
