// SPDX-License-Identifier: Apache-2.0
#include "stages/frontend/import/layout/eager.h"

#include "stages/frontend/functional/eager.h"
#include "stages/ops/core/rows.h"

#include <string.h>

#define TAG PST_TAG_ARCHIVE

/* --- strides of values ---------------------------------------------------- */

static const struct pst_import_strides *entry_of(
    const struct pst_import *import, const struct pst_value *v)
{
    const struct pst_import_strides *e =
        v->id < import->strides.n ? &import->strides.at[v->id] : NULL;

    return e != NULL && e->known && e->rank == v->meta.rank ? e : NULL;
}

struct pst_meta pst_import_eager_meta(const struct pst_import *import,
                                      const struct pst_value *v)
{
    const struct pst_import_strides *e = entry_of(import, v);
    struct pst_meta ret = v->meta;

    if (e != NULL)
        memcpy(ret.stride, e->stride, ret.rank * sizeof(*ret.stride));
    return ret;
}

static bool is_corrected(const struct pst_import *import,
                         const struct pst_value *v)
{
    const struct pst_import_strides *e = entry_of(import, v);

    return e != NULL && e->corrected;
}

bool pst_import_correct_strides(struct pst_import *import,
                                const struct pst_value *value,
                                struct pst_doc_meta *t)
{
    const struct pst_import_strides *e =
        import->expected.known ? &import->expected : entry_of(import, value);
    bool ret = false;

    if (e != NULL && !t->pairs && e->rank == t->meta.rank)
        for (unsigned d = 0; d < t->meta.rank; d++)
            if (t->meta.stride[d] != e->stride[d]) {
                t->meta.stride[d] = e->stride[d];
                ret = true;
            }
    import->expected.known = false;
    return ret;
}

enum pst_status pst_import_keep_strides(struct pst_import *import,
                                        const struct pst_value *value,
                                        const struct pst_doc_meta *t,
                                        bool put_right)
{
    const size_t id = value->id;
    struct pst_import_strides *e;

    if (t->pairs || t->meta.rank != value->meta.rank ||
        entry_of(import, value) != NULL ||
        (!put_right && memcmp(t->meta.stride, value->meta.stride,
                              t->meta.rank * sizeof(*t->meta.stride)) == 0))
        return PST_OK;
    if (import->strides.n <= id) {
        const size_t more = id + 1 - import->strides.n;

        if (!pst_vec_grow(TAG, (void **)&import->strides.at,
                          &import->strides.cap, import->strides.n, more,
                          sizeof(*import->strides.at)))
            return pst_diag_nomem(import->diag, id);
        memset(&import->strides.at[import->strides.n], 0,
               more * sizeof(*import->strides.at));
        import->strides.n = id + 1;
    }
    e = &import->strides.at[id];
    e->known = true;
    e->corrected = put_right;
    e->rank = t->meta.rank;
    memcpy(e->stride, t->meta.stride, e->rank * sizeof(*e->stride));
    return PST_OK;
}

/* --- expected strides of a result ----------------------------------------- */

/* Formats in the file: 1 contiguous; 2 channels last, 3 the same for volumes.
 */
static enum pst_eager_format format_of(const struct pst_doc_node *node)
{
    const struct pst_doc_arg *arg =
        pst_doc_arg(node, "memory_format", PST_DOC_MEMORY_FORMAT);

    if (arg == NULL)
        return PST_EAGER_PRESERVE;
    return arg->code == 1                     ? PST_EAGER_CONTIGUOUS
           : arg->code == 2 || arg->code == 3 ? PST_EAGER_CHANNELS_LAST
                                              : PST_EAGER_PRESERVE;
}

bool pst_import_wants_channels(const struct pst_doc_node *node)
{
    return format_of(node) == PST_EAGER_CHANNELS_LAST;
}

bool pst_import_returns_itself(const struct pst_import *import,
                               const struct pst_doc_node *node,
                               const struct pst_value *v, bool contiguous)
{
    const struct pst_meta m = pst_import_eager_meta(import, v);

    if (contiguous && pst_import_wants_channels(node))
        return pst_eager_is_channels_last(&m);
    if (contiguous)
        return pst_meta_is_contiguous(&m);
    switch (format_of(node)) {
    case PST_EAGER_CONTIGUOUS:
        return !pst_eager_suggests_channels_last(&m);
    case PST_EAGER_CHANNELS_LAST:
        return pst_eager_suggests_channels_last(&m);
    case PST_EAGER_PRESERVE:
        break;
    }
    return true;
}

/* A node's operands with the strides that PyTorch has in eager mode. */
struct eager_operands {
    struct pst_arg *args;
    struct pst_value *values, **list;
    unsigned n, n_list;
    bool odd;       /* an operand is not contiguous in eager mode */
    bool corrected; /* eager strides of an operand differ from the file's */
};

