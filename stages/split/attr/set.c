// SPDX-License-Identifier: Apache-2.0
/* Replaces values of a model's tensors: reads the old values, then overwrites
 * them with the given ones. */
#include "stages/split/attr/attr.h"

#include <math.h>
#include <string.h>

#define TAG PST_TAG_PLAN

/* A name and its new values. */
struct given {
    const struct pst_attr *attr;
    /* NULL: all elements are `number` */
    const struct pst_safetensors_entry *entry;
    unsigned char number[8];
};

struct pst_setting {
    const struct pst_plan *plan;
    const struct pst_attrs *attrs;
    struct PST_VEC(struct given) given; /* sorted by index of the parameter */
    pst_param_fn old;
    void *old_ctx;
};

struct setter {
    struct pst_setting *setting;
    const struct pst_attrs *attrs;
    const struct pst_safetensors *file;
    const char *number;
    struct pst_str *nans;
    struct pst_diag *diag;
};

/* --- reading -------------------------------------------------------------- */

/* Reads values for a tensor that is kept in f32. The file may have the tensor
 * in f32 or in the 16-bit dtype in which nodes read it. */
static enum pst_status read_rounded(const struct pst_safetensors_entry *entry,
                                    const struct pst_meta *to, void *dst,
                                    struct pst_diag *diag)
{
    void *raw = pst_alloc(TAG, entry->bytes + 1);
    enum pst_status status =
        raw != NULL ? pst_safetensors_read(entry, 0, entry->bytes, raw, diag)
                    : pst_diag_nomem(diag, entry->bytes);

    if (status == PST_OK)
        pst_copy_strided(&entry->meta, raw, to, dst);
    pst_free(raw);
    return status;
}

static enum pst_status read_given(const struct pst_setting *s,
                                  const struct given *g, void *dst,
                                  struct pst_diag *diag)
{
    const struct pst_meta meta = pst_attr_meta(s->plan, g->attr);
    const size_t item = pst_dtype_size(meta.dtype);

    if (g->entry != NULL && g->entry->meta.dtype != meta.dtype)
        return read_rounded(g->entry, &meta, dst, diag);
    if (g->entry != NULL)
        return pst_safetensors_read(g->entry, 0, g->entry->bytes, dst, diag);
    for (int64_t i = 0; i < pst_meta_numel(&meta); i++)
        memcpy((char *)dst + (size_t)i * item, g->number, item);
    return PST_OK;
}

/* Writes the given values to the named part of the tensor `all`; with
 * `compare`, compares them instead. scratch has capacity for one part, with
 * `compare` for two. */
static enum pst_status write_given(const struct pst_setting *s,
                                   const struct given *g, char *all,
                                   bool compare, void *scratch, bool *ret_same,
                                   struct pst_diag *diag)
{
    const struct pst_meta meta = pst_attr_meta(s->plan, g->attr);
    const struct pst_named_window *w = g->attr->window;
    const size_t bytes = pst_meta_bytes(&meta);
    char *now = (char *)scratch + bytes;
    enum pst_status status = read_given(s, g, scratch, diag);

    if (status != PST_OK)
        return status;
    if (compare) {
        pst_attr_copy_part(s->plan, g->attr, all, now);
        *ret_same = memcmp(now, scratch, bytes) == 0;
    } else if (w != NULL) {
        pst_copy_strided(&meta, scratch, &w->meta,
                         all + (size_t)w->offset * pst_dtype_size(meta.dtype));
    } else {
        memcpy(all, scratch, bytes);
    }
    return PST_OK;
}

static bool is_whole(const struct pst_setting *s, unsigned param)
{
    for (size_t i = 0; i < s->given.n; i++)
        if (s->given.at[i].attr->param == param &&
            s->given.at[i].attr->window == NULL)
            return true;
    return false;
}

static enum pst_status write_all_given(const struct pst_setting *s,
                                       unsigned param, void *dst,
                                       struct pst_diag *diag)
{
    const size_t bytes = pst_attrs_capacity(s->plan, s->attrs, param);
    void *scratch = pst_alloc(TAG, bytes + 1);
    enum pst_status status =
        scratch != NULL ? PST_OK : pst_diag_nomem(diag, bytes);

    for (size_t i = 0; i < s->given.n && status == PST_OK; i++)
        if (s->given.at[i].attr->param == param)
            status = write_given(s, &s->given.at[i], dst, false, scratch, NULL,
                                 diag);
    pst_free(scratch);
    return status;
}

static enum pst_status read_set(void *ctx, unsigned param, void *dst,
                                struct pst_diag *diag)
{
    const struct pst_setting *s = ctx;
    enum pst_status status = PST_OK;

    if (!is_whole(s, param))
        status = s->old(s->old_ctx, param, dst, diag);
    return status == PST_OK ? write_all_given(s, param, dst, diag) : status;
}

