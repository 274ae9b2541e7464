// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/rates/rates.h"

#include "stages/base/alloc.h"
#include "stages/base/host/cpu.h"
#include "stages/base/host/fs.h"
#include "stages/base/str.h"
#include "stages/ops/matmul/blas.h"
#include "stages/ops/matmul/gemm_bf16.h"

#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FILE (1 << 16)

#define AVX2_F32 4e10
/* Assumed ratio of the f32 rate (FLOP/s) to the memory rate (bytes/s) of a
 * core. It was 2.6 to 5 on the machines that we measured; with 5, the stages
 * are cut nearly as they are by measured times. */
#define OPS_A_BYTE 5
#define REST       .launch = 1e-7, .wake = 1e-5, .latency = 2e-5, .wire = 4e9

const struct pst_rates pst_rates_reference = {
    .f32 = AVX2_F32, .f64 = AVX2_F32 / 2, .bytes = AVX2_F32 / OPS_A_BYTE, REST};

/* AMX multiplies bf16 several times as fast as f32. AVX512-BF16 alone has twice
 * the f32 rate on AMD's processors (measured on a Zen 4: 226 against 104
 * GFLOP/s), and is assumed to be no faster than f32 on Intel's (Cooper
 * Lake). */
struct pst_rates pst_rates_by_features(const char *features)
{
    const double f32 = strstr(features, "avx512dq") != NULL ? 2.5 * AVX2_F32
                       : strstr(features, "fma") != NULL    ? AVX2_F32
                                                            : AVX2_F32 / 4;
    const double bf16 = strstr(features, "amx_bf16") != NULL      ? 4 * f32
                        : strstr(features, "avx512_bf16") == NULL ? 0
                        : strstr(features, "amd") != NULL         ? 2 * f32
                                                                  : f32 / 2;

    return (struct pst_rates){.f32 = f32,
                              .f64 = f32 / 2,
                              .bf16 = bf16,
                              .bytes = f32 / OPS_A_BYTE,
                              REST};
}

/* --- the file ------------------------------------------------------------- */

/* The fields that follow the key in a line of the file, in this order. */
static const struct field {
    const char *name;
    size_t offset;
    double least, most; /* bounds of values other than 0 */
    bool or_none;
} fields[] = {
    {"f32", offsetof(struct pst_rates, f32), 1e7, 1e15, false},
    {"f64", offsetof(struct pst_rates, f64), 1e7, 1e15, false},
    {"bf16", offsetof(struct pst_rates, bf16), 1e7, 1e15, true},
    {"bytes", offsetof(struct pst_rates, bytes), 1e6, 1e14, false},
    {"launch", offsetof(struct pst_rates, launch), 1e-9, 1e-2, false},
};

static double *rate_in(struct pst_rates *rates, const struct field *f)
{
    return (double *)(void *)((char *)rates + f->offset);
}

/* Appends the folder of the rates file; nothing if the environment has no
 * folder. */
static void append_folder(struct pst_str *out)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");

    if (cache != NULL && cache[0] == '/')
        pst_str_addf(out, "%s/penstock", cache);
    else if (home != NULL && home[0] == '/')
        pst_str_addf(out, "%s/.cache/penstock", home);
}

/* Appends the key of this machine's line: processor features and libraries. */
static void append_key(struct pst_str *out)
{
    pst_str_addf(out, "%s; ", pst_cpu_features());
    pst_products_describe(out);
    pst_str_add(out, ":");
}

static bool read_text(char **ret)
{
    struct pst_str path = {0};
    struct pst_diag diag;
    size_t size;
    bool good;

    pst_diag_init(&diag);
    append_folder(&path);
    pst_str_add(&path, "/rates");
    good = path.len > strlen("/rates") && !path.failed &&
           pst_file_read(path.text, MAX_FILE, ret, &size, &diag) == PST_OK;
    pst_str_fini(&path);
    return good;
}

/* Parses " f32=1.05e+11 f64=..."; returns false and changes nothing on
 * error. */
static bool parse_rates(char *text, struct pst_rates *ret)
{
    struct pst_rates rates = *ret;
    char *rest = NULL, *word = strtok_r(text, " ", &rest);

    for (size_t i = 0; i < PST_COUNT(fields); i++) {
        const struct field *f = &fields[i];
        const size_t n = strlen(f->name);
        double x;

        if (word == NULL || strncmp(word, f->name, n) != 0 || word[n] != '=' ||
            !pst_parse_f64(word + n + 1, &x) ||
            !((x >= f->least && x <= f->most) || (f->or_none && x == 0)))
            return false;
        *rate_in(&rates, f) = x;
        word = strtok_r(NULL, " ", &rest);
    }
    if (word != NULL)
        return false;
    *ret = rates;
    return true;
}

