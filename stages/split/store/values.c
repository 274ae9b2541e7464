// SPDX-License-Identifier: Apache-2.0
/* Reads start values of parameters, buffers and constants: from the plan's own
 * files, from given weights, or from the model's file. */
#include "stages/split/store/values.h"

#include "stages/split/split.h"
#include "stages/split/store/pack.h"

#include <string.h>

#define TAG PST_TAG_PLAN

/* Returns the rule that gives start values to a parameter without values; NULL
 * if there is none. */
static const struct pst_init *init_of(const struct pst_plan *plan, size_t i)
{
    return plan->given != NULL && plan->given->inits != NULL &&
                   plan->given->inits[i].kind != PST_INIT_NONE
               ? &plan->given->inits[i]
               : NULL;
}

static enum pst_status read_model(const struct pst_plan *plan,
                                  const struct pst_plan_param *param, void *dst,
                                  struct pst_diag *diag)
{
    const struct pst_weight *weight = pst_model_weight(plan->model, param->fqn);
    const struct pst_init *init =
        init_of(plan, (size_t)(param - plan->params.at));

    if (init != NULL) {
        pst_init_fill(init, plan->given->seed, param, dst);
        return PST_OK;
    }
    if (weight == NULL)
        return pst_diag_set(diag, PST_E_PT2_DATA_MISSING,
                            "the model file holds no data of \"%s\"",
                            param->fqn);
    if (weight->absent)
        return pst_diag_set(diag, PST_E_WEIGHTS_NO_VALUES,
                            "the model was exported without the values of "
                            "\"%s\": give them with --weights FILE|FOLDER",
                            param->fqn);
    /* The dtypes may differ: a trained 16-bit parameter is kept in f32. */
    if (!pst_meta_same_shape(&weight->meta, &param->meta))
        return pst_diag_set(diag, PST_E_PLAN_WEIGHTS,
                            "the model file holds \"%s\" in another shape",
                            param->fqn);
    return pst_model_read(plan->model, weight, &param->meta, dst, diag);
}

/* An open weights file. It stays open until the plan is freed, since many
 * parameters are read from it. */
struct pst_plan_file {
    struct pst_safetensors *st; /* NULL: the file is not open yet */
    bool whole;                 /* the file's digest has been compared */
};

/* Checks the size of a weights file before its header is read: this is cheap,
 * and the header of a truncated file gives misleading errors. */
static enum pst_status check_size(const struct pst_stage *stage,
                                  const char *path, struct pst_diag *diag)
{
    struct pst_file file;
    enum pst_status status = pst_file_open(path, &file, diag);

    if (status != PST_OK)
        return status;
    if (file.size != stage->weights_size)
        status = pst_diag_set(
            diag, PST_E_PLAN_DAMAGED,
            "%s is damaged: it has %llu bytes, stage %u was saved with %llu",
            path, (unsigned long long)file.size, stage->index,
            (unsigned long long)stage->weights_size);
    pst_file_close(&file);
    return status;
}

static enum pst_status open_weights(struct pst_plan *plan, unsigned stage,
                                    struct pst_plan_file **ret,
                                    struct pst_diag *diag)
{
    enum pst_status status = PST_OK;
    struct pst_plan_file *file;
    char *path;

    if (plan->files == NULL) {
        plan->files = pst_calloc(TAG, plan->stages.n, sizeof(*plan->files));
        if (plan->files == NULL)
            return pst_diag_nomem(diag, plan->stages.n * sizeof(*plan->files));
    }
    file = &plan->files[stage];
    if (file->st == NULL) {
        path = pst_arena_printf(&plan->arena, "%s/%s", plan->dir,
                                plan->stages.at[stage].weights);
        if (path == NULL)
            return pst_diag_nomem(diag, 0);
        status = check_size(&plan->stages.at[stage], path, diag);
        if (status == PST_OK)
            status = pst_safetensors_open(path, &file->st, diag);
    }
    *ret = file;
    return status;
}

/* Compares the digest of the whole file with the plan's, once per file. */
static enum pst_status check_whole(const struct pst_plan *plan, unsigned stage,
                                   struct pst_plan_file *file,
                                   struct pst_diag *diag)
{
    enum pst_status status;
    char digest[33];

