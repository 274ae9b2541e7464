// SPDX-License-Identifier: Apache-2.0
/* Writes a dump: one file with the tensors of a step. Names of tensors do not
 * depend on how the model was cut into stages. */
#include "stages/run/dump.h"

#include "stages/graph/low.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "stages/files/safetensors.h"
#include "stages/layout/batch.h"
#include "stages/layout/layout.h"
#include "stages/run/engine.h"
#include "stages/run/rank/step/agree.h"
#include "stages/run/rank/step/device.h"
#include "stages/split/bind/bind.h"

struct pst_dump {
    struct PST_VEC(struct pst_dump_item) items;
    /* step: of losses, outputs and gradients; last_step: of parameters and
     * buffers; 0: not set */
    uint64_t step, last_step;
};

void pst_dump_set_step(struct pst_dump *dump, uint64_t step)
{
    if (dump->step == 0)
        dump->step = step;
    dump->last_step = step;
}

void pst_dump_free(struct pst_dump *dump)
{
    if (dump == NULL)
        return;
    for (size_t i = 0; i < dump->items.n; i++) {
        pst_free(dump->items.at[i].name);
        pst_free(dump->items.at[i].data);
    }
    pst_vec_fini(&dump->items);
    pst_free(dump);
}

/* Adds a tensor with zeroed data; returns NULL if out of memory. */
static void *add_tensor(struct pst_dump *dump, const char *prefix,
                        const char *name, const struct pst_meta *meta)
{
    size_t len = strlen(prefix) + strlen(name) + 1;
    struct pst_dump_item item = {.name = pst_alloc(PST_TAG_EXEC, len),
                                 .meta = *meta};

    pst_meta_set_contiguous(&item.meta);
    item.data = pst_calloc(PST_TAG_EXEC, pst_meta_bytes(meta) + 1, 1);
    if (item.name != NULL)
        snprintf(item.name, len, "%s%s", prefix, name);
    if (item.name == NULL || item.data == NULL ||
        !pst_vec_push(PST_TAG_EXEC, &dump->items, item)) {
        pst_free(item.name);
        pst_free(item.data);
        return NULL;
    }
    return item.data;
}

static void store_number(void *data, enum pst_dtype dtype, int64_t i,
                         double value)
{
    if (dtype == PST_F64)
        ((double *)data)[i] = value;
    else
        ((float *)data)[i] = (float)value;
}

/* Adds "loss" and "losses", which are f64 if the model's loss is. */
static enum pst_status add_losses(struct pst_engine *engine,
                                  struct pst_dump *dump, struct pst_diag *diag)
{
    const struct pst_decision *v = pst_rank_decision(engine->ranks[0]);
    int64_t m = engine->grid->options.microbatches;
    struct pst_meta scalar, row;
    enum pst_dtype dtype;
    void *loss, *losses;

    if (engine->grid->plan->loss < 0)
        return PST_OK;
    dtype =
        engine->grid->plan->outputs.at[engine->grid->plan->loss].meta.dtype ==
                PST_F64
            ? PST_F64
            : PST_F32;
    scalar = pst_meta_make(dtype, 0, NULL);
    row = pst_meta_make(dtype, 1, &m);
    loss = add_tensor(dump, "loss", "", &scalar);
    losses = add_tensor(dump, "losses", "", &row);
    if (loss == NULL || losses == NULL)
        return pst_diag_nomem(diag, (size_t)m * sizeof(double));
    store_number(loss, dtype, 0, v->loss);
    for (int64_t i = 0; i < m; i++)
        store_number(losses, dtype, i, v->losses[i]);
    return PST_OK;
}

enum pst_status pst_engine_output_meta(const struct pst_engine *engine,
                                       unsigned i, struct pst_meta *ret,
                                       unsigned *ret_dim, bool *ret_rows,
                                       struct pst_diag *diag)
{
    const struct pst_exec_options *o = &engine->grid->options;
    enum pst_status status =
        pst_plan_output_dim(engine->grid->plan, i, ret_dim, ret_rows, diag);

