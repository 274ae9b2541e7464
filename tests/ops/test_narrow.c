// SPDX-License-Identifier: Apache-2.0
/* Tests matmuls of rounded operands against sums in double of the same
 * operands. */
#include "tests/ops/metas.h"
#include "tests/test.h"

#include "stages/base/alloc.h"
#include "stages/base/host/cpu.h"
#include "stages/graph/tensor.h"
#include "stages/ops/core/call.h"
#include "stages/ops/matmul/gemm_bf16.h"
#include "stages/ops/rates/rates.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct pst_diag diag;

static int setup(void **state)
{
    (void)state;
    pst_diag_init(&diag);
    return pst_registry_init(&diag) == PST_OK ? 0 : -1;
}

struct shape {
    int64_t batch, m, n, k;
    bool ta, tb, accumulate;
    unsigned threads;
    enum pst_dtype dtype;
};

/* Makes a matrix of rows x cols, whose transpose is stored if trans. */
static void operand(struct pst_operand *o, enum pst_dtype dtype, int64_t batch,
                    int64_t rows, int64_t cols, bool trans, unsigned seed)
{
    const int64_t n = batch * rows * cols;

    o->meta = test_meta((struct pst_meta){
        .dtype = dtype,
        .rank = 3,
        .size = {batch, rows, cols},
        .stride = {rows * cols, trans ? 1 : cols, trans ? rows : 1}});
    o->data = aligned_alloc(64, ((size_t)n * 8 + 63) / 64 * 64);
    assert_non_null(o->data);
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        pst_store_f64(dtype, o->data, i, (double)(seed >> 8) / (1 << 24) - .5);
    }
}

static double at(const struct pst_operand *o, int64_t b, int64_t r, int64_t c)
{
    return pst_load_f64(o->meta->dtype, o->data,
                        b * o->meta->stride[0] + r * o->meta->stride[1] +
                            c * o->meta->stride[2]);
}

/* Returns an element, rounded to bf16 where the matmul rounds its operands. */
static double factor(const struct pst_operand *o, int64_t b, int64_t r,
                     int64_t c)
{
    uint16_t half;

    if (o->meta->dtype != PST_F32)
        return at(o, b, r, c);
    pst_store_f64(PST_BF16, &half, 0, at(o, b, r, c));
    return pst_load_f64(PST_BF16, &half, 0);
}

static void compare(const struct shape *s, const struct pst_call *c,
                    const struct pst_operand *before)
{
    const double eps = s->dtype == PST_F32   ? 1e-5
                       : s->dtype == PST_F16 ? 0x1p-10
                                             : 0x1p-7;

    for (int64_t b = 0; b < s->batch; b++)
        for (int64_t i = 0; i < s->m; i += 1 + s->m / 17)
            for (int64_t j = 0; j < s->n; j += 1 + s->n / 19) {
                double want = s->accumulate ? at(before, b, i, j) : 0, size = 1;

                for (int64_t k = 0; k < s->k; k++) {
                    const double x =
                        factor(&c->in[0], b, i, k) * factor(&c->in[1], b, k, j);

                    want += x;
                    size += fabs(x);
                }
                if (!(fabs(at(&c->out[0], b, i, j) - want) <= eps * size))
                    fail_msg("%s %lldx%lldx%lldx%lld%s%s, %u threads: [%lld, "
                             "%lld, %lld] is %.9g, not %.9g",
                             pst_dtype_name(s->dtype), (long long)s->batch,
                             (long long)s->m, (long long)s->n, (long long)s->k,
                             s->ta ? " ta" : "", s->tb ? " tb" : "", s->threads,
                             (long long)b, (long long)i, (long long)j,
                             at(&c->out[0], b, i, j), want);
            }
}

/* Runs the kernel with `before` as the contents of its output, and scratch
 * memory that is filled with `poison`. */
