// SPDX-License-Identifier: Apache-2.0
/*
 * Conjugates are views in PyTorch: a write to a tensor is visible in its
 * conjugate and vice versa. Strides cannot express that on pairs, so each
 * conjugate is a mirror: a storage of its own that is updated after each write
 * to the original.
 */
#include "stages/frontend/import/import.h"
#include "stages/frontend/import/nodes.h"
#include "stages/ops/core/op.h"
#include "stages/ops/core/rows.h"

#include <string.h>

/* Limit of chained conjugates, each of which is updated by the previous one. */
#define MAX_DEPTH 16

static struct pst_value *emit_conjugate(struct pst_import *import,
                                        struct pst_value *v)
{
    return pst_emit(&import->build, &pst_op_complex_conj, PST_ARGS(pst_v(v)));
}

static struct pst_value *owner_of(struct pst_import *import,
                                  struct pst_value *v)
{
    return pst_functionalise_owner(import->functional, v);
}

/* True if PyTorch has not yet applied the conjugation to the memory
 * (is_conj()). */
static bool is_lazy(struct pst_import *import, struct pst_value *v)
{
    for (size_t i = 0; i < import->mirrors.n; i++)
        if (owner_of(import, import->mirrors.at[i].conjugate) ==
            owner_of(import, v))
            return import->mirrors.at[i].lazy;
    return false;
}

/* True if the operator returns a conjugate that is a view, possibly
 * transposed. */
static bool makes_mirror(const struct pst_op *op, bool *ret_transposed)
{
    *ret_transposed = op == &pst_op_complex_mH ||
                      op == &pst_op_complex_adjoint ||
                      op == &pst_op_complex_matrix_H;
    return *ret_transposed || op == &pst_op_complex_conj ||
           op == &pst_op_complex__conj;
}

/* For a conjugate, makes a mirror; for resolve_conj() of a lazy conjugate, a
 * copy. NULL without an error: emit the operator as usual. */
static struct pst_value *make_mirror(struct pst_import *import,
                                     const struct pst_op *op,
                                     struct pst_value *v)
{
    struct pst_mirror m = {.of = v};
    bool transposed;

    if (op == &pst_op_complex_resolve_conj && is_lazy(import, v))
        return pst_emit(&import->build, &pst_op_clone, PST_ARGS(pst_v(v)));
    if (!makes_mirror(op, &transposed))
        return NULL;
    m.lazy = !is_lazy(import, v);
    if (transposed)
        m.of = pst_emit(&import->build, &pst_op_transpose_int,
                        PST_ARGS(pst_v(v), pst_i(-3), pst_i(-2)));
    m.conjugate = m.of != NULL ? emit_conjugate(import, m.of) : NULL;
    if (m.conjugate != NULL &&
        !pst_vec_push(PST_TAG_ARCHIVE, &import->mirrors, m))
        import->build.status = pst_diag_nomem(import->diag, sizeof(m));
    return m.conjugate;
}

enum pst_status pst_import_conjugate(struct pst_import *import,
                                     struct pst_scope *scope,
                                     const struct pst_target *target,
                                     const struct pst_names *names,
                                     const struct pst_arg *args, bool *ret_done)
{
    struct pst_value *v;
    enum pst_status status;

    *ret_done = false;
    if (!target->pairs || names->n != 1 || names->at[0] == NULL ||
        args[0].kind != PST_ARG_VALUE)
        return PST_OK;
    import->build.names = names->at;
    import->build.n_names = names->n;
    v = make_mirror(import, target->op, args[0].value);
    import->build.n_names = 0;
    status = import->build.status;
    if (status != PST_OK || v == NULL)
        return status;
    *ret_done = true;
    return pst_import_define(import, scope, names->at[0], v, &v->meta);
}

static enum pst_status write_mirror(struct pst_import *import,
                                    struct pst_value *to,
                                    struct pst_value *from)
{
    enum pst_status status = pst_import_writes_storage(import, to);
    struct pst_value *now;

    if (status != PST_OK)
        return status;
    now = pst_functionalise_read(import->functional, from);
    if (now != NULL)
        now = emit_conjugate(import, now);
    if (now != NULL)
        (void)pst_functionalise_write(import->functional, to, now);
    return import->build.status;
}

/* Updates the mirrors of a storage after a write. Mirror number `but` is
 * skipped: the write went through it. */
static enum pst_status update_mirrors(struct pst_import *import,
                                      const struct pst_value *storage,
                                      size_t but, unsigned depth)
{
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < import->mirrors.n && status == PST_OK; i++) {
        const struct pst_mirror m = import->mirrors.at[i];
        const bool forth = i != but && owner_of(import, m.of) == storage;
        const bool back = i != but && owner_of(import, m.conjugate) == storage;
        struct pst_value *to = forth ? m.conjugate : m.of;

        if (!forth && !back)
            continue;
        if (depth == MAX_DEPTH)
            return pst_diag_set(import->diag, PST_E_OP_NOT_SUPPORTED,
                                "writes to conjugates of conjugates, %d deep, "
                                "are not supported",
                                MAX_DEPTH);
        status = write_mirror(import, to, forth ? m.of : m.conjugate);
        if (status == PST_OK)
            status = update_mirrors(import, owner_of(import, to), i, depth + 1);
    }
    return status;
}

enum pst_status pst_import_update_mirrors(struct pst_import *import,
                                          struct pst_value *written)
{
    if (import->mirrors.n == 0)
        return PST_OK;
    return update_mirrors(import, owner_of(import, written), SIZE_MAX, 0);
}
