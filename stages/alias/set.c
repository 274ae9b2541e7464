// SPDX-License-Identifier: Apache-2.0
/* Emits set_(a, b[, offset, size, stride]): a becomes a view of b. */
#include "stages/alias/binder.h"
#include "stages/base/checked.h"
#include "stages/ops/core/op.h"
#include "stages/ops/core/rows.h"

/* Makes the offset of set_ relative to the start of the storage of its
 * source. */
static enum pst_status count_from_source(
    struct pst_binder *b, const struct pst_alias_program_arg *source,
    struct pst_arg *offset)
{
    struct pst_value *v = source->kind == PST_PROGRAM_NAME
                              ? pst_binder_find(b, source->names[0])
                              : NULL;
    const struct pst_owner *owner;

    if (v != NULL)
        v = pst_functionalise_shape(b->functional, v);
    owner = v != NULL ? pst_binder_owner(b, v) : NULL;
    if (v == NULL || offset->kind != PST_ARG_INT)
        return b->build.status != PST_OK
                   ? b->build.status
                   : pst_diag_set(b->diag, PST_E_ALIAS_CALL,
                                  "set_ has no source or no offset");
    if (PST_ADD(offset->i, v->offset, &offset->i) ||
        (owner != NULL &&
         PST_ADD(offset->i,
                 owner->begin / (int64_t)pst_dtype_size(v->meta.dtype),
                 &offset->i)))
        return pst_diag_set(b->diag, PST_E_ALIAS_CALL,
                            "the offset of set_ is too large");
    return b->build.status;
}

/* Called before a tensor moves to another storage: earlier writes through it
 * are recorded as writes through a view of its old storage, where they stay. */
static enum pst_status redirect_writes(struct pst_binder *b,
                                       struct pst_value *of)
{
    const struct pst_value *old = pst_functionalise_shape(b->functional, of);

    for (size_t i = 0; i < b->writes.n && old != NULL; i++) {
        struct pst_write *w = &b->writes.at[i];
        struct pst_value *now;

        if (pst_functionalise_shape(b->functional, w->value) != old)
            continue;
        now = pst_functionalise_read(b->functional, w->value);
        if (now != NULL)
            now = pst_emit(&b->build, &pst_op_alias, PST_ARGS(pst_v(now)));
        if (now == NULL)
            return b->build.status;
        w->value = now;
    }
    return b->build.status;
}

enum pst_status pst_binder_set(struct pst_binder *b,
                               const struct pst_alias_program_op *op)
{
    static const char *const whole = " set";
    static const char *const keywords[] = {NULL, NULL, "storage_offset", "size",
                                           "stride"};
    const bool part = op->n_args > 2;
    struct pst_alias_program_op view = {.op = part ? "aten.as_strided.default"
                                                   : "aten.alias.default",
                                        .outs = &whole,
                                        .n_outs = 1,
                                        .stage = op->stage,
                                        .no_grad = op->no_grad};
    struct pst_alias_program_arg args[5] = {0};
    int64_t contiguous[PST_MAX_RANK], step = 1;
    struct pst_value *of;
    enum pst_status status;

    if (op->n_args < 2 || op->n_args > 5 || op->n_args == 3 ||
        op->args[0].kind != PST_PROGRAM_NAME)
        return pst_diag_set(b->diag, PST_E_ALIAS_CALL,
                            "set_ takes a tensor and its source, and with an "
                            "offset sizes too");
    for (unsigned i = 1; i < op->n_args; i++) {
        args[i - 1] = op->args[i];
        if (i > 1 && args[i - 1].keyword == NULL)
            args[i - 1].keyword = keywords[i];
    }
    view.args = args;
    view.n_args = op->n_args - 1;
    if (op->n_args == 4) {
        const struct pst_arg *size = &op->args[3].literal;

        if (size->kind != PST_ARG_INTS || size->n > PST_MAX_RANK)
            return pst_diag_set(b->diag, PST_E_ALIAS_CALL, "set_: no sizes");
        for (unsigned d = size->n; d-- > 0; step *= PST_MAX(size->ints[d], 1))
            contiguous[d] = step;
        args[3].keyword = "stride";
        args[3].literal = pst_ints(contiguous, size->n);
        view.n_args = 4;
    }
    of = pst_binder_find(b, op->args[0].names[0]);
    status = of != NULL ? PST_OK : b->build.status;
    if (status == PST_OK && part)
        status = count_from_source(b, &args[0], &args[1].literal);
    if (status == PST_OK)
        status = pst_binder_emit(b, &view, 1);
    if (status == PST_OK)
        status = redirect_writes(b, of);
    if (status == PST_OK)
        status = pst_functionalise_set_window(b->functional, of,
                                              pst_binder_find(b, whole));
    if (status == PST_OK && op->n_outs > 0)
        status = pst_binder_name(b, op->outs[0], of);
    return status;
}
