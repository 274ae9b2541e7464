// SPDX-License-Identifier: Apache-2.0
/*
 * Binds a program in two passes over its operators: the first one assumes that
 * operands share nothing and finds the writes; the second one passes bases in
 * place of operands that overlap.
 */
#include "stages/alias/program.h"

#include "stages/alias/binder.h"
#include "stages/ops/core/op.h"
#include "stages/ops/core/rows.h"

#include <stdio.h>
#include <string.h>

#define TAG PST_TAG_GRAPH

void pst_alias_program_input_name(bool base, unsigned i, char out[32])
{
    (void)snprintf(out, 32, base ? "base.%u" : "operand.%u", i);
}

/* --- names and owners ----------------------------------------------------- */

enum pst_status pst_binder_no_memory(const struct pst_binder *b)
{
    return pst_diag_nomem(b->diag, sizeof(struct pst_value));
}

enum pst_status pst_binder_name(struct pst_binder *b, const char *name,
                                struct pst_value *value)
{
    if (name == NULL || pst_map_put(&b->names, name, value))
        return PST_OK;
    return pst_binder_no_memory(b);
}

struct pst_value *pst_binder_find(struct pst_binder *b, const char *name)
{
    struct pst_value *ret = pst_map_get(&b->names, name);

    if (ret == NULL)
        b->build.status = pst_diag_set(b->diag, PST_E_ALIAS_CALL,
                                       "no tensor is called \"%s\"", name);
    return ret;
}

enum pst_status pst_binder_set_owner(struct pst_binder *b,
                                     const struct pst_value *value,
                                     unsigned operand, int64_t begin, bool leaf)
{
    const struct pst_owner owner = {
        pst_value_storage((void *)value), operand, begin, -1, leaf, false};

    return pst_vec_push(TAG, &b->owners, owner) ? PST_OK
                                                : pst_binder_no_memory(b);
}

struct pst_owner *pst_binder_owner(struct pst_binder *b, struct pst_value *v)
{
    const struct pst_value *value = pst_functionalise_owner(b->functional, v);

    for (size_t i = 0; i < b->owners.n; i++)
        if (value != NULL && b->owners.at[i].value == value)
            return &b->owners.at[i];
    return NULL;
}

/* --- a pass over the program ---------------------------------------------- */

static void binder_fini(struct pst_binder *b)
{
    pst_functionalise_free(b->functional);
    pst_map_fini(&b->names);
    pst_free(b->values);
    pst_vec_fini(&b->owners);
    pst_vec_fini(&b->writes);
    pst_vec_fini(&b->families);
    pst_vec_fini(&b->carriers);
}

static enum pst_status binder_init(struct pst_binder *b,
                                   const struct pst_alias_program *program,
                                   struct pst_alias_program_operand *operands,
                                   unsigned n, const struct pst_alias *alias,
                                   struct pst_diag *diag)
{
    enum pst_status status;

    *b = (struct pst_binder){.program = program,
                             .operands = operands,
                             .n = n,
                             .alias = alias,
                             .absolute = pst_alias_program_is_absolute(program),
                             .diag = diag};
    pst_map_init(&b->names, TAG);
    b->values = pst_calloc(TAG, n + 1, sizeof(*b->values));
    status = b->values != NULL ? pst_graph_new(&b->graph, diag)
                               : pst_diag_nomem(diag, n);
    if (status != PST_OK)
        return status;
    pst_build_init(&b->build, b->graph, diag);
    status = pst_functionalise_new(&b->build, &b->functional, diag);
    if (status == PST_OK)
        pst_functionalise_share(b->functional);
    return status;
}

/* Marks the operands that the program changes, assuming that none share
 * memory. */
static void record_changes(struct pst_binder *b)
{
    for (unsigned i = 0; i < b->n; i++) {
        bool written = false, moved = false;

        for (unsigned k = 0; k < b->n; k++) {
            if (b->operands[k].as.tensor != b->operands[i].as.tensor)
                continue;
            for (size_t w = 0; w < b->writes.n; w++)
                written =
                    written || b->owners.at[b->writes.at[w].owner].operand == k;
            moved = moved || pst_functionalise_shape(
                                 b->functional, b->values[k]) != b->values[k];
        }
        b->operands[i].as.written = written;
        b->operands[i].as.moved = moved;
    }
}