/* --- given values --------------------------------------------------------- */

static enum pst_status report_misfit(const struct setter *s,
                                     const struct given *g)
{
    const struct pst_plan *plan = s->setting->plan;
    const struct pst_meta meta = pst_attr_meta(plan, g->attr);
    const struct pst_plan_param *param = &plan->params.at[g->attr->param];
    const bool is_complex = param->is_complex;
    const bool rounded =
        param->rounded && g->entry->meta.dtype == param->rounds;
    char have[PST_META_TEXT], want[PST_META_TEXT];

    if (pst_meta_same_shape(&g->entry->meta, &meta) &&
        (g->entry->meta.dtype == meta.dtype || rounded) &&
        g->entry->is_complex == is_complex)
        return PST_OK;
    return pst_diag_set(s->diag, PST_E_WEIGHTS_SHAPE,
                        "\"%.200s\" is %s%s in the file, the model has %s%s",
                        g->attr->name, pst_meta_text(&g->entry->meta, have),
                        g->entry->is_complex ? " of complex numbers" : "",
                        pst_meta_text(&meta, want),
                        is_complex ? " of complex numbers" : "");
}

static enum pst_status bad_number(const struct setter *s,
                                  const struct pst_attr *attr,
                                  enum pst_dtype dtype)
{
    return pst_diag_set(s->diag, PST_E_ATTR_VALUE,
                        "\"%.200s\" is %s, which cannot hold \"%.60s\"",
                        attr->name, pst_dtype_name(dtype), s->number);
}

static enum pst_status parse_number(const struct setter *s, struct given *g)
{
    const struct pst_plan_param *param =
        &s->setting->plan->params.at[g->attr->param];
    const enum pst_dtype dtype = param->meta.dtype;
    bool ok = !param->is_complex;
    double x = 0.0;
    int64_t n = 0;

    if (pst_dtype_kind(dtype) == PST_KIND_FLOAT) {
        ok = ok && pst_parse_f64(s->number, &x);
        pst_store_f64(dtype, g->number, 0, x);
        ok = ok && isinf(pst_load_f64(dtype, g->number, 0)) == isinf(x);
    } else {
        if (strcmp(s->number, "true") == 0)
            n = 1;
        else if (strcmp(s->number, "false") != 0)
            ok = ok && pst_parse_i64(s->number, &n);
        pst_store_i64(dtype, g->number, 0, n);
        ok = ok && pst_load_i64(dtype, g->number, 0) == n;
    }
    return ok ? PST_OK : bad_number(s, g->attr, dtype);
}

/* Checks that all names of a tensor, and parts of it that overlap, get equal
 * values. */
static enum pst_status check_tensor(const struct setter *s, unsigned param)
{
    const struct pst_setting *set = s->setting;
    const size_t bytes = pst_meta_bytes(&set->plan->params.at[param].meta);
    const size_t capacity = pst_attrs_capacity(set->plan, set->attrs, param);
    char *all = pst_calloc(TAG, bytes + 1, 1);
    char *scratch = pst_alloc(TAG, 2 * capacity + 1);
    enum pst_status status =
        all != NULL && scratch != NULL
            ? PST_OK
            : pst_diag_nomem(s->diag, bytes + 2 * capacity);

    if (status == PST_OK)
        status = write_all_given(set, param, all, s->diag);
    for (size_t i = 0; i < set->given.n && status == PST_OK; i++) {
        const struct given *g = &set->given.at[i];
        const struct pst_meta meta = pst_attr_meta(set->plan, g->attr);
        bool same = true;

        if (g->attr->param != param)
            continue;
        status = write_given(set, g, all, true, scratch, &same, s->diag);
        if (status == PST_OK && !same)
            status = pst_diag_set(
                s->diag, PST_E_WEIGHTS_CONTRADICT,
                "\"%.200s\" shares its elements with other names of the model "
                "that are given other values",
                g->attr->name);
        if (status == PST_OK &&
            pst_has_nan(meta.dtype, scratch, (size_t)pst_meta_numel(&meta),
                        true))
            pst_str_addf(s->nans, "%s%s", s->nans->len > 0 ? " " : "",
                         g->attr->name);
    }
    pst_free(scratch);
    pst_free(all);
    return status;
}

static enum pst_status check_all(const struct setter *s)
{
    const struct pst_attrs *attrs = s->attrs;
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < attrs->at.n && status == PST_OK; i++)
        if (i == 0 || attrs->at.at[i].param != attrs->at.at[i - 1].param)
            status = check_tensor(s, attrs->at.at[i].param);
    return status;
}

/* Checks that the file has values for every name, or for one name of the whole
 * tensor. */
