// SPDX-License-Identifier: Apache-2.0
/*
 * Twice over the operators: first with operands that share nothing, which tells
 * what is written; then with bases in the place of those that meet.
 */
#include "stages/alias/program.h"

#include "stages/alias/strides.h"
#include "stages/frontend/functional/functionalise.h"
#include "stages/frontend/import/import.h"
#include "stages/ops/op.h"
#include "stages/ops/rows.h"

#include <stdio.h>
#include <string.h>

#define TAG PST_TAG_GRAPH

/* A value that owns memory of the caller's. */
struct owner {
    const struct pst_value *value;
    unsigned operand; /* one whose storage it is */
    int64_t begin;    /* where it lies there, bytes */
    int stage;        /* that has written it; -1: none */
    bool leaf;
};

/* A window of an owner that has been written. */
struct write {
    struct pst_value *value;
    size_t owner;
};

struct binder {
    const struct pst_program *program;
    struct pst_program_operand *operands;
    unsigned n;
    const struct pst_alias *alias; /* NULL: they share nothing */
    struct pst_graph *graph;
    struct pst_build build;
    struct pst_functionalise *functional;
    struct pst_map names;      /* -> struct pst_value */
    struct pst_value **values; /* of the operands */
    struct PST_VEC(struct owner) owners;
    struct PST_VEC(struct write) writes;
    unsigned stage;
    struct pst_diag *diag;
};

void pst_program_input_name(bool base, unsigned i, char out[32])
{
    (void)snprintf(out, 32, base ? "base.%u" : "operand.%u", i);
}

static enum pst_status no_memory(const struct binder *b)
{
    return pst_diag_nomem(b->diag, sizeof(struct pst_value));
}

static enum pst_status put_name(struct binder *b, const char *name,
                                struct pst_value *value)
{
    if (name == NULL || pst_map_put(&b->names, name, value))
        return PST_OK;
    return no_memory(b);
}

/* --- operands ------------------------------------------------------------- */

static enum pst_status own(struct binder *b, const struct pst_value *value,
                           unsigned operand, int64_t begin, bool leaf)
{
    const struct owner owner = {pst_value_storage((void *)value), operand,
                                begin, -1, leaf};

    return pst_vec_push(TAG, &b->owners, owner) ? PST_OK : no_memory(b);
}

/* The window of meta at `offset` (elements) of a flat value. */
static struct pst_value *look(struct binder *b, struct pst_value *flat,
                              const struct pst_meta *meta, int64_t offset)
{
    struct pst_value *ret =
        pst_emit(&b->build, &pst_op_as_strided,
                 PST_ARGS(pst_v(flat), pst_ints(meta->size, meta->rank),
                          pst_ints(meta->stride, meta->rank), pst_i(offset)));

    if (ret != NULL && ret->meta.dtype != meta->dtype)
        ret = pst_emit(&b->build, &pst_op_view_dtype,
                       PST_ARGS(pst_v(ret), pst_dtype_arg(meta->dtype)));
    return ret;
}

/* One that is passed as it is: contiguous, or flat with a window on it. */
static enum pst_status pass(struct binder *b, unsigned i)
{
    const struct pst_program_operand *o = &b->operands[i];
    const struct pst_meta *meta = &o->as.meta;
    const bool leaf = o->leaf != NULL && b->alias != NULL;
    const bool whole = pst_meta_is_contiguous(meta);
    const int64_t item = (int64_t)pst_dtype_size(meta->dtype);
    const int64_t n = (int64_t)pst_meta_span(meta) / item;
    const struct pst_meta flat = pst_meta_make(meta->dtype, 1, &n);
    struct pst_value *v;
    char name[32];

    for (unsigned k = 0; leaf && k < i; k++) /* the same one again */
        if (b->operands[k].as.tensor == o->as.tensor) {
            b->values[i] = b->values[k];
            return PST_OK;
        }
    pst_program_input_name(false, i, name);
    v = pst_graph_add_value(b->graph, leaf ? PST_VALUE_PARAM : PST_VALUE_INPUT,
                            name, leaf ? o->leaf : NULL, whole ? meta : &flat);
    if (v == NULL)
        return no_memory(b);
    v->requires_grad = leaf;
    if (leaf) /* writes go to a copy, whose gradient is the leaf's */
        v = pst_emit(&b->build, &pst_op_clone, PST_ARGS(pst_v(v)));
    b->values[i] = v;
    if (v != NULL && !whole)
        b->values[i] = look(b, v, meta, 0);
    if (b->values[i] == NULL)
        return b->build.status;
    return own(b, v, i, o->as.offset * item, leaf);
}

