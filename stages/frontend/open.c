// SPDX-License-Identifier: Apache-2.0
/* Opens a model's file and reads the data of its tensors. */
#include "stages/base/untrusted/budget.h"
#include "stages/frontend/front.h"
#include "stages/frontend/missing.h"
#include "stages/graph/bytes.h"
#include "stages/ops/core/op.h"

#include <string.h>

/* Sets the name: the file name without directory and last suffix. */
static enum pst_status set_name(struct pst_model *model, const char *path,
                                struct pst_diag *diag)
{
    const char *slash = strrchr(path, '/'), *dot;

    path = slash != NULL ? slash + 1 : path;
    dot = strrchr(path, '.');
    model->name = pst_arena_strndup(
        &model->arena, path,
        dot != NULL && dot > path ? (size_t)(dot - path) : strlen(path));
    return model->name != NULL ? PST_OK : pst_diag_nomem(diag, strlen(path));
}

/* Rejects a file that takes more memory than any valid file of its size. */
static enum pst_status refuse_oversized(const struct pst_front *front,
                                        struct pst_diag *diag)
{
    return pst_diag_set(diag, PST_E_PT2_BOMB,
                        "%s: the model in %llu bytes would take more than %u "
                        "times as much memory, and %llu MiB",
                        front->path, (unsigned long long)front->zip->file.size,
                        PST_BUDGET_TIMES,
                        (unsigned long long)(PST_BUDGET_LEAST >> 20));
}

/* Runs the passes and frees their state. */
static enum pst_status run_passes(struct pst_front *front, const char *last,
                                  struct pst_diag *diag)
{
    struct pst_pass_state state = {0};
    struct pst_budget budget;
    enum pst_status status;

    pst_budget_begin(&budget, front->zip->file.size);
    status = pst_passes_run(&pst_frontend_passes, &state, front, last, diag);
    if (status == PST_OK && front->visit != NULL)
        status = front->visit(front->ctx, front->doc, diag);
    pst_budget_end(&budget);

    if (status == PST_OK && front->digests.failed)
        status = pst_diag_nomem(diag, front->digests.cap);
    if (status == PST_OK)
        pst_digest(pst_str_text(&front->digests), front->digests.len,
                   front->model->digest);
    else if (budget.exceeded)
        status = refuse_oversized(front, diag);
    else
        pst_diag_prefix(diag, "%s", front->path);
    pst_import_fini(&front->import);
    pst_document_free(front->doc);
    pst_str_fini(&front->digests);
    return status;
}

enum pst_status pst_model_new(struct pst_model **ret, struct pst_diag *diag)
{
    struct pst_model *model = pst_calloc(PST_TAG_ARCHIVE, 1, sizeof(*model));

    if (model == NULL)
        return pst_diag_nomem(diag, sizeof(*model));
    pst_arena_init(&model->arena, PST_TAG_ARCHIVE);
    pst_map_init(&model->weights_by_fqn, PST_TAG_ARCHIVE);
    pst_symbols_init(&model->symbols);
    *ret = model;
    return PST_OK;
}

/* Adds a note on the casts that --autocast inserted. */
static enum pst_status note_casts(struct pst_model *model,
                                  struct pst_diag *diag)
{
    const char *note;

    if (model->autocast == NULL || model->n_casts == 0)
        return PST_OK;
    note = pst_arena_printf(&model->arena,
                            "computes as under torch.autocast with %s: %zu "
                            "cast%s inserted",
                            model->autocast, model->n_casts,
                            model->n_casts == 1 ? " was" : "s were");
    return note != NULL && pst_vec_push(PST_TAG_ARCHIVE, &model->notes, note)
               ? PST_OK
               : pst_diag_nomem(diag, 0);
}

/* Opens the file front->path and runs the passes on it. */
static enum pst_status open_front(struct pst_front *front, const char *last,
                                  struct pst_model **ret, struct pst_diag *diag)
{
    struct pst_model *model;
    enum pst_status status = pst_model_new(&model, diag);

    if (status != PST_OK)
        return status;
    front->model = model;
    status = pst_registry_init(diag);
    if (status == PST_OK)
        status = set_name(model, front->path, diag);
    if (status == PST_OK)
        status = pst_zip_open(front->path, &front->zip, diag);
    model->file = front->zip;
    model->autocast = front->autocast;
    if (front->autocast != NULL)
        pst_str_addf(&front->digests, "autocast %s\n", front->autocast);
    if (status == PST_OK)
        status = run_passes(front, last, diag);
    if (status == PST_OK && last == NULL)
        status = note_casts(model, diag);
    if (status != PST_OK) {
        pst_model_close(model);
        return status;
    }
    *ret = model;
    return PST_OK;
}

enum pst_status pst_model_open_after(const char *path, const char *last,
                                     struct pst_model **ret,
                                     struct pst_diag *diag)
{
    struct pst_front front = {.path = path};

    return open_front(&front, last, ret, diag);
}

/* Arguments of pst_missing_open. */
struct missing {
    const char *space;
    struct pst_str *out, *more;
};

