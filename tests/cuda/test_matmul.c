// SPDX-License-Identifier: Apache-2.0
/* Tests matmuls and column sums of the device "cuda" against sums in double:
 * all tiles, edges, layouts and splits. Elements that belong to no operand are
 * NaN. With PENSTOCK_LIBCUBLASLT, which names that of the tests (cublaslt.cpp),
 * it computes the matmuls that it can. */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stages/base/macros.h"
#include "stages/ops/core/rows.h"
#include "stages/ops/cuda/cuda.h"
#include "tests/ops/on_device.h"
#include "tests/test.h"

static struct pst_device_memory device;

static void *require_memory(void *p)
{
    assert_non_null(p);
    return p;
}

enum layout {
    ROWS,    /* row-major */
    COLUMNS, /* the transpose of a row-major matrix */
    GAPS,    /* row-major, with a row stride that is no multiple of 4 */
    STEPS,   /* every third element of every second row */
    SHARED,  /* one matrix for the whole batch */
    SHIFTED, /* row-major, one element after an aligned address */
    BIAS     /* one row for all rows and batches */
};

struct example {
    int64_t batch, m, n, k;
    enum layout a, b, c;
    double alpha, beta;
    bool accumulate;
};

/* A block of memory for a tensor, with guards of 64 bytes. */
struct tensor {
    struct pst_meta meta;
    unsigned char *memory;
    size_t size, begin; /* bytes; offset of the first element */
};

static double number(uint64_t i)
{
    i = (i + 1) * 0x9e3779b97f4a7c15u;
    i = (i ^ i >> 31) * 0xbf58476d1ce4e5b9u;
    return (double)(i >> 40) * 0x1p-23 - 1.0;
}

static int64_t offset_of(const struct tensor *x, int64_t i, int64_t r,
                         int64_t s)
{
    return i * x->meta.stride[0] + r * x->meta.stride[1] +
           s * x->meta.stride[2];
}

static double load(const struct tensor *x, int64_t i, int64_t r, int64_t s)
{
    return pst_load_f64(x->meta.dtype, x->memory + x->begin,
                        offset_of(x, i, r, s));
}

static void fill(struct tensor *x, uint64_t seed)
{
    const int64_t *size = x->meta.size;

    memset(x->memory, 0xff, x->size); /* NaN */
    for (int64_t i = 0; i < size[0]; i++)
        for (int64_t r = 0; r < size[1]; r++)
            for (int64_t s = 0; s < size[2]; s++)
                pst_store_f64(x->meta.dtype, x->memory + x->begin,
                              offset_of(x, i, r, s), number(seed++ % 1000003));
}

static struct tensor make(enum pst_dtype dtype, int64_t batch, int64_t rows,
                          int64_t cols, enum layout layout, uint64_t seed)
{
    struct tensor x = {
        .meta = pst_meta_make(dtype, 3, (int64_t[]){batch, rows, cols})};
    int64_t *stride = x.meta.stride;

    if (layout == COLUMNS) {
        stride[1] = 1;
        stride[2] = rows;
    } else if (layout == GAPS) {
        stride[1] = cols + 3;
        stride[0] = rows * stride[1];
    } else if (layout == STEPS) {
        stride[2] = 3;
        stride[1] = 6 * cols;
        stride[0] = rows * stride[1];
    } else if (layout == SHARED) {
        stride[0] = 0;
    } else if (layout == BIAS) {
        stride[0] = stride[1] = 0;
    }
    x.begin = 64 + (layout == SHIFTED ? pst_dtype_size(dtype) : 0);
    x.size = (x.begin + pst_meta_span(&x.meta) + 128) / 64 * 64;
    x.memory = require_memory(aligned_alloc(64, x.size));
    fill(&x, seed);
    return x;
}

