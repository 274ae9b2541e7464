// SPDX-License-Identifier: Apache-2.0
#include "stages/alias/call.h"

#include "stages/alias/step.h"
#include "stages/graph/bytes.h"
#include "stages/net/transport.h"
#include "stages/split/plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define TAG PST_TAG_EXEC

/* The plan and engine for one way of sharing memory. */
struct entry {
    uint64_t key;
    struct pst_alias_program_bound *bound;
    struct pst_model *model; /* owns the graph; NULL: nothing to compute */
    struct pst_plan *plan;
    struct pst_transport *transport;
    struct pst_engine *engine;
    uint64_t calls, used; /* used: the caller's clock at the last call */
    void **returns, **writes;
};

struct pst_caller {
    const struct pst_alias_program *program;
    bool absolute; /* pst_alias_program_is_absolute() */
    const struct pst_call_options *options;
    struct PST_VEC(struct entry *) entries;
    uint64_t clock;        /* calls so far */
    size_t made;           /* plans made so far */
    struct pst_dump *dump; /* gradients of the last call; NULL: not trained */
    struct pst_alias_leaves *leaves; /* NULL: no optimizer */
};

/* Operands from which an engine reads the inputs of a call. */
struct filling {
    const struct entry *entry;
    const struct pst_alias_program_operand *operands;
    const struct pst_call_storage *storages;
    size_t in_place; /* bytes of inputs that were read without a copy */
};

static void entry_free(struct entry *e)
{
    if (e == NULL)
        return;
    pst_engine_free(e->engine);
    if (e->transport != NULL)
        pst_transport_self.close(e->transport);
    pst_plan_free(e->plan);
    pst_model_close(e->model); /* frees the graph, too */
    pst_alias_program_bound_free(e->bound);
    pst_free(e);
}

enum pst_status pst_caller_new(const struct pst_alias_program *program,
                               const struct pst_call_options *options,
                               struct pst_caller **ret, struct pst_diag *diag)
{
    struct pst_caller *caller = pst_calloc(TAG, 1, sizeof(*caller));
    enum pst_status status = PST_OK;

    if (caller == NULL)
        return pst_diag_nomem(diag, sizeof(*caller));
    caller->program = program;
    caller->absolute = pst_alias_program_is_absolute(program);
    caller->options = options;
    if (options->optim != NULL)
        status = pst_alias_leaves_new(options->optim, &caller->leaves, diag);
    if (status != PST_OK) {
        pst_caller_free(caller);
        return status;
    }
    *ret = caller;
    return PST_OK;
}

void pst_caller_free(struct pst_caller *caller)
{
    if (caller == NULL)
        return;
    for (size_t i = 0; i < caller->entries.n; i++)
        entry_free(caller->entries.at[i]);
    pst_vec_fini(&caller->entries);
    pst_dump_free(caller->dump);
    pst_alias_leaves_free(caller->leaves);
    pst_free(caller);
}

size_t pst_caller_plans(const struct pst_caller *caller)
{
    return caller->made;
}

/* --- memory of the caller's ----------------------------------------------- */

static enum pst_status refuse_range(const char *name, struct pst_diag *diag)
{
    return pst_diag_set(diag, PST_E_ALIAS_CALL,
                        "operand \"%s\" reaches beyond its storage", name);
}

static enum pst_status refuse_address(const char *what, const char *name,
                                      const struct pst_meta *meta,
                                      struct pst_diag *diag)
{
    return pst_diag_set(diag, PST_E_ALIAS_UNALIGNED,
                        "E_UNALIGNED: %s \"%s\" begins at an address that is "
                        "no multiple of %zu, the size of %s",
                        what, name, pst_dtype_size(meta->dtype),
                        pst_dtype_name(meta->dtype));
}

/* True if the elements have aligned addresses. */
static bool is_aligned(const struct pst_call_storage *storage,
                       const struct pst_meta *meta, int64_t offset)
{
    const uintptr_t item = pst_dtype_size(meta->dtype);

    return pst_meta_numel(meta) == 0 ||
           ((uintptr_t)storage->data + (uintptr_t)offset * item) % item == 0;
}

/* Checks that every byte of an operand lies in its storage, and that its
 * elements are aligned. */
