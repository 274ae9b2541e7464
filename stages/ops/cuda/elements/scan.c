// SPDX-License-Identifier: Apache-2.0
/* cumsum and arange. */
#include "stages/ops/reduce/lane.h"

#include <limits.h>

#include "stages/ops/create/arange.h"
#include "stages/ops/cuda/code/elements/scan.h"
#include "stages/ops/cuda/kernels.h"

/* minimum number of adjacent lanes for which a thread scans a whole lane */
#define LEAST_COLUMNS 32

#define D_WHOLE                                                                \
    (PST_D(BOOL) | PST_D(U8) | PST_D(I8) | PST_D(I16) | PST_D(I32) | PST_D(I64))

static void cumsum_run(const struct pst_call *c)
{
    static const enum pst_cuda_fn fns[2][3] = {
        {PST_FN_pst_scan_lane_f32, PST_FN_pst_scan_lane_f64,
         PST_FN_pst_scan_lane_whole},
        {PST_FN_pst_scan_columns_f32, PST_FN_pst_scan_columns_f64,
         PST_FN_pst_scan_columns_whole}};
    const enum pst_dtype dtype = c->in[0].meta->dtype;
    const struct pst_lane l = pst_lane_of(c->in[0].meta, c->args[1].i);
    struct pst_cuda_scan p = {.x = c->in[0].data,
                              .y = c->out[0].data,
                              .outer = l.outer,
                              .size = l.size,
                              .inner = l.inner};
    const unsigned kind = dtype == PST_F32 ? 0 : dtype == PST_F64 ? 1 : 2;

    (void)pst_cuda_type_of(dtype, &p.x_type);
    (void)pst_cuda_type_of(c->out[0].meta->dtype, &p.y_type);
    if (l.size == 0)
        return;
    if (l.inner >= LEAST_COLUMNS)
        pst_cuda_launch_n(c->stream, fns[1][kind], l.outer * l.inner, &p);
    else
        pst_cuda_launch(c->stream, fns[0][kind], l.outer * l.inner, 1, &p);
}

/* True if the result has the dtype of the elements (floats), or is i64
 * (integers and bool), and 32 bits can number the elements. */
static bool cumsum_fits(const struct pst_call *c)
{
    const enum pst_dtype from = c->in[0].meta->dtype;
    const enum pst_dtype to = c->out[0].meta->dtype;

    return (pst_dtype_kind(from) == PST_KIND_FLOAT ? to == from
                                                   : to == PST_I64) &&
           pst_meta_numel(c->in[0].meta) < INT_MAX;
}

static const struct pst_kernel cumsum_kernels[] = {
    {"cumsum_cuda_f32", PST_ISA_ANY, PST_D(F32), PST_K_QUEUED, cumsum_fits,
     NULL, cumsum_run, 1e-6},
    {"cumsum_cuda_f64", PST_ISA_ANY, PST_D(F64), PST_K_QUEUED, cumsum_fits,
     NULL, cumsum_run, 1e-12},
    {"cumsum_cuda_whole", PST_ISA_ANY, D_WHOLE, PST_K_QUEUED, cumsum_fits, NULL,
     cumsum_run, 0.0},
};
PST_CUDA_KERNELS(cumsum, cumsum_kernels);

/* --- arange --------------------------------------------------------------- */

static void range_run(const struct pst_call *c, unsigned n)
{
    const struct pst_arange r = pst_arange_of(c, n);
    struct pst_cuda_range p = {.y = c->out[0].data,
                               .n = pst_meta_numel(c->out[0].meta),
                               .first = r.first,
                               .by = r.by,
                               .start = r.start,
                               .step = r.step};

    (void)pst_cuda_type_of(c->out[0].meta->dtype, &p.type);
    pst_cuda_launch_n(c->stream, PST_FN_pst_range, p.n, &p);
}

#define RANGE(id, n)                                                           \
    static void id##_run(const struct pst_call *c)                             \
    {                                                                          \
        range_run(c, n);                                                       \
    }                                                                          \
    static const struct pst_kernel id##_kernels[] = {                          \
        {#id "_cuda", PST_ISA_ANY, PST_D(F32) | PST_D(F64) | D_WHOLE,          \
         PST_K_QUEUED, NULL, NULL, id##_run, 0.0},                             \
    };                                                                         \
    PST_CUDA_KERNELS(id, id##_kernels)
RANGE(arange, 1);
RANGE(arange_start, 2);
RANGE(arange_start_step, 3);
