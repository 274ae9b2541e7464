// SPDX-License-Identifier: Apache-2.0
#include "daemon/exec/change/attr.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/exec/change/events.h"
#include "stages/base/alloc.h"
#include "stages/base/host/alive.h"

/* Maximum number of tensors with an event per request; the loop keeps 1024
 * events. */
#define MAX_EVENTS 512
#define MAX_SHOWN  16 /* largest tensor that is shown in full, in elements */

/* --- set ------------------------------------------------------------------ */

enum pst_status pstd_attr_set(struct pstd_attr *attr,
                              const struct pst_plan *plan,
                              struct pst_model *model,
                              const struct pstd_change_order *order,
                              const char *path, struct pst_diag *diag)
{
    enum pst_status status =
        pst_attrs_find(plan, order->name, &attr->found, diag);

    if (status == PST_OK && order->value[0] != '\0')
        return pst_model_set_number(model, plan, &attr->found, order->value,
                                    &attr->nans, &attr->setting, diag);
    if (status == PST_OK)
        status = pst_safetensors_open(path, &attr->file, diag);
    if (status == PST_OK)
        status = pst_model_set_file(model, plan, &attr->found, attr->file,
                                    &attr->nans, &attr->setting, diag);
    return status;
}

enum pst_status pstd_attr_cast(struct pstd_attr *attr,
                               const struct pst_plan *plan,
                               struct pst_model *model,
                               const struct pstd_change_order *order,
                               struct pst_diag *diag)
{
    enum pst_dtype dtype;
    enum pst_status status;

    if (!pst_dtype_from_name(order->value, &dtype))
        return pst_diag_set(diag, PST_E_ATTR_NAME,
                            "\"%.60s\" is not a dtype: f32, bf16, f16 or f64",
                            order->value);
    status = pst_attrs_find(plan, order->name, &attr->found, diag);
    if (status != PST_OK)
        return status;
    return pst_model_cast(model, plan, &attr->found, dtype, &attr->counts,
                          &attr->casting, diag);
}

bool pstd_attr_has(const struct pstd_attr *attr, const struct pst_plan *plan,
                   const char *fqn)
{
    const int index = pst_plan_find_param(plan, fqn);

    for (size_t i = 0; i < attr->found.at.n; i++)
        if ((int)attr->found.at.at[i].param == index)
            return true;
    return false;
}

void pstd_attr_fini(struct pstd_attr *attr)
{
    pst_setting_free(attr->setting);
    pst_casting_free(attr->casting);
    pst_safetensors_close(attr->file);
    pst_attrs_fini(&attr->found);
    pst_str_fini(&attr->nans);
}

/* --- get ------------------------------------------------------------------ */

struct getter {
    struct pstd_session *s;
    const struct pst_plan *plan;
    const struct pstd_change_order *order;
    struct pst_attrs found;
    /* On rank 0, if the order has a path: the file with the values; else NULL.
     */
    struct pst_safetensors_writer *file;
    size_t n_put; /* tensors that were written to the file */
    /* Rank 0: the values of the whole parameter, and of the part that a name
     * refers to. */
    void *all, *part;
    struct pst_diag *diag;
};

/* Statistics of a tensor's elements that are not NaN. */
struct summary {
    double min, max, mean;
    int64_t nans;
};

static struct summary summarise_values(const struct pst_meta *meta,
                                       const void *data)
{
    const int64_t n = pst_meta_numel(meta);
    struct summary ret = {.min = INFINITY, .max = -INFINITY};
    double sum = 0.0;

    for (int64_t i = 0; i < n; i++) {
        const double x = pst_load_f64(meta->dtype, data, i);

        if (isnan(x)) {
            ret.nans++;
            continue;
        }
        ret.min = PST_MIN(ret.min, x);
        ret.max = PST_MAX(ret.max, x);
        sum += x;
    }
    ret.mean = sum / (double)(n - ret.nans);
    return ret;
}

/* Formats a number as the shortest text that reads back as the same value of
 * its dtype. */
static void format_number(enum pst_dtype dtype, double x, char out[32])
{
    if (dtype == PST_F64 || isnan(x)) {
        pst_format_f64(x, out);
        return;
    }
    for (int digits = 1; digits <= 9; digits++) {
        (void)snprintf(out, 32, "%.*g", digits, x);
        if (strtof(out, NULL) == (float)x)
            return;
    }
}