static void compare(const struct example *e, const struct tensor *t,
                    const struct tensor *was, double tolerance)
{
    double worst = 0.0, most = 0.0;
    double *const row = require_memory(malloc((size_t)e->k * sizeof(double)));
    double *const b =
        require_memory(malloc((size_t)(e->k * e->n) * sizeof(double)));

    for (int64_t i = 0; i < e->batch; i++) {
        for (int64_t s = 0; s < e->n; s++)
            for (int64_t k = 0; k < e->k; k++)
                b[s * e->k + k] = load(&t[2], i, k, s);
        for (int64_t r = 0; r < e->m; r++) {
            for (int64_t k = 0; k < e->k; k++)
                row[k] = load(&t[1], i, r, k);
            for (int64_t s = 0; s < e->n; s++) {
                double sum = 0.0;

                for (int64_t k = 0; k < e->k; k++)
                    sum += row[k] * b[s * e->k + k];
                sum *= e->alpha;
                if (e->beta != 0.0)
                    sum += e->beta * load(&t[0], i, r, s);
                if (e->accumulate && was != NULL)
                    sum += load(was, i, r, s);
                sum -= load(&t[3], i, r, s);
                worst = fabs(sum) <= worst ? worst : fabs(sum); /* NaN stays */
                most = fmax(most, fabs(load(&t[3], i, r, s)));
            }
        }
    }
    free(row);
    free(b);
    if (!(worst <= tolerance * most))
        fail_msg("%lld x (%lld, %lld, %lld), layouts %d %d %d: %g of %g",
                 (long long)e->batch, (long long)e->m, (long long)e->n,
                 (long long)e->k, e->a, e->b, e->c, worst, most);
}

/* Runs on the device; the guards of result and scratch must not change. Returns
 * what has failed on the device, or NULL. */
static const char *try_to_run(const struct pst_op *op, struct pst_call *call,
                              struct tensor *t, unsigned n)
{
    const char *failure;
    const struct pst_kernels kernels = pst_op_kernels(&pst_device_cuda, op);
    const struct pst_kernel *kernel = &kernels.at[0];
    struct on_device_block blocks[8];
    struct pst_operand operands[8];
    struct tensor *out = &t[n - 1];
    const size_t end = out->begin + pst_meta_span(&out->meta);

    for (unsigned i = 0; i < n; i++) {
        operands[i] =
            (struct pst_operand){t[i].memory + t[i].begin, &t[i].meta};
        blocks[i] = (struct on_device_block){t[i].memory, t[i].size};
    }
    call->in = operands;
    call->out = &operands[n - 1];
    call->n_in = n - 1;
    call->n_out = 1;
    while (kernel + 1 < kernels.at + kernels.n &&
           !pst_kernel_fits(kernel, call, PST_ISA_ANY))
        kernel++;
    assert_true(pst_kernel_fits(kernel, call, PST_ISA_ANY));
    assert_true((kernel->flags & PST_K_QUEUED) != 0);
    call->scratch_size = kernel->scratch(call, 1);
    call->scratch = require_memory(calloc(1, call->scratch_size + 64));
    memset((char *)call->scratch + call->scratch_size, 0x5a, 64);
    blocks[n] =
        (struct on_device_block){call->scratch, call->scratch_size + 64};
    failure = on_device_try(&device, kernel, call, blocks, n + 1);
    for (size_t i = 0; i < 64; i++)
        assert_int_equal(
            ((unsigned char *)call->scratch)[call->scratch_size + i], 0x5a);
    for (size_t i = 0; i < out->size; i++)
        if (i < out->begin || i >= end)
            assert_int_equal(out->memory[i], 0xff);
    free(call->scratch);
    return failure;
}

static void run(const struct pst_op *op, struct pst_call *call,
                struct tensor *t, unsigned n)
{
    const char *failure = try_to_run(op, call, t, n);

    if (failure != NULL)
        fail_msg("%s", failure);
}

/* Returns how many matmuls the library of the tests has computed; 0 without
 * it. */
static uint64_t library_calls(void)
{
    static uint64_t *calls = NULL;
    const char *path = getenv("PENSTOCK_LIBCUBLASLT");
    void *library;

    if (path != NULL && calls == NULL) {
        library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        assert_non_null(library);
        calls = dlsym(library, "test_cublaslt_calls");
        assert_non_null(calls);
    }
    return calls != NULL ? *calls : 0;
}

/* Returns how many calls of the library the example needs. */
static uint64_t calls_of(const struct example *e, enum pst_dtype dtype)
{
    const bool vector = e->m == 1 || e->n == 1 || e->k == 1;

    if (getenv("PENSTOCK_LIBCUBLASLT") == NULL || dtype == PST_F64 ||
        e->k == 0 || (e->a == STEPS && !vector) || (e->b == STEPS && !vector))
        return 0;
    if (e->beta == 0.0 || (e->c == BIAS && e->beta == 1.0) ||
        (e->c == ROWS && e->beta == 1.0 && e->m == 1 && e->batch == 1))
        return 1; /* without c, or with a bias */
    return !e->accumulate && (e->c == ROWS || e->c == GAPS || e->c == SHIFTED);
}

