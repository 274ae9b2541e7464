// SPDX-License-Identifier: Apache-2.0
/* Tests convolutions by windows against the reference, for every instruction
 * set of the processor, on one thread, and with the same bits on three. */
#include "tests/sanitized.h"
#include "tests/test.h"

#include "stages/base/host/pool.h"
#include "stages/ops/conv/windows.h"
#include "stages/ops/cpu/simd/simd.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct shape {
    int64_t n, groups, ci, co;
    int64_t in[PST_CONV_DIMS], k[PST_CONV_DIMS], stride[PST_CONV_DIMS];
    int64_t pad[PST_CONV_DIMS], dil[PST_CONV_DIMS];
};

#define ONES                                                                   \
    {                                                                          \
        1, 1, 1                                                                \
    }
static const struct shape shapes[] = {
    /* a tensor that needs no copy; lines and images are joined */
    {3, 1, 10, 14, {1, 9, 7}, ONES, ONES, {0, 0, 0}, ONES},
    {1, 1, 5, 9, {1, 40, 33}, ONES, ONES, {0, 0, 0}, ONES},
    {2, 1, 9, 12, {1, 9, 11}, {1, 3, 3}, ONES, {0, 0, 0}, ONES},
    {5, 1, 16, 24, {1, 7, 7}, {1, 3, 3}, ONES, {0, 1, 1}, ONES},
    {2, 1, 12, 37, {1, 28, 30}, {1, 3, 3}, ONES, {0, 1, 1}, ONES},
    /* strides, with and without a remainder; positions that no tap reads */
    {2, 1, 8, 13, {1, 30, 33}, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}, ONES},
    {3, 1, 9, 10, {1, 14, 15}, ONES, {1, 2, 2}, {0, 0, 0}, ONES},
    {2, 1, 3, 8, {1, 1, 50}, {1, 1, 10}, {1, 1, 5}, {0, 0, 0}, ONES},
    {1, 1, 4, 6, {1, 23, 29}, {1, 7, 5}, {1, 3, 2}, {0, 3, 2}, {1, 2, 3}},
    /* results that alternate along lines, with few and with many rows */
    {1, 1, 9, 20, {1, 40, 41}, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}, ONES},
    {2, 1, 70, 9, {1, 10, 10}, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}, ONES},
    {1, 1, 8, 9, {4, 12, 24}, {3, 2, 4}, {2, 1, 2}, {1, 0, 1}, {1, 2, 1}},
    /* more weights per channel than are transposed at a time */
    {1, 1, 920, 2, {1, 3, 4}, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}, ONES},
    /* groups, spacing, more rows than a block has */
    {2, 3, 15, 6, {1, 12, 9}, {1, 3, 2}, ONES, {0, 1, 1}, ONES},
    {2, 1, 6, 5, {6, 7, 8}, {3, 2, 3}, {1, 2, 1}, {1, 0, 1}, ONES},
    {1, 1, 230, 210, {1, 6, 5}, {1, 3, 3}, ONES, {0, 1, 1}, ONES},
    {0, 1, 4, 6, {1, 7, 7}, {1, 3, 3}, ONES, {0, 1, 1}, ONES},
};

static unsigned seed = 1;

struct tensor {
    struct pst_meta meta;
    struct pst_operand of;
};

static void tensor_init(struct tensor *t, int64_t a, int64_t b,
                        const int64_t space[PST_CONV_DIMS])
{
    const int64_t size[] = {a, b, space[0], space[1], space[2]};
    int64_t n;
    float *x;

    t->meta = pst_meta_make(PST_F32, 5, size);
    n = pst_meta_numel(&t->meta);
    x = malloc((size_t)n * sizeof(*x) + 1);
    assert_non_null(x);
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = (float)(seed >> 8) / (1 << 24) - 0.5f;
    }
    t->of = (struct pst_operand){x, &t->meta};
}

