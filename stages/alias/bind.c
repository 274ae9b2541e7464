// SPDX-License-Identifier: Apache-2.0
/*
 * Twice over the operators: first with operands that share nothing, which tells
 * what is written; then with bases in the place of those that meet.
 */
#include "stages/alias/program.h"

#include "stages/alias/binder.h"
#include "stages/ops/op.h"
#include "stages/ops/rows.h"

#include <stdio.h>
#include <string.h>

#define TAG PST_TAG_GRAPH

void pst_program_input_name(bool base, unsigned i, char out[32])
{
    (void)snprintf(out, 32, base ? "base.%u" : "operand.%u", i);
}

/* --- what all parts use --------------------------------------------------- */

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
        b->build.status = pst_diag_set(b->diag, PST_ERR_INPUT,
                                       "no tensor is called \"%s\"", name);
    return ret;
}

enum pst_status pst_binder_own(struct pst_binder *b,
                               const struct pst_value *value, unsigned operand,
                               int64_t begin, bool leaf)
{
    const struct pst_owner owner = {pst_value_storage((void *)value), operand,
                                    begin, -1, leaf};

    return pst_vec_push(TAG, &b->owners, owner) ? PST_OK
                                                : pst_binder_no_memory(b);
}

/* --- a pass over the program ---------------------------------------------- */

static void binder_fini(struct pst_binder *b)
{
    pst_functionalise_free(b->functional);
    pst_map_fini(&b->names);
    pst_free(b->values);
    pst_vec_fini(&b->owners);
    pst_vec_fini(&b->writes);
}

static enum pst_status binder_init(struct pst_binder *b,
                                   const struct pst_program *program,
                                   struct pst_program_operand *operands,
                                   unsigned n, const struct pst_alias *alias,
                                   struct pst_diag *diag)
{
    enum pst_status status;

    *b = (struct pst_binder){.program = program,
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
    struct pst_binder b;
    enum pst_status status = binder_init(&b, program, operands, n, NULL, diag);

    if (status == PST_OK)
        status = pst_binder_pass(&b);
    if (status == PST_OK)
        status = pst_binder_emit(&b, program->ops, program->n_ops);
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

/* Where the tensor of that name lies now. */
static enum pst_status place_of(struct pst_binder *b, struct pst_value *v,
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

static enum pst_status add_writes(struct pst_binder *b,
                                  struct pst_program_bound *bound)
{
    enum pst_status status = PST_OK;

    bound->writes = pst_arena_calloc(&bound->arena, b->writes.n + 1,
                                     sizeof(*bound->writes));
    if (bound->writes == NULL)
        return pst_binder_no_memory(b);
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

static enum pst_status add_returns(struct pst_binder *b,
                                   struct pst_program_bound *bound)
{
    const struct pst_program *program = b->program;
    enum pst_status status = PST_OK;

    bound->returns = pst_arena_calloc(&bound->arena, program->n_returns + 1,
                                      sizeof(*bound->returns));
    if (bound->returns == NULL)
        return pst_binder_no_memory(b);
    for (unsigned i = 0; i < program->n_returns && status == PST_OK; i++) {
        struct pst_program_place *place = &bound->returns[i];
        struct pst_value *v = pst_binder_find(b, program->returns[i]);

        status = v != NULL ? place_of(b, v, place) : b->build.status;
        if (status == PST_OK && (place->operand < 0 || i == 0 ||
                                 b->operands[place->operand].from_before))
            status = add_output(b, pst_functionalise_read(b->functional, v),
                                &place->output);
    }
    return status;
}

static enum pst_status note_operands(struct pst_binder *b,
                                     struct pst_program_bound *bound)
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
            return pst_binder_no_memory(b);
        status = place_of(b, b->names.entries[i].value, place);
    }
    return status;
}

/* --- together ------------------------------------------------------------- */

/* Operands that the caller makes of its leaves: where they lie is known only
 * when they are there. */
static enum pst_status run_before(struct pst_binder *b)
{
    const struct pst_program *program = b->program;
    enum pst_status status =
        pst_binder_emit(b, program->before, program->n_before);

    for (unsigned i = 0; i < b->n && status == PST_OK; i++) {
        struct pst_program_operand *o = &b->operands[i];

        if (!o->from_before)
            continue;
        b->values[i] = pst_binder_find(b, o->as.name);
        if (b->values[i] == NULL)
            return b->build.status;
        o->as.meta = b->values[i]->meta;
        o->as.offset = b->values[i]->offset;
        o->as.storage = UINT32_MAX - pst_value_storage(b->values[i])->id;
        o->as.tensor = UINT32_MAX - b->values[i]->id;
        status = pst_binder_name(b, o->again, b->values[i]);
        if (status == PST_OK)
            status = pst_binder_own(b, b->values[i], i, 0, false);
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
    struct pst_binder b;
    enum pst_status status;

    if (parts == NULL)
        return pst_diag_nomem(diag, n);
    for (unsigned i = 0; i < n; i++)
        parts[i] = (struct pst_alias_part){i, -1};
    alias.parts = parts;
    alias.n = n;
    status = binder_init(&b, program, operands, n, &alias, diag);
    if (status == PST_OK)
        status = pst_binder_pass(&b);
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
    struct pst_binder b;

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
        status = pst_binder_pass(&b);
    if (status == PST_OK)
        status = run_before(&b);
    if (status == PST_OK)
        status = pst_binder_emit(&b, program->ops, program->n_ops);
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