static void run_once(const struct pst_kernel *kernel, struct pst_call *c,
                     const struct pst_operand *before, int poison)
{
    memset(c->scratch, poison, c->scratch_size);
    memcpy(c->out[0].data, before->data,
           (size_t)pst_meta_numel(before->meta) *
               pst_dtype_size(before->meta->dtype));
    kernel->run(c);
}

/* Asserts that operands rounded in advance give the same bits. */
static void compare_prepared(const struct pst_op *op, const struct pst_call *c,
                             const struct pst_kernel *kernel,
                             const struct pst_operand *before, const void *want,
                             size_t bytes)
{
    struct pst_call p = *c;
    struct pst_operand in[2];

    for (unsigned i = 0; i < 2; i++) {
        const int64_t n = pst_meta_numel(c->in[i].meta);

        assert_int_equal(kernel->form(c, i), PST_FORM_BF16);
        in[i] = c->in[i];
        in[i].meta = test_meta(*c->in[i].meta);
        ((struct pst_meta *)in[i].meta)->dtype = PST_BF16;
        in[i].data = aligned_alloc(64, ((size_t)n * 2 + 63) / 64 * 64);
        assert_non_null(in[i].data);
        for (int64_t k = 0; k < n; k++)
            pst_store_f64(PST_BF16, in[i].data, k,
                          pst_load_f64(PST_F32, c->in[i].data, k));
    }
    p.in = in;
    kernel = pst_kernel_choose(op, &p, pst_cpu_isa(), NULL);
    assert_non_null(kernel);
    assert_string_equal(kernel->name, "bmm_bf16");
    assert_null(kernel->form);
    p.scratch_size = kernel->scratch(&p, pst_pool_threads(p.pool));
    assert_true(p.scratch_size <= c->scratch_size);
    run_once(kernel, &p, before, 0xff);
    assert_memory_equal(p.out[0].data, want, bytes);
    free(in[0].data);
    free(in[1].data);
}

/* Asserts the same bits of an f32 matmul for operands that were rounded in
 * advance and stored as f32, if the library's result does not depend on their
 * alignment. */
static void compare_rounded(const struct pst_op *op, const struct pst_call *c,
                            const struct pst_kernel *kernel,
                            const struct pst_operand *before, const void *want,
                            size_t bytes)
{
    struct pst_call p = *c;
    struct pst_operand in[2];

    for (unsigned i = 0; i < 2; i++) {
        const int64_t n = pst_meta_numel(c->in[i].meta);

        assert_int_equal(kernel->form(c, i), PST_FORM_ROUNDED);
        in[i] = c->in[i];
        in[i].data = aligned_alloc(64, ((size_t)n * 4 + 63) / 64 * 64);
        assert_non_null(in[i].data);
        for (int64_t k = 0; k < n; k++) {
            uint16_t half;

            pst_store_f64(PST_BF16, &half, 0,
                          pst_load_f64(PST_F32, c->in[i].data, k));
            pst_store_f64(PST_F32, in[i].data, k,
                          pst_load_f64(PST_BF16, &half, 0));
        }
    }
    p.in = in;
    p.bf16 = false;
    kernel = pst_kernel_choose(op, &p, pst_cpu_isa(), NULL);
    assert_non_null(kernel);
    assert_null(kernel->form);
    run_once(kernel, &p, before, 0xff);
    assert_memory_equal(p.out[0].data, want, bytes);
    free(in[0].data);
    free(in[1].data);
}

