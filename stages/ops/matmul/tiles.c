// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/matmul/tiles.h"

#include "stages/base/host/cpu.h"

#include <pthread.h>
#include <string.h>

struct pst_meta pst_tiles_meta(int64_t k, int64_t n)
{
    const int64_t size[] = {(n + PST_TILE_N - 1) / PST_TILE_N, k / PST_TILE_K,
                            PST_TILE_K / 2, PST_TILE_N, 2};

    return pst_meta_make(PST_BF16, PST_COUNT(size), size);
}

bool pst_tiles_is(const struct pst_meta *meta, int64_t k, int64_t n)
{
    struct pst_meta tiles;

    /* Most operands are not tiles, and every matmul asks: the cheap tests are
     * first. */
    if (meta->dtype != PST_BF16 || meta->rank != 5 || k % PST_TILE_K != 0)
        return false;
    tiles = pst_tiles_meta(k, n);
    return pst_meta_same(meta, &tiles);
}

#if PST_HAVE_AMX

#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Linux arch_prctl numbers that request permission to use AMX tile
 * registers. */
enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };

static bool has;

static void detect_tiles(void)
{
    has = pst_cpu_isa() == PST_ISA_AVX512 &&
          strstr(pst_cpu_features(), "amx_bf16") != NULL &&
          syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}

bool pst_tiles_has(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, detect_tiles);
    return has;
}

/* --- layout --------------------------------------------------------------- */

/* Interleaves pairs of rows of b, for those of 16 columns that are in
 * `mask`. */
PST_TARGET("avx512f,avx512bw,avx512vl")
static void pack_plain(const uint16_t *b, int64_t ld, __mmask16 mask,
                       uint16_t *tile)
{
    for (unsigned r = 0; r < PST_TILE_K / 2; r++, b += 2 * ld) {
        const __m512i even =
            _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, b));
        const __m512i odd =
            _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, b + ld));

        _mm512_storeu_si512(tile + r * PST_TILE_K,
                            _mm512_or_si512(even, _mm512_slli_epi32(odd, 16)));
    }
}

/* Gathers the pairs of 16 columns of a transposed b, where a pair is
 * contiguous. */
PST_TARGET("avx512f")
static void pack_trans(const uint16_t *b, int64_t ld, __mmask16 mask,
                       uint16_t *tile)
{
    const __m512i step =
        _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const __m512i index = _mm512_mullo_epi32(step, _mm512_set1_epi32((int)ld));

    for (unsigned r = 0; r < PST_TILE_K / 2; r++)
        _mm512_storeu_si512(tile + r * PST_TILE_K,
                            _mm512_mask_i32gather_epi32(_mm512_setzero_si512(),
                                                        mask, index, b + 2 * r,
                                                        2));
}

void pst_tiles_pack(int64_t k, int64_t n, const uint16_t *b, bool trans,
                    int64_t ld, int64_t first, int64_t last, uint16_t *tiles)
{
    const int64_t rows = k / PST_TILE_K;

    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = first; c < last; c++) {
            const int64_t left = n - c * PST_TILE_N;
            const __mmask16 mask =
                left >= PST_TILE_N ? 0xffff : (__mmask16)((1u << left) - 1);
            uint16_t *tile = tiles + (c * rows + r) * PST_TILE_SIZE;

            if (trans)
                pack_trans(b + c * PST_TILE_N * ld + r * PST_TILE_K, ld, mask,
                           tile);
            else
                pack_plain(b + r * PST_TILE_K * ld + c * PST_TILE_N, ld, mask,
                           tile);
        }
}

/* --- matmul --------------------------------------------------------------- */

/* 2 x 2 tiles of c stay in registers while STEP terms are summed, and two
 * columns of tiles of b stay in the L1 cache for PASS rows. Each STEP reads
 * those PASS rows of c again; if there were more of them, almost a power of 2
 * apart, the L2 cache would evict some (for n = 3072 a third more time). ROWS x
 * DEPTH of a stay in L2 for all columns of b. The sizes are the fastest
 * measured for n and k of 768, 2304 and 3072. */
enum { ROWS = 512, PASS = 256, DEPTH = 768, STEP = 384 };

/* Operand of ldtilecfg: the bytes per row and the rows of each tile register.
 * Registers 0 to 3 hold c, 4 and 5 hold a, 6 and 7 hold b. */
struct shape {
    uint8_t palette, start, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
};

PST_TARGET("amx-tile")
static void set_shape(int64_t rows, int64_t cols0, int64_t cols1)
{
    struct shape s = {.palette = 1};

    for (unsigned i = 0; i < 8; i++) {
        const bool is_c = i < 4, is_a = i == 4 || i == 5;

        s.bytes[i] = (uint16_t)(is_a ? 64 : 4 * (i % 2 ? cols1 : cols0));
        s.rows[i] = (uint8_t)(is_c || is_a ? rows : 16);
    }
    /* Inline assembly, since GCC's intrinsic declares a read of only 8
     * bytes. */
    __asm__ volatile("ldtilecfg %0" : : "m"(s));
}

