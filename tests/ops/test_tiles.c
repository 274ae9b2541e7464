// SPDX-License-Identifier: Apache-2.0
/* Tests matmuls whose second operand is stored in tiles. Compares the layout
 * with a plain description of it, sums with sums in double, prepared with
 * unprepared operands, and one thread with three. */
#include "tests/ops/metas.h"
#include "tests/test.h"

#include "stages/base/alloc.h"
#include "stages/ops/core/call.h"
#include "stages/ops/matmul/gemm_bf16.h"
#include "stages/ops/matmul/tiles.h"
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

static void *alloc_aligned(size_t bytes)
{
    void *ret = aligned_alloc(64, (bytes + 64) / 64 * 64);

    assert_non_null(ret);
    memset(ret, 0xff, (bytes + 64) / 64 * 64);
    return ret;
}

/* Makes an f32 matrix of rows x cols, stored by columns if trans. */
static struct pst_operand matrix(int64_t rows, int64_t cols, bool trans,
                                 unsigned seed)
{
    struct pst_operand o = {
        .meta = test_meta(
            (struct pst_meta){.dtype = PST_F32,
                              .rank = 2,
                              .size = {rows, cols},
                              .stride = {trans ? 1 : cols, trans ? rows : 1}})};
    float *x = alloc_aligned((size_t)(rows * cols) * sizeof(*x));

    for (int64_t i = 0; i < rows * cols; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = (float)((double)(seed >> 8) / (1 << 24) - .5);
    }
    o.data = x;
    return o;
}

static float value(const struct pst_operand *o, int64_t r, int64_t c)
{
    return ((const float *)
                o->data)[r * o->meta->stride[0] + c * o->meta->stride[1]];
}

static double rounded(double x)
{
    uint16_t half;

    pst_store_f64(PST_BF16, &half, 0, x);
    return pst_load_f64(PST_BF16, &half, 0);
}

/* Runs penstock.tiles, by its first kernel or by the reference. */
static struct pst_operand tiles_of(const struct pst_operand *x, bool trans,
                                   bool ref, struct pst_pool *pool)
{
    const struct pst_op *op = pst_op_find("penstock.tiles.default");
    const int64_t k = x->meta->size[trans], n = x->meta->size[!trans];
    struct pst_operand in = *x, out = {.meta = test_meta(pst_tiles_meta(k, n))};
    struct pst_arg args[2] = {[1] = pst_b(trans)};
    struct pst_call c = {.in = &in,
                         .out = &out,
                         .n_in = 1,
                         .n_out = 1,
                         .args = args,
                         .pool = pool};
    const struct pst_kernel *kernel =
        ref ? pst_op_reference(op)
            : pst_kernel_choose(op, &c, pst_cpu_isa(), NULL);

    out.data = alloc_aligned(pst_meta_bytes(out.meta));
    if (kernel->scratch != NULL)
        c.scratch = alloc_aligned(kernel->scratch(&c, pst_pool_threads(pool)));
    kernel->run(&c);
    free(c.scratch);
    return out;
}

static void is_the_layout(void **state)
{
    static const int64_t sizes[][2] = {{32, 1}, {64, 16}, {96, 50}, {32, 100}};
    struct pst_pool *pool;

    (void)state;
    assert_ok(pst_pool_new(3, &pool, &diag), &diag);
    for (unsigned i = 0; i < 4 * PST_COUNT(sizes); i++) {
        const int64_t k = sizes[i / 4][0], n = sizes[i / 4][1];
        const bool t = i & 1;
        struct pst_operand x = matrix(t ? n : k, t ? k : n, i & 2, i);
        struct pst_operand a = tiles_of(&x, t, false, pool);
        struct pst_operand b = tiles_of(&x, t, true, pool);

        assert_memory_equal(a.data, b.data, pst_meta_bytes(a.meta));
        for (int64_t r = 0; r < k; r++)
            for (int64_t c = 0; c < n; c++) {
                const int64_t at[] = {c / 16, r / 32, r % 32 / 2, c % 16,
                                      r % 2};
                int64_t offset = 0;

                for (unsigned d = 0; d < 5; d++)
                    offset += at[d] * a.meta->stride[d];
                assert_true(pst_load_f64(PST_BF16, a.data, offset) ==
                            rounded(t ? value(&x, c, r) : value(&x, r, c)));
            }
        free(x.data);
        free(a.data);
        free(b.data);
    }
    pst_pool_free(pool);
}

