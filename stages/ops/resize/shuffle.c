// SPDX-License-Identifier: Apache-2.0
/* pixel_shuffle and pixel_unshuffle, as views and permutations. */
#include "stages/ops/core/rewrite.h"

/* Leading dimensions are kept. pixel_shuffle views (C r^2, H, W) as (C, r, r,
 * H, W) and permutes that to (C, H, r, W, r); pixel_unshuffle does the
 * reverse. */
static enum pst_status rewrite_shuffle(struct pst_rewrite *w, bool up)
{
    struct pst_value *x = pst_rewrite_in(w, 0);
    const int64_t r = w->args[1].i;
    const struct pst_meta *m = &x->meta;
    struct pst_build *b = w->build;
    struct pst_extent size[PST_MAX_RANK + 3], c, h, v, by = pst_extent(r);
    int64_t order[PST_MAX_RANK + 3];
    const unsigned lead = m->rank < 3 ? 0 : m->rank - 3;
    const int64_t *tail = m->size + lead;
    char text[PST_META_TEXT];

    if (m->rank < 3 || m->rank + 2 > PST_MAX_RANK || r < 1 || r > INT32_MAX ||
        (up ? tail[0] % (r * r) != 0 : tail[1] % r != 0 || tail[2] % r != 0))
        return pst_rewrite_fail(w, "%s has no blocks of %lld",
                                pst_meta_text(m, text), (long long)r);
    for (unsigned d = 0; d < lead; d++) {
        size[d] = pst_rw_size(w, x, d);
        order[d] = d;
    }
    for (unsigned d = 0; d < 5; d++) {
        static const int64_t to_pixels[] = {0, 3, 1, 4, 2};
        static const int64_t to_channels[] = {0, 2, 4, 1, 3};

        order[lead + d] = lead + (up ? to_pixels[d] : to_channels[d]);
    }
    c = pst_rw_size(w, x, lead);
    h = pst_rw_size(w, x, lead + 1);
    v = pst_rw_size(w, x, lead + 2);
    if (up) {
        c = pst_extent_floordiv(b, c, pst_extent(r * r));
    } else {
        h = pst_extent_floordiv(b, h, by);
        v = pst_extent_floordiv(b, v, by);
    }
    size[lead] = c;
    size[lead + 1] = up ? by : h;
    size[lead + 2] = by;
    size[lead + 3] = up ? h : v;
    size[lead + 4] = up ? v : by;
    x = pst_rw_reshape(w, x, lead + 5, size);
    x = pst_rw_permute(w, x, order, lead + 5);
    size[lead] = up ? c : pst_extent_mul(b, c, pst_extent(r * r));
    size[lead + 1] = up ? pst_extent_mul(b, h, by) : h;
    size[lead + 2] = up ? pst_extent_mul(b, v, by) : v;
    x = pst_rw_reshape(w, x, lead + 3, size);
    return pst_rewrite_out(w, 0, pst_rw_own(w, x, 0));
}

static enum pst_status shuffle_rewrite(struct pst_rewrite *w)
{
    return rewrite_shuffle(w, true);
}

static enum pst_status unshuffle_rewrite(struct pst_rewrite *w)
{
    return rewrite_shuffle(w, false);
}

PST_REWRITE(pixel_shuffle,
            "aten::pixel_shuffle(Tensor self, int upscale_factor) -> Tensor",
            shuffle_rewrite);
PST_REWRITE(
    pixel_unshuffle,
    "aten::pixel_unshuffle(Tensor self, int downscale_factor) -> Tensor",
    unshuffle_rewrite);
