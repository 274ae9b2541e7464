// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/core/infer.h"
#include "stages/ops/core/vjp.h"
#include "stages/ops/cpu/simd/convert.h"
#include "stages/ops/matmul/product.h"
#include "stages/ops/matmul/tiles.h"

/* penstock.tiles: rounds a k x n (or, transposed, n x k) matrix to bf16 and
 * packs it as the right operand of matmuls (tiles.h). The compiler inserts it
 * before matmuls that prefer PST_FORM_PACKED. */

static enum pst_status tiles_infer(struct pst_infer *c)
{
    const struct pst_meta *x;
    struct pst_meta tiles;
    char text[PST_META_TEXT];
    enum pst_status status = pst_infer_tensor(c, 0, &x);
    const bool trans = c->args[1].b;

    if (status != PST_OK)
        return status;
    if (x->rank != 2 || x->size[trans] % PST_TILE_K != 0)
        return pst_infer_fail(c, "%s is not a matrix of rows in groups of %d",
                              pst_meta_text(x, text), PST_TILE_K);
    tiles = pst_tiles_meta(x->size[trans], x->size[!trans]);
    return pst_infer_set(c, 0, tiles.dtype, tiles.rank, tiles.size);
}

/* The operand as a k x n matrix, which may be stored as n x k. row, col:
 * strides from row to row and from column to column. */
struct matrix {
    int64_t k, n, row, col;
};

static struct matrix matrix_of(const struct pst_call *c)
{
    const struct pst_meta *x = c->in[0].meta;
    const bool trans = c->args[1].b;

    return (struct matrix){x->size[trans], x->size[!trans], x->stride[trans],
                           x->stride[!trans]};
}

static void tiles_ref(const struct pst_call *c)
{
    const struct matrix m = matrix_of(c);
    const int64_t columns = pst_tiles_numel(1, m.n);

    for (int64_t s = 0; s < columns; s++)
        for (int64_t r = 0; r < m.k; r++) {
            const int64_t tile =
                s / PST_TILE_N * (m.k / PST_TILE_K) + r / PST_TILE_K;
            const int64_t at = r % PST_TILE_K / 2 * (2 * PST_TILE_N) +
                               s % PST_TILE_N * 2 + r % 2;

            pst_store_f64(PST_BF16, c->out[0].data, tile * PST_TILE_SIZE + at,
                          s >= m.n ? 0.0
                                   : pst_load_f64(c->in[0].meta->dtype,
                                                  c->in[0].data,
                                                  r * m.row + s * m.col));
        }
}

static bool tiles_fits(const struct pst_call *c)
{
    const struct matrix m = matrix_of(c);
    const struct pst_product_operand f = {.row = m.row, .col = m.col};
    bool trans;
    int64_t ld;

    return pst_tiles_has() &&
           pst_product_operand_layout(&f, m.k, m.n, &trans, &ld);
}

/* Returns the bytes of scratch: 16 columns of the operand, rounded to bf16, for
 * each thread. */
static size_t tiles_scratch(const struct pst_call *c, unsigned threads)
{
    return (size_t)(threads * matrix_of(c).k * PST_TILE_N) * sizeof(uint16_t);
}

static void tiles_part(void *ctx, unsigned part, unsigned parts)
{
    const struct pst_call *c = ctx;
    const struct matrix m = matrix_of(c);
    const struct pst_product_operand f = {.row = m.row, .col = m.col};
    const pst_to_16_fn round = pst_simd_to_16_best(PST_BF16, pst_cpu_isa());
    uint16_t *to = (uint16_t *)c->scratch + part * m.k * PST_TILE_N;
    int64_t first, last, ld;
    bool trans;

    pst_product_operand_layout(&f, m.k, m.n, &trans, &ld);
    pst_pool_share(c->out[0].meta->size[0], 1, part, parts, &first, &last);
    for (int64_t i = first; i < last; i++) {
        const int64_t n = PST_MIN(m.n - i * PST_TILE_N, (int64_t)PST_TILE_N);
        const int64_t rows = trans ? n : m.k, cols = trans ? m.k : n;
        const float *x = (const float *)c->in[0].data + i * PST_TILE_N * m.col;

        for (int64_t r = 0; r < rows; r++)
            round(cols, x + r * ld, to + r * cols);
        pst_tiles_pack(m.k, n, to, trans, cols, 0, 1,
                       (uint16_t *)c->out[0].data + i * PST_TILE_N * m.k);
    }
}

static void tiles(const struct pst_call *c)
{
    pst_pool_run(c->pool, tiles_part, (void *)c);
}

static const struct pst_kernel tiles_kernels[] = {
    {.name = "tiles_amx",
     .dtypes = PST_D(F32),
     .flags = PST_K_STRIDED,
     .supports = tiles_fits,
     .scratch = tiles_scratch,
     .run = tiles},
    {.name = "tiles_ref",
     .dtypes = PST_D_FLOAT,
     .flags = PST_K_STRIDED,
     .run = tiles_ref},
};

const struct pst_op pst_op_tiles = {
    .schema = "penstock::tiles(Tensor self, bool transposed) -> Tensor",
    .infer = tiles_infer,
    .vjp = pst_vjp_none,
};
PST_CPU_KERNELS(tiles, tiles_kernels);