    *ret = engine->grid->plan->outputs.at[i].meta;
    if (ret->rank == 0) {
        ret->rank = 1;
        ret->size[0] = o->microbatches;
    } else {
        ret->size[*ret_dim] *= pst_n_larger(o);
        if (o->tail != NULL)
            ret->size[*ret_dim] +=
                o->n_tail * o->tail->outputs.at[i].meta.size[*ret_dim];
    }
    pst_meta_set_contiguous(ret);
    return status;
}

static enum pst_status add_outputs(struct pst_engine *engine,
                                   struct pst_dump *dump, struct pst_diag *diag)
{
    enum pst_status status = PST_OK;
    unsigned number = 0;

    for (unsigned i = 0; i < engine->grid->plan->outputs.n && status == PST_OK;
         i++) {
        const struct pst_plan_output *o = &engine->grid->plan->outputs.at[i];
        struct pst_meta meta;
        unsigned dim;
        char name[32];
        void *data = NULL;

        if (!o->is_tensor)
            continue;
        snprintf(name, sizeof(name), "%u", number++);
        if (!engine->grid->options.keep_outputs)
            continue;
        status = pst_engine_output_meta(engine, i, &meta, &dim, NULL, diag);
        if (status != PST_OK)
            return status;
        if (pst_engine_is_zero(engine)) {
            data = add_tensor(dump, "output.", name, &meta);
            if (data == NULL)
                return pst_diag_nomem(diag, pst_meta_bytes(&meta));
        }
        status = pst_engine_output(engine, i, data, diag);
    }
    return status;
}

/* Fetches bytes like pst_engine_fetch. If src is NULL on the rank `from`, dst
 * stays zero, as it is before the call. */
static enum pst_status fetch_or_zero(struct pst_engine *engine, unsigned from,
                                     const void *src, void *dst, size_t bytes,
                                     struct pst_diag *diag)
{
    void *zeros = NULL;
    enum pst_status status;

    if (src == NULL && pst_engine_local_rank(engine, from) != NULL) {
        if (pst_engine_is_zero(engine))
            return PST_OK;
        src = zeros = pst_calloc(PST_TAG_EXEC, bytes + 1, 1);
        if (zeros == NULL)
            return pst_diag_nomem(diag, bytes);
    }
    status = pst_engine_fetch(engine, from, src, dst, bytes, diag);
    pst_free(zeros);
    return status;
}

static bool is_buffer(const struct pst_plan_param *param)
{
    return param->kind == PST_VALUE_BUFFER;
}

/* Adds copies of a buffer under its other names, as PyTorch's
 * named_buffers(remove_duplicate=False) has them. */
static enum pst_status add_aliases(struct pst_dump *dump, const char *prefix,
                                   const struct pst_plan_param *p,
                                   const void *data, struct pst_diag *diag)
{
    const size_t bytes = pst_meta_bytes(&p->meta);

    for (unsigned k = 0; k < p->n_aliases; k++) {
        void *copy = add_tensor(dump, prefix, p->aliases[k], &p->meta);

        if (copy == NULL)
            return pst_diag_nomem(diag, bytes);
        memcpy(copy, data, bytes);
    }
    for (unsigned k = 0; k < p->n_windows; k++) {
        const struct pst_named_window *w = &p->windows[k];
        struct pst_meta to = w->meta;
        void *copy = add_tensor(dump, prefix, w->fqn, &w->meta);

        if (copy == NULL)
            return pst_diag_nomem(diag, pst_meta_bytes(&w->meta));
        pst_meta_set_contiguous(&to);
        pst_copy_strided(&w->meta,
                         (const char *)data +
                             (size_t)w->offset * pst_dtype_size(to.dtype),
                         &to, copy);
    }
    return PST_OK;
}

