// SPDX-License-Identifier: Apache-2.0
/* Optimizer states in fewer bits than f32 (tasks pack and unpack of
 * stages/ops/cpu/tasks.h). */
#include "stages/ops/cpu/states.h"

#include <string.h>

#include "stages/base/rng.h"
#include "stages/ops/cpu/simd/convert.h"
#include "stages/ops/cpu/simd/layers/dropout.h"
#include "stages/ops/cpu/simd/optim/states.h"
#include "stages/ops/cpu/tasks.h"

#define AT_ONCE 1024 /* random numbers that are drawn at a time */

_Static_assert(PST_TASK_GRAIN % PST_STATES_BLOCK == 0, "threads share blocks");

/* --- bf16 ----------------------------------------------------------------- */

static pst_uniform_fn best_uniform(enum pst_isa isa)
{
    pst_uniform_fn ret = pst_simd_uniform_any;

#if PST_HAVE_AVX2
    if (isa >= PST_ISA_AVX2)
        ret = pst_simd_uniform_avx2;
#endif
#if PST_HAVE_AVX512
    if (isa >= PST_ISA_AVX512)
        ret = pst_simd_uniform_avx512;
#endif
    (void)isa;
    return ret;
}

/* Converts elements [i, end) of a piece whose element 0 has the random number
 * `first` of the stream. */
static void pack_bf16(const struct pst_task *t, int64_t i, int64_t end)
{
    const struct pst_states_draw *draw = t->from[1];
    const pst_uniform_fn uniform = best_uniform(t->isa);
    const struct pst_simd_states *simd = pst_simd_states_best(t->isa);
    const float *x = t->from[0];
    uint16_t *y = t->to;
    float u[AT_ONCE];

    while (i < end) {
        const int64_t at = draw->first + i, skip = at % 4;
        const int64_t n = PST_MIN(end - i, AT_ONCE - skip);

        uniform(n + skip, at - skip, draw->stream, u);
        simd->round(n, x + i, u + skip, y + i);
        i += n;
    }
}

/* --- 8 bits --------------------------------------------------------------- */

void pst_states_map(bool is_signed, float ret[256])
{
    const unsigned middle = is_signed ? 127 : 0;
    double power = 1e-6;
    unsigned k = middle;

    ret[k++] = 0;
    for (unsigned e = 0; e < 7; e++, power *= 10) {
        const unsigned n = 1u << (e + (is_signed ? 0 : 1));

        for (unsigned j = 0; j < n; j++)
            ret[k++] = (float)(power * (0.1 + 0.9 * (j + 0.5) / n));
    }
    ret[k] = 1;
    for (unsigned j = 0; j < middle; j++)
        ret[j] = -ret[k - 1 - j];
}

static void pack_codes(const struct pst_task *t, int64_t i, int64_t end)
{
    const struct pst_simd_states *simd = pst_simd_states_best(t->isa);
    const bool is_signed = t->number != 0;
    const float *x = t->from[0];
    float *scales = t->from[1];
    uint8_t *y = t->to;
    float map[256], between[255];

    pst_states_map(is_signed, map);
    for (unsigned k = 0; k < 255; k++)
        between[k] = (map[k] + map[k + 1]) / 2;
    for (int64_t n; i < end; i += n) {
        float *scale = &scales[i / PST_STATES_BLOCK];

        n = PST_MIN(end - i, (int64_t)PST_STATES_BLOCK);
        *scale = simd->most(n, x + i);
        if (*scale > 0)
            simd->codes(n, x + i, *scale, between, is_signed, y + i);
        else
            memset(y + i, 0, (size_t)n);
    }
}

static void unpack_codes(const struct pst_task *t, int64_t i, int64_t end)
{
    const struct pst_simd_states *simd = pst_simd_states_best(t->isa);
    const uint8_t *x = t->from[0];
    const float *scales = t->from[1];
    float *y = t->to;
    float map[256];

    pst_states_map(t->number != 0, map);
    for (int64_t n; i < end; i += n) {
        n = PST_MIN(end - i, (int64_t)PST_STATES_BLOCK);
        simd->values(n, x + i, scales[i / PST_STATES_BLOCK], map, y + i);
    }
}

/* --- tasks ---------------------------------------------------------------- */

static void pack_part(void *ctx, unsigned part, unsigned parts)
{
    const struct pst_task *t = ctx;
    int64_t i, end;

    pst_pool_share(t->n, PST_TASK_GRAIN, part, parts, &i, &end);
    if (i < end)
        (t->dtype == PST_BF16 ? pack_bf16 : pack_codes)(t, i, end);
}

static void unpack_part(void *ctx, unsigned part, unsigned parts)
{
    const struct pst_task *t = ctx;
    int64_t i, end;

    pst_pool_share(t->n, PST_TASK_GRAIN, part, parts, &i, &end);
    if (i >= end)
        return;
    if (t->dtype == PST_BF16)
        pst_simd_from_16_best(PST_BF16, t->isa)(
            end - i, (const uint16_t *)t->from[0] + i, (float *)t->to + i);
    else
        unpack_codes(t, i, end);
}

void pst_cpu_pack(const struct pst_task *task)
{
    pst_pool_run(pst_pool_if(task->pool, task->n > PST_TASK_GRAIN), pack_part,
                 (void *)task);
}

void pst_cpu_unpack(const struct pst_task *task)
{
    pst_pool_run(pst_pool_if(task->pool, task->n > PST_TASK_GRAIN), unpack_part,
                 (void *)task);
}
