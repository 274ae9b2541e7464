// SPDX-License-Identifier: Apache-2.0
/*
 * Fake quantisation whose step and zero point follow moving averages of the
 * smallest and the largest element, either of all of x or of each channel.
 */
#include "stages/ops/core/rewrite.h"
#include "stages/ops/core/rows.h"
#include "stages/ops/formula/formula.h"

#define OBSERVED                                                               \
    "Tensor self, Tensor observer_on, Tensor fake_quant_on, "                  \
    "Tensor running_min, Tensor running_max, Tensor scale, "                   \
    "Tensor zero_point, float averaging_const, int quant_min, "                \
    "int quant_max, int ch_axis, bool per_row_fake_quant=False, "              \
    "bool symmetric_quant=False"

/* The moving averages are infinite before the first tensor, whose extremes they
 * take. */
PST_REWRITE_FORMULA(
    moving_extrema,
    "penstock::moving_extrema(Tensor self, Tensor observer_on, "
    "Tensor running_min, Tensor running_max, float averaging_const, "
    "int ch_axis, bool per_row) -> (Tensor, Tensor)",
    "x = cast(detach(self), dtype(running_min));"
    "around = others(x, ch_axis);"
    "low = per_row ? amin(x, around) : amin(x);"
    "high = per_row ? amax(x, around) : amax(x);"
    "on = reshape(observer_on, []) != 0;"
    "lower = running_min + averaging_const * (low - running_min);"
    "higher = running_max + averaging_const * (high - running_max);"
    "on ? (isinf(running_min) ? low : lower) : running_min,"
    "on ? (isinf(running_max) ? high : higher) : running_max");

/* Returns the step in f64, and the zero point in steps, for a range of f32.
 * SMALL is the smallest step; a narrower range is widened to it. */
#define SMALL "0.000060999998822808266"
PST_REWRITE_FORMULA(
    step_of_range,
    "penstock::step_of_range(Tensor lowest, Tensor highest, int quant_min, "
    "int quant_max, bool symmetric) -> (Tensor, Tensor)",
    "steps = quant_max - quant_min; half = steps // 2;"
    "both = logical_and(lowest < 0, highest > 0);"
    "reach = maximum(abs(lowest / (-half - 1)), abs(highest / half));"
    "even_low = cast(cast(reach, f64) * (-half - 1), dtype(lowest));"
    "even_high = cast(cast(reach, f64) * half, dtype(lowest));"
    "some_low = symmetric ? (both ? even_low : lowest) : lowest;"
    "some_high = symmetric ? (both ? even_high : highest) : highest;"
    "low = some_low > 0 ? 0 : some_low;"
    "high = some_high < 0 ? 0 : some_high;"
    "whole = (cast(high, f64) - cast(low, f64)) / steps;"
    "short = cast(whole, f32);"
    "step = logical_or(short == 0, isinf(reciprocal(short))) ? 0.1 : whole;"
    "tiny = step < " SMALL ";"
    "more = full([], " SMALL ", dtype=f32) / cast(step, f32);"
    "first = tiny ? (low == 0 ? low : (high == 0 ? -" SMALL " * steps :"
    " low * more)) : low;"
    "last = tiny ? (low == 0 ? " SMALL " * steps : (high == 0 ? high :"
    " high * more)) : high;"
    "s = tiny ? " SMALL " : step;"
    "below = cast(first, f64) / s; above = cast(last, f64) / s;"
    "least = quant_min < 0 ? -quant_min : quant_min;"
    "most = quant_max < 0 ? -quant_max : quant_max;"
    "nearer = least - abs(below) < most - abs(above) ? quant_min - below :"
    " quant_max - above;"
    "zero = symmetric ? (logical_and(first < 0, last > 0) ?"
    " (quant_min + quant_max) / 2 : nearer) : nearer;"
    "s, clamp(round(zero), quant_min, quant_max)");

PST_COMPOSE(
    _fused_moving_avg_obs_fq_helper_functional,
    "_fused_moving_avg_obs_fq_helper_functional(" OBSERVED
    ") -> (Tensor output, Tensor mask, Tensor running_min_out, "
    "Tensor running_max_out, Tensor scale_out, Tensor zero_point_out)",
    "range = moving_extrema(self, observer_on, running_min, running_max,"
    " averaging_const, ch_axis, per_row_fake_quant);"
    "of = step_of_range(range[0], range[1], quant_min, quant_max,"
    " symmetric_quant);"
    "on = reshape(fake_quant_on, []) != 0;"
    "step = on ? reshape(cast(of[0], dtype(scale)), sizes(scale)) : scale;"
    "zero = on ? reshape(cast(of[1], dtype(zero_point)), sizes(zero_point)) :"
    " zero_point;"
    "r = per_row_fake_quant ?"
    " fake_quantize_per_channel_affine_cachemask(self, step, zero, ch_axis,"
    " quant_min, quant_max) :"
    " _fake_quantize_per_tensor_affine_cachemask_tensor_qparams(self, step,"
    " zero, fake_quant_on, quant_min, quant_max);"
    "on ? r[0] : self, logical_or(r[1], logical_not(on)),"
    "range[0], range[1], step, zero");

/* Writes the averages, the step and the zero point to arguments 3 to 6. */
static enum pst_status observe(struct pst_rewrite *w)
{
    const struct pst_op *op =
        &pst_op__fused_moving_avg_obs_fq_helper_functional;
    PST_UNINIT struct pst_rewrite f;

    if (pst_op_rewrite(op, w->build, w->args, w->schema->n_args, &f) != PST_OK)
        return w->build->status;
    for (unsigned i = 0; i < 4; i++)
        w->writes[3 + i] = f.outs[2 + i];
    for (unsigned i = 0; i < w->n_outs; i++)
        w->outs[i] = f.outs[i];
    return w->build->status;
}

PST_REWRITE(_fused_moving_avg_obs_fq_helper,
            "aten::_fused_moving_avg_obs_fq_helper(" OBSERVED
            ") -> (Tensor output, Tensor mask)",
            observe);
PST_REWRITE(fused_moving_avg_obs_fake_quant,
            "aten::fused_moving_avg_obs_fake_quant(" OBSERVED ") -> Tensor",
            observe);