static enum pst_status check_operand(const struct pst_alias_program_operand *o,
                                     const struct pst_call_storage *storages,
                                     unsigned n, struct pst_diag *diag)
{
    const size_t item = pst_dtype_size(o->as.meta.dtype);
    const size_t span = pst_meta_span(&o->as.meta);
    enum pst_status status;

    if (o->from_before)
        return PST_OK;
    status = pst_meta_check(&o->as.meta, diag);
    if (status != PST_OK)
        return status;
    if (o->as.storage < n && o->as.offset >= 0 &&
        (size_t)o->as.offset <= storages[o->as.storage].bytes / item &&
        span <= storages[o->as.storage].bytes - (size_t)o->as.offset * item)
        return is_aligned(&storages[o->as.storage], &o->as.meta, o->as.offset)
                   ? PST_OK
                   : refuse_address("operand", o->as.name, &o->as.meta, diag);
    return refuse_range(o->as.name, diag);
}

/* Checks that elements of another dtype than the operand's (view.dtype), which
 * the call writes or returns, are aligned in the caller's storage. */
static enum pst_status check_places(
    const struct pst_alias_program_bound *bound,
    const struct pst_alias_program_place *places, unsigned n,
    const struct pst_call_storage *storages, struct pst_diag *diag)
{
    for (unsigned i = 0; i < n; i++) {
        const struct pst_alias_program_place *p = &places[i];
        const struct pst_alias_operand *o;

        if (p->operand < 0 ||
            pst_alias_program_is_new(bound, (unsigned)p->operand))
            continue;
        o = &bound->operands[p->operand].as;
        if (!is_aligned(&storages[o->storage], &p->meta, p->offset))
            return refuse_address("a view of", o->name, &p->meta, diag);
    }
    return PST_OK;
}

/* Checks that all bytes passed for operands lie in their storages, also those
 * that as_strided() reaches outside an operand. */
static enum pst_status check_reach(const struct pst_alias_program_bound *bound,
                                   const struct pst_call_storage *storages,
                                   struct pst_diag *diag)
{
    for (unsigned i = 0; i < bound->n_operands; i++) {
        const struct pst_alias_program_operand *o = &bound->operands[i];
        int64_t begin, end;

        if (o->from_before)
            continue;
        pst_alias_program_range(&o->as, bound->absolute, &begin, &end);
        if (begin < 0 || (size_t)end > storages[o->as.storage].bytes)
            return pst_diag_set(diag, PST_E_ALIAS_CALL,
                                "views of \"%s\" reach the bytes %" PRId64
                                " to %" PRId64 " of its storage, which has %zu",
                                o->as.name, begin, end - 1,
                                storages[o->as.storage].bytes);
    }
    return PST_OK;
}

static const char *address_of(const struct filling *f, unsigned storage,
                              int64_t byte)
{
    return (const char *)f->storages[storage].data + byte;
}

/* Copies contiguous elements from the caller's memory and turns their bytes
 * into valid values; dst may be NULL if there are no elements. */
static void copy_values(void *dst, const char *from,
                        const struct pst_meta *meta)
{
    const size_t bytes = pst_meta_bytes(meta);

    if (bytes > 0)
        memcpy(dst, from, bytes);
    pst_bytes_to_values(meta->dtype, dst, bytes);
}

/* Returns the caller's address of the bytes of an input; NULL: no operand has
 * the input's name. */
static const char *find_source(const struct filling *f, unsigned input)
{
    const struct pst_plan_input *in = &f->entry->plan->inputs.at[input];
    const struct pst_alias_program_bound *bound = f->entry->bound;
    const struct pst_alias *alias = &bound->alias;
    int64_t begin, end;
    char name[32];

    for (unsigned b = 0; b < alias->n_bases; b++) {
        pst_alias_program_input_name(true, b, name);
        if (strcmp(in->name, name) == 0)
            return address_of(f, alias->bases[b].storage,
                              alias->bases[b].begin);
    }
    for (unsigned i = 0; i < alias->n; i++) {
        const struct pst_alias_operand *o = &bound->operands[i].as;

        pst_alias_program_input_name(false, i, name);
        if (strcmp(in->name, name) != 0)
            continue;
        pst_alias_program_range(o, bound->absolute, &begin, &end);
        return address_of(f, o->storage, begin);
    }
    return NULL;
}

static enum pst_status fill_input(void *ctx, uint64_t step, unsigned microbatch,
                                  unsigned input, void *dst,
                                  struct pst_diag *diag)
{
    const struct filling *f = ctx;
    const struct pst_plan_input *in = &f->entry->plan->inputs.at[input];
    const char *from = find_source(f, input);

    (void)step;
    (void)microbatch;
    if (from == NULL)
        return pst_diag_set(diag, PST_E_INTERNAL_BUG,
                            "no operand is called \"%s\"", in->name);
    copy_values(dst, from, &in->meta);
    return PST_OK;
}