/* dtype: of a and b; to: of c and the result. */
static void check_types(const struct example *e, enum pst_dtype dtype,
                        enum pst_dtype to)
{
    const uint64_t before = library_calls();
    /* Tensor cores sum 16-bit operands with a few bits less than f32. */
    const double tolerance = to == PST_F64    ? 1e-13
                             : to != dtype    ? 1e-4
                             : to == PST_F32  ? 1e-5
                             : to == PST_BF16 ? 5e-3
                                              : 1e-3;
    const struct pst_arg args[5] = {
        [3] = {.kind = PST_ARG_FLOAT, .f = e->beta},
        [4] = {.kind = PST_ARG_FLOAT, .f = e->alpha}};
    struct tensor t[4] = {
        make(to, e->batch, e->m, e->n, e->c, 1),
        make(dtype, e->batch, e->m, e->k, e->a, 2),
        make(dtype, e->batch, e->k, e->n, e->b, 3),
        make(to, e->batch, e->m, e->n, ROWS, 4),
    };
    struct tensor was = make(to, e->batch, e->m, e->n, ROWS, 4);
    struct pst_call call = {.args = args, .accumulate = e->accumulate};

    if (e->beta == 0.0)
        memset(t[0].memory, 0xff, t[0].size);
    run(&pst_op_baddbmm, &call, t, 4);
    compare(e, t, &was, tolerance);
    if (library_calls() - before != calls_of(e, dtype))
        fail_msg("%lld x (%lld, %lld, %lld), layouts %d %d %d: %d calls of the "
                 "library",
                 (long long)e->batch, (long long)e->m, (long long)e->n,
                 (long long)e->k, e->a, e->b, e->c,
                 (int)(library_calls() - before));
    for (unsigned i = 0; i < 4; i++)
        free(t[i].memory);
    free(was.memory);
}

static void check(const struct example *e, enum pst_dtype dtype)
{
    check_types(e, dtype, dtype);
}

static void products(void **state)
{
    static const struct example examples[] = {
        /* small tiles: all pairs of layouts, edges in every dimension */
        {2, 70, 67, 33, ROWS, ROWS, ROWS, 1, 1, false},
        {2, 70, 67, 33, ROWS, COLUMNS, COLUMNS, 1, 1, true},
        {2, 70, 67, 33, COLUMNS, ROWS, SHARED, 0.5, 2, false},
        {2, 70, 67, 33, COLUMNS, COLUMNS, ROWS, 1, 0, false},
        {3, 68, 72, 40, ROWS, ROWS, ROWS, 1, 0, true},
        {3, 68, 72, 40, COLUMNS, ROWS, STEPS, 1, 1, true},
        {3, 68, 72, 40, SHIFTED, SHIFTED, SHIFTED, 1, 1, false},
        {3, 68, 72, 40, STEPS, STEPS, ROWS, 1, 0, false},
        {3, 68, 72, 40, GAPS, GAPS, GAPS, 1, 1, false},
        {3, 68, 72, 40, SHARED, ROWS, ROWS, 1, 0, false},
        {3, 68, 72, 40, ROWS, SHARED, SHARED, 1, 1, false},
        /* vectors and single elements, with splits */
        {1, 1, 1, 5000, ROWS, ROWS, ROWS, 1, 0, false},
        {1, 1, 300, 1000, ROWS, ROWS, ROWS, 1, 1, true},
        {1, 300, 1, 1000, ROWS, ROWS, ROWS, 1, 0, false},
        {1, 5, 6, 1, ROWS, ROWS, ROWS, 1, 1, false},
        {2, 8, 8, 1, GAPS, GAPS, ROWS, 1, 1, false},
        {2, 5, 6, 0, ROWS, ROWS, ROWS, 1, 1, true},
        {1, 66, 132, 3000, COLUMNS, ROWS, ROWS, 1, 1, true},
        /* large tiles (f32) without splits */
        {1, 1000, 1037, 19, ROWS, ROWS, ROWS, 1, 0, false},
        {1, 1000, 1036, 20, COLUMNS, ROWS, SHARED, 1, 1, true},
        {1, 1000, 1036, 20, ROWS, COLUMNS, ROWS, 0.5, 2, false},
        {16, 130, 135, 12, COLUMNS, COLUMNS, COLUMNS, 1, 1, false},
        {16, 130, 136, 12, SHIFTED, STEPS, ROWS, 1, 0, true},
        /* large tiles with four splits */
        {16, 66, 68, 1030, COLUMNS, ROWS, ROWS, 1, 0, true},
        /* a bias, which cuBLASLt adds, unless it is multiplied */
        {1, 40, 72, 64, ROWS, COLUMNS, BIAS, 1, 1, false},
        {3, 33, 35, 20, COLUMNS, ROWS, BIAS, 0.5, 1, true},
        {3, 33, 35, 20, ROWS, ROWS, BIAS, 1, 2, false},
    };

    (void)state;
    for (size_t i = 0; i < PST_COUNT(examples); i++) {
        const struct example *e = &examples[i];

        check(e, PST_F32);
        check(e, PST_F64);
        if (e->batch * e->m * e->n * e->k > 2000000)
            continue; /* those for large tiles, which 16 bits do not have */
        check(e, PST_BF16);
        check(e, PST_F16);
        check_types(e, PST_BF16, PST_F32);
    }
}