struct bench {
    struct tensor x, y, w, bias;
    struct pst_conv c;
};

static void bench_init(struct bench *b, const struct shape *s)
{
    struct pst_conv c = {.dims = PST_CONV_DIMS,
                         .n = s->n,
                         .groups = s->groups,
                         .ci = s->ci,
                         .co = s->co,
                         .x = &b->x.of,
                         .y = &b->y.of,
                         .w = &b->w.of};

    for (unsigned d = 0; d < PST_CONV_DIMS; d++) {
        c.in[d] = s->in[d];
        c.k[d] = s->k[d];
        c.stride[d] = s->stride[d];
        c.pad[d] = s->pad[d];
        c.dil[d] = s->dil[d];
        c.out[d] = pst_conv_size(s->in[d], s->k[d], s->stride[d], s->pad[d],
                                 s->dil[d]);
    }
    tensor_init(&b->x, s->n, s->ci, c.in);
    tensor_init(&b->y, s->n, s->co, c.out);
    tensor_init(&b->w, s->co, s->ci / s->groups, c.k);
    b->c = c;
}

static void bench_fini(struct bench *b)
{
    free(b->x.of.data);
    free(b->y.of.data);
    free(b->w.of.data);
}

/* Returns a copy of the tensor, filled with windows by the GEMM `product`
 * (NULL: by the reference), owned, and restores the tensor. */
static float *filled(struct bench *b, enum pst_conv_fill fill,
                     struct pst_pool *pool, pst_windows_fn product)
{
    const struct pst_operand *to = fill == PST_CONV_Y   ? b->c.y
                                   : fill == PST_CONV_X ? b->c.x
                                                        : b->c.w;
    const size_t bytes = pst_meta_bytes(to->meta);
    float *old = malloc(bytes + 1), *ret = malloc(bytes + 1);

    assert_non_null(old);
    assert_non_null(ret);
    memcpy(old, to->data, bytes);
    if (product != NULL) {
        const size_t size =
            pst_conv_windows_scratch(&b->c, fill, pst_pool_threads(pool));
        void *scratch = aligned_alloc(64, size / 64 * 64 + 64);

        assert_non_null(scratch);
        memset(scratch, 0xff, size); /* all NaN */
        pst_conv_windows_run(&b->c, fill, pool, scratch, product);
        free(scratch);
    } else if (fill == PST_CONV_Y) {
        pst_conv_ref_y(&b->c);
    } else if (fill == PST_CONV_X) {
        pst_conv_ref_x(&b->c);
    } else {
        pst_conv_ref_w(&b->c);
    }
    memcpy(ret, to->data, bytes);
    memcpy(to->data, old, bytes);
    free(old);
    return ret;
}

static void compare(const struct bench *b, enum pst_conv_fill fill, size_t i,
                    const float *want, const float *got)
{
    const struct pst_operand *to = fill == PST_CONV_Y   ? b->c.y
                                   : fill == PST_CONV_X ? b->c.x
                                                        : b->c.w;
    const int64_t n = pst_meta_numel(to->meta);
    double largest = 1;

    for (int64_t e = 0; e < n; e++)
        largest = fmax(largest, fabs((double)want[e]));
    for (int64_t e = 0; e < n; e++)
        if (!(fabs((double)want[e] - (double)got[e]) <= 4e-6 * largest))
            fail_msg("shape %zu, fill %d, element %lld: %g, not %g", i,
                     (int)fill, (long long)e, (double)got[e], (double)want[e]);
}

