// SPDX-License-Identifier: Apache-2.0
/*
 * Converts operands to the layouts that kernels prefer (enum pst_form).
 *
 * Each conversion is shared by all readers, covers the whole tensor if its
 * readers together read all of it, and is done in the action that reads it
 * first. A later action converts again only if the tensor is stored for it
 * anyway, so conversions never add to the stash. If a copy of an operand is
 * stored, a kernel that can read copies (PST_FORM_ANY) reads that, so that the
 * operand need not be stored. Only matrices computed once a step are packed;
 * others get PST_FORM_BF16. A program uses either bf16 or f32
 * (PST_FORM_ROUNDED) for all its conversions.
 */
#include "stages/compile/compile.h"
#include "stages/graph/build.h"
#include "stages/ops/core/call.h"
#include "stages/ops/core/rows.h"

/* A packed matrix that is computed once a step. */
struct packed {
    const struct pst_value *value;
    enum pst_form form;
    struct pst_value *made;    /* the packed matrix */
    const struct packed *next; /* next one of the same storage */
};

/* Uses and conversions of a value, by its id. For a view only `made` and
 * `packed` are used. */
struct known {
    double wanted;   /* number of elements preferred in another layout */
    unsigned direct; /* bit l: list l reads the storage as it is */
    unsigned any;    /* bit l: list l reads it or a copy (PST_FORM_ANY) */
    const struct pst_node *copied;       /* node copying all of it, or NULL */
    struct pst_value *made[PST_N_LISTS]; /* conversion that each list made */
    const struct packed *packed;
};

struct forms {
    struct pst_program *program;
    struct pst_build build;
    struct known *of;
    size_t n;
};

typedef void (*slot_fn)(void *ctx, struct pst_value **slot, enum pst_form form);

/* Calls fn for every tensor operand of the node, with its preferred layout. */
static void visit_slots(struct pst_node *node, const struct pst_call *call,
                        const struct pst_kernel *kernel, slot_fn fn, void *ctx)
{
    unsigned n = 0;

    for (unsigned i = 0; i < node->schema->n_args; i++) {
        struct pst_arg *arg = &node->args[i];
        const unsigned count = pst_call_count_arg(node->schema, i, arg);

        for (unsigned k = 0; k < count; k++, n++) {
            struct pst_value **slot = arg->kind == PST_ARG_VALUE ? &arg->value
                                      : arg->kind == PST_ARG_VALUES
                                          ? &arg->values[k]
                                          : NULL;

            if (slot != NULL && *slot != NULL)
                fn(ctx, slot,
                   kernel->form != NULL ? kernel->form(call, n) : PST_FORM_OWN);
            if (arg->kind == PST_ARG_VALUE && arg->value == NULL)
                *arg = pst_none();
        }
    }
}

/* True if the value is packed for a kernel that prefers this layout. Only
 * values computed once a step are: a second layout of a microbatch's values
 * would need stash, and packing for one reader seldom saves time. */
static bool is_packed(const struct forms *f, const struct pst_value *value,
                      enum pst_form form)
{
    return (form == PST_FORM_PACKED || form == PST_FORM_PACKED_T) &&
           pst_is_constant(f->program, value);
}

struct use_ctx {
    struct forms *forms;
    enum pst_list list;
};

static void check_use(void *ctx, struct pst_value **slot, enum pst_form form)
{
    const struct use_ctx *l = ctx;
    struct known *of = &l->forms->of[pst_value_storage(*slot)->id];

    if (form == PST_FORM_OWN)
        of->direct |= 1u << l->list;
    else if (form == PST_FORM_ANY)
        of->any |= 1u << l->list;
    else if (form != PST_FORM_NONE && !is_packed(l->forms, *slot, form))
        of->wanted += (double)pst_meta_numel(&(*slot)->meta);
}

/* Records a node that copies all elements of its operand's storage, in the
 * order of the operand's dimensions. */
static void record_copy(struct forms *forms, const struct pst_node *node)
{
    const unsigned flags = PST_OP_MAYBE_VIEW | PST_OP_PASSES_ON;
    const struct pst_value *from, *storage;

    if (node->op != &pst_op_clone &&
        (node->op->flags & (flags | PST_OP_RANDOM)) != flags)
        return;
    from = node->args[0].value;
    storage = pst_value_storage((void *)from);
    if (node->phase == PST_PHASE_F && node->outs[0]->base == NULL &&
        pst_meta_is_contiguous(&node->outs[0]->meta) &&
        node->outs[0]->meta.dtype == from->meta.dtype &&
        storage->meta.dtype == from->meta.dtype &&
        pst_meta_is_contiguous(&storage->meta) &&
        pst_meta_numel(&from->meta) == pst_meta_numel(&storage->meta))
        forms->of[storage->id].copied = node;
}