/* Removes item `at`, which has no name in the model. */
static void drop_item(struct pst_dump *dump, size_t at)
{
    struct pst_dump_item *item = &dump->items.at[at];

    pst_free(item->name);
    pst_free(item->data);
    dump->items.n--;
    memmove(item, item + 1, (dump->items.n - at) * sizeof(*item));
}

/* choose_fn: true if the parameter is to be fetched. offset_fn: returns the
 * arena offset of the tensor to fetch (value or gradient); 0: none. */
typedef bool (*choose_fn)(const struct pst_plan_param *param);
typedef size_t (*offset_fn)(const struct pst_rank_param *param);

/* Returns NULL if the rank does not have the tensor. */
static const void *find_tensor(struct pst_rank *r, unsigned param,
                               offset_fn offset_of, size_t bytes)
{
    const struct pst_rank_param *p =
        pst_layout_param(pst_rank_layout(r), param);
    const size_t offset = p != NULL ? offset_of(p) : 0;

    return offset == 0 ? NULL
                       : pst_rank_pull(pst_rank_device(r), offset, bytes);
}

static size_t grad_offset(const struct pst_rank_param *param)
{
    return param->own_grad;
}

static size_t data_offset(const struct pst_rank_param *param)
{
    return param->data;
}

static bool is_shared(const struct pst_engine *engine, unsigned param,
                      offset_fn offset_of)
{
    const struct pst_rank_role *role = pst_rank_role(engine->ranks[0]);

    return offset_of == grad_offset ? pst_role_shares(role, param)
                                    : pst_role_gathers(role, param);
}

/* Returns the meta of a parameter's value or gradient. */
static struct pst_meta meta_of(const struct pst_plan_param *p,
                               offset_fn offset_of)
{
    struct pst_meta ret = p->meta;

    if (offset_of == grad_offset)
        ret.dtype = pst_dtype_of_grad(ret.dtype);
    return ret;
}

/* Fetches a tensor of a parameter to dst on rank 0; dst is zero before the
 * call. */
static enum pst_status fetch_tensor(struct pst_engine *engine, unsigned param,
                                    offset_fn offset_of, void *dst,
                                    struct pst_diag *diag)
{
    const struct pst_plan_param *p = &engine->grid->plan->params.at[param];
    const struct pst_meta meta = meta_of(p, offset_of);
    const size_t bytes = pst_meta_bytes(&meta);
    const unsigned owner = pst_engine_owner(engine, param);
    struct pst_rank *r = pst_engine_local_rank(engine, owner);
    enum pst_status status;

    /* no stage uses it: it has a value, but no gradient */
    if (p->n_stages == 0)
        return dst != NULL && offset_of == data_offset
                   ? pst_engine_read_unread(engine, param, dst, diag)
                   : PST_OK;
    if (is_shared(engine, param, offset_of))
        status = pst_engine_fetch_shares(engine, param,
                                         offset_of == grad_offset, dst, diag);
    else
        status = fetch_or_zero(
            engine, owner,
            r != NULL ? find_tensor(r, param, offset_of, bytes) : NULL, dst,
            bytes, diag);
    if (status == PST_OK && dst != NULL && offset_of == grad_offset)
        pst_engine_unscale(engine, meta.dtype, pst_meta_numel(&meta), dst);
    return status;
}

enum pst_status pst_engine_fetch_grad(struct pst_engine *engine, unsigned param,
                                      void *dst, struct pst_diag *diag)
{
    const struct pst_meta meta =
        meta_of(&engine->grid->plan->params.at[param], grad_offset);

    if (dst != NULL)
        memset(dst, 0, pst_meta_bytes(&meta));
    return fetch_tensor(engine, param, grad_offset, dst, diag);
}