/* A pst_lend_fn. The caller's memory stays unchanged while it is lent, since
 * the call writes to storages only after the step. A bool is not lent: the
 * caller's bytes may be no valid values. */
static bool lend_input(void *ctx, const struct pst_device_memory *reader,
                       bool in_place, unsigned microbatch, unsigned input,
                       struct pst_lent *ret)
{
    struct filling *f = ctx;
    const struct pst_meta *meta = &f->entry->plan->inputs.at[input].meta;
    const char *from = find_source(f, input);

    (void)microbatch;
    if (!in_place || reader->device->space != PST_SPACE_HOST || from == NULL ||
        meta->dtype == PST_BOOL ||
        (uintptr_t)from % pst_dtype_size(meta->dtype) != 0)
        return false;
    f->in_place += pst_meta_bytes(meta);
    *ret = (struct pst_lent){.data = from};
    return true;
}

/* --- plans ---------------------------------------------------------------- */

/* Copies the content of a leaf to w->data, contiguous. */
static void copy_leaf(const struct filling *f,
                      const struct pst_alias_program_operand *o,
                      const struct pst_weight *w)
{
    const char *from =
        address_of(f, o->as.storage,
                   o->as.offset * (int64_t)pst_dtype_size(o->as.meta.dtype));

    pst_copy_strided(&o->as.meta, from, &w->meta, (void *)w->data);
}

/* Returns the first operand that is this leaf; NULL if there is none. */
static const struct pst_alias_program_operand *find_leaf(
    const struct entry *e, const struct filling *f, const char *leaf)
{
    for (unsigned k = 0; k < e->bound->n_operands; k++)
        if (f->operands[k].leaf != NULL &&
            strcmp(f->operands[k].leaf, leaf) == 0)
            return &f->operands[k];
    return NULL;
}

static enum pst_status add_leaf_weights(struct entry *e,
                                        const struct filling *f,
                                        struct pst_diag *diag)
{
    struct pst_model *model = e->model;

    for (size_t i = 0; i < model->graph->params.n; i++) {
        const struct pst_value *v = model->graph->params.at[i];
        const struct pst_alias_program_operand *o = find_leaf(e, f, v->fqn);
        struct pst_weight *w = pst_arena_calloc(&model->arena, 1, sizeof(*w));

        if (w == NULL || !pst_map_put(&model->weights_by_fqn, v->fqn, w))
            return pst_diag_nomem(diag, sizeof(*w));
        w->fqn = v->fqn;
        w->meta = v->meta;
        w->is_param = w->requires_grad = true;
        w->data = pst_arena_alloc(&model->arena, pst_meta_bytes(&w->meta) + 1);
        if (w->data == NULL)
            return pst_diag_nomem(diag, pst_meta_bytes(&w->meta));
        copy_leaf(f, o, w);
    }
    return PST_OK;
}

/* Gives the engine the content that leaves have in this call. */
static enum pst_status renew_leaves(const struct entry *e,
                                    const struct filling *f,
                                    struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < e->plan->params.n && status == PST_OK; i++) {
        const char *leaf = e->plan->params.at[i].fqn;
        const struct pst_alias_program_operand *o = find_leaf(e, f, leaf);
        const struct pst_weight *w =
            pst_map_get(&e->model->weights_by_fqn, leaf);

        if (o == NULL || w == NULL)
            return pst_diag_set(diag, PST_E_INTERNAL_BUG,
                                "no operand is leaf \"%s\"", leaf);
        copy_leaf(f, o, w);
        status = pst_engine_write_param(e->engine, (unsigned)i, w->data, diag);
    }
    return status;
}

static enum pst_status make_engine(const struct pst_caller *caller,
                                   struct entry *e, struct filling *f,
                                   struct pst_diag *diag)
{
    const struct pst_split_options cut = {
        .loss = caller->options->train ? "0" : "none"};
    const struct pst_exec_options run = {.schedule = "gpipe",
                                         .microbatches = 1,
                                         .train = caller->options->train,
                                         .keep_outputs = true,
                                         .threads = 1,
                                         .ranks = 1,
                                         .lends_inputs = true};
    enum pst_status status = pst_model_new(&e->model, diag);

    if (status != PST_OK)
        return status;
    e->model->name = "program";
    e->model->graph = e->bound->graph;
    e->bound->graph = NULL;
    status = add_leaf_weights(e, f, diag);
    if (status == PST_OK)
        status = pst_split(e->model, &cut, &e->plan, diag);
    if (status == PST_OK)
        status = pst_transport_self.open("1", &e->transport, diag);
    if (status == PST_OK)
        status = pst_engine_new(e->plan, e->transport, &run, &e->engine, diag);
    return status;
}

