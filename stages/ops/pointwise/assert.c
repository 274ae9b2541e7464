// SPDX-License-Identifier: Apache-2.0
/*
 * Assertions. Assertions on data are nodes, which no pass removes; a false one
 * makes the step fail. Assertions on sizes and dtypes are checked by the
 * importer through shape inference, and make no node.
 */
#include "stages/ops/core/infer.h"
#include "stages/ops/core/rewrite.h"
#include "stages/ops/core/rows.h"

/* --- on data -------------------------------------------------------------- */

static enum pst_status infer_one_element(struct pst_infer *c)
{
    const struct pst_meta *x;
    char text[PST_META_TEXT];
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status != PST_OK)
        return status;
    if (pst_meta_numel(x) != 1)
        return pst_infer_fail(c, "wants one element, got %s",
                              pst_meta_text(x, text));
    c->n_outs = 0;
    return PST_OK;
}

/* NaN is true, as in PyTorch. */
static void assert_ref(const struct pst_call *c)
{
    if (pst_load_f64(c->in[0].meta->dtype, c->in[0].data, 0) == 0.0)
        pst_call_fault(c,
                       c->args[1].s[0] != '\0' ? PST_FAULT_ASSERTION
                                               : PST_FAULT_ASSERTION_PLAIN,
                       {0});
}

static const struct pst_kernel assert_kernels[] = {
    {"assert_ref", PST_ISA_ANY, PST_D_ANY, PST_K_STRIDED, NULL, NULL,
     assert_ref, 0.0},
};

const struct pst_op pst_op_assert = {
    .schema = "penstock::assert(Tensor self, str text) -> ()",
    .flags = PST_OP_EFFECT,
    .infer = infer_one_element,
    .vjp = pst_vjp_none,
};
PST_CPU_KERNELS(assert, assert_kernels);

static enum pst_status emit_assert(struct pst_rewrite *w, const char *text)
{
    return pst_rewrite_effect(w, &pst_op_assert,
                              PST_ARGS(w->args[0], pst_text(text)));
}

static enum pst_status without_text(struct pst_rewrite *w)
{
    return emit_assert(w, "");
}

static enum pst_status with_text(struct pst_rewrite *w)
{
    return emit_assert(w, w->args[1].s);
}

static enum pst_status functional(struct pst_rewrite *w)
{
    enum pst_status status = with_text(w);

    return status == PST_OK ? pst_rewrite_out(w, 0, pst_rewrite_in(w, 2))
                            : status;
}

PST_REWRITE(_assert_async, "aten::_assert_async(Tensor self) -> ()",
            without_text);
PST_REWRITE(_assert_async_msg,
            "aten::_assert_async.msg(Tensor self, str assert_msg) -> ()",
            with_text);
PST_REWRITE(_functional_assert_async_msg,
            "aten::_functional_assert_async.msg(Tensor self, str assert_msg, "
            "Tensor dep_token) -> Tensor",
            functional);

/* --- on sizes and dtypes -------------------------------------------------- */

/* Checks dtype and sizes but not strides, since this program chooses its own
 * strides. */
static enum pst_status infer_metadata(struct pst_infer *c)
{
    const struct pst_meta *x;
    char text[PST_META_TEXT];
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status != PST_OK)
        return status;
    if (pst_infer_dtype(c, 3, x->dtype) != x->dtype)
        return pst_infer_fail(c, "%s is not %s", pst_meta_text(x, text),
                              pst_dtype_name(pst_infer_dtype(c, 3, x->dtype)));
    if (c->args[1].kind == PST_ARG_INTS) {
        bool same = c->args[1].n == x->rank;

        for (unsigned d = 0; same && d < x->rank; d++)
            same = c->args[1].ints[d] == x->size[d];
        if (!same)
            return pst_infer_fail(c, "%s has other sizes",
                                  pst_meta_text(x, text));
    }
    return PST_OK;
}

const struct pst_op pst_op__assert_tensor_metadata = {
    .schema = "aten::_assert_tensor_metadata(Tensor a, SymInt[]? size=None, "
              "SymInt[]? stride=None, ScalarType? dtype=None, *, "
              "Device? device=None, Layout? layout=None) -> ()",
    .flags = PST_OP_EFFECT,
    .infer = infer_metadata,
    .vjp = pst_vjp_none,
};
