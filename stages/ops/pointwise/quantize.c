// SPDX-License-Identifier: Apache-2.0
/*
 * Fake quantisation: q = round(x / scale) + zero_point, clamped to
 * quant_min..quant_max, gives (q - zero_point) * scale. The gradient of x
 * passes unchanged where q was not clamped (straight-through).
 */
#include "stages/ops/formula/formula.h"

#define LIMITS   ", int quant_min, int quant_max"
#define AND_MASK ") -> (Tensor output, Tensor mask)"

/* x + (m - detach(m)) has the value of x and the gradient of m. Scale and zero
 * point must broadcast to self. */
PST_REWRITE_FORMULA(
    quantised,
    "penstock::quantised(Tensor self, Tensor scale, Tensor zero_point" LIMITS
        AND_MASK,
    "type = dtype(self) == f64 ? f64 : f32;"
    "x = cast(detach(self), type); s = detach(scale); z = detach(zero_point);"
    "q = floating(z) ? round(x * reciprocal(s) + z) :"
    " round(x * reciprocal(s)) + z;"
    "mask = logical_and(q >= quant_min, q <= quant_max);"
    "y = (clamp(q, quant_min, quant_max) - z) * s;"
    "m = mask ? self : 0;"
    "cast(y, dtype(self)) + (m - detach(m)), mask");

/* --- per tensor: numbers or tensors of one element ------------------------ */

#define NUMBERS                                                                \
    "quantised(self, full([], scale, dtype=f32), "                             \
    "full([], zero_point, dtype=i32), quant_min, quant_max)"
#define ONES                                                                   \
    "quantised(self, reshape(scale, []), reshape(zero_point, []), "            \
    "quant_min, quant_max)"
PST_COMPOSE(fake_quantize_per_tensor_affine,
            "fake_quantize_per_tensor_affine(Tensor self, float scale, "
            "int zero_point" LIMITS ") -> Tensor",
            NUMBERS "[0]");
PST_COMPOSE(fake_quantize_per_tensor_affine_cachemask,
            "fake_quantize_per_tensor_affine_cachemask(Tensor self, "
            "float scale, int zero_point" LIMITS AND_MASK,
            "r = " NUMBERS "; r[0], r[1]");
PST_COMPOSE(fake_quantize_per_tensor_affine_tensor_qparams,
            "fake_quantize_per_tensor_affine.tensor_qparams(Tensor self, "
            "Tensor scale, Tensor zero_point" LIMITS ") -> Tensor",
            ONES "[0]");
PST_COMPOSE(_fake_quantize_per_tensor_affine_cachemask_tensor_qparams,
            "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams("
            "Tensor self, Tensor scale, Tensor zero_point, "
            "Tensor fake_quant_enabled" LIMITS AND_MASK,
            "r = " ONES "; on = reshape(fake_quant_enabled, []) != 0;"
            "on ? r[0] : self, logical_or(r[1], logical_not(on))");

/* --- per channel ---------------------------------------------------------- */

#define CHANNELS                                                               \
    "quantised(self, along(scale, self, axis), "                               \
    "along(zero_point, self, axis), quant_min, quant_max)"
PST_COMPOSE(fake_quantize_per_channel_affine,
            "fake_quantize_per_channel_affine(Tensor self, Tensor scale, "
            "Tensor zero_point, int axis" LIMITS ") -> Tensor",
            CHANNELS "[0]");
PST_COMPOSE(fake_quantize_per_channel_affine_cachemask,
            "fake_quantize_per_channel_affine_cachemask(Tensor self, "
            "Tensor scale, Tensor zero_point, int axis" LIMITS AND_MASK,
            "r = " CHANNELS "; r[0], r[1]");

/* --- learnable scale and zero point --------------------------------------- */

/* Where q is clamped, the gradient of scale is the limit minus the zero
 * point and that of the zero point is -scale; elsewhere scale gets the
 * rounding error in steps. `shift` is the zero point of the forward pass,
 * `back` that of the gradients. */
PST_REWRITE_FORMULA(
    quantised_learning,
    "penstock::quantised_learning(Tensor self, Tensor scale, "
    "Tensor zero_point, Tensor shift, Tensor back" LIMITS
    ", float grad_factor) -> Tensor",
    "x = detach(self); s = detach(scale);"
    "y = quantised(self, s, cast(shift, i32), quant_min, quant_max);"
    "q = round(x * reciprocal(s)) + back;"
    "low = q < quant_min; high = q > quant_max;"
    "ds = low ? quant_min - back : (high ? quant_max - back :"
    " ((q - back) * s - x) * reciprocal(s));"
    "dz = logical_or(low, high) ? -s : 0;"
    "y[0] + (scale - s) * (ds * grad_factor)"
    " + (zero_point - detach(zero_point)) * (dz * grad_factor)");
#define ROUNDED "clamp(round(detach(z)), quant_min, quant_max)"
/* PyTorch adds a half to the zero point and truncates, but only in the forward
 * pass. */
PST_COMPOSE(_fake_quantize_learnable_per_tensor_affine,
            "_fake_quantize_learnable_per_tensor_affine(Tensor self, "
            "Tensor scale, Tensor zero_point" LIMITS
            ", float grad_factor=1.) -> Tensor",
            "z = reshape(zero_point, []);"
            "quantised_learning(self, reshape(scale, []), z, "
            "trunc(clamp(detach(z) + 0.5, quant_min, quant_max)), " ROUNDED
            ", quant_min, quant_max, grad_factor)");
PST_COMPOSE(_fake_quantize_learnable_per_channel_affine,
            "_fake_quantize_learnable_per_channel_affine(Tensor self, "
            "Tensor scale, Tensor zero_point, int axis" LIMITS
            ", float grad_factor=1.) -> Tensor",
            "z = along(zero_point, self, axis); r = " ROUNDED ";"
            "quantised_learning(self, along(scale, self, axis), z, r, r, "
            "quant_min, quant_max, grad_factor)");