static void add_values(const struct pst_meta *meta, const void *data,
                       struct pst_str *out)
{
    for (int64_t i = 0; i < pst_meta_numel(meta); i++) {
        char text[32];

        if (pst_dtype_kind(meta->dtype) == PST_KIND_FLOAT) {
            format_number(meta->dtype, pst_load_f64(meta->dtype, data, i),
                          text);
            pst_str_addf(out, "%s%s", i > 0 ? " " : "", text);
        } else {
            pst_str_addf(out, "%s%" PRId64, i > 0 ? " " : "",
                         pst_load_i64(meta->dtype, data, i));
        }
    }
}

static void add_shape(const struct pst_meta *meta, struct pst_str *out)
{
    pst_str_add(out, "[");
    for (unsigned d = 0; d < meta->rank; d++)
        pst_str_addf(out, "%s%" PRId64, d > 0 ? ", " : "", meta->size[d]);
    pst_str_add(out, "]");
}

static void move_text(struct pstd_note *note, const char *key,
                      struct pst_str *text)
{
    pstd_note_text(note, key, pst_str_text(text));
    pst_str_fini(text);
}

/* Adds the tensor's other names and its location. */
static void describe_attr(const struct getter *g, const struct pst_attr *attr,
                          struct pstd_note *note)
{
    const struct pst_plan_param *param = &g->plan->params.at[attr->param];
    const struct pst_schedule *sched = pst_engine_schedule(g->s->w->engine);
    struct pst_str names = {0}, stages = {0}, ranks = {0};
    int last = -1;

    for (unsigned k = param->nameless ? 1 : 0;
         attr->window == NULL && k <= param->n_aliases; k++) {
        const char *name = k == 0 ? param->fqn : param->aliases[k - 1];

        if (strcmp(name, attr->name) != 0)
            pst_str_addf(&names, "%s%s", names.len > 0 ? " " : "", name);
    }
    for (unsigned k = 0; k < param->n_stages; k++) {
        const int rank = sched->rank_of[param->stages[k]];

        pst_str_addf(&stages, "%s%u", k > 0 ? "," : "", param->stages[k]);
        if (rank != last)
            pst_str_addf(&ranks, "%s%d", ranks.len > 0 ? "," : "", rank);
        last = rank;
    }
    move_text(note, "names", &names);
    pstd_note_text(note, "kind",
                   param->kind == PST_VALUE_PARAM    ? "parameter"
                   : param->kind == PST_VALUE_BUFFER ? "buffer"
                                                     : "constant");
    move_text(note, "stages", &stages);
    move_text(note, "ranks", &ranks);
    pstd_note_int(note, "requires_grad", param->requires_grad);
}

static void emit_attr(const struct getter *g, const struct pst_attr *attr)
{
    const struct pst_plan_param *param = &g->plan->params.at[attr->param];
    const struct pst_meta meta = pst_attr_meta(g->plan, attr);
    const struct summary sum = summarise_values(&meta, g->part);
    struct pst_str shape = {0}, values = {0};
    struct pstd_note note;

    pstd_change_note_init(g->s, PSTD_EVENT_ATTR, "name", attr->name, &note);
    add_shape(&meta, &shape);
    pstd_note_text(&note, "dtype",
                   pst_dtype_name(param->rounded ? param->rounds : meta.dtype));
    if (param->rounded)
        pstd_note_text(&note, "kept", pst_dtype_name(meta.dtype));
    move_text(&note, "shape", &shape);
    if (pst_meta_numel(&meta) > sum.nans) {
        pstd_note_real(&note, "min", sum.min);
        pstd_note_real(&note, "max", sum.max);
        pstd_note_real(&note, "mean", sum.mean);
    }
    pstd_note_int(&note, "nans", sum.nans);
    if (pst_meta_numel(&meta) <= MAX_SHOWN) {
        add_values(&meta, g->part, &values);
        move_text(&note, "values", &values);
    }
    describe_attr(g, attr, &note);
    pstd_mailbox_post(g->s->w->mailbox, &note, true);
}

/* True if the name before this one in `found` is another name of the same
 * tensor. */
static bool is_alias(const struct pst_attrs *found, size_t i)
{
    const struct pst_attr *a = &found->at.at[i];

    return i > 0 && a->window == NULL && a[-1].window == NULL &&
           a[-1].param == a->param;
}

static enum pst_status declare_tensors(struct getter *g)
{
    enum pst_status status =
        pst_safetensors_writer_new(g->order->path, &g->file, g->diag);

    for (size_t i = 0; i < g->found.at.n && status == PST_OK; i++) {
        const struct pst_attr *a = &g->found.at.at[i];
        const struct pst_meta meta = pst_attr_meta(g->plan, a);

        if (g->plan->params.at[a->param].is_complex)
            status = pst_safetensors_writer_declare_complex(g->file, a->name,
                                                            &meta, g->diag);
        else
            status = pst_safetensors_writer_declare(g->file, a->name, &meta,
                                                    g->diag);
    }
    return status == PST_OK ? pst_safetensors_writer_begin(g->file, g->diag)
                            : status;
}