static enum pst_status pass_base(struct binder *b, unsigned index)
{
    const struct pst_alias_base *base = &b->alias->bases[index];
    const int64_t item = (int64_t)pst_dtype_size(base->dtype);
    const int64_t n = (base->end - base->begin) / item;
    const struct pst_meta meta = pst_meta_make(base->dtype, 1, &n);
    struct pst_value *v;
    char name[32];

    pst_program_input_name(true, index, name);
    v = pst_graph_add_value(b->graph, PST_VALUE_INPUT, name, NULL, &meta);
    if (v == NULL)
        return no_memory(b);
    for (unsigned i = 0; i < b->n; i++) {
        const struct pst_alias_operand *o = &b->operands[i].as;

        if (b->alias->parts[i].base != (int)index)
            continue;
        if (b->operands[i].leaf != NULL)
            return pst_diag_set(b->diag, PST_ERR_UNSUPPORTED,
                                "E_ALIAS_NONDIFF: leaf \"%s\", which wants a "
                                "gradient, shares memory with another operand, "
                                "and one of them is written",
                                o->name);
        b->values[i] = look(b, v, &o->meta, o->offset - base->begin / item);
        if (b->values[i] == NULL)
            return b->build.status;
    }
    return own(b, v, base->first, base->begin, false);
}

/* Bases first, then what stays, both in the order of operands. */
static enum pst_status pass_all(struct binder *b)
{
    enum pst_status status = PST_OK;

    for (unsigned k = 0; b->alias != NULL && k < b->alias->n_bases; k++)
        if (status == PST_OK &&
            !b->operands[b->alias->bases[k].first].from_before)
            status = pass_base(b, k);
    for (unsigned i = 0; i < b->n && status == PST_OK; i++)
        if (b->values[i] == NULL &&
            (b->alias == NULL ||
             (b->alias->parts[i].same == i && !b->operands[i].from_before)))
            status = pass(b, i);
    for (unsigned i = 0; i < b->n && status == PST_OK; i++) {
        if (b->values[i] == NULL && b->alias != NULL)
            b->values[i] = b->values[b->alias->parts[i].same];
        if (b->values[i] == NULL) /* made by what runs before */
            continue;
        status = put_name(b, b->operands[i].as.name, b->values[i]);
        if (status == PST_OK)
            status = put_name(b, b->operands[i].again, b->values[i]);
    }
    return status;
}

/* --- operators ------------------------------------------------------------ */

struct emission {
    struct binder *b;
    const struct pst_program_op *op;
    const struct pst_op *row;
    const struct pst_schema *schema;
    struct pst_arg *args; /* as they are called */
};

static struct pst_value *find(struct binder *b, const char *name)
{
    struct pst_value *ret = pst_map_get(&b->names, name);

    if (ret == NULL)
        b->build.status = pst_diag_set(b->diag, PST_ERR_INPUT,
                                       "no tensor is called \"%s\"", name);
    return ret;
}

static bool take_arg(struct emission *e, const struct pst_program_arg *from,
                     struct pst_arg *ret)
{
    struct binder *b = e->b;

    *ret = from->literal;
    if (from->kind == PST_PROGRAM_LITERAL)
        return true;
    if (from->kind == PST_PROGRAM_NAME) {
        *ret = pst_v(find(b, from->names[0]));
        return ret->value != NULL;
    }
    *ret = pst_values(pst_arena_calloc(&b->graph->arena, from->n + 1,
                                       sizeof(struct pst_value *)),
                      from->n);
    if (ret->values == NULL) {
        b->build.status = no_memory(b);
        return false;
    }
    for (unsigned k = 0; k < from->n; k++) {
        if (from->names[k] == NULL)
            continue;
        ret->values[k] = find(b, from->names[k]);
        if (ret->values[k] == NULL)
            return false;
    }
    return true;
}