/* Runs the first pass. *ret_again: the range of an operand has grown, so the
 * pass must be repeated. */
static enum pst_status find_changes(const struct pst_alias_program *program,
                                    struct pst_alias_program_operand *operands,
                                    unsigned n, bool *ret_again,
                                    struct pst_diag *diag)
{
    struct pst_binder b;
    enum pst_status status = binder_init(&b, program, operands, n, NULL, diag);

    b.learning = true;
    if (status == PST_OK)
        status = pst_binder_make_values(&b);
    if (status == PST_OK)
        status = pst_binder_emit(&b, program->ops, program->n_ops);
    *ret_again = b.widened;
    if (status == PST_OK)
        record_changes(&b);
    pst_graph_free(b.graph);
    binder_fini(&b);
    return *ret_again ? PST_OK : status;
}

/* --- results -------------------------------------------------------------- */

static enum pst_status add_output(struct pst_binder *b, struct pst_value *value,
                                  int *ret)
{
    struct pst_output output = {.kind = PST_OUTPUT_USER, .arg = pst_v(value)};

    *ret = (int)b->graph->outputs.n;
    output.path = pst_arena_printf(&b->graph->arena, "%d", *ret);
    if (value == NULL || output.path == NULL)
        return b->build.status != PST_OK ? b->build.status
                                         : pst_binder_no_memory(b);
    return pst_graph_add_output(b->graph, &output, b->diag);
}

/* Sets *ret to the location of a tensor at this point of the program: its
 * geometry, the operand whose storage it is in (-1: a new storage), and its
 * offset there. */
static enum pst_status place_of(struct pst_binder *b, struct pst_value *v,
                                struct pst_alias_program_place *ret)
{
    const struct pst_value *now = pst_functionalise_shape(b->functional, v);
    const struct pst_owner *owner = pst_binder_owner(b, v);

    if (now == NULL || b->build.status != PST_OK)
        return b->build.status;
    *ret = (struct pst_alias_program_place){-1, now->meta, now->offset, -1};
    if (owner == NULL)
        return PST_OK;
    ret->operand = (int)owner->operand;
    ret->offset += owner->begin / (int64_t)pst_dtype_size(now->meta.dtype);
    return PST_OK;
}

/* If v is as_strided(write_strided(base, x)) and both operators have the same
 * sizes, strides and offset, returns x, the content of the written view;
 * otherwise returns v. */
static struct pst_value *skip_write(struct pst_value *v)
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

static bool is_noted(const struct pst_alias_program_bound *bound,
                     const struct pst_alias_program_place *place)
{
    for (unsigned i = 0; i < bound->n_writes; i++) {
        const struct pst_alias_program_place *w = &bound->writes[i];

        if (w->operand == place->operand && w->offset == place->offset &&
            memcmp(&w->meta, &place->meta, sizeof(w->meta)) == 0)
            return true;
    }
    return false;
}

static enum pst_status add_writes(struct pst_binder *b,
                                  struct pst_alias_program_bound *bound)
{
    enum pst_status status = PST_OK;

    bound->writes = pst_arena_calloc(&bound->arena, b->writes.n + 1,
                                     sizeof(*bound->writes));
    if (bound->writes == NULL)
        return pst_binder_no_memory(b);
    for (size_t i = 0; i < b->writes.n && status == PST_OK; i++) {
        struct pst_value *v = b->writes.at[i].value;
        struct pst_alias_program_place place;

        status = place_of(b, v, &place);
        if (status != PST_OK || is_noted(bound, &place))
            continue;
        v = pst_functionalise_read(b->functional, v);
        status = add_output(b, v != NULL ? skip_write(v) : NULL, &place.output);
        if (status == PST_OK)
            bound->writes[bound->n_writes++] = place;
    }
    return status;
}

static enum pst_status add_returns(struct pst_binder *b,
                                   struct pst_alias_program_bound *bound)
{
    const struct pst_alias_program *program = b->program;
    enum pst_status status = PST_OK;

