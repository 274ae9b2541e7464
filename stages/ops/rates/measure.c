// SPDX-License-Identifier: Apache-2.0
/* Measures the rates of matmuls and memory on one core. */
#include "stages/base/alloc.h"
#include "stages/ops/cpu/simd/convert.h"
#include "stages/ops/matmul/gemm_bf16.h"
#include "stages/ops/matmul/packed.h"
#include "stages/ops/rates/rates.h"

#include <time.h>

/* M, N and K are the shape of a matmul of a training step. MANY elements exceed
 * every cache (128 MiB are read and written), as do the optimizer state and the
 * saved activations of a step. */
enum { M = 256, N = 1024, K = 512, MANY = 1 << 24, ROUNDS = 9, SMALL = 2000 };

struct trial {
    struct pst_gemm g;
    float *a, *b, *c;
    double *da, *db, *dc;
    uint16_t *ha, *hb;
    void *scratch;
};

typedef bool (*work_fn)(const struct trial *t);

static bool run_f32(const struct trial *t)
{
    pst_gemm_f32_best(&t->g, t->a, t->b, t->c);
    return true;
}

static bool run_f64(const struct trial *t)
{
    pst_gemm_f64(&t->g, t->da, t->db, t->dc);
    return true;
}

static bool run_bf16(const struct trial *t)
{
    return pst_gemm_bf16(&t->g, t->ha, t->hb, t->c, t->scratch);
}

/* Reads and writes MANY elements of 4 bytes. */
static bool run_memory(const struct trial *t)
{
    pst_simd_round_bf16_best(pst_cpu_isa())(MANY, t->a, t->a + MANY);
    return true;
}

/* Launches matmuls with almost no work, to measure the cost of a launch. */
static bool run_launches(const struct trial *t)
{
    struct trial tiny = *t;

    tiny.g.m = tiny.g.n = tiny.g.k = 4;
    for (int i = 0; i < SMALL; i++)
        pst_gemm_f32_best(&tiny.g, t->a, t->b, t->c);
    return true;
}

/* Returns the CPU time of this thread, so that other threads on the core have
 * no effect. */
static double cpu_seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Returns the fewest seconds of ROUNDS rounds after a warm-up round; 0 if the
 * work cannot run. */
static double best_seconds(work_fn work, const struct trial *t)
{
    double best = 1e9;

    for (int i = 0; i <= ROUNDS; i++) {
        const double start = cpu_seconds();

        if (!work(t))
            return 0;
        if (i > 0)
            best = PST_MIN(best, PST_MAX(cpu_seconds() - start, 1e-9));
    }
    return best;
}

static void measure_rates(struct trial *t, bool has_bf16, struct pst_rates *ret)
{
    const double flops = 2.0 * M * N * K;
    double bf16 = 0;

    /* This order is needed: no result overwrites an operand of a later
     * measurement. */
    ret->f64 = flops / best_seconds(run_f64, t);
    if (has_bf16)
        bf16 = best_seconds(run_bf16, t);
    ret->bf16 = bf16 > 0 ? flops / bf16 : 0;
    ret->f32 = flops / best_seconds(run_f32, t);
    ret->bytes = 8.0 * MANY / best_seconds(run_memory, t);
    ret->launch = best_seconds(run_launches, t) / SMALL;
    ret->measured = true;
}

enum pst_status pst_rates_measure(struct pst_rates *ret, struct pst_diag *diag)
{
    const size_t a = (size_t)M * K, b = (size_t)K * N, c = (size_t)M * N;
    const size_t most = PST_MAX((a + b + c) * 8, (size_t)MANY * 8);
    const bool has = pst_gemm_has_bf16();
    struct trial t = {.g = {.m = M,
                            .n = N,
                            .k = K,
                            .lda = K,
                            .ldb = N,
                            .ldc = N,
                            .alpha = 1.0}};
    const size_t scratch = has ? pst_gemm_bf16_scratch(&t.g) : 0;
    char *whole = pst_calloc(PST_TAG_EXEC, 1, most + scratch + 128), *at;

    if (whole == NULL)
        return pst_diag_nomem(diag, most + scratch);
    at = whole + (64 - (uintptr_t)whole % 64);
    t.scratch = at;
    at += (scratch + 63) / 64 * 64;
    /* The matrices of all dtypes share one block of memory; within a dtype a, b
     * and c follow each other. */
    t.a = (float *)(void *)at;
    t.da = (double *)(void *)at;
    t.ha = (uint16_t *)(void *)at;
    t.b = t.a + a;
    t.c = t.b + b;
    t.db = t.da + a;
    t.dc = t.db + b;
    t.hb = t.ha + a;
    /* The bytes of the f64 number 1.5 are also small numbers in f32 and in
     * bf16. */
    for (size_t i = 0; i < most / sizeof(double); i++)
        t.da[i] = 1.5;
    *ret = pst_rates_by_features(pst_cpu_features());
    measure_rates(&t, has, ret);
    pst_free(whole);
    return PST_OK;
}