static void check_fill(struct bench *b, size_t i, enum pst_conv_fill fill,
                       struct pst_pool *pool, const pst_windows_fn *products,
                       size_t n)
{
    const struct pst_operand *to = fill == PST_CONV_Y   ? b->c.y
                                   : fill == PST_CONV_X ? b->c.x
                                                        : b->c.w;
    float *want = filled(b, fill, NULL, NULL);

    assert_true(pst_conv_windows_fits(&b->c, fill));
    for (size_t k = 0; k < n; k++) {
        float *got = filled(b, fill, NULL, products[k]);
        float *three = filled(b, fill, pool, products[k]);

        compare(b, fill, i, want, got);
        if (memcmp(got, three, pst_meta_bytes(to->meta)) != 0)
            fail_msg("shape %zu, fill %d: other bits on three threads", i,
                     (int)fill);
        free(got);
        free(three);
    }
    free(want);
}

static void all_shapes(const pst_windows_fn *products, size_t n)
{
    struct pst_pool *pool;
    struct pst_diag diag;

    pst_diag_init(&diag);
    assert_ok(pst_pool_new(3, &pool, &diag), &diag);
    for (size_t i = 0; i < PST_COUNT(shapes); i++)
        for (int mode = 0; mode < 4; mode++) {
            const int64_t one_each[] = {1, 1, 1};
            struct bench b;

            if (SANITIZED && mode != (int)(i % 4))
                continue;
            bench_init(&b, &shapes[i]);
            b.c.accumulate = mode & 1;
            for (int fill = PST_CONV_Y; fill <= PST_CONV_W; fill++) {
                if (mode >= 2 && fill == PST_CONV_W)
                    continue;
                tensor_init(&b.bias, fill == PST_CONV_Y ? b.c.co : b.c.ci, 1,
                            one_each);
                b.c.bias = mode < 2 ? NULL : &b.bias.of;
                check_fill(&b, i, (enum pst_conv_fill)fill, pool, products, n);
                free(b.bias.of.data);
            }
            bench_fini(&b);
        }
    pst_pool_free(pool);
}

/* Tests each instruction set, and the one that is chosen. */
static void every_set(void **state)
{
    pst_windows_fn products[4] = {pst_gemm_windows};
    size_t n = 1;

    (void)state;
#define EACH(suffix, set)                                                      \
    if (pst_cpu_isa() >= PST_ISA_##set)                                        \
        products[n++] = pst_simd_gemm_windows_##suffix;
    PST_SIMD_EACH(EACH)
#undef EACH
    all_shapes(products, n);
}

/* Shapes whose copies would be too large do not use windows. */
static void bounds(void **state)
{
    static const struct shape wide = {1,
                                      1,
                                      8,
                                      8,
                                      {1, 2, 2},
                                      {1, 3, 3},
                                      ONES,
                                      {0, 1 << 29, 1 << 29},
                                      {1, 1 << 29, 1 << 29}};
    static const struct shape steep = {
        1, 1, 8, 8, {1, 200, 200}, {1, 3, 3}, {1, 90, 90}, {0, 0, 0}, ONES};
    const struct shape *const all[] = {&wide, &steep};

    (void)state;
    for (size_t i = 0; i < PST_COUNT(all); i++) {
        struct bench b;

        memset(&b, 0, sizeof(b));
        b.c = (struct pst_conv){
            .dims = PST_CONV_DIMS, .n = 1, .groups = 1, .ci = 8, .co = 8};
        for (unsigned d = 0; d < PST_CONV_DIMS; d++) {
            b.c.in[d] = all[i]->in[d];
            b.c.k[d] = all[i]->k[d];
            b.c.stride[d] = all[i]->stride[d];
            b.c.pad[d] = all[i]->pad[d];
            b.c.dil[d] = all[i]->dil[d];
            b.c.out[d] = pst_conv_size(b.c.in[d], b.c.k[d], b.c.stride[d],
                                       b.c.pad[d], b.c.dil[d]);
        }
        for (int fill = PST_CONV_Y; fill <= PST_CONV_W; fill++)
            assert_false(pst_conv_windows_fits(&b.c, (enum pst_conv_fill)fill));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_set),
        cmocka_unit_test(bounds),
    };

    return cmocka_run_group_tests_name("windows", tests, NULL, NULL);
}