struct block {
    int64_t k;
    const uint16_t *a[2], *b[2];
    float *c[4];
    int64_t lda, ldc; /* strides between rows, in bytes */
    bool add;
};

/* Computes a block of 2 x 2 tiles. If a tile is passed twice, the same sum is
 * stored twice. */
PST_TARGET("amx-tile,amx-bf16")
PST_OPTIMIZED static void run_block(const struct block *b)
{
    const uint16_t *a0 = b->a[0], *a1 = b->a[1], *b0 = b->b[0], *b1 = b->b[1];
    const int64_t lda = b->lda, ldc = b->ldc;

    if (b->add) {
        _tile_loadd(0, b->c[0], ldc);
        _tile_loadd(1, b->c[1], ldc);
        _tile_loadd(2, b->c[2], ldc);
        _tile_loadd(3, b->c[3], ldc);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int64_t k = 0; k < b->k; k += PST_TILE_K) {
        _tile_loadd(6, b0 + k * PST_TILE_N, 64);
        _tile_loadd(4, a0 + k, lda);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, b1 + k * PST_TILE_N, 64);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, a1 + k, lda);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, b->c[0], ldc);
    _tile_stored(1, b->c[1], ldc);
    _tile_stored(2, b->c[2], ldc);
    _tile_stored(3, b->c[3], ldc);
}

/* A part of a matmul: rows, columns and terms [0] to [1]. */
struct range {
    int64_t m[2], n[2], k[2];
};

/* Multiplies the rows of a pass by up to 2 columns of tiles. The second row of
 * tiles of a block ends at the block's last row, so it may overlap the
 * first. */
static void run_rows(const struct pst_tiles_product *p, const struct range *x)
{
    const int64_t cols = x->n[1] - x->n[0];
    const int64_t cols0 = PST_MIN(cols, (int64_t)PST_TILE_N);
    const int64_t cols1 = cols > PST_TILE_N ? cols - PST_TILE_N : cols0;
    const int64_t right = cols > PST_TILE_N ? PST_TILE_N : 0;
    const uint16_t *b =
        p->b + x->n[0] / PST_TILE_N * PST_TILE_N * p->k + x->k[0] * PST_TILE_N;
    struct block k = {.k = x->k[1] - x->k[0],
                      .b = {b, b + right * p->k},
                      .lda = p->lda * 2,
                      .ldc = p->ldc * 4,
                      .add = p->add || x->k[0] > 0};
    int64_t now = 0;

    for (int64_t i = x->m[0]; i < x->m[1]; i += 32) {
        const int64_t n = PST_MIN(x->m[1] - i, (int64_t)32);
        const int64_t rows = PST_MIN(n, (int64_t)16), below = n - rows;
        const uint16_t *a = p->a + i * p->lda + x->k[0];
        float *c = p->c + i * p->ldc + x->n[0];

        if (rows != now)
            set_shape(now = rows, cols0, cols1);
        k.a[0] = a;
        k.a[1] = a + below * p->lda;
        k.c[0] = c;
        k.c[1] = c + right;
        k.c[2] = c + below * p->ldc;
        k.c[3] = k.c[2] + right;
        run_block(&k);
    }
}

static void run_columns(const struct pst_tiles_product *p,
                        const struct range *x)
{
    for (int64_t i = x->m[0]; i < x->m[1]; i += PASS)
        for (int64_t s = x->k[0]; s < x->k[1]; s += STEP)
            run_rows(p, &(struct range){{i, PST_MIN(x->m[1], i + PASS)},
                                        {x->n[0], x->n[1]},
                                        {s, PST_MIN(x->k[1], s + STEP)}});
}

PST_TARGET("amx-tile") static void release_tiles(void)
{
    _tile_release();
}

void pst_tiles_run(const struct pst_tiles_product *p)
{
    /* Keeps earlier stores before the tile loads, whose intrinsics do not
     * declare that they read memory. */
    __asm__ volatile("" : : : "memory");
    for (int64_t i = 0; i < p->m; i += ROWS)
        for (int64_t d = 0; d < p->k; d += DEPTH)
            for (int64_t j = 0; j < p->n; j += 2 * PST_TILE_N)
                run_columns(p, &(struct range){{i, PST_MIN(p->m, i + ROWS)},
                                               {j, PST_MIN(p->n, j + 32)},
                                               {d, PST_MIN(p->k, d + DEPTH)}});
    release_tiles();
}

#else

bool pst_tiles_has(void)
{
    return false;
}

void pst_tiles_pack(int64_t k, int64_t n, const uint16_t *b, bool trans,
                    int64_t ld, int64_t first, int64_t last, uint16_t *tiles)
{
    (void)k, (void)n, (void)b, (void)trans, (void)ld, (void)first, (void)last;
    (void)tiles;
}

void pst_tiles_run(const struct pst_tiles_product *p)
{
    (void)p;
}

#endif