static enum pst_status add_params(struct pst_engine *engine,
                                  struct pst_dump *dump, const char *prefix,
                                  choose_fn choose, offset_fn offset_of,
                                  struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    for (unsigned i = 0; i < engine->grid->plan->params.n && status == PST_OK;
         i++) {
        const struct pst_plan_param *p = &engine->grid->plan->params.at[i];
        const struct pst_meta meta = meta_of(p, offset_of);
        const size_t at = dump->items.n;
        void *dst = NULL;

        if (!choose(p))
            continue;
        if (pst_engine_is_zero(engine)) {
            dst = add_tensor(dump, prefix, p->fqn, &meta);
            if (dst == NULL)
                return pst_diag_nomem(diag, pst_meta_bytes(&meta));
        }
        status = fetch_tensor(engine, i, offset_of, dst, diag);
        if (status == PST_OK && dst != NULL && is_buffer(p))
            status = add_aliases(dump, prefix, p, dst, diag);
        if (status == PST_OK && dst != NULL && p->nameless)
            drop_item(dump, at);
    }
    return status;
}

static bool wants_grad(const struct pst_plan_param *param)
{
    return param->kind == PST_VALUE_PARAM && param->requires_grad;
}

static bool is_param(const struct pst_plan_param *param)
{
    return param->kind == PST_VALUE_PARAM;
}

enum pst_status pst_engine_dump_first(struct pst_engine *engine,
                                      struct pst_dump **ret,
                                      struct pst_diag *diag)
{
    struct pst_dump *dump = pst_calloc(PST_TAG_EXEC, 1, sizeof(*dump));
    enum pst_status status;

    if (dump == NULL)
        return pst_diag_nomem(diag, sizeof(*dump));
    status =
        pst_engine_is_zero(engine) ? add_losses(engine, dump, diag) : PST_OK;
    if (status == PST_OK)
        status = add_outputs(engine, dump, diag);
    if (status == PST_OK && engine->grid->options.train)
        status =
            add_params(engine, dump, "grad.", wants_grad, grad_offset, diag);
    if (status != PST_OK) {
        pst_dump_free(dump);
        return status;
    }
    *ret = dump;
    return PST_OK;
}

static enum pst_status add_step(struct pst_safetensors_writer *w,
                                const char *key, uint64_t step,
                                struct pst_diag *diag)
{
    char text[24];

    if (step == 0)
        return PST_OK;
    snprintf(text, sizeof(text), "%" PRIu64, step);
    return pst_safetensors_writer_metadata(w, key, text, diag);
}

static enum pst_status write_file(const struct pst_dump *dump, const char *path,
                                  struct pst_diag *diag)
{
    struct pst_safetensors_writer *w;
    enum pst_status status = pst_safetensors_writer_new(path, &w, diag);

    if (status != PST_OK)
        return status;
    for (size_t i = 0; i < dump->items.n && status == PST_OK; i++)
        status = pst_safetensors_writer_declare(w, dump->items.at[i].name,
                                                &dump->items.at[i].meta, diag);
    if (status == PST_OK)
        status = add_step(w, "step", dump->step, diag);
    if (status == PST_OK)
        status = add_step(w, "last_step", dump->last_step, diag);
    if (status == PST_OK)
        status = pst_safetensors_writer_begin(w, diag);
    for (size_t i = 0; i < dump->items.n && status == PST_OK; i++)
        status = pst_safetensors_writer_put(w, i, dump->items.at[i].data, diag);
    if (status == PST_OK)
        status = pst_safetensors_writer_commit(w, diag);
    pst_safetensors_writer_free(w);
    return status;
}

const struct pst_dump_item *pst_dump_items(const struct pst_dump *dump,
                                           size_t *ret_n)
{
    *ret_n = dump->items.n;
    return dump->items.at;
}

const struct pst_dump_item *pst_dump_find(const struct pst_dump *dump,
                                          const char *name)
{
    for (size_t i = 0; i < dump->items.n; i++)
        if (strcmp(dump->items.at[i].name, name) == 0)
            return &dump->items.at[i];
    return NULL;
}