static void check(const struct shape *s)
{
    const struct pst_op *op = pst_op_find("aten.bmm.default");
    const struct pst_kernel *kernel;
    struct pst_operand in[2], out, before, result;
    struct pst_fault fault = {0};
    struct pst_call c = {.in = in,
                         .out = &out,
                         .n_in = 2,
                         .n_out = 1,
                         .fault = &fault,
                         .bf16 = true};
    char guard[64];
    size_t bytes;

    operand(&in[0], s->dtype, s->batch, s->m, s->k, s->ta, 1);
    operand(&in[1], s->dtype, s->batch, s->k, s->n, s->tb, 2);
    operand(&out, s->dtype, s->batch, s->m, s->n, false, 3);
    operand(&before, s->dtype, s->batch, s->m, s->n, false, 3);
    operand(&result, s->dtype, s->batch, s->m, s->n, false, 3);
    kernel = pst_kernel_choose(op, &c, pst_cpu_isa(), NULL);
    assert_non_null(kernel);
    assert_string_equal(kernel->name, "bmm_narrow");
    assert_ok(pst_pool_new(s->threads, &c.pool, &diag), &diag);
    c.scratch_size = kernel->scratch(&c, s->threads);
    /* The flag is known only after the size of the scratch memory. */
    c.accumulate = s->accumulate;
    c.scratch = aligned_alloc(64, (c.scratch_size + 127) / 64 * 64);
    assert_non_null(c.scratch);
    memset((char *)c.scratch + c.scratch_size, 0x55, 64);
    memset(guard, 0x55, 64);
    run_once(kernel, &c, &before, 0xff);
    compare(s, &c, &before);
    bytes = (size_t)pst_meta_numel(out.meta) * pst_dtype_size(s->dtype);
    memcpy(result.data, out.data, bytes);
    run_once(kernel, &c, &before, 0x3f);
    assert_memory_equal(result.data, out.data, bytes);
    if (s->dtype == PST_F32 && pst_rates_use_bf16())
        compare_prepared(op, &c, kernel, &before, result.data, bytes);
    else if (s->dtype == PST_F32)
        compare_rounded(op, &c, kernel, &before, result.data, bytes);
    else
        assert_int_equal(kernel->form(&c, 0), PST_FORM_OWN);
    assert_false(fault.set);
    assert_memory_equal((char *)c.scratch + c.scratch_size, guard, 64);

    pst_pool_free(c.pool);
    free(c.scratch);
    free(in[0].data);
    free(in[1].data);
    free(out.data);
    free(before.data);
    free(result.data);
}

static void matmuls_of_rounded_operands(void **state)
{
    static const int64_t sizes[][4] = {{1, 256, 512, 512}, {1, 256, 2048, 512},
                                       {1, 512, 512, 256}, {3, 40, 24, 72},
                                       {1, 1, 64, 300},    {2, 7, 1, 5},
                                       {1, 33, 65, 129}};
    static const enum pst_dtype dtypes[] = {PST_F32, PST_BF16, PST_F16};

    (void)state;
    for (size_t i = 0; i < PST_COUNT(sizes); i++)
        for (unsigned k = 0; k < 48; k++) {
            struct shape s = {sizes[i][0], sizes[i][1],     sizes[i][2],
                              sizes[i][3], k & 1,           k & 2,
                              k & 4,       (k & 8) ? 3 : 1, dtypes[k / 16]};

            check(&s);
        }
}

/* A CPU feature that PST_HIDE names counts as absent, and no kernel that needs
 * it is chosen. */
static void hides_features(void **state)
{
    const char *hidden = getenv("PST_HIDE");
    const bool amx = strstr(pst_cpu_features(), "amx") != NULL;
    const bool bf16 = strstr(pst_cpu_features(), "avx512_bf16") != NULL;
    const bool amd = strstr(pst_cpu_features(), "amd") != NULL;

    (void)state;
    if (hidden == NULL)
        return;
    assert_false(amx);
    /* Without a measurement, bf16 is used on AMD's processors alone. */
    assert_int_equal(pst_rates_use_bf16(), bf16 && amd);
    assert_false(bf16 && strstr(hidden, "avx512_bf16") != NULL);
    assert_true(bf16 || !pst_gemm_has_bf16());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(matmuls_of_rounded_operands, setup),
        cmocka_unit_test(hides_features),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