/* Makes space for a plan: drops the least recently used one. */
static void drop_oldest(struct pst_caller *caller)
{
    size_t oldest = 0;

    if (caller->entries.n < PST_CALLER_PLANS)
        return;
    for (size_t i = 1; i < caller->entries.n; i++)
        if (caller->entries.at[i]->used < caller->entries.at[oldest]->used)
            oldest = i;
    entry_free(caller->entries.at[oldest]);
    caller->entries.at[oldest] = caller->entries.at[--caller->entries.n];
}

static enum pst_status make_entry(struct pst_caller *caller, uint64_t key,
                                  struct filling *f, unsigned n,
                                  struct entry **ret, struct pst_diag *diag)
{
    struct entry *e = pst_calloc(TAG, 1, sizeof(*e));
    enum pst_status status;

    if (e == NULL)
        return pst_diag_nomem(diag, sizeof(*e));
    drop_oldest(caller);
    e->key = key;
    f->entry = e;
    status = pst_alias_program_bind(caller->program, f->operands, n, &e->bound,
                                    diag);
    if (status == PST_OK && e->bound->graph->outputs.n > 0)
        status = make_engine(caller, e, f, diag);
    if (status == PST_OK && !pst_vec_push(TAG, &caller->entries, e))
        status = pst_diag_nomem(diag, sizeof(*e));
    if (status != PST_OK) {
        entry_free(e);
        return status;
    }
    caller->made++;
    *ret = e;
    return PST_OK;
}

/* --- a call --------------------------------------------------------------- */

/* Refuses operators that write a read-only operand, or a view of it that
 * `before` has made. Storages that `before` has made can be written. */
static enum pst_status check_read_only(
    const struct pst_alias_program_bound *bound,
    const struct pst_alias_program_operand *operands, struct pst_diag *diag)
{
    for (unsigned i = 0; i < bound->n_operands; i++) {
        const struct pst_alias_operand *as = &bound->operands[i].as;

        if (as->written && as->root < bound->n_operands &&
            operands[as->root].read_only)
            return pst_diag_set(diag, PST_E_ALIAS_READ_ONLY,
                                "E_READ_ONLY: the program writes \"%s\", "
                                "which is read-only",
                                operands[as->root].as.name);
    }
    return PST_OK;
}

/* Copies output number `output` of the engine to the entry's arena,
 * contiguous. */
static enum pst_status copy_output(struct entry *e, int output, void **ret,
                                   struct pst_diag *diag)
{
    const struct pst_plan_output *o = &e->plan->outputs.at[output];

    if (*ret == NULL)
        *ret = pst_arena_alloc(&e->bound->arena, pst_meta_bytes(&o->meta) + 1);
    if (*ret == NULL)
        return pst_diag_nomem(diag, pst_meta_bytes(&o->meta));
    return pst_engine_output(e->engine, (unsigned)output, *ret, diag);
}

/* Fetches all results from the engine. Only then are they written to the
 * caller's storages, so that a call that fails has written nothing. */
static enum pst_status fetch_results(const struct pst_caller *caller,
                                     struct entry *e, struct pst_diag *diag)
{
    const struct pst_alias_program_bound *bound = e->bound;
    struct pst_arena *arena = &e->bound->arena;
    enum pst_status status = PST_OK;

    if (e->returns == NULL) {
        e->returns = pst_arena_calloc(arena, caller->program->n_returns + 1,
                                      sizeof(void *));
        e->writes =
            pst_arena_calloc(arena, bound->n_writes + 1, sizeof(void *));
        if (e->returns == NULL || e->writes == NULL)
            return pst_diag_nomem(diag, bound->n_writes);
    }
    for (unsigned i = 0; i < caller->program->n_returns && status == PST_OK;
         i++)
        if (bound->returns[i].output >= 0)
            status =
                copy_output(e, bound->returns[i].output, &e->returns[i], diag);
    for (unsigned i = 0; i < bound->n_writes && status == PST_OK; i++)
        status = copy_output(e, bound->writes[i].output, &e->writes[i], diag);
    return status;
}

static size_t write_back(const struct entry *e, const struct filling *f)
{
    const struct pst_alias_program_bound *bound = e->bound;
    size_t ret = 0;

    for (unsigned i = 0; i < bound->n_writes; i++) {
        const struct pst_alias_program_place *w = &bound->writes[i];
        const struct pst_alias_operand *o = &bound->operands[w->operand].as;
        struct pst_meta from = w->meta;

        if (pst_alias_program_is_new(bound, (unsigned)w->operand))
            continue; /* the result is in no storage of the caller's */
        pst_meta_set_contiguous(&from);
        pst_copy_strided(&from, e->writes[i], &w->meta,
                         (char *)f->storages[o->storage].data +
                             w->offset *
                                 (int64_t)pst_dtype_size(w->meta.dtype));
        ret += pst_meta_bytes(&from);
    }
    return ret;
}