static struct pst_rates here;

static void load_rates(void)
{
    struct pst_str begin = {0};
    char *text = NULL, *rest = NULL;

    here = pst_rates_by_features(pst_cpu_features());
    if (!read_text(&text))
        return;
    append_key(&begin);
    for (char *line = strtok_r(text, "\n", &rest);
         line != NULL && !here.measured; line = strtok_r(NULL, "\n", &rest))
        if (!begin.failed && pst_has_prefix(line, pst_str_text(&begin)))
            here.measured = parse_rates(line + begin.len, &here);
    pst_str_fini(&begin);
    pst_free(text);
}

const struct pst_rates *pst_rates_here(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, load_rates);
    return &here;
}

void pst_rates_adopt(const struct pst_rates *rates)
{
    (void)pst_rates_here();
    here = *rates;
}

enum pst_status pst_rates_save(const struct pst_rates *rates,
                               struct pst_str *path, struct pst_diag *diag)
{
    struct pst_rates copy = *rates;
    struct pst_str begin = {0}, out = {0};
    char *text = NULL, *rest = NULL;
    enum pst_status status;

    append_folder(path);
    if (path->len == 0)
        return pst_diag_set(diag, PST_E_HOST_CACHE,
                            "neither XDG_CACHE_HOME nor HOME names a folder "
                            "for what was measured");
    status = pst_mkdirs(pst_str_text(path), 0700, diag);
    if (status != PST_OK)
        return status;
    pst_str_add(path, "/rates");
    append_key(&begin);
    if (read_text(&text))
        for (char *line = strtok_r(text, "\n", &rest); line != NULL;
             line = strtok_r(NULL, "\n", &rest))
            if (!pst_has_prefix(line, pst_str_text(&begin)))
                pst_str_addf(&out, "%s\n", line);
    pst_str_add(&out, pst_str_text(&begin));
    for (size_t i = 0; i < PST_COUNT(fields); i++)
        pst_str_addf(&out, " %s=%.4g", fields[i].name,
                     *rate_in(&copy, &fields[i]));
    pst_str_add(&out, "\n");
    if (out.failed || begin.failed || path->failed)
        status = pst_diag_nomem(diag, MAX_FILE);
    else
        status = pst_file_write(pst_str_text(path), out.text, out.len, diag);
    pst_free(text);
    pst_str_fini(&begin);
    pst_str_fini(&out);
    return status;
}

enum pst_status pst_rates_ensure(bool *ret, struct pst_str *path,
                                 struct pst_diag *diag)
{
    struct pst_rates rates;
    enum pst_status status;

    *ret = false;
    if (pst_rates_here()->measured || !pst_gemm_has_bf16())
        return PST_OK;
    status = pst_rates_measure(&rates, diag);
    if (status != PST_OK)
        return status;
    *ret = true;
    pst_rates_adopt(&rates);
    if (pst_rates_save(&rates, path, diag) != PST_OK)
        pst_str_fini(path);
    return PST_OK;
}

/* --- descriptions and decisions ------------------------------------------- */

void pst_rates_describe(const struct pst_rates *rates, struct pst_str *out)
{
    pst_str_addf(out, "products f32 %.0f, f64 %.0f", rates->f32 * 1e-9,
                 rates->f64 * 1e-9);
    if (rates->bf16 > 0)
        pst_str_addf(out, ", bf16 %.0f", rates->bf16 * 1e-9);
    pst_str_addf(
        out, " GFLOP/s, memory %.1f GB/s a core (%s)", rates->bytes * 1e-9,
        rates->measured ? "measured"
                        : "by feature bits; penstock calibrate measures");
}

bool pst_rates_prefer_bf16(const struct pst_rates *rates)
{
    return rates->bf16 > rates->f32;
}

void pst_rates_describe_bf16(struct pst_str *out)
{
    const struct pst_rates *rates = pst_rates_here();

    pst_str_add(out, pst_rates_use_bf16()
                         ? "operands rounded to bf16, multiplied in bf16 ("
                         : "operands rounded to bf16, multiplied in f32 (");
    if (!pst_gemm_has_bf16())
        pst_str_add(out, "no bf16 instructions)");
    else if (rates->measured)
        pst_str_addf(out, "measured: f32 %.0f, bf16 %.0f GFLOP/s)",
                     rates->f32 * 1e-9, rates->bf16 * 1e-9);
    else
        pst_str_add(out, "by feature bits; penstock calibrate measures)");
}

bool pst_rates_use_bf16(void)
{
    return pst_gemm_has_bf16() && pst_rates_prefer_bf16(pst_rates_here());
}