    if (file->whole)
        return PST_OK;
    status = pst_file_digest(pst_safetensors_file(file->st), digest, diag);
    if (status != PST_OK)
        return status;
    if (strcmp(digest, plan->stages.at[stage].weights_digest) != 0)
        return pst_diag_set(diag, PST_E_PLAN_DAMAGED,
                            "%s/%s is damaged: it is not what stage %u was "
                            "saved with, its digest does not fit",
                            plan->dir, plan->stages.at[stage].weights, stage);
    file->whole = true;
    return PST_OK;
}

/* Finds a parameter's entry in its owner's weights file; whole: compares the
 * file's digest first. */
static enum pst_status find_entry(struct pst_plan *plan,
                                  const struct pst_plan_param *param,
                                  bool whole,
                                  const struct pst_safetensors_entry **ret,
                                  struct pst_diag *diag)
{
    const struct pst_safetensors_entry *entry;
    struct pst_plan_file *file = NULL;
    enum pst_status status =
        open_weights(plan, param->owner_stage, &file, diag);
    bool fits;

    if (status != PST_OK)
        return status;
    entry = pst_safetensors_find(file->st, param->fqn);
    fits = entry != NULL && pst_meta_same(&entry->meta, &param->meta);
    if (whole || !fits)
        status = check_whole(plan, param->owner_stage, file, diag);
    if (status != PST_OK)
        return status;
    if (!fits)
        return pst_diag_set(
            diag, PST_E_PLAN_WEIGHTS,
            "%s/%s does not hold \"%s\" as the plan wants it", plan->dir,
            plan->stages.at[param->owner_stage].weights, param->fqn);
    *ret = entry;
    return PST_OK;
}

enum pst_status pst_plan_entry(struct pst_plan *plan, unsigned i,
                               const struct pst_safetensors_entry **ret,
                               struct pst_diag *diag)
{
    if (plan->dir == NULL)
        return pst_diag_set(diag, PST_E_INTERNAL_BUG, "the plan has no files");
    return find_entry(plan, &plan->params.at[i], true, ret, diag);
}

enum pst_status pst_plan_check_weights(struct pst_plan *plan,
                                       struct pst_diag *diag)
{
    for (size_t i = 0; i < plan->params.n; i++) {
        const struct pst_safetensors_entry *entry = NULL;
        enum pst_status status =
            find_entry(plan, &plan->params.at[i], false, &entry, diag);

        if (status != PST_OK)
            return status;
    }
    return PST_OK;
}

/* --- given weights ------------------------------------------------------ */

static enum pst_status note_nan(struct pst_plan *plan, unsigned i,
                                const void *data, size_t n,
                                struct pst_diag *diag)
{
    const struct pst_plan_param *param = &plan->params.at[i];
    struct pst_given_param *given = &plan->given->params[i];
    struct pst_str text = {0};

    if (given->nan || !pst_has_nan(param->meta.dtype, data, n, false))
        return PST_OK;
    given->nan = true;
    pst_str_addf(&text, "\"%s\" has a NaN in %s", param->fqn,
                 pst_given_path(plan->given->files));
    return pst_plan_note(plan, &text, diag);
}

/* Reads elements [first, first + n) of an entry, converted to dtype `to`. */
static enum pst_status read_as(const struct pst_safetensors_entry *entry,
                               int64_t first, int64_t n, enum pst_dtype to,
                               void *dst, struct pst_diag *diag)
{
    const size_t item = pst_dtype_size(entry->meta.dtype);
    const struct pst_meta here = pst_meta_make(entry->meta.dtype, 1, &n);
    const struct pst_meta there = pst_meta_make(to, 1, &n);
    enum pst_status status;
    void *raw;

    if (entry->meta.dtype == to)
        return pst_safetensors_read(entry, (size_t)first * item,
                                    (size_t)n * item, dst, diag);
    raw = pst_alloc(TAG, (size_t)n * item);
    if (raw == NULL)
        return pst_diag_nomem(diag, (size_t)n * item);
    status = pst_safetensors_read(entry, (size_t)first * item, (size_t)n * item,
                                  raw, diag);
    if (status == PST_OK)
        pst_copy_strided(&here, raw, &there, dst);
    pst_free(raw);
    return status;
}