static struct pst_value *add_shadow(struct eager_operands *s,
                                    const struct pst_import *import,
                                    const struct pst_scope *scope,
                                    const char *name,
                                    const struct pst_value *now)
{
    struct pst_value *ret = &s->values[s->n++];
    const struct pst_value *v =
        name != NULL ? pst_map_get(&scope->values, name) : NULL;
    struct pst_meta rows;

    *ret = *now;
    if (v != NULL && v->meta.rank == now->meta.rank &&
        pst_meta_same_shape(&v->meta, &now->meta)) {
        const struct pst_meta m = pst_import_eager_meta(import, v);

        memcpy(ret->meta.stride, m.stride, sizeof(m.stride));
        s->corrected = s->corrected || is_corrected(import, v);
    }
    rows = ret->meta;
    pst_meta_set_contiguous(&rows);
    s->odd = s->odd || memcmp(rows.stride, ret->meta.stride,
                              rows.rank * sizeof(*rows.stride)) != 0;
    return ret;
}

/* Allocates shadows of all operands; false if out of memory. */
static bool alloc_shadows(struct eager_operands *s,
                          const struct pst_schema *schema,
                          const struct pst_arg *args)
{
    unsigned n = 0;

    *s = (struct eager_operands){.n = 0};
    for (unsigned i = 0; i < schema->n_args; i++)
        n += args[i].kind == PST_ARG_VALUE    ? 1
             : args[i].kind == PST_ARG_VALUES ? args[i].n
                                              : 0;
    s->args = pst_calloc(TAG, schema->n_args + 1, sizeof(*s->args));
    s->values = pst_calloc(TAG, n + 1, sizeof(*s->values));
    s->list = pst_calloc(TAG, n + 1, sizeof(*s->list));
    return s->args != NULL && s->values != NULL && s->list != NULL;
}

static void fini_shadows(struct eager_operands *s)
{
    pst_free(s->args);
    pst_free(s->values);
    pst_free(s->list);
}

static void fill_shadows(struct eager_operands *s,
                         const struct pst_import *import,
                         const struct pst_scope *scope,
                         const struct pst_doc_node *node,
                         const struct pst_schema *schema,
                         const struct pst_arg *args)
{
    for (unsigned i = 0; i < schema->n_args; i++) {
        const char *name = schema->args[i].name;
        const struct pst_doc_arg *arg;

        s->args[i] = args[i];
        if (args[i].kind == PST_ARG_VALUE) {
            arg = pst_doc_arg(node, name, PST_DOC_TENSOR);
            s->args[i].value =
                add_shadow(s, import, scope, arg != NULL ? arg->name : NULL,
                           args[i].value);
        } else if (args[i].kind == PST_ARG_VALUES) {
            arg = pst_doc_arg(node, name, PST_DOC_TENSORS);
            s->args[i].values = &s->list[s->n_list];
            for (unsigned k = 0; k < args[i].n; k++)
                s->list[s->n_list++] =
                    args[i].values[k] == NULL
                        ? NULL
                        : add_shadow(s, import, scope,
                                     arg != NULL && k < arg->n ? arg->names[k]
                                                               : NULL,
                                     args[i].values[k]);
        }
    }
}

static void expect_strides(struct pst_import *import, const struct pst_meta *m)
{
    import->expected.known = true;
    import->expected.rank = m->rank;
    memcpy(import->expected.stride, m->stride, m->rank * sizeof(*m->stride));
}

/* Expects the strides of a view of an operand whose strides were corrected, or
 * of the copy that replaces the view. */
static void expect_view(struct pst_import *import,
                        const struct eager_operands *s, const struct pst_op *op,
                        unsigned i, const struct pst_value *value)
{
    PST_UNINIT struct pst_infer c;
    PST_UNINIT struct pst_diag diag;

    if (pst_op_is_rewrite(op)) {
        expect_strides(import, &value->meta);
        return;
    }
    pst_diag_init(&diag);
    c.schema = pst_op_schema(op);
    c.args = s->args;
    c.hint = PST_N_DTYPES;
    c.diag = &diag;
    if (pst_op_infer(op, &c) == PST_OK && i < c.n_outs)
        expect_strides(import, &c.out[i]);
}

enum pst_status pst_import_expect_strides(
    struct pst_import *import, const struct pst_scope *scope,
    const struct pst_doc_node *node, const struct pst_op *op,
    const struct pst_arg *args, unsigned i, const struct pst_value *value)
{
    const struct pst_schema *schema = pst_op_schema(op);
    const enum pst_eager_format format = format_of(node);
    const bool view = (op->flags & PST_OP_VIEW) != 0 || value->base != NULL;
    struct eager_operands s;
    struct pst_meta m = value->meta;

    import->expected.known = false;
    if (!alloc_shadows(&s, schema, args)) {
        fini_shadows(&s);
        return pst_diag_nomem(import->diag, schema->n_args);
    }
    fill_shadows(&s, import, scope, node, schema, args);
    if ((s.odd || s.corrected || format == PST_EAGER_CHANNELS_LAST) && !view &&
        pst_eager_strides(op, s.args, schema->n_args, format, &value->meta,
                          m.stride))
        expect_strides(import, &m);
    else if (s.corrected && (view || (op->flags & PST_OP_MAYBE_VIEW) != 0))
        expect_view(import, &s, op, i, value);
    fini_shadows(&s);
    return PST_OK;
}