/* Batches in two dimensions without a common stride, as the heads of attention
 * have after a permutation: one call for each index of the first. */
static void batches_apart(void **state)
{
    enum { B = 3, H = 2, M = 5, K = 8, N = 7 };
    struct tensor t[3] = {make(PST_F32, 1, B * H, M * K, ROWS, 1),
                          make(PST_F32, 1, B * H, K * N, ROWS, 2),
                          make(PST_F32, 1, B * H, M * N, ROWS, 3)};
    const uint64_t before = library_calls();
    struct pst_call call = {0};
    const float *x[3];

    (void)state;
    t[0].meta = pst_meta_make(PST_F32, 4, (int64_t[]){B, H, M, K});
    t[1].meta = pst_meta_make(PST_F32, 4, (int64_t[]){B, H, K, N});
    t[2].meta = pst_meta_make(PST_F32, 4, (int64_t[]){B, H, M, N});
    memcpy(t[0].meta.stride, (int64_t[]){M * H * K, K, H * K, 1},
           4 * sizeof(int64_t));
    memcpy(t[1].meta.stride, (int64_t[]){K * H * N, N, H * N, 1},
           4 * sizeof(int64_t));
    run(&pst_op_matmul, &call, t, 3);
    for (unsigned i = 0; i < 3; i++)
        x[i] = (const float *)(t[i].memory + t[i].begin);
    for (int i = 0; i < B * H * M * N; i++) {
        const int col = i % N, row = i / N % M, h = i / N / M % H;
        const int b = i / N / M / H;
        double sum = 0.0;

        for (int k = 0; k < K; k++)
            sum += (double)x[0][((b * M + row) * H + h) * K + k] *
                   (double)x[1][((b * K + k) * H + h) * N + col];
        assert_true(fabs(sum - (double)x[2][i]) <= 1e-5);
    }
    if (getenv("PENSTOCK_LIBCUBLASLT") != NULL)
        assert_int_equal(library_calls() - before, B);
    for (unsigned i = 0; i < 3; i++)
        free(t[i].memory);
}

/* --- failures of the library ---------------------------------------------- */

/* Opens the device again, with all calls of the library's function returning
 * the status; computes a matmul. Returns what has failed, or NULL. */
static const char *run_failing(const char *setting)
{
    const struct example e = {2, 8, 12, 64, ROWS, COLUMNS, BIAS, 1, 1, false};
    static char failure[sizeof(((struct pst_diag *)0)->text)];
    const char *found = NULL;
    struct pst_diag diag;

    pst_diag_init(&diag);
    pst_device_close(&device);
    assert_int_equal(setenv("PENSTOCK_TEST_CUBLASLT", setting, 1), 0);
    if (pst_device_open(&pst_device_cuda, 0, (size_t)64 << 20, &device,
                        &diag) == PST_OK) {
        struct tensor t[4] = {make(PST_F32, e.batch, e.m, e.n, e.c, 1),
                              make(PST_F32, e.batch, e.m, e.k, e.a, 2),
                              make(PST_F32, e.batch, e.k, e.n, e.b, 3),
                              make(PST_F32, e.batch, e.m, e.n, ROWS, 4)};
        const struct pst_arg args[5] = {
            [3] = {.kind = PST_ARG_FLOAT, .f = e.beta},
            [4] = {.kind = PST_ARG_FLOAT, .f = e.alpha}};
        struct pst_call call = {.args = args};

        found = try_to_run(&pst_op_baddbmm, &call, t, 4);
        if (found == NULL)
            compare(&e, t, NULL, 1e-5);
        for (unsigned i = 0; i < 4; i++)
            free(t[i].memory);
    } else {
        found = diag.text;
    }
    (void)snprintf(failure, sizeof(failure), "%s", found != NULL ? found : "");
    (void)unsetenv("PENSTOCK_TEST_CUBLASLT");
    pst_device_close(&device);
    pst_diag_init(&diag);
    assert_ok(
        pst_device_open(&pst_device_cuda, 0, (size_t)64 << 20, &device, &diag),
        &diag);
    return found != NULL ? failure : NULL;
}