/* In the order of the schema, values as they stand. */
static bool bind_args(struct emission *e)
{
    struct binder *b = e->b;
    bool *given =
        pst_arena_calloc(&b->graph->arena, e->schema->n_args + 1, sizeof(bool));

    e->args = pst_arena_calloc(&b->graph->arena, e->schema->n_args + 1,
                               sizeof(*e->args));
    if (e->args == NULL || given == NULL) {
        b->build.status = no_memory(b);
        return false;
    }
    for (unsigned i = 0; i < e->schema->n_args; i++)
        e->args[i] = e->schema->args[i].def;
    for (unsigned i = 0; i < e->op->n_args; i++) {
        const struct pst_program_arg *arg = &e->op->args[i];
        const int at = arg->keyword == NULL
                           ? (int)i
                           : pst_import_find_arg(e->schema, arg->keyword);

        if (at < 0 || at >= (int)e->schema->n_args || given[at]) {
            b->build.status = pst_diag_set(
                b->diag, PST_ERR_INPUT, "%s has no argument \"%s\" (number %u)",
                e->op->op, arg->keyword != NULL ? arg->keyword : "", i);
            return false;
        }
        given[at] = true;
        if (!take_arg(e, arg, &e->args[at]))
            return false;
    }
    for (unsigned i = 0; i < e->schema->n_args; i++)
        if (!given[i] && !e->schema->args[i].has_default &&
            !e->schema->args[i].optional) {
            b->build.status =
                pst_diag_set(b->diag, PST_ERR_INPUT, "%s: \"%s\" is missing",
                             e->op->op, e->schema->args[i].name);
            return false;
        }
    return true;
}

/* Their newest versions, coerced; NULL after a failure. */
static struct pst_arg *newest(struct emission *e)
{
    struct binder *b = e->b;
    const unsigned n = e->schema->n_args;
    struct pst_arg *now =
        pst_arena_calloc(&b->graph->arena, n + 1, sizeof(*now));
    struct pst_arg *ret =
        pst_arena_calloc(&b->graph->arena, n + 1, sizeof(*ret));

    if (now == NULL || ret == NULL) {
        b->build.status = no_memory(b);
        return NULL;
    }
    for (unsigned i = 0; i < n && b->build.status == PST_OK; i++) {
        now[i] = e->args[i];
        if (now[i].kind == PST_ARG_VALUES)
            b->build.status =
                pst_arg_copy(&b->graph->arena, &e->args[i], &now[i], b->diag);
        if (now[i].kind == PST_ARG_VALUE)
            now[i].value = pst_functionalise_read(b->functional, now[i].value);
        for (unsigned k = 0; now[i].kind == PST_ARG_VALUES && k < now[i].n; k++)
            if (now[i].values[k] != NULL)
                now[i].values[k] =
                    pst_functionalise_read(b->functional, now[i].values[k]);
    }
    if (b->build.status == PST_OK)
        b->build.status = pst_build_args(&b->build, e->schema, now, n, ret);
    return b->build.status == PST_OK ? ret : NULL;
}

/* Remembers that the window of v is written, and asks whether it may be. */
static enum pst_status note_write(struct binder *b, struct pst_value *v)
{
    const struct pst_value *value = pst_functionalise_owner(b->functional, v);
    struct write write = {v, 0};
    struct owner *owner;

    while (write.owner < b->owners.n &&
           b->owners.at[write.owner].value != value)
        write.owner++;
    if (write.owner == b->owners.n) /* an intermediate */
        return value != NULL ? PST_OK : b->build.status;
    owner = &b->owners.at[write.owner];
    if (owner->leaf && !b->build.no_grad)
        return pst_diag_set(b->diag, PST_ERR_UNSUPPORTED,
                            "E_LEAF: leaf \"%s\", which wants a gradient, is "
                            "written outside of no_grad",
                            b->operands[owner->operand].leaf);
    if (owner->stage >= 0 && owner->stage != (int)b->stage &&
        !b->operands[owner->operand].from_before)
        return pst_diag_set(b->diag, PST_ERR_UNSUPPORTED,
                            "E_SHARED_MUT: \"%s\" is written in stage %d and "
                            "in stage %u",
                            b->operands[owner->operand].as.name, owner->stage,
                            b->stage);
    owner->stage = (int)b->stage;
    return pst_vec_push(TAG, &b->writes, write) ? PST_OK : no_memory(b);
}

