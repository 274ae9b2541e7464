// SPDX-License-Identifier: Apache-2.0
/* Makes the node of a chain: its operands and results, the scratch between its
 * parts, and its text. */
#include "stages/compile/chains/chains.h"

#include "stages/base/checked.h"
#include "stages/base/str.h"
#include "stages/compile/memplan.h"
#include "stages/graph/oprow.h"
#include "stages/graph/text/print.h"
#include "stages/ops/core/call.h"
#include "stages/ops/core/rows.h"

#include <string.h>

struct maker {
    struct pst_program *p;
    const struct pst_chain_spec *spec;
    struct pst_chain *chain;
    struct pst_diag *diag;
    struct PST_VEC(struct pst_value *) in, out;
    unsigned *ends;  /* by part: the last part that reads its result */
    int *slots;      /* by part: scratch slot of its result; -1: it is kept */
    bool *taken;     /* by slot */
    unsigned part;   /* the current one */
    unsigned n_read; /* operands of that part so far */
    enum pst_status status;
};

static struct pst_value *result_of(const struct maker *m, unsigned part)
{
    return m->spec->items[part]->node->outs[0];
}

/* Returns the part that makes the value, -1: none. */
static int part_of(const struct maker *m, const struct pst_value *value)
{
    for (unsigned i = 0; i < m->spec->n; i++)
        if (result_of(m, i) == value)
            return (int)i;
    return -1;
}

static int find_value(struct pst_value *const *at, size_t n,
                      const struct pst_value *value)
{
    for (size_t i = 0; i < n; i++)
        if (at[i] == value)
            return (int)i;
    return -1;
}

/* --- operands ------------------------------------------------------------- */

/* Adds a value to the operands of the chain or, if a part makes it, records its
 * last reader. */
static void collect_operand(void *ctx, struct pst_value **slot, unsigned arg)
{
    struct maker *m = ctx;
    const int from = part_of(m, *slot);

    (void)arg;
    if (from >= 0)
        m->ends[from] = m->part;
    else if (find_value(m->in.at, m->in.n, *slot) < 0 &&
             !pst_vec_push(PST_TAG_EXEC, &m->in, *slot))
        m->status = pst_diag_nomem(m->diag, sizeof(*slot));
}

static void collect(struct maker *m)
{
    for (m->part = 0; m->part < m->spec->n; m->part++) {
        struct pst_node *node = m->spec->items[m->part]->node;

        pst_node_uses(node, collect_operand, m);
        if (m->spec->kept->is[m->part] &&
            !pst_vec_push(PST_TAG_EXEC, &m->out, node->outs[0]))
            m->status = pst_diag_nomem(m->diag, sizeof(node));
    }
}

/* Returns the meta of a block of `rows` rows. */
static struct pst_meta block_meta(const struct maker *m, enum pst_dtype dtype,
                                  int64_t row, int64_t col, int64_t rows)
{
    const bool flat = m->spec->cols == 0;

    return (struct pst_meta){.dtype = dtype,
                             .rank = flat ? 1 : 2,
                             .size = {rows, flat ? 0 : m->spec->cols},
                             .stride = {row, flat ? 0 : col}};
}

/* Fills in where the current part finds a value, the step from block to block
 * in bytes, and the metas of a block. */
static void fill_operand(struct maker *m, struct pst_value *value,
                         struct pst_chain_operand *ret)
{
    const struct pst_chain *chain = m->chain;
    const enum pst_dtype dtype = value->meta.dtype;
    const int from = part_of(m, value);
    const int64_t rows = chain->numel / chain->cols;
    struct pst_chain_strides s;

    (void)pst_chain_strides(&result_of(m, m->part)->meta, &value->meta, &s);
    if (s.cols == 0) {
        s.col = s.row;
        s.row *= chain->cols;
    }
    ret->whole = block_meta(m, dtype, s.row, s.col, chain->block);
    ret->last = block_meta(m, dtype, s.row, s.col,
                           rows - (chain->blocks - 1) * chain->block);
    ret->step = s.row * chain->block * (int64_t)pst_dtype_size(dtype);
    if (from < 0) {
        ret->place = PST_CHAIN_IN;
        ret->index = (unsigned)find_value(m->in.at, m->in.n, value);
    } else if (m->slots[from] < 0) {
        ret->place = PST_CHAIN_OUT;
        ret->index = (unsigned)find_value(m->out.at, m->out.n, value);
    } else {
        ret->place = PST_CHAIN_SLOT;
        ret->index = (unsigned)m->slots[from];
        ret->step = 0;
    }
}

static void read_operand(void *ctx, struct pst_value **slot, unsigned arg)
{
    struct maker *m = ctx;

    (void)arg;
    fill_operand(m, *slot, &m->chain->parts[m->part].in[m->n_read++]);
}

/* --- slots ---------------------------------------------------------------- */

/* True if the kernel of a part may write its result over operand i. */
static bool may_write_over(const struct pst_chain_part *part, unsigned i)
{
    return i < 2 && (part->kernel->flags &
                     (i == 0 ? PST_K_INPLACE_0 : PST_K_INPLACE_1)) != 0;
}

