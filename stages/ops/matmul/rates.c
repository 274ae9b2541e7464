// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/matmul/rates.h"

#include "stages/base/alloc.h"
#include "stages/base/host/cpu.h"
#include "stages/base/host/fs.h"
#include "stages/base/str.h"
#include "stages/ops/matmul/blas.h"
#include "stages/ops/matmul/gemm_bf16.h"
#include "stages/ops/matmul/packed.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_FILE (1 << 16)

/* Folder of the file; empty if the environment names none. */
static void folder(struct pst_str *out)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");

    if (cache != NULL && cache[0] == '/')
        pst_str_addf(out, "%s/penstock", cache);
    else if (home != NULL && home[0] == '/')
        pst_str_addf(out, "%s/.cache/penstock", home);
}

/* What a measurement depends on: begins the line. */
static void key(struct pst_str *out)
{
    pst_str_addf(out, "%s; ", pst_cpu_features());
    pst_products_describe(out);
    pst_str_add(out, ": ");
}

static bool read_text(char **ret)
{
    struct pst_str path = {0};
    struct pst_diag diag;
    size_t size;
    bool good;

    pst_diag_init(&diag);
    folder(&path);
    pst_str_add(&path, "/rates");
    good = path.len > strlen("/rates") && !path.failed &&
           pst_file_read(path.text, MAX_FILE, ret, &size, &diag) == PST_OK;
    pst_str_fini(&path);
    return good;
}

static struct pst_rates kept;
static bool known;

static void look(void)
{
    struct pst_str begin = {0};
    char *text = NULL, *rest = NULL;

    if (!read_text(&text))
        return;
    key(&begin);
    for (char *line = strtok_r(text, "\n", &rest); line != NULL && !known;
         line = strtok_r(NULL, "\n", &rest))
        if (!begin.failed && pst_has_prefix(line, pst_str_text(&begin)))
            known = sscanf(line + begin.len, "f32 %lf bf16 %lf", &kept.f32,
                           &kept.bf16) == 2 &&
                    kept.f32 > 0 && kept.bf16 >= 0;
    pst_str_fini(&begin);
    pst_free(text);
}

bool pst_rates_known(struct pst_rates *ret)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, look);
    if (known)
        *ret = kept;
    return known;
}

/* --- measuring ------------------------------------------------------------ */

enum { M = 256, N = 1024, K = 512, ROUNDS = 9 };

struct trial {
    struct pst_gemm g;
    float *a, *b, *c;
    uint16_t *ha, *hb;
    void *scratch;
};

static bool run(const struct trial *t, bool bf16)
{
    if (bf16)
        return pst_gemm_bf16(&t->g, t->ha, t->hb, t->c, t->scratch);
    pst_gemm_f32_best(&t->g, t->a, t->b, t->c);
    return true;
}

/* Time of this thread: another one that has the core does not count. */
static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Best of some rounds, the first of which wakes the library up. */
static double rate(const struct trial *t, bool bf16)
{
    double best = 0;

    for (int i = 0; i <= ROUNDS; i++) {
        const double start = now();

        if (!run(t, bf16))
            return 0;
        if (i > 0)
            best = PST_MAX(best, 2e-9 * M * N * K / (now() - start));
    }
    return best;
}

enum pst_status pst_rates_measure(struct pst_rates *ret, struct pst_diag *diag)
{
    const size_t a = (size_t)M * K, b = (size_t)K * N, c = (size_t)M * N;
    const size_t bytes = (a + b + c) * 4 + (a + b) * 2;
    struct trial t = {.g = {.m = M,
                            .n = N,
                            .k = K,
                            .lda = K,
                            .ldb = N,
                            .ldc = N,
                            .alpha = 1.0}};
    const bool has = pst_gemm_has_bf16();
    const size_t scratch = has ? pst_gemm_bf16_scratch(&t.g) : 0;
    char *whole = pst_calloc(PST_TAG_EXEC, 1, bytes + scratch + 128), *room;

    if (whole == NULL)
        return pst_diag_nomem(diag, bytes + scratch);
    room = whole + (64 - (uintptr_t)whole % 64);
    t.scratch = room;
    t.a = (float *)(void *)(room + (scratch + 63) / 64 * 64);
    t.b = t.a + a;
    t.c = t.b + b;
    t.ha = (uint16_t *)(void *)(t.c + c);
    t.hb = t.ha + a;
    for (size_t i = 0; i < a + b; i++)
        t.a[i] = 1.0f + (float)(i % 7);
    for (size_t i = 0; i < a + b; i++)
        t.ha[i] = (uint16_t)(0x3f80 + i % 7);
    *ret = (struct pst_rates){.f32 = rate(&t, false),
                              .bf16 = has ? rate(&t, true) : 0};
    pst_free(whole);
    return PST_OK;
}

enum pst_status pst_rates_keep(const struct pst_rates *rates,
                               struct pst_str *path, struct pst_diag *diag)
{
    struct pst_str begin = {0}, out = {0};
    char *text = NULL, *rest = NULL;
    enum pst_status status;

    folder(path);
    if (path->len == 0)
        return pst_diag_set(diag, PST_ERR_CONFIG,
                            "neither XDG_CACHE_HOME nor HOME names a folder "
                            "for what was measured");
    status = pst_mkdirs(pst_str_text(path), 0700, diag);
    if (status != PST_OK)
        return status;
    pst_str_add(path, "/rates");
    key(&begin);
    if (read_text(&text))
        for (char *line = strtok_r(text, "\n", &rest); line != NULL;
             line = strtok_r(NULL, "\n", &rest))
            if (!pst_has_prefix(line, pst_str_text(&begin)))
                pst_str_addf(&out, "%s\n", line);
    pst_str_addf(&out, "%sf32 %.1f bf16 %.1f\n", pst_str_text(&begin),
                 rates->f32, rates->bf16);
    if (out.failed || begin.failed || path->failed)
        status = pst_diag_nomem(diag, MAX_FILE);
    else
        status = pst_file_write(pst_str_text(path), out.text, out.len, diag);
    pst_free(text);
    pst_str_fini(&begin);
    pst_str_fini(&out);
    return status;
}

/* AMX multiplies bf16 several times as fast. AVX512-BF16 alone has half the
 * rate of f32 on some processors and twice on others: until it is measured,
 * never slower than f32. */
bool pst_rates_prefer_bf16(const char *features, const struct pst_rates *rates)
{
    if (rates != NULL)
        return rates->bf16 > rates->f32;
    return strstr(features, "amx_bf16") != NULL;
}

void pst_rates_describe(struct pst_str *out)
{
    struct pst_rates rates;

    pst_str_add(out, pst_rates_use_bf16()
                         ? "factors rounded to bf16, multiplied in bf16 ("
                         : "factors rounded to bf16, multiplied in f32 (");
    if (!pst_gemm_has_bf16())
        pst_str_add(out, "no bf16 instructions)");
    else if (pst_rates_known(&rates))
        pst_str_addf(out, "measured: f32 %.0f, bf16 %.0f GFLOP/s)", rates.f32,
                     rates.bf16);
    else
        pst_str_add(out, "by feature bits; penstock calibrate measures)");
}

static bool uses;

static void decide(void)
{
    struct pst_rates rates;
    const bool known = pst_rates_known(&rates);

    uses = pst_gemm_has_bf16() &&
           pst_rates_prefer_bf16(pst_cpu_features(), known ? &rates : NULL);
}

bool pst_rates_use_bf16(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, decide);
    return uses;
}