struct shape {
    int64_t m, n, k;
    bool linear, stored, add;
};

/* Returns what the kernel named `name` computes from x and w. */
static float *product(const struct shape *s, const char *name,
                      const struct pst_operand *x, const struct pst_operand *w,
                      unsigned threads)
{
    const struct pst_op *op =
        pst_op_find(s->linear ? "aten.linear.default" : "aten.mm.default");
    struct pst_operand in[3] = {*x, *w}, out = matrix(s->m, s->n, false, 7);
    struct pst_call c = {.in = in,
                         .out = &out,
                         .n_in = s->linear ? 3 : 2,
                         .n_out = 1,
                         .bf16 = true};
    const struct pst_kernel *kernel =
        pst_kernel_choose(op, &c, pst_cpu_isa(), NULL);

    assert_non_null(kernel);
    assert_string_equal(strchr(kernel->name, '_') + 1, name);
    if (kernel->form != NULL) {
        assert_int_equal(kernel->form(&c, 0), PST_FORM_BF16);
        assert_int_equal(kernel->form(&c, 1), !pst_tiles_has() ? PST_FORM_BF16
                                              : s->linear ? PST_FORM_PACKED_T
                                                          : PST_FORM_PACKED);
    }
    assert_ok(pst_pool_new(threads, &c.pool, &diag), &diag);
    c.scratch_size = kernel->scratch(&c, threads);
    c.scratch = alloc_aligned(c.scratch_size);
    c.accumulate = s->add;
    kernel->run(&c);
    pst_pool_free(c.pool);
    free(c.scratch);
    return out.data;
}

static void check(const struct shape *s)
{
    const size_t bytes = (size_t)(s->m * s->n) * sizeof(float);
    struct pst_operand x = matrix(s->m, s->k, false, 1);
    struct pst_operand w =
        matrix(s->linear ? s->n : s->k, s->linear ? s->k : s->n, s->stored, 2);
    struct pst_operand old = matrix(s->m, s->n, false, 7), h = x, t;
    float *want = product(s, "narrow", &x, &w, 1), *got;

    for (int64_t i = 0; i < s->m; i += 1 + s->m / 17)
        for (int64_t j = 0; j < s->n; j += 1 + s->n / 19) {
            double sum = s->add ? value(&old, i, j) : 0.0;

            for (int64_t k = 0; k < s->k; k++)
                sum += rounded(value(&x, i, k)) *
                       rounded(s->linear ? value(&w, j, k) : value(&w, k, j));
            assert_true(fabs(want[i * s->n + j] - sum) < 1e-5 * (double)s->k);
        }
    h.meta = test_meta(*x.meta);
    ((struct pst_meta *)h.meta)->dtype = PST_BF16;
    h.data = alloc_aligned((size_t)(s->m * s->k) * sizeof(uint16_t));
    for (int64_t i = 0; i < s->m * s->k; i++)
        pst_store_f64(PST_BF16, h.data, i, ((float *)x.data)[i]);
    t = tiles_of(&w, s->linear, false, NULL);
    for (unsigned threads = 1; pst_tiles_has() && threads <= 3; threads += 2) {
        got = product(s, "bf16", &h, &t, threads);
        assert_memory_equal(want, got, bytes);
        free(got);
        got = product(s, "narrow", &x, &w, threads);
        assert_memory_equal(want, got, bytes);
        free(got);
    }
    free(want);
    free(x.data);
    free(w.data);
    free(old.data);
    free(h.data);
    free(t.data);
}

static void products_have_the_same_bits(void **state)
{
    static const int64_t sizes[][3] = {
        {32, 32, 32},  {33, 47, 64},    {49, 130, 96},
        {64, 96, 288}, {100, 72, 1056}, {530, 40, 1312},
    };

    (void)state;
    if (!pst_rates_use_bf16())
        skip();
    for (unsigned i = 0; i < 8 * PST_COUNT(sizes); i++) {
        const int64_t *n = sizes[i / 8];

        check(&(struct shape){n[0], n[1], n[2], i & 1, i & 2, i & 4});
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(is_the_layout, setup),
        cmocka_unit_test_setup(products_have_the_same_bits, setup),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
