// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/reduce/whole.h"

#include "stages/ops/cpu/simd/whole.h"

#define COLS 512 /* columns at a time */

struct whole {
    const struct pst_call *call;
    const struct pst_simd_whole *simd;
    struct pst_box box;
    enum pst_whole how;
};

bool pst_whole_fits_sum(const struct pst_call *call, int arg)
{
    const enum pst_dtype from = call->in[0].meta->dtype;
    struct pst_box box;

    return (from == PST_BOOL || from == PST_I64) &&
           call->out[0].meta->dtype == PST_I64 &&
           pst_reduce_box(call, arg, &box);
}

bool pst_whole_fits_logic(const struct pst_call *call, int arg)
{
    struct pst_box box;

    return call->in[0].meta->dtype == PST_BOOL &&
           call->out[0].meta->dtype == PST_BOOL &&
           pst_reduce_box(call, arg, &box);
}

static void store_results(const struct whole *w, int64_t o, int64_t n,
                          const int64_t *sum)
{
    uint8_t *yes = w->call->out[0].data;
    int64_t *y = w->call->out[0].data;

    for (int64_t i = 0; i < n; i++)
        if (w->how == PST_WHOLE_SUM)
            y[o + i] = sum[i];
        else
            yes[o + i] =
                w->how == PST_WHOLE_ANY ? sum[i] > 0 : sum[i] == w->box.rows;
}

static void along_part(void *ctx, unsigned part, unsigned parts)
{
    const struct whole *w = ctx;
    const struct pst_operand *x = &w->call->in[0];
    const int64_t n = w->box.rows;
    int64_t begin, end;

    pst_pool_share(w->box.outer, 64, part, parts, &begin, &end);
    for (int64_t o = begin; o < end; o++) {
        const int64_t sum =
            x->meta->dtype == PST_I64
                ? w->simd->sum_i64(n, (const int64_t *)x->data + o * n)
                : w->simd->sum_bool(n, (const uint8_t *)x->data + o * n);

        store_results(w, o, 1, &sum);
    }
}

static void across_part(void *ctx, unsigned part, unsigned parts)
{
    const struct whole *w = ctx;
    const struct pst_operand *x = &w->call->in[0];
    const struct pst_box *b = &w->box;
    int64_t begin, end, sum[COLS];

    pst_pool_share(b->cols, 64, part, parts, &begin, &end);
    for (int64_t o = 0; o < b->outer; o++)
        for (int64_t j = begin; j < end; j += COLS) {
            const int64_t n = PST_MIN(end - j, COLS);
            const int64_t at = o * b->rows * b->cols + j;

            if (x->meta->dtype == PST_I64)
                w->simd->columns_i64(b->rows, n, b->cols,
                                     (const int64_t *)x->data + at, sum);
            else
                w->simd->columns_bool(b->rows, n, b->cols,
                                      (const uint8_t *)x->data + at, sum);
            store_results(w, o * b->cols + j, n, sum);
        }
}

void pst_whole_run(const struct pst_call *call, int arg, enum pst_whole how)
{
    struct whole w = {
        .call = call, .simd = pst_simd_whole_best(pst_cpu_isa()), .how = how};

    (void)pst_reduce_box(call, arg, &w.box);
    pst_pool_run(pst_pool_if(call->pool,
                             pst_meta_numel(call->in[0].meta) >= PST_ND_SERIAL),
                 w.box.cols == 1 ? along_part : across_part, &w);
}