/* Counts the uses of all values. */
static enum pst_status count_all_uses(struct forms *forms)
{
    const struct pst_program *program = forms->program;
    const struct pst_graph *graph = program->graph;
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < graph->nodes.n && status == PST_OK; i++) {
        PST_UNINIT struct pst_operand in[PST_MAX_OPERANDS];
        PST_UNINIT struct pst_operand out[PST_MAX_OPERANDS];
        struct pst_call call = {.in = in, .out = out};
        struct pst_node *node = graph->nodes.at[i];
        struct use_ctx l = {forms, pst_list_of(program, node)};
        const struct pst_kernel *kernel;

        status = pst_node_kernel(node, &program->options, &call, &kernel,
                                 forms->build.diag);
        if (status == PST_OK && kernel != NULL)
            visit_slots(node, &call, kernel, check_use, &l);
        if (status == PST_OK && kernel != NULL)
            record_copy(forms, node);
    }
    return status;
}

/* --- making --------------------------------------------------------------- */

static struct pst_value *view_of(struct pst_build *build,
                                 struct pst_value *storage,
                                 const struct pst_meta *meta, int64_t offset)
{
    return pst_emit(build, &pst_op_as_strided,
                    PST_ARGS(pst_v(storage), pst_ints(meta->size, meta->rank),
                             pst_ints(meta->stride, meta->rank),
                             pst_i(offset)));
}

static struct pst_value *round_to_bf16(struct pst_build *build,
                                       struct pst_value *value,
                                       enum pst_form form)
{
    if (form == PST_FORM_ROUNDED)
        return pst_emit(build, &pst_op_round_bf16, PST_ARGS(pst_v(value)));
    return pst_emit(build, &pst_op__to_copy,
                    PST_ARGS(pst_v(value), pst_dtype_arg(PST_BF16)));
}

/* Converts a whole storage, element by element in memory order. */
static struct pst_value *convert_storage(struct pst_build *build,
                                         struct pst_value *storage,
                                         enum pst_form form)
{
    struct pst_meta flat = {.dtype = storage->meta.dtype, .rank = 1};

    if (pst_meta_is_contiguous(&storage->meta))
        return round_to_bf16(build, storage, form);
    flat.size[0] =
        (int64_t)(pst_meta_span(&storage->meta) / pst_dtype_size(flat.dtype));
    flat.stride[0] = 1;
    storage = view_of(build, storage, &flat, 0);
    return storage == NULL ? NULL : round_to_bf16(build, storage, form);
}

/* Returns an existing conversion that a node of `list` may read, or NULL. A
 * conversion that an earlier list made is used only if it is stored instead of
 * the original: no node may read the original from this list on. A conversion
 * of the same size (PST_FORM_ROUNDED) never replaces a value from another
 * stage, whose slot exists anyway. */
static struct pst_value *find_converted(const struct forms *f,
                                        const struct pst_value *from,
                                        enum pst_form form, enum pst_list list)
{
    const struct known *of = &f->of[from->id];
    const struct pst_value *storage = pst_value_storage((void *)from);
    const bool replaces =
        (f->of[storage->id].direct | f->of[storage->id].any) >> list == 0 &&
        (form != PST_FORM_ROUNDED || storage->kind == PST_VALUE_NODE);

    if (pst_is_constant(f->program, from))
        return of->made[PST_LIST_P];
    for (int l = 0; l < (int)list; l++)
        if (of->made[l] != NULL && replaces)
            return of->made[l];
    return of->made[list];
}

static struct pst_value *form_of(struct forms *f, struct pst_value *value,
                                 enum pst_form form, enum pst_list list)
{
    struct pst_value *storage = pst_value_storage(value), *made = NULL;
    const bool known = value->id < f->n;
    const size_t elements =
        pst_meta_span(&storage->meta) / pst_dtype_size(storage->meta.dtype);
    const bool whole = known && storage->meta.dtype == value->meta.dtype &&
                       f->of[storage->id].wanted >= (double)elements;
    struct pst_value *from = whole ? storage : value;

    if (pst_is_constant(f->program, from))
        list = PST_LIST_P;
    if (known)
        made = find_converted(f, from, form, list);
    if (made == NULL) {
        f->build.prefix = "bf16";
        made = whole ? convert_storage(&f->build, storage, form)
                     : round_to_bf16(&f->build, value, form);
        if (made == NULL)
            return NULL;
        if (known)
            f->of[from->id].made[list] = made;
    }
    if (!whole || (value == storage && made->meta.rank == value->meta.rank &&
                   pst_meta_is_contiguous(&value->meta)))
        return made;
    return view_of(&f->build, made, &value->meta, value->offset);
}