/* The dimensions from the widest stride to the narrowest. */
static void order_of(const struct pst_meta *m, const int64_t *strides,
                     int64_t order[PST_MAX_RANK])
{
    for (unsigned d = 0; d < m->rank; d++) {
        unsigned at = d;

        for (; at > 0 && m->size[d] > 1; at--) {
            const int64_t before = order[at - 1];

            if (m->size[before] > 1 && strides[before] >= strides[d])
                break;
            order[at] = before;
        }
        order[at] = d;
    }
}

/* In a storage of its own, with the strides that PyTorch's result has. */
static struct pst_value *lay_out(struct emission *e, const struct pst_arg *args,
                                 struct pst_value *v)
{
    struct pst_build *build = &e->b->build;
    int64_t strides[PST_MAX_RANK], order[PST_MAX_RANK];
    const struct pst_meta meta = v->meta;

    if (v->base != NULL || args == NULL ||
        !pst_eager_strides(e->row, args, e->schema->n_args, &meta, strides))
        return v;
    order_of(&meta, strides, order);
    v = pst_emit(build, &pst_op_permute,
                 PST_ARGS(pst_v(v), pst_ints(order, meta.rank)));
    if (v != NULL)
        v = pst_emit(build, &pst_op_clone, PST_ARGS(pst_v(v)));
    if (v != NULL)
        v = pst_emit(build, &pst_op_as_strided,
                     PST_ARGS(pst_v(v), pst_ints(meta.size, meta.rank),
                              pst_ints(strides, meta.rank), pst_i(0)));
    return v;
}

/* Does PyTorch return the very tensor that it was given, where it need not
 * copy? A view of it would keep its shape when t_() changes the tensor's. */
static bool returns_operand(const struct emission *e, const struct pst_value *v)
{
    const struct pst_value *from =
        e->schema->n_args > 0 && e->args[0].kind == PST_ARG_VALUE
            ? e->args[0].value
            : NULL;

    if (from == NULL || v->meta.rank != from->meta.rank ||
        pst_functionalise_owner(e->b->functional, (struct pst_value *)v) !=
            pst_functionalise_owner(e->b->functional, (struct pst_value *)from))
        return false;
    return e->row == &pst_op_contiguous || e->row == &pst_op_positive ||
           e->row == &pst_op_flatten_using_ints ||
           (e->row->flags & PST_OP_DROPOUT) != 0;
}

/* args: those of new results; NULL: they are none. */
static enum pst_status name_results(struct emission *e,
                                    const struct pst_arg *args,
                                    struct pst_value *const *values, unsigned n)
{
    enum pst_status status = PST_OK;

    for (unsigned i = 0; i < e->op->n_outs && status == PST_OK; i++) {
        struct pst_value *v = i < n ? values[i] : NULL;

        if (e->op->outs[i] == NULL)
            continue;
        if (v == NULL)
            return pst_diag_set(e->b->diag, PST_ERR_INPUT,
                                "%s has no result %u", e->op->op, i);
        v = args != NULL && returns_operand(e, v) ? e->args[0].value
                                                  : lay_out(e, args, v);
        status =
            v != NULL ? put_name(e->b, e->op->outs[i], v) : e->b->build.status;
    }
    return status;
}

static enum pst_status emit_rewrite(struct emission *e,
                                    const struct pst_arg *args)
{
    struct binder *b = e->b;
    struct pst_rewrite w;
    enum pst_status status =
        pst_op_rewrite(e->row, &b->build, args, e->schema->n_args, &w);

    if (status == PST_OK)
        status = name_results(e, args, w.outs, w.n_outs);
    for (unsigned i = 0; i < PST_MAX_WRITES && status == PST_OK; i++) {
        if (w.writes[i] == NULL)
            continue;
        status = note_write(b, e->args[i].value);
        if (status == PST_OK &&
            pst_functionalise_write(b->functional, e->args[i].value,
                                    w.writes[i]) == NULL)
            status = b->build.status;
    }
    return status;
}

