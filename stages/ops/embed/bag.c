// SPDX-License-Identifier: Apache-2.0
/* Embedding bags (sums, means or maxima of table rows), and
 * embedding_renorm. */
#include "stages/ops/formula/formula.h"

/*
 * Bag k consists of the indices from offsets[k] up to the next offset. Modes: 0
 * sum, 1 mean, 2 max. Indices equal to padding_idx are skipped; an empty bag is
 * 0. The further results are those that PyTorch keeps for its gradient: the bag
 * of each index (empty in the fastest case), the sizes of bags, the index of
 * each maximum.
 *
 * scale_grad_by_freq divides the gradient of a row by the number of times that
 * row is read, as PyTorch documents it. PyTorch's own kernel uses the count of
 * another row unless the sorted indices are 0, 1, 2 ...
 */
PST_REWRITE_FORMULA(
    bag,
    "penstock::bag(Tensor weight, Tensor indices, Tensor offsets, "
    "bool scale_grad_by_freq, int mode, Tensor? per_sample_weights, "
    "bool include_last_offset, int padding_idx) -> "
    "(Tensor, Tensor, Tensor, Tensor)",
    "bags = numel(offsets) - (include_last_offset ? 1 : 0);"
    "n = numel(indices); width = size(weight, 1);"
    "at = searchsorted.Tensor(slice.Tensor(offsets, 0, 0, bags), "
    "arange(n, dtype=dtype(offsets)), right=True) - 1;"
    "keep = indices != padding_idx;"
    "rows = embedding(weight, indices, padding_idx, scale_grad_by_freq);"
    "scaled = is(per_sample_weights) ? "
    "rows * unsqueeze(per_sample_weights, 1) : rows;"
    "counted = padding_idx < 0 ? scaled : (unsqueeze(keep, 1) ? scaled : 0);"
    "by_freq = index_add(zeros([bags, width], dtype=dtype(weight)), 0, at, "
    "counted);"
    "all = add_rows(weight, indices, at, bags, per_sample_weights);"
    "some = add_rows(weight, indices, at, bags, per_sample_weights, keep);"
    "sums = scale_grad_by_freq ? by_freq : (padding_idx < 0 ? all : some);"
    "none = zeros([bags], dtype=i64);"
    "count = index_add(none, 0, at, cast(keep, i64));"
    "top = padding_idx < 0 ? max_rows(weight, indices, at, bags) : "
    "max_rows(weight, indices, at, bags, keep);"
    "fast = dtype(weight) == f32 ? padding_idx < 0 : False;"
    "mode == 0 ? sums : (mode == 1 ? sums / unsqueeze(clamp(count, 1), 1) : "
    "top[0]),"
    "mode == 0 ? (fast ? zeros([0], dtype=i64) : at) : at,"
    "mode == 0 ? none : count,"
    "mode == 0 ? none : (mode == 1 ? count : clamp_min(top[1], 0))");

#define BAG(id, name, padding)                                                 \
    PST_REWRITE_FORMULA(                                                       \
        id,                                                                    \
        "aten::" name "(Tensor weight, Tensor indices, Tensor offsets, "       \
        "bool scale_grad_by_freq=False, int mode=0, bool sparse=False, "       \
        "Tensor? per_sample_weights=None, bool "                               \
        "include_last_offset=False" padding                                    \
        ") -> (Tensor, Tensor, Tensor, Tensor)",                               \
        "bag(weight, indices, offsets, scale_grad_by_freq, mode, "             \
        "per_sample_weights, include_last_offset, " BAG_PADDING ")")

#define BAG_PADDING "-1"
BAG(embedding_bag, "embedding_bag", "");
#undef BAG_PADDING
#define BAG_PADDING "padding_idx"
BAG(_embedding_bag, "_embedding_bag", ", int padding_idx=-1");
BAG(_embedding_bag_forward_only, "_embedding_bag_forward_only",
    ", int padding_idx=-1");

PST_COMPOSE(embedding_bag_padding_idx,
            "embedding_bag.padding_idx(Tensor weight, Tensor indices, "
            "Tensor offsets, bool scale_grad_by_freq, int mode, bool sparse, "
            "Tensor? per_sample_weights, bool include_last_offset, "
            "int? padding_idx) -> (Tensor, Tensor, Tensor, Tensor)",
            "pad = is(padding_idx) ? (padding_idx < 0 ? "
            "padding_idx + size(weight, 0) : padding_idx) : -1;"
            "bag(weight, indices, offsets, scale_grad_by_freq, mode, "
            "per_sample_weights, include_last_offset, pad)");

/* Scales down rows that are read and whose norm exceeds max_norm. */
PST_COMPOSE(embedding_renorm,
            "embedding_renorm(Tensor self, Tensor indices, float max_norm, "
            "float norm_type) -> Tensor",
            "read = scatter.value(zeros([size(self, 0)], dtype=bool), 0, "
            "reshape(indices, [-1]), True);"
            "norm = linalg_vector_norm(self, norm_type, [1], True);"
            "scale = norm > max_norm ? max_norm / (norm + 1e-7) : 1.0;"
            "unsqueeze(read, 1) ? self * scale : self");
