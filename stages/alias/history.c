// SPDX-License-Identifier: Apache-2.0
/*
 * Gradient history of operands that share a storage. PyTorch does not connect
 * tensors that the caller made separately on one storage: gradients follow the
 * tensor that was written, and for the other tensors the new content is a
 * constant. Views of a common base would be connected, so it is recorded which
 * operand a view belongs to.
 */
#include "stages/alias/binder.h"
#include "stages/frontend/functional/overlap.h"
#include "stages/graph/build.h"
#include "stages/ops/core/rows.h"

#include <stdio.h>

#define TAG PST_TAG_GRAPH

/* Returns the operand that v is a view of; n: unknown. Views of one tensor
 * belong to the same operand. */
static unsigned family_of(const struct pst_binder *b, const struct pst_value *v)
{
    for (size_t i = b->families.n; i-- > 0;)
        if (b->families.at[i].value == v)
            return b->families.at[i].operand;
    return b->n;
}

enum pst_status pst_binder_note_view(struct pst_binder *b,
                                     const struct pst_value *v,
                                     unsigned operand)
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
    return pst_binder_note_view(b, v, family_of(b, of));
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
                             b->diag, PST_E_ALIAS_SHARED_WRITE,
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
        !pst_functionalise_has_gradient(b->functional, source))
        return b->build.status;
    carrier.value = pst_functionalise_shape(b->functional, written);
    if (carrier.value == NULL)
        return b->build.status;
    return pst_vec_push(TAG, &b->carriers, carrier) ? PST_OK
                                                    : pst_binder_no_memory(b);
}

/* --- reading and writing -------------------------------------------------- */

/* Returns the leaf that gets the gradient of a view of the owner, if the
 * storage itself carries no gradient; else NULL. */
static struct pst_value *leaf_of(const struct pst_binder *b,
                                 const struct pst_owner *owner,
                                 const struct pst_value *v)
{
    const unsigned own = family_of(b, v);

    if (owner == NULL)
        return NULL;
    if (owner->expanded)
        return b->values[owner->operand];
    return !owner->leaf && own < b->n && b->operands[own].leaf != NULL
               ? b->values[own]
               : NULL;
}

/* Returns the current value of v. If v belongs to a leaf whose elements share
 * memory, or whose storage other operands write, the content is the storage's
 * and the gradient goes to the leaf, which has one entry per element. For a
 * view, as_strided distributes the gradient, as PyTorch does when it
 * regenerates the history. */
struct pst_value *pst_binder_read(struct pst_binder *b, struct pst_value *v)
{
    struct pst_value *now = pst_functionalise_read(b->functional, v);
    const struct pst_owner *owner = now != NULL && now != v && !b->build.no_grad
                                        ? pst_binder_owner(b, v)
                                        : NULL;
    struct pst_value *leaf = leaf_of(b, owner, v);

    if (leaf == NULL || pst_functionalise_is_detached(b->functional, v))
        return now;
    if (v != leaf)
        leaf = pst_emit(
            &b->build, &pst_op_as_strided,
            PST_ARGS(pst_v(leaf), pst_ints(v->meta.size, v->meta.rank),
                     pst_ints(v->meta.stride, v->meta.rank), pst_i(v->offset)));
    return leaf == NULL ? NULL
                        : pst_emit(&b->build, &pst_op_with_history,
                                   PST_ARGS(pst_v(now), pst_v(leaf)));
}

struct reading {
    const struct pst_value *storage;
    bool any;
};

static void record_reading(void *ctx, struct pst_value **slot, unsigned arg)
{
    struct reading *r = ctx;

    (void)arg;
    r->any = r->any || pst_value_storage(*slot) == r->storage;
}

/* True if a node with a gradient has read this version of a storage, which is a
 * leaf's content. No other check detects that a write follows such a read,
 * because the storage itself carries no gradient. */
static bool was_read(const struct pst_binder *b,
                     const struct pst_value *version)
{
    struct reading r = {.storage = version};

    for (size_t i = 0; i < b->graph->nodes.n && !r.any; i++) {
        struct pst_node *node = b->graph->nodes.at[i];

        if (node->n_outs > 0 && node->outs[0]->base == NULL &&
            pst_functionalise_has_gradient(b->functional, node->outs[0]))
            pst_node_uses(node, record_reading, &r);
    }
    return r.any;
}

/* Returns the operand of a leaf whose content is in the owner's storage; n:
 * none. */
static unsigned leaf_in(struct pst_binder *b, const struct pst_owner *owner)
{
    if (owner->expanded)
        return owner->operand;
    for (unsigned i = 0; i < b->n && !owner->leaf; i++)
        if (b->operands[i].leaf != NULL && b->values[i] != NULL &&
            pst_binder_owner(b, b->values[i]) == owner)
            return i;
    return b->n;
}

/* If a write through v replaces content of a leaf that was read, records the
 * error to report if a gradient depends on that content. */
static enum pst_status record_silent(struct pst_binder *b, struct pst_value *v,
                                     const struct pst_owner *owner)
{
    const unsigned leaf = leaf_in(b, owner);
    const struct pst_value *now =
        leaf < b->n ? pst_functionalise_read(b->functional, v) : NULL;
    char why[400];

    if (now != NULL)
        now = pst_value_storage((struct pst_value *)now);
    if (now == NULL || !was_read(b, now))
        return b->build.status;
    (void)snprintf(why, sizeof(why),
                   "E_ALIAS_NONDIFF: leaf \"%.200s\" is written, but its "
                   "numbers before that are needed for a gradient",
                   b->operands[leaf].leaf);
    (void)pst_functionalise_note_silent(b->functional, now,
                                        PST_E_ALIAS_SHARED_WRITE, why);
    return b->build.status;
}

enum pst_status pst_binder_note_write(struct pst_binder *b, struct pst_value *v)
{
    struct pst_owner *owner = pst_binder_owner(b, v);
    struct pst_write write = {v, 0};
    unsigned operand = b->n;

    if (owner == NULL) /* v is an intermediate */
        return b->build.status;
    write.owner = (size_t)(owner - b->owners.at);
    if (owner->leaf || leaf_of(b, owner, v) != NULL)
        operand = owner->leaf ? owner->operand : family_of(b, v);
    if (operand < b->n && !b->build.no_grad &&
        !pst_functionalise_is_detached(b->functional, v))
        return pst_diag_set(b->diag, PST_E_ALIAS_SHARED_WRITE,
                            "E_LEAF: leaf \"%s\", which wants a gradient, is "
                            "written outside of no_grad",
                            b->operands[operand].leaf);
    if (record_silent(b, v, owner) != PST_OK)
        return b->build.status;
    if (owner->stage >= 0 && owner->stage != (int)b->stage &&
        !b->operands[owner->operand].from_before)
        return pst_diag_set(b->diag, PST_E_ALIAS_SHARED_WRITE,
                            "E_SHARED_MUT: \"%s\" is written in stage %d and "
                            "in stage %u",
                            b->operands[owner->operand].as.name, owner->stage,
                            b->stage);
    owner->stage = (int)b->stage;
    return pst_vec_push(TAG, &b->writes, write) ? PST_OK
                                                : pst_binder_no_memory(b);
}