static enum pst_status emit_plain(struct emission *e)
{
    struct binder *b = e->b;
    struct pst_arg *args = newest(e);
    const struct pst_node *node;

    if (args == NULL)
        return b->build.status;
    if (pst_op_is_rewrite(e->row))
        return emit_rewrite(e, args);
    node = pst_emit_node(&b->build, e->row, args, e->schema->n_args);
    return node != NULL ? name_results(e, args, node->outs, node->n_outs)
                        : b->build.status;
}

/* The result is the target itself, or its new shape. */
static enum pst_status emit_inplace(struct emission *e)
{
    struct binder *b = e->b;
    struct pst_value *written, *now;
    enum pst_status status = PST_OK;
    struct pst_arg *args = pst_arena_calloc(
        &b->graph->arena, e->schema->n_args + 1, sizeof(*args));

    if (args == NULL)
        return no_memory(b);
    if (e->schema->n_args == 0 || e->args[0].kind != PST_ARG_VALUE)
        return pst_diag_set(b->diag, PST_ERR_INPUT, "%s writes no tensor",
                            e->op->op);
    status =
        pst_build_args(&b->build, e->schema, e->args, e->schema->n_args, args);
    written = e->args[0].value;
    if (status == PST_OK && !(e->row->flags & PST_OP_VIEW))
        status = note_write(b, written);
    if (status != PST_OK)
        return status;
    now = pst_functionalise_inplace(b->functional, e->row, args,
                                    e->schema->n_args);
    if (now == NULL)
        return b->build.status;
    if (e->row->flags & PST_OP_VIEW)
        written = now;
    return name_results(e, NULL, &written, 1);
}

/* to() and type_as() return their operand if it has the dtype. */
static bool converts_nothing(const struct emission *e)
{
    const int dtype = pst_schema_arg(e->schema, "dtype");
    const int other = pst_schema_arg(e->schema, "other");
    const int copy = pst_schema_arg(e->schema, "copy");
    const struct pst_arg *a = e->args;
    const enum pst_dtype have = a[0].value->meta.dtype;

    if (copy >= 0 && a[copy].kind == PST_ARG_BOOL && a[copy].b)
        return false;
    if (dtype >= 0 && a[dtype].kind == PST_ARG_DTYPE)
        return (enum pst_dtype)a[dtype].i == have;
    return other >= 0 && a[other].kind == PST_ARG_VALUE &&
           a[other].value->meta.dtype == have;
}

static enum pst_status emit_op(struct binder *b,
                               const struct pst_program_op *op)
{
    const struct pst_doc_node like = {.target = op->op};
    const struct pst_target target = pst_import_target(&like, NULL);
    struct emission e = {b, op, target.op, NULL, NULL};

    b->build.no_grad = op->no_grad;
    if (target.op == NULL || target.kind == PST_TARGET_OUT)
        return pst_diag_set(b->diag, PST_ERR_UNSUPPORTED, "%s: %s", op->op,
                            target.reason != NULL ? target.reason
                                                  : "not supported");
    e.schema = pst_op_schema(target.op);
    if (!bind_args(&e))
        return b->build.status;
    switch (target.kind) {
    case PST_TARGET_INPLACE:
        return emit_inplace(&e);
    case PST_TARGET_CONVERT:
        if (e.args[0].kind == PST_ARG_VALUE && converts_nothing(&e))
            return name_results(&e, NULL, &e.args[0].value, 1);
        return emit_plain(&e);
    case PST_TARGET_OP:
        return emit_plain(&e);
    default:
        return pst_diag_set(b->diag, PST_ERR_UNSUPPORTED, "%s: not supported",
                            op->op);
    }
}

static enum pst_status emit_ops(struct binder *b,
                                const struct pst_program_op *ops, unsigned n)
{
    enum pst_status status = PST_OK;

    for (unsigned i = 0; i < n && status == PST_OK; i++) {
        for (; b->stage < ops[i].stage && b->alias != NULL; b->stage++)
            if (pst_emit_node(&b->build, &pst_op__pipe_split, NULL, 0) == NULL)
                return b->build.status;
        status = emit_op(b, &ops[i]);
        if (status == PST_OK)
            status = b->build.status;
        if (status != PST_OK)
            pst_diag_prefix(b->diag, "%s", ops[i].op);
    }
    return status;
}