static struct pst_value *packed_of(struct forms *f, struct pst_value *value,
                                   enum pst_form form)
{
    const struct pst_value *storage = pst_value_storage(value);
    const struct packed **list =
        storage->id < f->n ? &f->of[storage->id].packed : NULL;
    struct packed *t;

    for (const struct packed *o = list != NULL ? *list : NULL; o != NULL;
         o = o->next)
        if (o->form == form && o->value->offset == value->offset &&
            pst_meta_same_layout(&o->value->meta, &value->meta))
            return o->made;
    t = pst_arena_calloc(&f->program->arena, 1, sizeof(*t));
    if (t == NULL) {
        f->build.status = pst_diag_nomem(f->build.diag, sizeof(*t));
        return NULL;
    }
    f->build.prefix = "tiles";
    *t = (struct packed){.value = value, .form = form};
    t->made =
        pst_emit(&f->build, &pst_op_tiles,
                 PST_ARGS(pst_v(value), pst_b(form == PST_FORM_PACKED_T)));
    if (t->made != NULL && list != NULL) {
        t->next = *list;
        *list = t;
    }
    return t->made;
}

/* --- copies that are kept ------------------------------------------------- */

/* Finds the strides of the elements of `value` in a contiguous copy of `from`.
 * Returns false unless each dimension of the value is one of `from`. */
static bool find_strides(const struct pst_value *value,
                         const struct pst_value *from, struct pst_meta *ret)
{
    struct pst_meta copy = from->meta;

    pst_meta_set_contiguous(&copy);
    *ret = value->meta;
    for (unsigned d = 0; d < ret->rank; d++) {
        unsigned e = 0;

        while (e < copy.rank && (copy.size[e] != ret->size[d] ||
                                 from->meta.stride[e] != ret->stride[d]))
            e++;
        if (e == copy.rank && ret->size[d] != 1)
            return false;
        ret->stride[d] = e < copy.rank ? copy.stride[e] : 1;
    }
    return true;
}

/* Returns the value as a view of a stored copy, if the value itself would be
 * stored only for kernels that can read a copy; else the value. */
static struct pst_value *find_stored(struct forms *f, struct pst_value *value)
{
    const unsigned later = 1u << PST_LIST_B | 1u << PST_LIST_W;
    const struct pst_value *storage = pst_value_storage(value);
    const struct known *of = storage->id < f->n ? &f->of[storage->id] : NULL;
    const struct pst_node *node = of != NULL ? of->copied : NULL;
    struct pst_meta meta;

    if (node == NULL || storage->kind != PST_VALUE_NODE ||
        (of->direct & later) != 0 || value->offset != 0 ||
        pst_meta_numel(&value->meta) != pst_meta_numel(&storage->meta) ||
        (f->of[node->outs[0]->id].direct & later) == 0 ||
        !find_strides(value, node->args[0].value, &meta))
        return value;
    f->build.prefix = "stored";
    return view_of(&f->build, node->outs[0], &meta, 0);
}

struct conversion_ctx {
    struct forms *forms;
    enum pst_list list;
};

static void convert_operand(void *ctx, struct pst_value **slot,
                            enum pst_form form)
{
    struct conversion_ctx *g = ctx;
    struct pst_value *made;

    if (form == PST_FORM_OWN)
        return;
    if (form == PST_FORM_NONE) {
        *slot = NULL;
        return;
    }
    if (form == PST_FORM_ANY)
        made = g->list == PST_LIST_F ? *slot : find_stored(g->forms, *slot);
    else
        made = is_packed(g->forms, *slot, form)
                   ? packed_of(g->forms, *slot, form)
                   : form_of(g->forms, *slot, form, g->list);
    if (made == NULL)
        return;
    *slot = made;
}

/* Converts the operands of the next node to the layouts that its kernel
 * prefers. */
static enum pst_status convert_operands(void *ctx, struct pst_node *node,
                                        struct pst_call *call,
                                        const struct pst_kernel *kernel)
{
    struct forms *forms = ctx;
    struct conversion_ctx g = {forms, pst_list_of(forms->program, node)};

    if (kernel->form != NULL)
        visit_slots(node, call, kernel, convert_operand, &g);
    return PST_OK;
}

enum pst_status pst_pass_layouts(struct pst_compiler *c, struct pst_diag *diag)
{
    struct forms forms = {.program = c->p, .n = c->p->graph->values.n};
    enum pst_status status;

    pst_build_init(&forms.build, c->p->graph, diag);
    forms.of = pst_calloc(PST_TAG_EXEC, forms.n + 1, sizeof(*forms.of));
    if (forms.of == NULL)
        return pst_diag_nomem(diag, forms.n * sizeof(*forms.of));
    status = count_all_uses(&forms);
    if (status == PST_OK)
        status =
            pst_rewrite_nodes(c->p, &forms.build, convert_operands, &forms);
    pst_free(forms.of);
    return status;
}