static void names_failures(void **state)
{
    static const char *const functions[] = {
        "cublasLtCreate",
        "cublasLtMatmulDescCreate",
        "cublasLtMatmulDescSetAttribute",
        "cublasLtMatrixLayoutCreate",
        "cublasLtMatrixLayoutSetAttribute",
        "cublasLtMatmulPreferenceCreate",
        "cublasLtMatmulPreferenceSetAttribute",
        "cublasLtMatmulAlgoGetHeuristic",
        "cublasLtMatmulAlgoCheck",
        "cublasLtMatmul",
    };

    (void)state;
    if (getenv("PENSTOCK_LIBCUBLASLT") == NULL)
        return;
    for (size_t i = 0; i < PST_COUNT(functions); i++) {
        char setting[80], wanted[80];
        const char *found;

        (void)snprintf(setting, sizeof(setting), "%s:14", functions[i]);
        (void)snprintf(wanted, sizeof(wanted), "%s: CUBLAS_STATUS_INTERNAL",
                       functions[i]);
        found = run_failing(setting);
        if (found == NULL || strstr(found, wanted) == NULL)
            fail_msg("%s: %s", setting, found != NULL ? found : "no failure");
    }
}

/* A matmul for which the library has no algorithm is computed by our kernel; an
 * algorithm that does not fit the layouts is replaced. */
static void continues_without(void **state)
{
    uint64_t calls;

    (void)state;
    if (getenv("PENSTOCK_LIBCUBLASLT") == NULL)
        return;
    calls = library_calls();
    assert_null(run_failing("cublasLtMatmulAlgoGetHeuristic:15"));
    assert_int_equal(library_calls(), calls);
    assert_null(run_failing("cublasLtMatmulAlgoCheck:15"));
    assert_int_equal(library_calls(), calls + 1);
}

/* The algorithm that was chosen first is used in all later calls. */
static void keeps_algorithms(void **state)
{
    const struct example e = {2, 9, 12, 64, ROWS, COLUMNS, ROWS, 1, 1, false};

    (void)state;
    check(&e, PST_F32);
    assert_int_equal(setenv("PENSTOCK_TEST_CUBLASLT",
                            "cublasLtMatmulAlgoGetHeuristic:14", 1),
                     0);
    check(&e, PST_F32);
    (void)unsetenv("PENSTOCK_TEST_CUBLASLT");
}

/* --- TF32 ----------------------------------------------------------------- */

/* Rounds to 10 bits of mantissa, as the tests' library does. */
static float to_tf32(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof(bits));
    bits = (bits + 0xfff + (bits >> 13 & 1)) & ~UINT32_C(0x1fff);
    memcpy(&x, &bits, sizeof(x));
    return x;
}

/* Computes the matmul with call.tf32 and compares it with that of operands that
 * are rounded to TF32, or not. Returns the calls of the library. */
static uint64_t check_tf32(const struct example *e, enum pst_dtype dtype,
                           bool tf32, bool rounded)
{
    const uint64_t before = library_calls();
    const struct pst_arg args[5] = {
        [3] = {.kind = PST_ARG_FLOAT, .f = e->beta},
        [4] = {.kind = PST_ARG_FLOAT, .f = e->alpha}};
    struct tensor t[4] = {make(dtype, e->batch, e->m, e->n, e->c, 1),
                          make(dtype, e->batch, e->m, e->k, e->a, 2),
                          make(dtype, e->batch, e->k, e->n, e->b, 3),
                          make(dtype, e->batch, e->m, e->n, ROWS, 4)};
    struct pst_call call = {.args = args, .tf32 = tf32};

    run(&pst_op_baddbmm, &call, t, 4);
    for (unsigned i = 1; i < 3 && rounded; i++) {
        float *x = (float *)(t[i].memory + t[i].begin);

        for (int64_t k = 0; k < pst_meta_numel(&t[i].meta); k++)
            x[k] = to_tf32(x[k]);
    }
    compare(e, t, NULL, dtype == PST_F32 ? 2e-6 : 5e-3);
    for (unsigned i = 0; i < 4; i++)
        free(t[i].memory);
    return library_calls() - before;
}