    bound->n_returns = program->n_returns;
    bound->returns = pst_arena_calloc(&bound->arena, program->n_returns + 1,
                                      sizeof(*bound->returns));
    if (bound->returns == NULL)
        return pst_binder_no_memory(b);
    for (unsigned i = 0; i < program->n_returns && status == PST_OK; i++) {
        struct pst_alias_program_place *place = &bound->returns[i];
        struct pst_value *v = pst_binder_find(b, program->returns[i]);

        status = v != NULL ? place_of(b, v, place) : b->build.status;
        if (status == PST_OK &&
            (place->operand < 0 || i == 0 ||
             b->operands[place->operand].leaf != NULL ||
             pst_alias_program_is_new(bound, (unsigned)place->operand)))
            status = add_output(b, pst_functionalise_read(b->functional, v),
                                &place->output);
    }
    return status;
}

/* True if the operand is now in another storage or at another offset. */
static bool has_moved(const struct pst_binder *b,
                      const struct pst_alias_program_bound *bound, unsigned i)
{
    const struct pst_alias_program_place *now = &bound->after[i];
    const struct pst_alias_operand *was = &b->operands[i].as;

    return !b->operands[i].from_before && now->operand >= 0 &&
           (b->operands[now->operand].as.storage != was->storage ||
            (pst_meta_numel(&now->meta) > 0 && now->offset != was->offset));
}

static enum pst_status record_operands(struct pst_binder *b,
                                       struct pst_alias_program_bound *bound)
{
    enum pst_status status = PST_OK;

    bound->after =
        pst_arena_calloc(&bound->arena, b->n + 1, sizeof(*bound->after));
    bound->moved =
        pst_arena_calloc(&bound->arena, b->n + 1, sizeof(*bound->moved));
    if (bound->after == NULL || bound->moved == NULL)
        return pst_binder_no_memory(b);
    for (unsigned i = 0; i < b->n && status == PST_OK; i++) {
        const struct pst_meta *was = &b->operands[i].as.meta, *is;

        status = place_of(b, b->values[i], &bound->after[i]);
        is = &bound->after[i].meta;
        bound->moved[i] = is->rank != was->rank || has_moved(b, bound, i);
        for (unsigned d = 0; d < was->rank && !bound->moved[i]; d++)
            bound->moved[i] =
                is->size[d] != was->size[d] ||
                (is->size[d] != 1 && is->stride[d] != was->stride[d]);
    }
    for (size_t i = 0; i < b->names.n && status == PST_OK; i++) {
        struct pst_alias_program_place *place =
            pst_arena_alloc(&bound->arena, sizeof(*place));

        if (place == NULL ||
            !pst_map_put(&bound->places, b->names.entries[i].key, place))
            return pst_binder_no_memory(b);
        status = place_of(b, b->names.entries[i].value, place);
    }
    return status;
}

/* --- binding a program ---------------------------------------------------- */

bool pst_alias_program_is_new(const struct pst_alias_program_bound *bound,
                              unsigned i)
{
    return bound->operands[i].as.root >= bound->n_operands;
}

/* Emits program->before and records the values that it makes for the operands
 * that are made before the call. */
static enum pst_status emit_before(struct pst_binder *b)
{
    const struct pst_alias_program *program = b->program;
    enum pst_status status =
        pst_binder_emit(b, program->before, program->n_before);

    for (unsigned i = 0; i < b->n && status == PST_OK; i++) {
        struct pst_alias_program_operand *o = &b->operands[i];

        if (!o->from_before)
            continue;
        b->values[i] = pst_binder_find(b, o->as.name);
        if (b->values[i] == NULL)
            return b->build.status;
        status = pst_binder_name(b, o->again, b->values[i]);
        if (status == PST_OK && pst_binder_owner(b, b->values[i]) == NULL)
            status = b->build.status != PST_OK
                         ? b->build.status
                         : pst_binder_set_owner(b, b->values[i], i, 0, false);
    }
    b->writes.n = 0; /* writes before the call do not count */
    for (size_t i = 0; i < b->owners.n; i++)
        b->owners.at[i].stage = -1;
    return status;
}

/* Sets the location of an operand made before the call: in an operand's
 * storage, or in a new one with a unique number. */
static enum pst_status record_made(struct pst_binder *b, unsigned i)
{
    struct pst_alias_operand *o = &b->operands[i].as;
    const struct pst_owner *owner = pst_binder_owner(b, b->values[i]);
    struct pst_alias_program_place place;
    enum pst_status status = place_of(b, b->values[i], &place);

