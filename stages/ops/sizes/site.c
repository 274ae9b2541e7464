// SPDX-License-Identifier: Apache-2.0
/* Helpers of the size rules: arguments, sizes and dimensions of one node. */
#include "stages/ops/sizes/sizes.h"

const struct pst_value *pst_site_in(const struct pst_site *s, unsigned i)
{
    const struct pst_arg *arg = &s->node->args[i];

    return arg->kind == PST_ARG_VALUE ? arg->value : NULL;
}

/* Returns the argument of that name; NULL if the operator has none or the
 * argument is None. */
const struct pst_arg *pst_site_arg(const struct pst_site *s, const char *name)
{
    const int i = pst_schema_arg(s->node->schema, name);

    return i < 0 || s->node->args[i].kind == PST_ARG_NONE ? NULL
                                                          : &s->node->args[i];
}

struct pst_extent pst_site_size(const struct pst_site *s,
                                const struct pst_value *v, unsigned d)
{
    return pst_extent_of(s->b, v, d);
}

void pst_site_set(const struct pst_site *s, unsigned k, unsigned d,
                  struct pst_extent size)
{
    struct pst_value *out = s->node->outs[k];

    if (d < out->meta.rank)
        pst_extent_set(s->b, out, d, size);
}

void pst_site_unknown(const struct pst_site *s, unsigned k, unsigned d)
{
    const struct pst_extent unknown = {s->node->outs[k]->meta.size[d],
                                       pst_expr_unknown};

    pst_site_set(s, k, d, unknown);
}

/* Gives the results from `first` on the sizes of v; a result of another rank
 * gets unknown sizes. */
void pst_site_like(const struct pst_site *s, unsigned first,
                   const struct pst_value *v)
{
    for (unsigned k = first; k < s->node->n_outs && v != NULL; k++)
        for (unsigned d = 0; d < v->meta.rank; d++)
            if (s->node->outs[k]->meta.rank == v->meta.rank)
                pst_site_set(s, k, d, pst_site_size(s, v, d));
            else if (d < s->node->outs[k]->meta.rank)
                pst_site_unknown(s, k, d);
}

int pst_site_dim(const struct pst_value *v, const struct pst_arg *dim,
                 int64_t otherwise)
{
    return pst_meta_dim(
        &v->meta, dim != NULL && dim->kind == PST_ARG_INT ? dim->i : otherwise);
}

bool pst_site_reduces(const struct pst_value *x, const struct pst_arg *dim,
                      unsigned d)
{
    if (dim == NULL || (dim->kind == PST_ARG_INTS && dim->n == 0))
        return true;
    if (dim->kind == PST_ARG_INT)
        return pst_meta_dim(&x->meta, dim->i) == (int)d;
    for (unsigned k = 0; k < dim->n; k++)
        if (pst_meta_dim(&x->meta, dim->ints[k]) == (int)d)
            return true;
    return false;
}