/* The library rounds f32 operands of calls that allow it, and of these alone:
 * the same matmul without is another one, and 16 bits stay as they are. Our own
 * kernels multiply in f32. */
static void rounds_to_tf32(void **state)
{
    static const struct example examples[] = {
        {2, 9, 12, 16, ROWS, ROWS, ROWS, 1, 1, false},
        {1, 40, 72, 64, ROWS, COLUMNS, BIAS, 1, 1, false},
        {3, 17, 8, 20, COLUMNS, ROWS, ROWS, 1, 0, false}};
    const bool library = getenv("PENSTOCK_LIBCUBLASLT") != NULL;

    (void)state;
    for (size_t i = 0; i < PST_COUNT(examples); i++)
        for (unsigned k = 0; k < 4; k++)
            assert_int_equal(check_tf32(&examples[i], PST_F32, k % 2 == 0,
                                        k % 2 == 0 && library),
                             library);
    assert_int_equal(check_tf32(&examples[0], PST_BF16, true, false), library);
    assert_int_equal(check_tf32(&examples[0], PST_F64, true, false), 0);
}

/* --- column sums ---------------------------------------------------------- */

static void check_sum(int64_t rows, int64_t cols, enum pst_dtype dtype,
                      bool accumulate)
{
    const struct pst_arg args[2] = {[1] = {.kind = PST_ARG_INT, .i = 1}};
    struct tensor t[2] = {make(dtype, 1, rows, cols, ROWS, 1),
                          make(dtype, 1, 1, cols, ROWS, 2)};
    struct tensor was = make(dtype, 1, 1, cols, ROWS, 2);
    struct pst_call call = {.args = args, .accumulate = accumulate};

    run(&pst_op_column_sum, &call, t, 2);
    for (int64_t s = 0; s < cols; s++) {
        double sum = accumulate ? load(&was, 0, 0, s) : 0.0;

        for (int64_t r = 0; r < rows; r++)
            sum += load(&t[0], 0, r, s);
        if (!(fabs(sum - load(&t[1], 0, 0, s)) <=
              (dtype == PST_F64 ? 1e-12 : 1e-5) * sqrt((double)rows)))
            fail_msg("%lld x %lld: column %lld", (long long)rows,
                     (long long)cols, (long long)s);
    }
    free(t[0].memory);
    free(t[1].memory);
    free(was.memory);
}

static void column_sums(void **state)
{
    static const int64_t sizes[][2] = {{1, 1},    {63, 40},    {128, 32},
                                       {5000, 7}, {1000, 900}, {130, 33}};

    (void)state;
    for (size_t i = 0; i < PST_COUNT(sizes); i++)
        for (unsigned a = 0; a < 2; a++) {
            check_sum(sizes[i][0], sizes[i][1], PST_F32, a != 0);
            check_sum(sizes[i][0], sizes[i][1], PST_F64, a != 0);
        }
}

/* --- refusals ------------------------------------------------------------- */

/* Matmuls of rounded operands run on the host. */
static void refuses_bf16(void **state)
{
    const struct pst_kernels kernels =
        pst_op_kernels(&pst_device_cuda, &pst_op_mm);
    const struct pst_meta meta = pst_meta_make(PST_F32, 2, (int64_t[]){4, 4});
    struct pst_operand x[3] = {{NULL, &meta}, {NULL, &meta}, {NULL, &meta}};
    struct pst_call call = {.in = x, .n_in = 2, .out = &x[2], .n_out = 1};

    (void)state;
    assert_true(pst_kernel_fits(&kernels.at[0], &call, PST_ISA_ANY));
    call.bf16 = true;
    assert_false(pst_kernel_fits(&kernels.at[0], &call, PST_ISA_ANY));
}

static int setup(void **state)
{
    (void)state;
    return on_device_open(&device, (size_t)64 << 20);
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
        cmocka_unit_test(products),         cmocka_unit_test(batches_apart),
        cmocka_unit_test(names_failures),   cmocka_unit_test(continues_without),
        cmocka_unit_test(keeps_algorithms), cmocka_unit_test(column_sums),
        cmocka_unit_test(refuses_bf16),     cmocka_unit_test(rounds_to_tf32),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