static enum pst_status print_missing(void *ctx, const struct pst_document *doc,
                                     struct pst_diag *diag)
{
    const struct missing *m = ctx;

    return pst_missing_print(doc, m->space, m->out, m->more, diag);
}

enum pst_status pst_missing_open(const char *path, const char *space,
                                 struct pst_str *out, struct pst_str *ret_more,
                                 struct pst_diag *diag)
{
    struct missing m = {space, out, ret_more};
    struct pst_front front = {.path = path, .visit = print_missing, .ctx = &m};
    struct pst_model *model;
    const enum pst_status status = open_front(&front, "targets", &model, diag);

    if (status == PST_OK)
        pst_model_close(model);
    return status;
}

enum pst_status pst_model_open_cast(const char *path, const char *autocast,
                                    struct pst_model **ret,
                                    struct pst_diag *diag)
{
    struct pst_front front = {.path = path, .autocast = autocast};

    return open_front(&front, NULL, ret, diag);
}

enum pst_status pst_model_open(const char *path, struct pst_model **ret,
                               struct pst_diag *diag)
{
    return pst_model_open_after(path, NULL, ret, diag);
}

void pst_model_close(struct pst_model *model)
{
    if (model == NULL)
        return;
    pst_graph_free(model->graph);
    pst_map_fini(&model->weights_by_fqn);
    pst_symbols_fini(&model->symbols);
    pst_vec_fini(&model->weights);
    pst_vec_fini(&model->ties);
    pst_vec_fini(&model->storages);
    pst_vec_fini(&model->adapters);
    pst_vec_fini(&model->arguments);
    pst_vec_fini(&model->modules);
    pst_vec_fini(&model->notes);
    pst_zip_close(model->file);
    pst_arena_fini(&model->arena);
    pst_free(model);
}

const struct pst_weight *pst_model_weight(const struct pst_model *model,
                                          const char *fqn)
{
    return pst_map_get(&model->weights_by_fqn, fqn);
}

static bool is_plain(const struct pst_meta *from, const struct pst_meta *to)
{
    return from->dtype == to->dtype && pst_meta_is_contiguous(from) &&
           pst_meta_is_contiguous(to);
}

static enum pst_status read_window(struct pst_zip *zip,
                                   const struct pst_weight *w,
                                   const struct pst_meta *to, void *dst,
                                   struct pst_diag *diag)
{
    const uint64_t begin = (uint64_t)w->offset * pst_dtype_size(w->meta.dtype);
    const size_t span = pst_meta_span(&w->meta);
    enum pst_status status;
    void *window;

    if (is_plain(&w->meta, to)) {
        status = pst_zip_read_part(zip, w->entry, begin, span, dst, diag);
        if (status == PST_OK)
            pst_bytes_to_values(w->meta.dtype, dst, span);
        return status;
    }
    window = pst_alloc(PST_TAG_ARCHIVE, span);
    if (window == NULL)
        return pst_diag_nomem(diag, span);
    status = pst_zip_read_part(zip, w->entry, begin, span, window, diag);
    if (status == PST_OK) {
        pst_bytes_to_values(w->meta.dtype, window, span);
        pst_copy_strided(&w->meta, window, to, dst);
    }
    pst_free(window);
    return status;
}

static enum pst_status read_given(const struct pst_weight *w,
                                  const struct pst_meta *to, void *dst,
                                  struct pst_diag *diag)
{
    enum pst_status status;
    void *all;

    if (is_plain(&w->meta, to))
        return w->read(w->ctx, w->number, dst, diag);
    all = pst_alloc(PST_TAG_ARCHIVE, pst_meta_bytes(&w->meta));
    if (all == NULL)
        return pst_diag_nomem(diag, pst_meta_bytes(&w->meta));
    status = w->read(w->ctx, w->number, all, diag);
    if (status == PST_OK)
        pst_copy_strided(&w->meta, all, to, dst);
    pst_free(all);
    return status;
}

enum pst_status pst_model_read(const struct pst_model *model,
                               const struct pst_weight *weight,
                               const struct pst_meta *to, void *dst,
                               struct pst_diag *diag)
{
    struct pst_zip *zip =
        weight->source != NULL ? weight->source->file : model->file;
    enum pst_status status;

    if (pst_meta_numel(&weight->meta) == 0)
        return PST_OK;
    if (weight->data != NULL) {
        pst_copy_strided(&weight->meta, weight->data, to, dst);
        return PST_OK;
    }
    if (weight->read != NULL)
        return read_given(weight, to, dst, diag);
    if (zip == NULL || !weight->stored)
        return pst_diag_set(diag, PST_E_PT2_DATA_MISSING,
                            "the model file holds no data of \"%s\"",
                            weight->fqn);
    status = read_window(zip, weight, to, dst, diag);
    /* Messages of I/O errors already begin with the path. */
    if (status != PST_OK && status != PST_ERR_IO)
        pst_diag_prefix(diag, "%s: %s", zip->file.path, weight->fqn);
    return status;
}