static enum pst_status check_missing(const struct setter *s)
{
    const struct pst_setting *set = s->setting;
    struct pst_str missing = {0};
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < s->attrs->at.n; i++) {
        const struct pst_attr *attr = &s->attrs->at.at[i];
        bool there = is_whole(set, attr->param);

        for (size_t k = 0; k < set->given.n && !there; k++)
            there = set->given.at[k].attr == attr;
        if (!there && missing.len < 600)
            pst_str_addf(&missing, "%s\"%.120s\"", missing.len > 0 ? ", " : "",
                         attr->name);
    }
    if (missing.len > 0)
        status = pst_diag_set(s->diag, PST_E_WEIGHTS_MISSING,
                              "the file has no %s", pst_str_text(&missing));
    pst_str_fini(&missing);
    return status;
}

static enum pst_status collect_given(struct setter *s)
{
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < s->attrs->at.n && status == PST_OK; i++) {
        struct given g = {.attr = &s->attrs->at.at[i]};

        if (s->file != NULL) {
            g.entry = pst_safetensors_find(s->file, g.attr->name);
            if (g.entry == NULL)
                continue;
            status = report_misfit(s, &g);
        } else {
            status = parse_number(s, &g);
        }
        if (status == PST_OK && !pst_vec_push(TAG, &s->setting->given, g))
            status = pst_diag_nomem(s->diag, sizeof(g));
    }
    if (status == PST_OK)
        status = check_missing(s);
    return status == PST_OK ? check_all(s) : status;
}

/* --- changes of the model ------------------------------------------------- */

static bool is_set(const struct pst_attrs *attrs, unsigned param)
{
    for (size_t i = 0; i < attrs->at.n; i++)
        if (attrs->at.at[i].param == param)
            return true;
    return false;
}

/* Makes the model read the tensors of attrs through read_set. Numbers its
 * weights as the plan's parameters. */
static void redirect_reads(struct pst_model *model,
                           const struct pst_attrs *attrs,
                           struct pst_setting *setting)
{
    for (size_t i = 0; i < model->weights.n; i++) {
        struct pst_weight *w = &model->weights.at[i];

        if (!is_set(attrs, w->number))
            continue;
        setting->old = w->read;
        setting->old_ctx = w->ctx;
        w->read = read_set;
        w->ctx = setting;
    }
}

/* Changes the model's digest: checkpoints without the new values must not fit
 * this plan, and checkpoints with them must not fit the old plan. */
static enum pst_status change_digest(struct pst_model *model,
                                     const struct pst_attrs *attrs,
                                     struct pst_diag *diag)
{
    struct pst_str text = {0};
    enum pst_status status = PST_OK;

    pst_str_addf(&text, "%s set", model->digest);
    for (size_t i = 0; i < attrs->at.n; i++)
        pst_str_addf(&text, " %s", attrs->at.at[i].name);
    if (text.failed)
        status = pst_diag_nomem(diag, text.len);
    else
        pst_digest(text.text, text.len, model->digest);
    model->identity[0] = '\0';
    pst_str_fini(&text);
    return status;
}

static enum pst_status set_values(struct pst_model *model,
                                  const struct pst_plan *plan, struct setter *s,
                                  struct pst_setting **ret)
{
    struct pst_setting *setting = pst_calloc(TAG, 1, sizeof(*setting));
    enum pst_status status;

    if (setting == NULL)
        return pst_diag_nomem(s->diag, sizeof(*setting));
    setting->plan = plan;
    setting->attrs = s->attrs;
    s->setting = setting;
    status = collect_given(s);
    if (status == PST_OK)
        status = change_digest(model, s->attrs, s->diag);
    if (status != PST_OK) {
        pst_setting_free(setting);
        return status;
    }
    redirect_reads(model, s->attrs, setting);
    *ret = setting;
    return PST_OK;
}

enum pst_status pst_model_set_file(
    struct pst_model *model, const struct pst_plan *plan,
    const struct pst_attrs *attrs, const struct pst_safetensors *file,
    struct pst_str *nans, struct pst_setting **ret, struct pst_diag *diag)
{
    struct setter s = {
        .attrs = attrs, .file = file, .nans = nans, .diag = diag};

    return set_values(model, plan, &s, ret);
}

enum pst_status pst_model_set_number(struct pst_model *model,
                                     const struct pst_plan *plan,
                                     const struct pst_attrs *attrs,
                                     const char *number, struct pst_str *nans,
                                     struct pst_setting **ret,
                                     struct pst_diag *diag)
{
    struct setter s = {
        .attrs = attrs, .number = number, .nans = nans, .diag = diag};

    return set_values(model, plan, &s, ret);
}

void pst_setting_free(struct pst_setting *setting)
{
    if (setting == NULL)
        return;
    pst_vec_fini(&setting->given);
    pst_free(setting);
}