/* --- a pass over the program ---------------------------------------------- */

static void binder_fini(struct binder *b)
{
    pst_functionalise_free(b->functional);
    pst_map_fini(&b->names);
    pst_free(b->values);
    pst_vec_fini(&b->owners);
    pst_vec_fini(&b->writes);
}

static enum pst_status binder_init(struct binder *b,
                                   const struct pst_program *program,
                                   struct pst_program_operand *operands,
                                   unsigned n, const struct pst_alias *alias,
                                   struct pst_diag *diag)
{
    enum pst_status status;

    *b = (struct binder){.program = program,
                         .operands = operands,
                         .n = n,
                         .alias = alias,
                         .diag = diag};
    pst_map_init(&b->names, TAG);
    b->values = pst_calloc(TAG, n + 1, sizeof(*b->values));
    status = b->values != NULL ? pst_graph_new(&b->graph, diag)
                               : pst_diag_nomem(diag, n);
    if (status != PST_OK)
        return status;
    pst_build_init(&b->build, b->graph, diag);
    return pst_functionalise_new(&b->build, &b->functional, diag);
}

/* What operands does the program write, if none shares memory with another? */
static enum pst_status find_written(const struct pst_program *program,
                                    struct pst_program_operand *operands,
                                    unsigned n, struct pst_diag *diag)
{
    struct binder b;
    enum pst_status status = binder_init(&b, program, operands, n, NULL, diag);

    if (status == PST_OK)
        status = pass_all(&b);
    if (status == PST_OK)
        status = emit_ops(&b, program->ops, program->n_ops);
    for (unsigned i = 0; i < n; i++)
        operands[i].as.written = false;
    for (size_t i = 0; i < b.writes.n && status == PST_OK; i++) {
        const unsigned k = b.owners.at[b.writes.at[i].owner].operand;

        for (unsigned j = 0; j < n; j++) /* another name of one tensor */
            if (operands[j].as.tensor == operands[k].as.tensor)
                operands[j].as.written = true;
    }
    pst_graph_free(b.graph);
    binder_fini(&b);
    return status;
}

/* --- results -------------------------------------------------------------- */

static enum pst_status add_output(struct binder *b, struct pst_value *value,
                                  int *ret)
{
    struct pst_output output = {.kind = PST_OUTPUT_USER, .arg = pst_v(value)};

    *ret = (int)b->graph->outputs.n;
    output.path = pst_arena_printf(&b->graph->arena, "%d", *ret);
    if (value == NULL || output.path == NULL)
        return b->build.status != PST_OK ? b->build.status : no_memory(b);
    return pst_graph_add_output(b->graph, &output, b->diag);
}

/* Where the tensor of that name lies now. */
static enum pst_status place_of(struct binder *b, struct pst_value *v,
                                struct pst_program_place *ret)
{
    const struct pst_value *owner = pst_functionalise_owner(b->functional, v);
    const struct pst_value *now = pst_functionalise_shape(b->functional, v);

    if (owner == NULL || now == NULL)
        return b->build.status;
    *ret = (struct pst_program_place){-1, now->meta, now->offset, -1};
    for (size_t i = 0; i < b->owners.n; i++)
        if (b->owners.at[i].value == owner) {
            ret->operand = (int)b->owners.at[i].operand;
            ret->offset += b->owners.at[i].begin /
                           (int64_t)pst_dtype_size(now->meta.dtype);
        }
    return PST_OK;
}

/* What a window holds that has just been written, without going through the
 * rest of its storage. */
static struct pst_value *without_base(struct pst_value *v)
{
    const struct pst_node *look = v->def, *write;

    if (look == NULL || look->op != &pst_op_as_strided)
        return v;
    write = look->args[0].value->def;
    if (write == NULL || write->op != &pst_op_write_strided)
        return v;
    for (unsigned i = 1; i < 4; i++)
        if (!pst_arg_same(&look->args[i], &write->args[i + 1]))
            return v;
    return write->args[1].value;
}