/* True if the part may write its result where it reads the value. */
static bool may_replace(const struct pst_chain_part *part,
                        const struct pst_chain_operand *read)
{
    for (unsigned i = 0; i < part->n_in; i++)
        if (part->in[i].place == read->place &&
            part->in[i].index == read->index && !may_write_over(part, i))
            return false;
    return read->whole.dtype == part->out.whole.dtype &&
           pst_meta_same_layout(&read->whole, &part->out.whole);
}

/* Frees the slots of results that the current part is the last to read. over:
 * only those that its own result may overwrite; else only the others. */
static void free_slots(struct maker *m, bool over)
{
    struct pst_chain_part *part = &m->chain->parts[m->part];

    for (unsigned i = 0; i < part->n_in; i++) {
        const struct pst_chain_operand *x = &part->in[i];

        for (unsigned k = 0; k < m->part; k++)
            if (x->place == PST_CHAIN_SLOT && m->slots[k] == (int)x->index &&
                m->ends[k] == m->part && may_replace(part, x) == over)
                m->taken[x->index] = false;
    }
}

static void take_slot(struct maker *m)
{
    unsigned at = 0;

    while (m->taken[at])
        at++;
    m->taken[at] = true;
    m->slots[m->part] = (int)at;
    m->chain->slots = PST_MAX(m->chain->slots, at + 1);
}

static enum pst_status fill_part(struct maker *m)
{
    const struct pst_chain_item *item = m->spec->items[m->part];
    struct pst_chain_part *part = &m->chain->parts[m->part];

    part->node = item->node;
    part->kernel = item->kernel;
    part->owner = item->owner;
    part->n_in = pst_call_count_in(item->node->schema, item->node->args);
    part->in =
        pst_arena_calloc(&m->p->arena, part->n_in + 1, sizeof(*part->in));
    if (part->in == NULL)
        return pst_diag_nomem(m->diag, sizeof(*part->in));
    m->n_read = 0;
    pst_node_uses(item->node, read_operand, m);
    m->slots[m->part] = -1;
    fill_operand(m, result_of(m, m->part), &part->out);
    free_slots(m, true);
    if (!m->spec->kept->is[m->part]) {
        take_slot(m);
        fill_operand(m, result_of(m, m->part), &part->out);
    }
    free_slots(m, false);
    return PST_OK;
}

/* --- memory --------------------------------------------------------------- */

/* True if result k of the chain may overwrite operand i: no part reads the
 * operand after the part that makes the result. */
static bool may_overlay(const struct maker *m, unsigned k, unsigned i)
{
    const struct pst_value *in = m->in.at[i], *out = m->out.at[k];
    const struct pst_value *storage = pst_value_storage((void *)in);
    const unsigned maker = (unsigned)part_of(m, out);

    if (in->offset != 0 || !pst_meta_is_contiguous(&in->meta) ||
        !pst_meta_same(&in->meta, &out->meta) ||
        pst_meta_bytes(&storage->meta) != pst_meta_bytes(&out->meta))
        return false;
    for (size_t j = 0; j < m->in.n; j++)
        if (j != i && pst_value_storage(m->in.at[j]) == storage)
            return false;
    for (unsigned p = maker; p < m->chain->n_parts; p++)
        for (unsigned n = 0; n < m->chain->parts[p].n_in; n++) {
            const struct pst_chain_operand *x = &m->chain->parts[p].in[n];

            if (x->place == PST_CHAIN_IN && x->index == i &&
                (p > maker || !may_write_over(&m->chain->parts[p], n)))
                return false;
        }
    return true;
}

static enum pst_status fill_overlays(struct maker *m)
{
    bool *over = pst_arena_calloc(&m->p->arena, m->in.n * m->out.n + 1, 1);

    if (over == NULL)
        return pst_diag_nomem(m->diag, m->in.n * m->out.n);
    for (unsigned k = 0; k < m->out.n; k++)
        for (unsigned i = 0; i < m->in.n; i++)
            over[k * m->in.n + i] = may_overlay(m, k, i);
    m->chain->n_in = (unsigned)m->in.n;
    m->chain->over = over;
    return PST_OK;
}

static enum pst_status fill_chain(struct maker *m)
{
    struct pst_chain *chain = m->chain;
    const int64_t cols = PST_MAX(m->spec->cols, 1);
    size_t widest = 1;

    chain->n_parts = m->spec->n;
    chain->cols = cols;
    chain->numel = pst_meta_numel(&result_of(m, 0)->meta);
    chain->block = PST_MAX(m->spec->block / cols, 1);
    chain->blocks = (chain->numel / cols + chain->block - 1) / chain->block;
    for (m->part = 0; m->part < m->spec->n; m->part++) {
        const enum pst_status status = fill_part(m);

        if (status != PST_OK)
            return status;
        widest =
            PST_MAX(widest, pst_dtype_size(result_of(m, m->part)->meta.dtype));
    }
    chain->slot_size = pst_mem_round((size_t)(chain->block * cols) * widest);
    return fill_overlays(m);
}