/* Writes the given values of a part into the tensor at `base`; with `check`,
 * compares them with the tensor instead. */
static enum pst_status fill_window(const struct pst_plan_param *param,
                                   const struct pst_named_window *w,
                                   const struct pst_safetensors_entry *entry,
                                   char *base, bool check,
                                   struct pst_diag *diag)
{
    const size_t bytes = pst_meta_bytes(&w->meta);
    char *at = base + (size_t)w->offset * pst_dtype_size(w->meta.dtype);
    char *values = pst_alloc(TAG, bytes), *now = pst_alloc(TAG, bytes);
    struct pst_meta plain = w->meta;
    enum pst_status status;

    pst_meta_set_contiguous(&plain);
    status = values == NULL || now == NULL
                 ? pst_diag_nomem(diag, bytes)
                 : read_as(entry, 0, pst_meta_numel(&plain), plain.dtype,
                           values, diag);
    if (status == PST_OK && !check)
        pst_copy_strided(&plain, values, &w->meta, at);
    if (status == PST_OK && check) {
        pst_copy_strided(&w->meta, at, &plain, now);
        if (memcmp(values, now, bytes) != 0)
            status = pst_diag_set(diag, PST_E_WEIGHTS_CONTRADICT,
                                  "%s: \"%s\" shares memory with other parts "
                                  "of \"%s\" in the model, but is given other "
                                  "values than these",
                                  entry->file->path, w->fqn, param->fqn);
    }
    pst_free(values);
    pst_free(now);
    return status;
}

/* Reads a tensor of which parts are given: first the whole tensor, from given
 * files or the model, then the parts. Parts may overlap, so all are compared
 * with the result. */
static enum pst_status read_windows(struct pst_plan *plan, unsigned i,
                                    void *dst, struct pst_diag *diag)
{
    const struct pst_plan_param *param = &plan->params.at[i];
    const struct pst_given_param *given = &plan->given->params[i];
    const int64_t n = pst_meta_numel(&param->meta);
    enum pst_status status =
        given->whole != NULL
            ? read_as(given->whole, 0, n, param->meta.dtype, dst, diag)
            : read_model(plan, param, dst, diag);

    for (unsigned pass = 0; pass < 2; pass++)
        for (unsigned k = 0; k < param->n_windows && status == PST_OK; k++)
            if (given->windows[k] != NULL)
                status = fill_window(param, &param->windows[k],
                                     given->windows[k], dst, pass == 1, diag);
    return status == PST_OK ? note_nan(plan, i, dst, (size_t)n, diag) : status;
}

static bool is_given(const struct pst_plan *plan, unsigned i)
{
    return plan->given != NULL && (plan->given->params[i].whole != NULL ||
                                   plan->given->params[i].windows != NULL);
}

/* --- parameters --------------------------------------------------------- */

bool pst_plan_has_values(const struct pst_plan *plan, unsigned i)
{
    const struct pst_weight *weight;

    if (plan->dir != NULL || is_given(plan, i) || plan->model == NULL ||
        init_of(plan, i) != NULL)
        return true;
    weight = pst_model_weight(plan->model, plan->params.at[i].fqn);
    return weight == NULL || !weight->absent;
}

enum pst_status pst_plan_check_values(const struct pst_plan *plan,
                                      struct pst_diag *diag)
{
    struct pst_name_list lost = {0};
    enum pst_status status = PST_OK;

    for (unsigned i = 0; plan->parent == NULL && i < plan->params.n; i++)
        if (!pst_plan_has_values(plan, i))
            pst_name_list_add(&lost, plan->params.at[i].fqn);
    if (lost.n > 0)
        status = pst_diag_set(diag, PST_E_WEIGHTS_NO_VALUES,
                              "the model was exported without the values of "
                              "%zu tensors (%s): give them with --weights "
                              "FILE|FOLDER, or begin with new ones "
                              "(--init-seed N)",
                              lost.n, pst_str_text(&lost.text));
    pst_str_fini(&lost.text);
    return status;
}