static bool is_noted(const struct pst_program_bound *bound,
                     const struct pst_program_place *place)
{
    for (unsigned i = 0; i < bound->n_writes; i++) {
        const struct pst_program_place *w = &bound->writes[i];

        if (w->operand == place->operand && w->offset == place->offset &&
            memcmp(&w->meta, &place->meta, sizeof(w->meta)) == 0)
            return true;
    }
    return false;
}

static enum pst_status add_writes(struct binder *b,
                                  struct pst_program_bound *bound)
{
    enum pst_status status = PST_OK;

    bound->writes = pst_arena_calloc(&bound->arena, b->writes.n + 1,
                                     sizeof(*bound->writes));
    if (bound->writes == NULL)
        return no_memory(b);
    for (size_t i = 0; i < b->writes.n && status == PST_OK; i++) {
        struct pst_value *v = b->writes.at[i].value;
        struct pst_program_place place;

        status = place_of(b, v, &place);
        if (status != PST_OK || is_noted(bound, &place))
            continue;
        v = pst_functionalise_read(b->functional, v);
        status =
            add_output(b, v != NULL ? without_base(v) : NULL, &place.output);
        if (status == PST_OK)
            bound->writes[bound->n_writes++] = place;
    }
    return status;
}

static enum pst_status add_returns(struct binder *b,
                                   struct pst_program_bound *bound)
{
    const struct pst_program *program = b->program;
    enum pst_status status = PST_OK;

    bound->returns = pst_arena_calloc(&bound->arena, program->n_returns + 1,
                                      sizeof(*bound->returns));
    if (bound->returns == NULL)
        return no_memory(b);
    for (unsigned i = 0; i < program->n_returns && status == PST_OK; i++) {
        struct pst_program_place *place = &bound->returns[i];
        struct pst_value *v = find(b, program->returns[i]);

        status = v != NULL ? place_of(b, v, place) : b->build.status;
        if (status == PST_OK && (place->operand < 0 || i == 0 ||
                                 b->operands[place->operand].from_before))
            status = add_output(b, pst_functionalise_read(b->functional, v),
                                &place->output);
    }
    return status;
}

static enum pst_status note_operands(struct binder *b,
                                     struct pst_program_bound *bound)
{
    enum pst_status status = PST_OK;

    bound->after =
        pst_arena_calloc(&bound->arena, b->n + 1, sizeof(*bound->after));
    bound->moved =
        pst_arena_calloc(&bound->arena, b->n + 1, sizeof(*bound->moved));
    if (bound->after == NULL || bound->moved == NULL)
        return no_memory(b);
    for (unsigned i = 0; i < b->n && status == PST_OK; i++) {
        const struct pst_meta *was = &b->operands[i].as.meta, *is;

        status = place_of(b, b->values[i], &bound->after[i]);
        is = &bound->after[i].meta;
        bound->moved[i] = is->rank != was->rank;
        for (unsigned d = 0; d < was->rank && !bound->moved[i]; d++)
            bound->moved[i] =
                is->size[d] != was->size[d] ||
                (is->size[d] != 1 && is->stride[d] != was->stride[d]);
    }
    for (size_t i = 0; i < b->names.n && status == PST_OK; i++) {
        struct pst_program_place *place =
            pst_arena_alloc(&bound->arena, sizeof(*place));

        if (place == NULL ||
            !pst_map_put(&bound->places, b->names.entries[i].key, place))
            return no_memory(b);
        status = place_of(b, b->names.entries[i].value, place);
    }
    return status;
}

/* --- together ------------------------------------------------------------- */

/* Operands that the caller makes of its leaves: where they lie is known only
 * when they are there. */
static enum pst_status run_before(struct binder *b)
{
    const struct pst_program *program = b->program;
    enum pst_status status = emit_ops(b, program->before, program->n_before);

    for (unsigned i = 0; i < b->n && status == PST_OK; i++) {
        struct pst_program_operand *o = &b->operands[i];

        if (!o->from_before)
            continue;
        b->values[i] = find(b, o->as.name);
        if (b->values[i] == NULL)
            return b->build.status;
        o->as.meta = b->values[i]->meta;
        o->as.offset = b->values[i]->offset;
        o->as.storage = UINT32_MAX - pst_value_storage(b->values[i])->id;
        o->as.tensor = UINT32_MAX - b->values[i]->id;
        status = put_name(b, o->again, b->values[i]);
        if (status == PST_OK)
            status = own(b, b->values[i], i, 0, false);
    }
    return status;
}

