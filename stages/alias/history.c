// SPDX-License-Identifier: Apache-2.0
/*
 * Tensors that a caller has made apart on one storage know nothing of one
 * another's gradients: PyTorch follows the one that was written, and what the
 * others see of it counts as a number. In a base they would be one.
 */
#include "stages/alias/binder.h"
#include "stages/frontend/functional/overlap.h"

#define TAG PST_TAG_GRAPH

/* The operand that v is a view of, n: none is known. Those that are views of
 * one tensor are one. */
static unsigned family_of(const struct pst_binder *b, const struct pst_value *v)
{
    for (size_t i = b->families.n; i-- > 0;)
        if (b->families.at[i].value == v)
            return b->families.at[i].operand;
    return b->n;
}

enum pst_status pst_binder_adopt(struct pst_binder *b,
                                 const struct pst_value *v, unsigned operand)
{
    const struct pst_family family = {v, operand};

    if (operand >= b->n || family_of(b, v) == operand)
        return PST_OK;
    return pst_vec_push(TAG, &b->families, family) ? PST_OK
                                                   : pst_binder_no_memory(b);
}

enum pst_status pst_binder_inherit(struct pst_binder *b, struct pst_value *v,
                                   struct pst_value *of)
{
    if (family_of(b, of) == b->n ||
        pst_binder_owner(b, v) != pst_binder_owner(b, of))
        return b->build.status;
    return pst_binder_adopt(b, v, family_of(b, of));
}

static bool is_related(const struct pst_binder *b, unsigned x, unsigned y)
{
    const struct pst_alias_operand *a = &b->operands[x].as;

    return x == y || a->tensor == b->operands[y].as.tensor ||
           a->root == b->operands[y].as.root;
}

enum pst_status pst_binder_check_history(struct pst_binder *b,
                                         struct pst_value *v)
{
    const unsigned own = family_of(b, v);
    const struct pst_owner *owner = own < b->n ? pst_binder_owner(b, v) : NULL;
    const struct pst_value *now;

    for (size_t i = 0; owner != NULL && i < b->carriers.n; i++) {
        const struct pst_value *other = b->carriers.at[i].value;
        const unsigned k = b->carriers.at[i].operand;
        bool meet = false;
        enum pst_status status;

        if (is_related(b, own, k) ||
            pst_binder_owner(b, (struct pst_value *)other) != owner)
            continue;
        now = pst_functionalise_shape(b->functional, v);
        status = pst_windows_overlap(
            &(struct pst_window){&now->meta, now->offset},
            &(struct pst_window){&other->meta, other->offset}, &meet, b->diag);
        if (status != PST_OK || meet)
            return status != PST_OK
                       ? status
                       : pst_diag_set(
                             b->diag, PST_ERR_UNSUPPORTED,
                             "E_ALIAS_NONDIFF: \"%s\" shares memory with "
                             "\"%s\", which numbers with a gradient were "
                             "written to; only views of that see the gradient",
                             b->operands[own].as.name, b->operands[k].as.name);
    }
    return b->build.status;
}

enum pst_status pst_binder_note_history(struct pst_binder *b,
                                        struct pst_value *written,
                                        struct pst_value *source)
{
    const unsigned own = family_of(b, written);
    struct pst_family carrier = {NULL, own};

    if (own == b->n || b->build.no_grad ||
        !pst_functionalise_carries(b->functional, source))
        return b->build.status;
    carrier.value = pst_functionalise_shape(b->functional, written);
    if (carrier.value == NULL)
        return b->build.status;
    return pst_vec_push(TAG, &b->carriers, carrier) ? PST_OK
                                                    : pst_binder_no_memory(b);
}