bool pst_plan_reads_parts(const struct pst_plan *plan, unsigned i)
{
    while (plan->parent != NULL)
        plan = plan->parent;
    return plan->dir != NULL ||
           (plan->given != NULL && plan->given->params[i].whole != NULL &&
            plan->given->params[i].windows == NULL);
}

enum pst_status pst_plan_read_part(struct pst_plan *plan, unsigned i,
                                   size_t begin, size_t bytes, void *dst,
                                   struct pst_diag *diag)
{
    const struct pst_safetensors_entry *entry = NULL;
    const struct pst_plan_param *param;
    enum pst_status status;
    size_t item;

    while (plan->parent != NULL)
        plan = plan->parent;
    /* `plan` is now the original plan, and owner_stage one of its stages */
    param = &plan->params.at[i];
    item = pst_dtype_size(param->meta.dtype);
    if (!pst_plan_reads_parts(plan, i))
        return pst_diag_set(diag, PST_E_INTERNAL_BUG,
                            "\"%s\" is not read in parts", param->fqn);
    if (plan->dir != NULL) {
        status = find_entry(plan, param, true, &entry, diag);
        return status == PST_OK
                   ? pst_safetensors_read(entry, begin, bytes, dst, diag)
                   : status;
    }
    status = read_as(plan->given->params[i].whole, (int64_t)(begin / item),
                     (int64_t)(bytes / item), param->meta.dtype, dst, diag);
    return status == PST_OK ? note_nan(plan, i, dst, bytes / item, diag)
                            : status;
}

enum pst_status pst_param_read_as(const struct pst_plan *plan, unsigned i,
                                  pst_param_fn fn, void *ctx,
                                  enum pst_dtype dtype, void *dst,
                                  struct pst_diag *diag)
{
    const struct pst_meta *meta = &plan->params.at[i].meta;
    const size_t bytes = PST_MAX(pst_meta_bytes(meta), (size_t)1);
    void *now = pst_alloc(TAG, bytes);
    enum pst_status status =
        now != NULL ? fn(ctx, i, now, diag) : pst_diag_nomem(diag, bytes);

    for (int64_t k = 0; status == PST_OK && k < pst_meta_numel(meta); k++)
        pst_store_f64(dtype, dst, k, pst_load_f64(meta->dtype, now, k));
    pst_free(now);
    return status;
}

static enum pst_status read_parent(void *ctx, unsigned i, void *dst,
                                   struct pst_diag *diag)
{
    return pst_plan_read_param(ctx, i, dst, diag);
}

enum pst_status pst_plan_read_param(struct pst_plan *plan, unsigned i,
                                    void *dst, struct pst_diag *diag)
{
    const struct pst_plan_param *param = &plan->params.at[i];

    if (plan->parent != NULL &&
        plan->parent->params.at[i].meta.dtype != param->meta.dtype)
        return pst_param_read_as(plan->parent, i, read_parent, plan->parent,
                                 param->meta.dtype, dst, diag);
    if (plan->parent != NULL)
        return pst_plan_read_param(plan->parent, i, dst, diag);
    if (plan->read != NULL)
        return plan->read(plan->read_ctx, i, dst, diag);
    if (pst_plan_reads_parts(plan, i))
        return pst_plan_read_part(plan, i, 0, pst_meta_bytes(&param->meta), dst,
                                  diag);
    if (plan->model == NULL)
        return pst_diag_set(diag, PST_E_INTERNAL_BUG,
                            "the plan has no weights");
    return is_given(plan, i) ? read_windows(plan, i, dst, diag)
                             : read_model(plan, param, dst, diag);
}

void pst_plan_close_files(struct pst_plan *plan)
{
    if (plan->given != NULL)
        pst_given_close(plan->given->files);
    plan->given = NULL;
    for (size_t i = 0; plan->files != NULL && i < plan->stages.n; i++)
        pst_safetensors_close(plan->files[i].st);
    pst_free(plan->files);
    plan->files = NULL;
}