/* Shapes of what runs before, by running it alone. */
static enum pst_status learn_before(const struct pst_program *program,
                                    struct pst_program_operand *operands,
                                    unsigned n, struct pst_diag *diag)
{
    const struct pst_alias none = {0};
    struct pst_alias_part *parts = pst_calloc(TAG, n + 1, sizeof(*parts));
    struct pst_alias alias = none;
    struct binder b;
    enum pst_status status;

    if (parts == NULL)
        return pst_diag_nomem(diag, n);
    for (unsigned i = 0; i < n; i++)
        parts[i] = (struct pst_alias_part){i, -1};
    alias.parts = parts;
    alias.n = n;
    status = binder_init(&b, program, operands, n, &alias, diag);
    if (status == PST_OK)
        status = pass_all(&b);
    if (status == PST_OK)
        status = run_before(&b);
    pst_graph_free(b.graph);
    binder_fini(&b);
    pst_free(parts);
    return status;
}

static enum pst_status bind(struct pst_program_bound *bound,
                            const struct pst_program *program,
                            struct pst_program_operand *operands,
                            struct pst_diag *diag)
{
    const unsigned n = bound->n_operands;
    struct pst_alias_operand *as =
        pst_arena_calloc(&bound->arena, n + 1, sizeof(*as));
    enum pst_status status = PST_OK;
    struct binder b;

    if (as == NULL)
        return pst_diag_nomem(diag, n);
    if (program->n_before > 0)
        status = learn_before(program, operands, n, diag);
    if (status == PST_OK)
        status = find_written(program, operands, n, diag);
    for (unsigned i = 0; i < n; i++)
        as[i] = operands[i].as;
    if (status == PST_OK)
        status = pst_alias_analyse(as, n, &bound->arena, &bound->alias, diag);
    if (status != PST_OK)
        return status;
    status = binder_init(&b, program, operands, n, &bound->alias, diag);
    if (status == PST_OK)
        status = pass_all(&b);
    if (status == PST_OK)
        status = run_before(&b);
    if (status == PST_OK)
        status = emit_ops(&b, program->ops, program->n_ops);
    b.build.no_grad = false;
    if (status == PST_OK)
        status = add_returns(&b, bound);
    if (status == PST_OK)
        status = add_writes(&b, bound);
    if (status == PST_OK)
        status = note_operands(&b, bound);
    bound->graph = b.graph;
    binder_fini(&b);
    if (status == PST_OK)
        pst_graph_dce(bound->graph, false);
    return status;
}

enum pst_status pst_program_bind(const struct pst_program *program,
                                 const struct pst_program_operand *operands,
                                 unsigned n_operands,
                                 struct pst_program_bound **ret,
                                 struct pst_diag *diag)
{
    struct pst_program_bound *bound = pst_calloc(TAG, 1, sizeof(*bound));
    struct pst_program_operand *copy;
    enum pst_status status;

    if (bound == NULL)
        return pst_diag_nomem(diag, sizeof(*bound));
    pst_arena_init(&bound->arena, TAG);
    pst_map_init(&bound->places, TAG);
    copy = pst_arena_calloc(&bound->arena, n_operands + 1, sizeof(*copy));
    if (copy != NULL && n_operands > 0)
        memcpy(copy, operands, n_operands * sizeof(*copy));
    bound->operands = copy;
    bound->n_operands = n_operands;
    status = copy == NULL ? pst_diag_nomem(diag, n_operands)
                          : bind(bound, program, copy, diag);
    if (status != PST_OK) {
        pst_program_bound_free(bound);
        return status;
    }
    *ret = bound;
    return PST_OK;
}

void pst_program_bound_free(struct pst_program_bound *bound)
{
    if (bound == NULL)
        return;
    pst_graph_free(bound->graph);
    pst_map_fini(&bound->places);
    pst_arena_fini(&bound->arena);
    pst_free(bound);
}
