// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/sizes/sizes.h"
#include "stages/ops/core/rows.h"

/* --- the table ---------------------------------------------------------- */

static const struct {
    const struct pst_op *op;
    pst_sizes_fn rule;
} rules[] = {
    {&pst_op_clone, pst_sizes_same},
    {&pst_op_contiguous, pst_sizes_same},
    {&pst_op_detach, pst_sizes_same},
    {&pst_op_pass_if, pst_sizes_same},
    {&pst_op_alias, pst_sizes_same},
    {&pst_op__to_copy, pst_sizes_same},
    {&pst_op_softmax_int, pst_sizes_same},
    {&pst_op__softmax, pst_sizes_same},
    {&pst_op_log_softmax_int, pst_sizes_same},
    {&pst_op__log_softmax, pst_sizes_same},
    {&pst_op__safe_softmax, pst_sizes_same},
    {&pst_op_cumsum, pst_sizes_same},
    {&pst_op_cumprod, pst_sizes_same},
    {&pst_op_logcumsumexp, pst_sizes_same},
    {&pst_op_cummax, pst_sizes_same},
    {&pst_op_cummin, pst_sizes_same},
    {&pst_op_flip, pst_sizes_same},
    {&pst_op_roll, pst_sizes_same},
    {&pst_op_tril, pst_sizes_same},
    {&pst_op_triu, pst_sizes_same},
    {&pst_op_sort, pst_sizes_same},
    {&pst_op_sort_stable, pst_sizes_same},
    {&pst_op_argsort, pst_sizes_same},
    {&pst_op_dropout, pst_sizes_same},
    {&pst_op_bernoulli_p, pst_sizes_same},
    {&pst_op_rrelu_with_noise_functional, pst_sizes_same},
    {&pst_op_layer_norm, pst_sizes_same},
    {&pst_op_rms_norm, pst_sizes_same},
    {&pst_op_norm_apply, pst_sizes_same},
    {&pst_op_write_strided, pst_sizes_same},
    {&pst_op_with_history, pst_sizes_same},
    {&pst_op_by_mode, pst_sizes_same},
    {&pst_op_scatter_add, pst_sizes_same},
    {&pst_op_scatter_src, pst_sizes_same},
    {&pst_op_scatter_value, pst_sizes_same},
    {&pst_op_scatter_reduce, pst_sizes_same},
    {&pst_op_index_put, pst_sizes_same},
    {&pst_op_index_add, pst_sizes_same},
    {&pst_op_index_copy, pst_sizes_same},
    {&pst_op_masked_scatter, pst_sizes_same},
    {&pst_op_full_like, pst_sizes_same},
    {&pst_op_ones_like, pst_sizes_same},
    {&pst_op_zeros_like, pst_sizes_same},
    {&pst_op_rand_like, pst_sizes_same},
    {&pst_op_randn_like, pst_sizes_same},
    {&pst_op_bernoulli, pst_sizes_same},
    {&pst_op_bernoulli_Tensor, pst_sizes_same},
    {&pst_op_norm_mode, pst_sizes_same},
    {&pst_op_norm_stats, pst_sizes_counted_groups},
    {&pst_op_is_in, pst_sizes_same},
    {&pst_op__prelu_kernel, pst_sizes_same},
    {&pst_op_fft, pst_sizes_same},
    {&pst_op_linalg_cross, pst_sizes_elements},
    {&pst_op_gather, pst_sizes_like_2},
    {&pst_op_bucketize_Tensor, pst_sizes_same},
    {&pst_op_searchsorted_Tensor, pst_sizes_like_1},
    {&pst_op_sum_dim_IntList, pst_sizes_reduced},
    {&pst_op_mean_dim, pst_sizes_reduced},
    {&pst_op_amax, pst_sizes_reduced},
    {&pst_op_amin, pst_sizes_reduced},
    {&pst_op_any_dim, pst_sizes_reduced},
    {&pst_op_all_dim, pst_sizes_reduced},
    {&pst_op_max_dim, pst_sizes_reduced},
    {&pst_op_min_dim, pst_sizes_reduced},
    {&pst_op_argmax, pst_sizes_reduced},
    {&pst_op_argmin, pst_sizes_reduced},
    {&pst_op_prod_dim_int, pst_sizes_reduced},
    {&pst_op_logsumexp, pst_sizes_reduced},
    {&pst_op_linalg_vector_norm, pst_sizes_reduced},
    {&pst_op_var_correction, pst_sizes_reduced},
    {&pst_op_median_dim, pst_sizes_reduced},
    {&pst_op_kthvalue, pst_sizes_reduced},
    {&pst_op_topk, pst_sizes_counted},
    {&pst_op_view, pst_sizes_viewed},
    {&pst_op__unsafe_view, pst_sizes_viewed},
    {&pst_op_reshape, pst_sizes_viewed},
    {&pst_op_as_strided, pst_sizes_sized},
    {&pst_op_new_zeros, pst_sizes_sized},
    {&pst_op_expand, pst_sizes_expanded},
    {&pst_op_unsqueeze, pst_sizes_unsqueezed},
    {&pst_op_squeeze, pst_sizes_squeezed},
    {&pst_op_squeeze_dim, pst_sizes_squeezed},
    {&pst_op_squeeze_dims, pst_sizes_squeezed},
    {&pst_op_transpose_int, pst_sizes_swapped},
    {&pst_op_t, pst_sizes_swapped},
    {&pst_op_mT, pst_sizes_swapped},
    {&pst_op_permute, pst_sizes_permuted},
    {&pst_op_select_int, pst_sizes_without_dim},
    {&pst_op_unbind_int, pst_sizes_without_dim},
    {&pst_op_slice_Tensor, pst_sizes_sliced},
    {&pst_op_narrow, pst_sizes_narrowed},
    {&pst_op_movedim_int, pst_sizes_moved},
    {&pst_op_chunk, pst_sizes_cut},
    {&pst_op_split_Tensor, pst_sizes_cut},
    {&pst_op_split_sizes, pst_sizes_cut},
    {&pst_op_split_with_sizes, pst_sizes_cut},
    {&pst_op_broadcast_tensors, pst_sizes_elements},
    {&pst_op_rnn_layer, pst_sizes_recurred},
    {&pst_op_convolution_backward_input, pst_sizes_like_list_2},
    {&pst_op_diagonal, pst_sizes_on_diagonal},
    {&pst_op_unfold, pst_sizes_windows},
    {&pst_op_col2im, pst_sizes_of_columns},
    {&pst_op_cat, pst_sizes_joined},
    {&pst_op_stack, pst_sizes_stacked},
    {&pst_op_repeat, pst_sizes_repeated},
    {&pst_op_constant_pad_nd, pst_sizes_padded},
    {&pst_op_full, pst_sizes_made},
    {&pst_op_zeros, pst_sizes_made},
    {&pst_op_ones, pst_sizes_made},
    {&pst_op_arange, pst_sizes_counted_up},
    {&pst_op_arange_start_step, pst_sizes_counted_up},
    {&pst_op_eye, pst_sizes_unit},
    {&pst_op_matmul, pst_sizes_multiplied},
    {&pst_op_mm, pst_sizes_multiplied},
    {&pst_op_bmm, pst_sizes_multiplied},
    {&pst_op_distances, pst_sizes_paired},
    {&pst_op_linear, pst_sizes_linear},
    {&pst_op_addmm, pst_sizes_added_product},
    {&pst_op_baddbmm, pst_sizes_added_product},
    {&pst_op_scaled_dot_product_attention, pst_sizes_attended},
    {&pst_op_convolution, pst_sizes_convolved},
    {&pst_op_embedding, pst_sizes_looked_up},
    {&pst_op_add_rows, pst_sizes_of_rows},
    {&pst_op_max_rows, pst_sizes_of_rows},
    {&pst_op_index_select, pst_sizes_selected},
    {&pst_op_max_pool, pst_sizes_pooled},
    {&pst_op_avg_pool, pst_sizes_pooled},
    {&pst_op_adaptive_max_pool, pst_sizes_resized},
    {&pst_op_adaptive_avg_pool, pst_sizes_resized},
    {&pst_op_resize, pst_sizes_resized},
    {&pst_op_grid_sampler_2d, pst_sizes_sampled},
    {&pst_op_grid_sampler_3d, pst_sizes_sampled},
};

void pst_op_sizes(const struct pst_op *op, struct pst_build *build,
                  struct pst_node *node)
{
    const struct pst_site s = {build, node};

    if (op->sizes != NULL) {
        op->sizes(build, node);
        return;
    }
    for (size_t i = 0; i < PST_COUNT(rules); i++)
        if (rules[i].op == op) {
            rules[i].rule(&s);
            return;
        }
    /* Operators of the elementwise family that are not in the table. */
    if (pst_op_family(op) == pst_op_family(&pst_op_add_Tensor)) {
        pst_sizes_elements(&s);
        return;
    }
    for (unsigned k = 0; k < node->n_outs; k++)
        for (unsigned d = 0; d < node->outs[k]->meta.rank; d++)
            pst_site_unknown(&s, k, d);
}
