// SPDX-License-Identifier: Apache-2.0
/* isin: sorts the test elements and searches them for each element. */
#include "stages/ops/sort/sort.h"

#include "stages/ops/core/rewrite.h"
#include "stages/ops/core/rows.h"
#include "stages/ops/pointwise/nd.h"

#define BLOCK 64

static bool is_equal(const struct pst_meta *m, int64_t a, int64_t b)
{
    return a == b &&
           (a != PST_SORT_NAN || pst_dtype_kind(m->dtype) != PST_KIND_FLOAT);
}

static void is_in_ref(const struct pst_call *c)
{
    const struct pst_operand *x = &c->in[0], *tests = &c->in[1];
    const int64_t n = pst_meta_numel(tests->meta);
    bool *out = c->out[0].data;

    for (int64_t i = 0; i < pst_meta_numel(x->meta); i++) {
        struct pst_sort_item a, b;

        out[i] = false;
        pst_sort_load(x, i, 1, 1, &a);
        for (int64_t k = 0; k < n && !out[i]; k++) {
            pst_sort_load(tests, k, 1, 1, &b);
            out[i] = is_equal(x->meta, a.key, b.key);
        }
    }
}

struct search {
    const struct pst_call *c;
    const struct pst_sort_item *items; /* sorted */
    int64_t n;
};

static bool find_key(const struct search *s, int64_t key)
{
    int64_t low = 0, size = s->n;

    while (size > 1) {
        const int64_t half = size / 2;

        low += s->items[low + half].key <= key ? half : 0;
        size -= half;
    }
    return is_equal(s->c->in[0].meta, s->items[low].key, key);
}

static void search_part(void *ctx, unsigned part, unsigned parts)
{
    const struct search *s = ctx;
    const struct pst_operand *x = &s->c->in[0];
    bool *out = s->c->out[0].data;
    struct pst_sort_item block[BLOCK];
    int64_t begin, end;

    pst_pool_share(pst_meta_numel(x->meta), BLOCK, part, parts, &begin, &end);
    for (int64_t i = begin; i < end; i += BLOCK) {
        const int64_t n = PST_MIN(end - i, BLOCK);

        pst_sort_load(x, i, 1, n, block);
        for (int64_t k = 0; k < n; k++)
            out[i + k] = find_key(s, block[k].key);
    }
}

static void is_in_sorted(const struct pst_call *c)
{
    const int64_t n = pst_meta_numel(c->in[1].meta);
    struct pst_sort_item *items = c->scratch;
    struct search s = {c, items, n};

    if (n == 0) {
        is_in_ref(c);
        return;
    }
    pst_sort_load(&c->in[1], 0, 1, n, items);
    pst_sort_items(items, items + n, n, false);
    pst_pool_run(
        pst_pool_if(c->pool, pst_meta_numel(c->in[0].meta) >= PST_ND_SERIAL),
        search_part, &s);
}

static size_t is_in_scratch(const struct pst_call *c,
                            unsigned threads PST_UNUSED)
{
    return 2 * (size_t)pst_meta_numel(c->in[1].meta) *
           sizeof(struct pst_sort_item);
}

static enum pst_status infer_is_in(struct pst_infer *c)
{
    const struct pst_meta *x;
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status == PST_OK)
        status = pst_infer_same_dtype(c, 0, 1);
    return status != PST_OK ? status : pst_infer_set_like(c, 0, PST_BOOL, x);
}

static const struct pst_kernel is_in_kernels[] = {
    {"is_in_sorted", PST_ISA_ANY, PST_D_ANY, 0, NULL, is_in_scratch,
     is_in_sorted, 0.0},
    {"is_in_ref", PST_ISA_ANY, PST_D_ANY, 0, NULL, NULL, is_in_ref, 0.0},
};
const struct pst_op pst_op_is_in = {
    .schema = "penstock::is_in(Tensor self, Tensor others) -> Tensor",
    .infer = infer_is_in,
    .vjp = pst_vjp_none,
};
PST_CPU_KERNELS(is_in, is_in_kernels);

/* Compares in the dtype to which both operands promote. */
static enum pst_status isin_rewrite(struct pst_rewrite *w)
{
    const enum pst_dtype dtype = pst_result_type(w->args, 2);
    struct pst_value *found =
        pst_rw(w, &pst_op_is_in,
               PST_ARGS(pst_v(pst_rw_cast(w, pst_rewrite_in(w, 0), dtype)),
                        pst_v(pst_rw_cast(w, pst_rewrite_in(w, 1), dtype))));

    if (w->args[3].b)
        found = pst_rw(w, &pst_op_logical_not, PST_ARGS(pst_v(found)));
    return pst_rewrite_out(w, 0, found);
}

PST_REWRITE(isin_Tensor_Tensor,
            "aten::isin.Tensor_Tensor(Tensor elements, Tensor test_elements, "
            "*, bool assume_unique=False, bool invert=False) -> Tensor",
            isin_rewrite);
