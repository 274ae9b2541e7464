// SPDX-License-Identifier: Apache-2.0
/* mode: the smallest of the most frequent elements of a lane. Its index is that
 * of the last of these elements in PyTorch's order. */
#include "stages/ops/sort/radix.h"

static void mode_ref(const struct pst_call *c)
{
    const struct pst_lane l = pst_lane_of(c->in[0].meta, c->args[1].i);

    for (int64_t k = 0; k < pst_lane_count(&l) && l.size > 0; k++) {
        const int64_t first = pst_lane_first(&l, k, l.size);
        int64_t best = 0, longest = 0, run = 0;

        struct pst_sort_pair *a = pst_sort_load_pairs(
            &c->in[0], first, l.inner, l.size, false, c->scratch);

        pst_sort_unstable(a, l.size);
        for (int64_t i = 0; i < l.size; i++) {
            run = i > 0 && a[i].key == a[i - 1].key ? run + 1 : 1;
            if (run > longest) {
                longest = run;
                best = i;
            }
        }
        best = a[best].index;
        pst_sort_store(c, k, first + best * l.inner, best);
    }
}

static size_t mode_scratch(const struct pst_call *c,
                           unsigned threads PST_UNUSED)
{
    return pst_sort_scratch(c, 1);
}

static const struct pst_kernel mode_kernels[] = {
    {"mode_ref", PST_ISA_ANY, PST_D_ANY, 0, NULL, mode_scratch, mode_ref, 0.0},
};
const struct pst_op pst_op_mode = {
    .schema = "aten::mode(Tensor self, int dim=-1, bool keepdim=False) -> "
              "(Tensor values, Tensor indices)",
    .infer = pst_sort_infer_one,
    .vjp = pst_vjp_formula,
    .formula = PST_SORT_PUT_ONE,
};
PST_CPU_KERNELS(mode, mode_kernels);