    if (status != PST_OK)
        return status;
    o->meta = place.meta;
    o->offset = place.offset;
    o->tensor = UINT32_MAX - b->values[i]->id;
    o->root = owner->operand;
    o->storage = b->operands[owner->operand].as.storage;
    if (b->operands[owner->operand].from_before)
        o->storage = o->root = UINT32_MAX - owner->value->id;
    /* looks for a tensor of the caller's that is this operand */
    for (unsigned k = 0; k < b->n; k++)
        if (!b->operands[k].from_before && b->values[k] == b->values[i])
            o->tensor = b->operands[k].as.tensor;
    return PST_OK;
}

/* Emits program->before alone, to infer the shapes and locations of the
 * operands that it makes. */
static enum pst_status infer_before(const struct pst_alias_program *program,
                                    struct pst_alias_program_operand *operands,
                                    unsigned n, bool *ret_again,
                                    struct pst_diag *diag)
{
    struct pst_alias alias = {.n = n};
    struct pst_binder b;
    enum pst_status status;

    alias.parts = pst_calloc(TAG, n + 1, sizeof(*alias.parts));
    if (alias.parts == NULL)
        return pst_diag_nomem(diag, n);
    for (unsigned i = 0; i < n; i++)
        alias.parts[i] = (struct pst_alias_part){i, -1};
    status = binder_init(&b, program, operands, n, &alias, diag);
    b.learning = true;
    if (status == PST_OK)
        status = pst_binder_make_values(&b);
    if (status == PST_OK)
        status = emit_before(&b);
    for (unsigned i = 0; i < n && status == PST_OK; i++)
        if (operands[i].from_before)
            status = record_made(&b, i);
    *ret_again = b.widened;
    pst_graph_free(b.graph);
    binder_fini(&b);
    pst_free(alias.parts);
    return *ret_again ? PST_OK : status;
}

/* Extends the range that the program reaches in an operand by the range that it
 * reaches in a view of it made before the call, and in other operands that are
 * the same tensor. */
static void extend_aliases(struct pst_alias_program_operand *operands,
                           unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        const struct pst_alias_operand *o = &operands[i].as;

        for (unsigned k = 0; k < n && o->from < o->to; k++) {
            struct pst_alias_operand *to = &operands[k].as;

            if (k != o->root && to->tensor != o->tensor)
                continue;
            to->from = to->from < to->to ? PST_MIN(to->from, o->from) : o->from;
            to->to = PST_MAX(to->to, o->to);
        }
    }
}

/* Sets from, to, root, written and moved of the operands; repeats the passes
 * until no range grows. */
static enum pst_status learn_ranges(const struct pst_alias_program *program,
                                    struct pst_alias_program_operand *operands,
                                    unsigned n, struct pst_diag *diag)
{
    enum pst_status status = PST_OK;
    bool again = true;

    for (unsigned i = 0; i < n; i++) {
        operands[i].as.root = i;
        operands[i].as.from = operands[i].as.to = 0;
    }
    while (program->n_before > 0 && again && status == PST_OK) {
        status = infer_before(program, operands, n, &again, diag);
        extend_aliases(operands, n);
    }
    for (again = true; again && status == PST_OK;) {
        status = find_changes(program, operands, n, &again, diag);
        extend_aliases(operands, n);
    }
    return status;
}

/* Checks that the gradients of the loss, returns[0], do not depend on content
 * that a write has replaced without notice (pst_functionalise_note_silent). */
static enum pst_status check_silent(struct pst_binder *b,
                                    const struct pst_alias_program_bound *bound)
{
    const int loss = bound->n_returns > 0 ? bound->returns[0].output : -1;

    if (loss < 0)
        return PST_OK;
    return pst_functionalise_check_silent(
        b->functional, &b->graph->outputs.at[loss].arg.value, 1, b->diag);
}

static enum pst_status bind_operands(struct pst_alias_program_bound *bound,
                                     const struct pst_alias_program *program,
                                     struct pst_diag *diag)
{
    struct pst_alias_program_operand *operands = bound->operands;
    const unsigned n = bound->n_operands;
    struct pst_alias_operand *as =
        pst_arena_calloc(&bound->arena, n + 1, sizeof(*as));
    enum pst_status status;
    struct pst_binder b;