static enum pst_status run_step(struct pst_caller *caller, struct entry *e,
                                struct filling *f, struct pst_diag *diag)
{
    struct pst_step_result result;
    enum pst_status status = e->calls > 0 ? renew_leaves(e, f, diag) : PST_OK;

    pst_dump_free(caller->dump);
    caller->dump = NULL;
    if (status == PST_OK) {
        pst_engine_lend(e->engine, lend_input, f);
        status = pst_engine_step(e->engine, e->calls, fill_input, f, 0, &result,
                                 diag);
    }
    if (status == PST_OK)
        status = fetch_results(caller, e, diag);
    if (status != PST_OK || !caller->options->train)
        return status;
    status = pst_engine_dump_first(e->engine, &caller->dump, diag);
    if (status == PST_OK && caller->leaves != NULL)
        status =
            pst_alias_leaves_prepare(caller->leaves, f->operands,
                                     e->bound->n_operands, caller->dump, diag);
    return status;
}

/* Returns the key of a call, with the offsets of operands if an operator
 * depends on them. */
static uint64_t key_of(const struct pst_caller *caller,
                       const struct pst_alias_operand *as, unsigned n)
{
    uint64_t key = pst_alias_key(as, n);

    for (unsigned i = 0; i < n && caller->absolute; i++)
        key = pst_hash(&as[i].offset, sizeof(as[i].offset), key);
    return key;
}

enum pst_status pst_caller_call(
    struct pst_caller *caller, const struct pst_alias_program_operand *operands,
    unsigned n_operands, const struct pst_call_storage *storages,
    unsigned n_storages, struct pst_call_result *ret, struct pst_diag *diag)
{
    struct filling f = {.operands = operands, .storages = storages};
    struct pst_alias_operand *as = pst_calloc(TAG, n_operands + 1, sizeof(*as));
    enum pst_status status = PST_OK;
    struct entry *e = NULL;
    uint64_t key;

    if (as == NULL)
        return pst_diag_nomem(diag, n_operands);
    for (unsigned i = 0; i < n_operands && status == PST_OK; i++) {
        as[i] = operands[i].as;
        status = check_operand(&operands[i], storages, n_storages, diag);
    }
    key = key_of(caller, as, n_operands);
    pst_free(as);
    if (status != PST_OK)
        return status;
    for (size_t i = 0; i < caller->entries.n && e == NULL; i++)
        if (caller->entries.at[i]->key == key)
            e = caller->entries.at[i];
    *ret = (struct pst_call_result){.is_new = e == NULL};
    if (e == NULL)
        status = make_entry(caller, key, &f, n_operands, &e, diag);
    f.entry = e;
    if (status == PST_OK) {
        pst_alias_program_move(e->bound, operands);
        status = check_read_only(e->bound, operands, diag);
    }
    if (status == PST_OK)
        status = check_reach(e->bound, storages, diag);
    if (status == PST_OK)
        status = check_places(e->bound, e->bound->writes, e->bound->n_writes,
                              storages, diag);
    if (status == PST_OK)
        status = check_places(e->bound, e->bound->returns, e->bound->n_returns,
                              storages, diag);
    if (status == PST_OK && e->engine != NULL)
        status = run_step(caller, e, &f, diag);
    if (status != PST_OK)
        return status;
    e->calls++;
    e->used = ++caller->clock;
    ret->bound = e->bound;
    ret->returns = e->returns;
    ret->in_place = f.in_place;
    ret->copied = write_back(e, &f);
    if (caller->leaves != NULL && caller->dump != NULL)
        pst_alias_leaves_step(caller->leaves, operands, n_operands, storages,
                              caller->dump);
    return PST_OK;
}

const void *pst_caller_grad(const struct pst_caller *caller, const char *leaf,
                            bool value)
{
    const struct pst_dump_item *item = NULL;
    char name[512];

    if (value)
        return caller->leaves != NULL
                   ? pst_alias_leaves_value(caller->leaves, leaf)
                   : NULL;
    (void)snprintf(name, sizeof(name), "grad.%s", leaf);
    if (caller->dump != NULL)
        item = pst_dump_find(caller->dump, name);
    return item != NULL ? item->data : NULL;
}