static enum pst_status alloc_buffers(struct getter *g)
{
    size_t all = 1, part = 1;

    for (size_t i = 0; i < g->found.at.n; i++) {
        const unsigned param = g->found.at.at[i].param;
        const struct pst_plan_param *p = &g->plan->params.at[param];

        if (i > 0 && g->found.at.at[i - 1].param == param)
            continue;
        all = PST_MAX(all, pst_meta_bytes(&p->meta));
        part = PST_MAX(part, pst_attrs_capacity(g->plan, &g->found, param));
    }
    g->all = pst_alloc(PST_TAG_DAEMON, all);
    g->part = pst_alloc(PST_TAG_DAEMON, part);
    return g->all != NULL && g->part != NULL
               ? PST_OK
               : pst_diag_nomem(g->diag, all + part);
}

static enum pst_status prepare_get(struct getter *g)
{
    enum pst_status status =
        pst_attrs_find(g->plan, g->order->name, &g->found, g->diag);

    if (status == PST_OK && g->found.at.n > MAX_EVENTS &&
        g->order->path[0] == '\0')
        status = pst_diag_set(g->diag, PST_E_ATTR_NAME,
                              "\"%.200s\" has %zu names of tensors: name a "
                              "module in it, or write them with -o FILE",
                              g->order->name, g->found.at.n);
    if (status == PST_OK && g->s->w->rank == 0)
        status = alloc_buffers(g);
    if (status == PST_OK && g->s->w->rank == 0 && g->order->path[0] != '\0')
        status = declare_tensors(g);
    return pstd_agree_status(g->s->w, status, g->diag);
}

/* Rank 0: for each found name of a parameter, whose values are in g->all,
 * reports the tensor and writes it to the file. */
static enum pst_status put_param(struct getter *g, unsigned param)
{
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < g->found.at.n && status == PST_OK; i++) {
        const struct pst_attr *a = &g->found.at.at[i];

        if (a->param != param)
            continue;
        pst_attr_copy_part(g->plan, a, g->all, g->part);
        if (g->file != NULL)
            status = pst_safetensors_writer_put(g->file, g->n_put++, g->part,
                                                g->diag);
        if (status == PST_OK && g->found.at.n <= MAX_EVENTS &&
            !is_alias(&g->found, i))
            emit_attr(g, a);
    }
    return status;
}

static enum pst_status get_tensors(struct getter *g)
{
    enum pst_status status = prepare_get(g), mine = PST_OK;
    struct pst_diag why;

    if (status != PST_OK)
        return status;
    for (size_t i = 0; i < g->found.at.n && status == PST_OK; i++) {
        const unsigned param = g->found.at.at[i].param;

        if (i > 0 && g->found.at.at[i - 1].param == param)
            continue;
        status =
            pst_engine_fetch_param(g->s->w->engine, param, g->all, g->diag);
        /* Rank 0 keeps receiving from the others after an error of its own. */
        if (g->s->w->rank == 0 && status == PST_OK && mine == PST_OK) {
            mine = put_param(g, param);
            if (mine != PST_OK)
                why = *g->diag;
        }
    }
    if (status == PST_OK && mine == PST_OK && g->file != NULL) {
        mine = pst_safetensors_writer_commit(g->file, g->diag);
        if (mine != PST_OK)
            why = *g->diag;
    }
    if (mine != PST_OK)
        *g->diag = why;
    return status == PST_OK ? pstd_agree_status(g->s->w, mine, g->diag)
                            : status;
}

enum pst_status pstd_attr_get(struct pstd_session *s,
                              const struct pst_plan *plan,
                              const struct pstd_change_order *order,
                              struct pst_diag *diag)
{
    const double begin = pst_now();
    struct getter g = {.s = s, .plan = plan, .order = order, .diag = diag};
    enum pst_status status = get_tensors(&g);
    struct pstd_note note;

    if (status == PST_OK) {
        pstd_change_note_done(s, order, g.found.tensors, &note);
        pstd_note_text(&note, "path", order->path);
        pstd_note_real(&note, "seconds", pst_now() - begin);
        pstd_mailbox_post(s->w->mailbox, &note, true);
    } else if (status != PST_ERR_PEER) {
        pstd_change_emit_refused(s, order, diag);
    }
    pst_safetensors_writer_free(g.file);
    pst_attrs_fini(&g.found);
    pst_free(g.all);
    pst_free(g.part);
    return status == PST_ERR_PEER ? status : PST_OK;
}