    if (as == NULL)
        return pst_diag_nomem(diag, n);
    bound->absolute = pst_alias_program_is_absolute(program);
    status = learn_ranges(program, operands, n, diag);
    for (unsigned i = 0; i < n; i++)
        as[i] = operands[i].as;
    if (status == PST_OK)
        status = pst_alias_analyse(as, n, bound->absolute, &bound->arena,
                                   &bound->alias, diag);
    if (status != PST_OK)
        return status;
    status = binder_init(&b, program, operands, n, &bound->alias, diag);
    if (status == PST_OK)
        status = pst_binder_make_values(&b);
    if (status == PST_OK)
        status = emit_before(&b);
    for (unsigned i = 0; i < n && status == PST_OK; i++)
        status = pst_binder_note_view(&b, b.values[i], i);
    if (status == PST_OK)
        status = pst_binder_emit(&b, program->ops, program->n_ops);
    b.build.no_grad = false;
    if (status == PST_OK)
        status = add_returns(&b, bound);
    if (status == PST_OK)
        status = check_silent(&b, bound);
    if (status == PST_OK)
        status = add_writes(&b, bound);
    if (status == PST_OK)
        status = record_operands(&b, bound);
    bound->graph = b.graph;
    binder_fini(&b);
    if (status == PST_OK)
        pst_graph_dce(bound->graph, false);
    return status;
}

enum pst_status pst_alias_program_bind(
    const struct pst_alias_program *program,
    const struct pst_alias_program_operand *operands, unsigned n_operands,
    struct pst_alias_program_bound **ret, struct pst_diag *diag)
{
    struct pst_alias_program_bound *bound = pst_calloc(TAG, 1, sizeof(*bound));
    struct pst_alias_program_operand *copy;
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
                          : bind_operands(bound, program, diag);
    if (status != PST_OK) {
        pst_alias_program_bound_free(bound);
        return status;
    }
    *ret = bound;
    return PST_OK;
}

/* Returns how far operand i has moved in its storage, in bytes. */
static int64_t shift_of(const struct pst_alias_program_bound *bound,
                        const struct pst_alias_program_operand *now, unsigned i)
{
    const struct pst_alias_operand *was = &bound->operands[i].as;

    return now[i].from_before ? 0
                              : (now[i].as.offset - was->offset) *
                                    (int64_t)pst_dtype_size(was->meta.dtype);
}

static void move_place(const struct pst_alias_program_bound *bound,
                       const struct pst_alias_program_operand *now,
                       struct pst_alias_program_place *place)
{
    if (place->operand >= 0)
        place->offset += shift_of(bound, now, (unsigned)place->operand) /
                         (int64_t)pst_dtype_size(place->meta.dtype);
}

void pst_alias_program_move(struct pst_alias_program_bound *bound,
                            const struct pst_alias_program_operand *now)
{
    bool same = true;

    for (unsigned i = 0; i < bound->n_operands; i++)
        same = same && (now[i].from_before ||
                        (shift_of(bound, now, i) == 0 &&
                         now[i].as.storage == bound->operands[i].as.storage));
    if (same)
        return;
    for (unsigned i = 0; i < bound->n_returns; i++)
        move_place(bound, now, &bound->returns[i]);
    for (unsigned i = 0; i < bound->n_writes; i++)
        move_place(bound, now, &bound->writes[i]);
    for (unsigned i = 0; i < bound->n_operands; i++)
        move_place(bound, now, &bound->after[i]);
    for (size_t i = 0; i < bound->places.n; i++)
        move_place(bound, now, bound->places.entries[i].value);
    for (unsigned k = 0; k < bound->alias.n_bases; k++) {
        struct pst_alias_base *base = &bound->alias.bases[k];
        const unsigned root = bound->operands[base->first].as.root;

        if (root >= bound->n_operands)
            continue;
        base->begin += shift_of(bound, now, root);
        base->end += shift_of(bound, now, root);
        base->storage = now[root].as.storage;
    }
    for (unsigned i = 0; i < bound->n_operands; i++) {
        struct pst_alias_operand *o = &bound->operands[i].as;
        const int64_t by = shift_of(bound, now, i);

        if (now[i].from_before)
            continue;
        o->from += by;
        o->to += by;
        o->offset = now[i].as.offset;
        o->storage = now[i].as.storage;
    }
}

void pst_alias_program_bound_free(struct pst_alias_program_bound *bound)
{
    if (bound == NULL)
        return;
    pst_graph_free(bound->graph);
    pst_map_fini(&bound->places);
    pst_arena_fini(&bound->arena);
    pst_free(bound);
}