enum pst_status pst_engine_dump_state(struct pst_engine *engine,
                                      struct pst_dump *dump,
                                      struct pst_diag *diag)
{
    enum pst_status status =
        add_params(engine, dump, "param.", is_param, data_offset, diag);

    if (status == PST_OK)
        status =
            add_params(engine, dump, "buffer.", is_buffer, data_offset, diag);
    return status;
}

enum pst_status pst_engine_dump_final(struct pst_engine *engine,
                                      struct pst_dump *dump, const char *path,
                                      struct pst_diag *diag)
{
    enum pst_status status = pst_engine_dump_state(engine, dump, diag);

    if (status == PST_OK && pst_engine_is_zero(engine))
        status = write_file(dump, path, diag);
    return pst_engine_agree(engine, status, diag);
}

enum pst_status pst_pieces_join(const struct pst_exec_options *o,
                                const struct pst_meta *larger,
                                const struct pst_meta *smaller, unsigned dim,
                                unsigned char *data, struct pst_diag *diag)
{
    const size_t all = pst_pieces_bytes(o, larger, smaller, o->microbatches);
    unsigned char *copy = pst_alloc(PST_TAG_EXEC, all + 1);
    size_t before = 1, at = 0;

    if (copy == NULL)
        return pst_diag_nomem(diag, all);
    memcpy(copy, data, all);
    for (unsigned d = 0; d < dim; d++)
        before *= (size_t)larger->size[d];
    for (unsigned k = 0; k < o->microbatches && before > 0; k++) {
        const size_t from = pst_pieces_bytes(o, larger, smaller, k);
        const size_t bytes = pst_pieces_bytes(o, larger, smaller, k + 1) - from;

        for (size_t p = 0; p < before; p++)
            memcpy(data + p * (all / before) + at,
                   copy + from + p * (bytes / before), bytes / before);
        at += bytes / before;
    }
    pst_free(copy);
    return PST_OK;
}

enum pst_status pst_engine_output(struct pst_engine *engine, unsigned i,
                                  void *dst, struct pst_diag *diag)
{
    const struct pst_plan_output *o = &engine->grid->plan->outputs.at[i];
    enum pst_status status = PST_OK;
    unsigned dim;

    if (!o->is_tensor)
        return pst_diag_set(diag, PST_E_MODEL_OUTPUT_KIND,
                            "output '%s' is not a tensor", o->path);
    if (!engine->grid->options.keep_outputs)
        return pst_diag_set(diag, PST_E_INTERNAL_BUG,
                            "outputs were not kept by this engine");
    for (unsigned k = 0; k < engine->grid->options.replicas && status == PST_OK;
         k++) {
        unsigned first, n = pst_grid_share(engine->grid, k, &first);
        unsigned from =
            k * engine->grid->options.ranks +
            (unsigned)engine->grid->sched->rank_of[pst_plan_output_stage(o)];
        struct pst_rank *r = pst_engine_local_rank(engine, from);
        const size_t at = pst_output_bytes(engine->grid->plan,
                                           &engine->grid->options, i, first);
        const size_t end = pst_output_bytes(
            engine->grid->plan, &engine->grid->options, i, first + n);
        const void *src = NULL;

        if (r != NULL)
            src = pst_rank_pull(pst_rank_device(r),
                                pst_rank_layout(r)->outputs[i], end - at);
        status = pst_engine_fetch(
            engine, from, src, dst == NULL ? NULL : (unsigned char *)dst + at,
            end - at, diag);
    }
    if (status == PST_OK)
        status = pst_plan_output_dim(engine->grid->plan, i, &dim, NULL, diag);
    if (status == PST_OK && dst != NULL && dim > 0)
        status = pst_pieces_join(
            &engine->grid->options, &o->meta,
            engine->grid->options.tail != NULL
                ? &engine->grid->options.tail->outputs.at[i].meta
                : NULL,
            dim, dst, diag);
    return status;
}