/* --- the node ------------------------------------------------------------- */

static void print_name(void *ctx, const struct pst_value *value,
                       struct pst_str *out)
{
    (void)ctx;
    pst_str_addf(out, "%%%s", value->name);
}

/* Appends the part of a name between its namespace and its overload. */
static void print_short(struct pst_str *out, const char *name)
{
    const char *begin = strchr(name, '.'), *end;

    begin = begin != NULL ? begin + 1 : name;
    end = strchr(begin, '.');
    pst_str_addf(out, "%.*s",
                 (int)(end != NULL ? end - begin : (ptrdiff_t)strlen(begin)),
                 begin);
}

/* Prints the text "%y = mul.Tensor(%x, 2); ..." and the names "mul+...". */
static void print_parts(const struct maker *m, struct pst_str *text,
                        struct pst_str *names)
{
    for (unsigned i = 0; i < m->spec->n; i++) {
        const struct pst_node *node = m->spec->items[i]->node;

        pst_str_addf(text, "%s%%%s = %s(", i > 0 ? "; " : "",
                     node->outs[0]->name, node->schema->name);
        for (unsigned k = 0; k < node->schema->n_args; k++) {
            if (node->args[k].kind == PST_ARG_IGNORED)
                continue;
            pst_str_add(text, k > 0 ? ", " : "");
            pst_arg_print(&node->args[k], print_name, NULL, text);
        }
        pst_str_add(text, ")");
        pst_str_add(names, i > 0 ? "+" : "");
        print_short(names, node->schema->name);
    }
}

/* Gives the node its arguments. */
static enum pst_status fill_args(const struct maker *m, struct pst_node *node)
{
    struct pst_arena *arena = &m->p->graph->arena;
    struct pst_str text = {0}, names = {0};
    enum pst_status status = PST_OK;

    print_parts(m, &text, &names);
    node->args = pst_arena_calloc(arena, 2, sizeof(*node->args));
    node->origin = pst_arena_strdup(arena, pst_str_text(&names));
    if (node->args != NULL) {
        node->args[0].kind = PST_ARG_VALUES;
        node->args[0].n = (unsigned)m->in.n;
        node->args[0].values = pst_arena_memdup(
            arena, m->in.at, m->in.n * sizeof(struct pst_value *));
        node->args[1].kind = PST_ARG_STRING;
        node->args[1].s = pst_arena_strdup(arena, pst_str_text(&text));
    }
    if (node->args == NULL || node->args[0].values == NULL ||
        node->args[1].s == NULL || node->origin == NULL || text.failed ||
        names.failed)
        status = pst_diag_nomem(m->diag, text.len);
    pst_str_fini(&text);
    pst_str_fini(&names);
    return status;
}

static enum pst_status make_node(const struct maker *m, struct pst_node **ret)
{
    struct pst_arena *arena = &m->p->graph->arena;
    struct pst_node *node = pst_arena_memdup(
        arena, m->spec->items[m->spec->n - 1]->node, sizeof(*node));
    enum pst_status status;

    if (node == NULL)
        return pst_diag_nomem(m->diag, sizeof(*node));
    node->op = &pst_op_chain;
    node->schema = pst_op_schema(&pst_op_chain);
    node->chain = m->chain;
    node->n_outs = (unsigned)m->out.n;
    node->outs = pst_arena_memdup(arena, m->out.at,
                                  m->out.n * sizeof(struct pst_value *));
    if (node->outs == NULL)
        return pst_diag_nomem(m->diag, m->out.n * sizeof(*node->outs));
    status = fill_args(m, node);
    if (status != PST_OK)
        return status;
    for (unsigned i = 0; i < m->spec->n; i++)
        result_of(m, i)->def = NULL;
    for (unsigned k = 0; k < node->n_outs; k++) {
        node->outs[k]->def = node;
        node->outs[k]->def_index = k;
    }
    *ret = node;
    return PST_OK;
}

enum pst_status pst_chain_make(struct pst_program *p,
                               const struct pst_chain_spec *spec,
                               struct pst_node **ret, struct pst_diag *diag)
{
    unsigned ends[PST_CHAIN_PARTS] = {0};
    int slots[PST_CHAIN_PARTS];
    bool taken[PST_CHAIN_PARTS] = {false};
    struct maker m = {.p = p,
                      .spec = spec,
                      .chain = pst_arena_calloc(&p->arena, 1, sizeof(*m.chain)),
                      .diag = diag,
                      .ends = ends,
                      .slots = slots,
                      .taken = taken};

    if (m.chain != NULL)
        m.chain->parts =
            pst_arena_calloc(&p->arena, spec->n, sizeof(*m.chain->parts));
    if (m.chain == NULL || m.chain->parts == NULL)
        return pst_diag_nomem(diag, spec->n * sizeof(*m.chain->parts));
    collect(&m);
    if (m.status == PST_OK)
        m.status = fill_chain(&m);
    if (m.status == PST_OK)
        m.status = make_node(&m, ret);
    pst_vec_fini(&m.in);
    pst_vec_fini(&m.out);
    return m.status;
}
