// SPDX-License-Identifier: Apache-2.0
#include "daemon/exec/change/change.h"

#include <stdio.h>
#include <string.h>

#include "daemon/common/model/changed.h"
#include "daemon/common/model/replace.h"
#include "daemon/common/model/states.h"
#include "daemon/common/setup.h"
#include "daemon/exec/change/attr.h"
#include "daemon/exec/change/events.h"
#include "daemon/exec/change/resume_point.h"
#include "daemon/exec/change/settings.h"
#include "daemon/exec/eval/evaluate.h"
#include "daemon/exec/health/health.h"
#include "daemon/exec/spread.h"
#include "stages/base/alloc.h"
#include "stages/base/host/alive.h"
#include "stages/base/host/fs.h"
#include "stages/files/safetensors.h"
#include "stages/files/zip.h"
#include "stages/modules/freeze.h"
#include "stages/run/data/tokens.h"
#include "stages/run/state/carried.h"
#include "stages/split/convert/again.h"

/* The plan of a run with a changed model. */
struct pstd_changed {
    /* of.plan: changed plan made by this job; else NULL */
    struct pstd_changed_plan of;
    struct pst_carried *carried; /* plan loaded from a checkpoint; else NULL */
    struct pst_tokens *tokens;
};

/* A change from one plan to another. Start values of the new plan come from the
 * engine of the old plan and from the file of a SWAP or SET. */
struct change {
    enum pstd_change_kind kind;
    const struct pst_engine *from;
    struct pst_plan *before;       /* plan of `from` */
    struct pst_model *old;         /* reconstructed model of `before` */
    struct pstd_replaced replaced; /* result of a SWAP */
    unsigned n;            /* calls, parameters or tensors that were changed */
    struct pstd_attr attr; /* result of a SET or CAST */
    struct pstd_states states; /* mapping of optimizer states for SWAP */
    /* New tensors with the name of an old one keep its optimizer states. */
    bool keep;
    /* parameters that another optimizer updates now
     * (pst_engine_list_renewed) */
    struct pst_str renewed;
    struct pst_str no_eval; /* why evaluations are impossible now */
    struct pstd_spread file;
    struct pstd_changed *changed;
};

/* --- the new plan and its engine ------------------------------------------ */

static enum pst_status read_start(void *ctx, unsigned i, void *dst,
                                  struct pst_diag *diag)
{
    const struct change *x = ctx;

    return pst_engine_read_start(x->from, x->before, i, dst, diag);
}

const struct pst_batch *pstd_changed_batch(const struct pstd_changed *changed)
{
    return &changed->of.batch;
}

void pstd_changed_set_microbatches(struct pstd_changed *changed, unsigned n)
{
    changed->of.batch.microbatches = n;
    if (changed->tokens != NULL)
        pst_tokens_set_microbatches(changed->tokens, n);
}

static const struct pst_batch *current_batch(const struct pstd_executor *w)
{
    return w->changed != NULL ? &w->changed->of.batch : &w->batch;
}

static bool is_fresh(void *ctx, const char *fqn)
{
    const struct change *x = ctx;

    return pstd_replaced_has_param(&x->replaced, fqn) ||
           pstd_attr_has(&x->attr, x->before, fqn);
}

/* Returns the parameter of the old model whose optimizer states the new
 * parameter keeps; NULL: its states start from zero. */
static const char *old_name(void *ctx, const char *fqn)
{
    const struct change *x = ctx;
    const char *old = pstd_states_get(&x->states, fqn);

    if (old != NULL)
        return old;
    return x->keep || !is_fresh(ctx, fqn) ? fqn : NULL;
}

/* Returns the parameter of the old model whose value the new parameter takes
 * over, if replicas share it; NULL: it gets a new value. */
static const char *old_value(void *ctx, const char *fqn)
{
    const struct change *x = ctx;

    return x->kind != PSTD_CHANGE_CAST && is_fresh(ctx, fqn) ? NULL : fqn;
}

static void convert_values(void *ctx, const char *fqn, float *data, int64_t n)
{
    const struct change *x = ctx;
    const int was = pst_plan_find_param(x->before, fqn);

    if (x->attr.casting != NULL && was >= 0)
        pst_casting_convert(x->attr.casting, (unsigned)was, data, n);
}

static enum pst_status edit_model(struct change *x,
                                  const struct pstd_change_order *order,
                                  const char *path, struct pst_diag *diag)
{
    const struct pst_replacement what = {
        .path = order->name, .call = order->call, .aliases = order->aliases};
    enum pst_status status;

    switch (order->kind) {
    case PSTD_CHANGE_SWAP:
        status =
            pstd_replace(x->before, x->old, &what, path, &x->replaced, diag);
        x->n = x->replaced.calls;
        return status;
    case PSTD_CHANGE_FREEZE:
    case PSTD_CHANGE_UNFREEZE:
        return pst_model_freeze(x->old, order->name,
                                order->kind == PSTD_CHANGE_FREEZE, &x->n, diag);
    case PSTD_CHANGE_SET:
        status = pstd_attr_set(&x->attr, x->before, x->old, order, path, diag);
        x->n = x->attr.found.tensors;
        return status;
    case PSTD_CHANGE_CAST:
        status = pstd_attr_cast(&x->attr, x->before, x->old, order, diag);
        x->n = x->attr.counts.cast;
        return status;
    default:
        return pst_diag_set(diag, PST_E_INTERNAL_BUG,
                            "there is no change of kind %d (to \"%.200s\")",
                            (int)order->kind, order->name);
    }
}

static enum pst_status make_plan(struct pstd_session *s, struct change *x,
                                 const struct pstd_change_order *order,
                                 const char *path, struct pst_diag *diag)
{
    const struct pst_batch *from = current_batch(s->w);
    struct pstd_changed_plan *to = &x->changed->of;
    enum pst_status status;

    x->before = from->plan;
    status = pst_plan_check_editable(from->plan, diag);
    if (status == PST_OK)
        status = pst_plan_model(from->plan, read_start, x, &x->old, diag);
    if (status == PST_OK)
        status = edit_model(x, order, path, diag);
    if (status == PST_OK)
        status = pst_split_again(x->replaced.model != NULL ? x->replaced.model
                                                           : x->old,
                                 from->plan, from->plan->loss, &to->plan, diag);
    if (status == PST_OK && x->replaced.model != NULL)
        status = pstd_replaced_check(x->before, to->plan, diag);
    if (status == PST_OK)
        status = pstd_states_check(&x->states, &x->replaced, x->before,
                                   to->plan, diag);
    return status == PST_OK
               ? pstd_changed_complete(to, from, s->w->plan, is_fresh, x, diag)
               : status;
}

static enum pst_status make_tokens(struct pstd_session *s,
                                   struct pstd_changed *changed,
                                   struct pst_exec_options *options,
                                   struct pst_diag *diag)
{
    const struct pst_batch *b = &changed->of.batch;
    enum pst_status status;

    if (options->weigh == NULL)
        return PST_OK;
    status = pst_tokens_new(b->plan, b->tail, b->microbatches, b->n_tail,
                            pst_data_fill, s->data, &changed->tokens, diag);
    options->weigh_ctx = changed->tokens;
    return status;
}

/* Rank 0: refuses a file that is not what the order needs before its content,
 * perhaps gigabytes, is sent to the other ranks. */
static enum pst_status check_file(const struct pstd_executor *w,
                                  const struct pstd_change_order *order,
                                  struct pst_diag *diag)
{
    struct pst_safetensors *values = NULL;
    struct pst_zip *module = NULL;
    enum pst_status status = PST_OK;

    if (w->rank != 0)
        return PST_OK;
    if (order->kind == PSTD_CHANGE_SET)
        status = pst_safetensors_open(order->path, &values, diag);
    if (order->kind == PSTD_CHANGE_SWAP)
        status = pst_zip_open(order->path, &module, diag);
    pst_safetensors_close(values);
    pst_zip_close(module);
    return status;
}

/* COLLECTIVE. Copies the values of params that no stage reads, so that the new
 * plan needs neither the models nor the old engine. */
static enum pst_status copy_unread(struct pstd_session *s, struct change *x,
                                   struct pst_diag *diag)
{
    enum pst_status status = pstd_agree_status(
        s->w, pstd_changed_copy_params(&x->changed->of, diag), diag);

    return status == PST_OK ? pstd_changed_gather(&x->changed->of, s->w->engine,
                                                  x->before, old_value, x, diag)
                            : status;
}

/* COLLECTIVE. Makes the new plan and its engine (*ret), which adopts the values
 * of the engine in use. */
static enum pst_status prepare_engine(struct pstd_session *s, struct change *x,
                                      const struct pstd_change_order *order,
                                      struct pst_engine **ret,
                                      struct pst_diag *diag)
{
    struct pstd_executor *w = s->w;
    struct pst_exec_options options = s->options;
    const struct pst_adoption how = {old_name, old_value, convert_values, x};
    struct pst_str places = {0};
    enum pst_status status = PST_OK;

    if (order->path[0] != '\0')
        status = pstd_agree_status(w, check_file(w, order, diag), diag);
    if (order->path[0] != '\0' && status == PST_OK)
        status = pstd_spread_file(w, order->path, &x->file, diag);
    if (status != PST_OK)
        return status;
    status = make_plan(s, x, order, x->file.path, diag);
    if (status == PST_OK) {
        pstd_set_batch(&options, &x->changed->of.batch);
        status = make_tokens(s, x->changed, &options, diag);
    }
    if (status == PST_OK)
        status =
            pstd_changed_keep_placement(w->engine, &options, &places, diag);
    status = pstd_agree_status(w, status, diag);
    if (status == PST_OK)
        status = pst_engine_new(x->changed->of.batch.plan, w->transport,
                                &options, ret, diag);
    if (status == PST_OK)
        status = pst_engine_set_microbatches(
            *ret, x->changed->of.batch.microbatches, diag);
    pst_str_fini(&places);
    options.schedule = s->options.schedule;
    options.place = s->options.place;
    status = pstd_agree_status(w, status, diag);
    if (status != PST_OK)
        return status;
    status = pst_engine_copy_state(*ret, w->engine, &how, diag);
    pst_engine_list_renewed(*ret, w->engine, &how, &x->renewed);
    if (status == PST_OK)
        status = copy_unread(s, x, diag);
    status = pstd_agree_status(w, status, diag);
    if (status == PST_OK)
        s->options = options;
    return status;
}

void pstd_changed_free(struct pstd_changed *changed)
{
    if (changed == NULL)
        return;
    pst_tokens_free(changed->tokens);
    pstd_changed_fini(&changed->of);
    pst_carried_close(changed->carried);
    pst_free(changed);
}

/* --- success or failure --------------------------------------------------- */

static void emit_done(struct pstd_session *s, const struct change *x,
                      const struct pstd_change_order *order, double seconds)
{
    struct pstd_note note;

    pstd_change_note_done(s, order, x->n, &note);
    if (order->kind == PSTD_CHANGE_CAST) {
        pstd_note_text(&note, "dtype", order->value);
        pstd_note_int(&note, "skipped", (int64_t)x->attr.counts.skipped);
        pstd_note_int(&note, "converted", (int64_t)x->attr.counts.converted);
    }
    if (order->kind == PSTD_CHANGE_SWAP)
        pstd_note_int(&note, "frozen", (int64_t)x->replaced.frozen);
    if (order->kind == PSTD_CHANGE_SET)
        pstd_note_text(&note, "nans", pst_str_text(&x->attr.nans));
    if (x->renewed.len > 0)
        pstd_note_text(&note, "renewed", pst_str_text(&x->renewed));
    if (x->no_eval.len > 0)
        pstd_note_text(&note, "no_eval", pst_str_text(&x->no_eval));
    pstd_note_real(&note, "seconds", seconds);
    pstd_note_text(&note, "digest", x->changed->of.plan->digest);
    pstd_mailbox_post(s->w->mailbox, &note, true);
}

static void switch_engine(struct pstd_session *s, const struct change *x,
                          struct pst_engine *engine)
{
    pstd_eval_drop(s);
    pstd_session_drop_save(s);
    pst_engine_free(s->w->engine);
    pstd_changed_free(s->w->changed);
    s->w->engine = engine;
    s->pace = (struct pst_pace){0}; /* was learnt with the previous model */
    pst_alive_set_limit(pstd_watchdog(&s->config));
    s->w->changed = x->changed;
    s->batch = &x->changed->of.batch;
    s->changes++;
    if (s->config.checkpoint != NULL)
        pstd_interval_request(&s->interval);
}

static void end_change(struct change *x)
{
    pst_model_close(x->replaced.model);
    pst_model_close(x->replaced.module);
    pst_model_close(x->old);
    pst_str_fini(&x->renewed);
    pst_str_fini(&x->no_eval);
    pstd_attr_fini(&x->attr);
    pstd_states_fini(&x->states);
    pstd_spread_fini(&x->file);
}

static enum pst_status make_change(struct pstd_session *s,
                                   const struct pstd_change_order *order,
                                   struct pst_diag *diag)
{
    const double begin = pst_now();
    struct change x = {.from = s->w->engine, .file = {.file = -1}};
    struct pst_engine *engine = NULL;
    enum pst_status status = PST_OK;

    x.kind = order->kind;
    x.keep = order->keep;
    status = pstd_states_read(
        order->kind == PSTD_CHANGE_SWAP ? order->value : "", &x.states, diag);
    x.changed = pst_calloc(PST_TAG_DAEMON, 1, sizeof(*x.changed));
    if (status == PST_OK && x.changed == NULL)
        status = pst_diag_nomem(diag, sizeof(*x.changed));
    status = pstd_agree_status(s->w, status, diag);
    if (status == PST_OK)
        status = prepare_engine(s, &x, order, &engine, diag);
    if (status == PST_OK) {
        switch_engine(s, &x, engine);
        status = pstd_eval_renew(s, &x.no_eval, diag);
        emit_done(s, &x, order, pst_now() - begin);
    } else {
        pst_engine_free(engine);
        pstd_changed_free(x.changed);
        if (status != PST_ERR_PEER)
            pstd_change_emit_refused(s, order, diag);
    }
    end_change(&x);
    return status == PST_ERR_PEER ? status : PST_OK;
}

/* --- resuming ------------------------------------------------------------- */

static enum pst_status check_ranks(const struct pstd_session *s,
                                   const struct pst_plan *plan,
                                   struct pst_diag *diag)
{
    const unsigned ranks = s->w->ranks / pstd_replicas(&s->config);

    if (ranks <= plan->stages.n)
        return PST_OK;
    return pst_diag_set(diag, PST_E_RUN_TOO_FEW_STAGES,
                        "the model was changed in the run of this checkpoint, "
                        "which holds the plan of it: that has %zu stages, too "
                        "few for %u ranks",
                        plan->stages.n, ranks);
}

static enum pst_status restore_plan(struct pstd_session *s,
                                    struct pstd_changed *changed,
                                    const struct pstd_found *found,
                                    struct pst_diag *diag)
{
    enum pst_status status = pst_carried_open(
        s->w->plan,
        found->fallback ? s->config.checkpoint_fallback : s->config.checkpoint,
        found->step, &changed->carried, diag);

    if (status == PST_OK && changed->carried != NULL)
        status = check_ranks(s, changed->carried->plan, diag);
    if (status == PST_OK && changed->carried != NULL)
        status = pstd_open_batch(&s->config, changed->carried->plan,
                                 &changed->of.batch, diag);
    return status;
}

enum pst_status pstd_session_restore(struct pstd_session *s,
                                     struct pst_diag *diag)
{
    char course[PST_CHECKPOINT_OPTIONS] = "";
    struct pstd_found found = {0};
    struct pstd_changed *changed;
    enum pst_status status = PST_OK;

    if (!s->config.resume.on)
        return PST_OK;
    status = pstd_session_find_fallback(s, diag);
    if (status != PST_OK)
        return status;
    if (s->w->rank == 0)
        found = pstd_find_checkpoint(s, course);
    s->before = found.step;
    s->drawn = found.place;
    if (s->w->size > 1)
        status = pstd_broadcast(s->w, &found, sizeof(found), diag);
    if (s->w->size > 1 && status == PST_OK)
        status = pstd_broadcast(s->w, course, sizeof(course), diag);
    course[sizeof(course) - 1] = '\0';
    if (status == PST_OK)
        status = pstd_agree_status(
            s->w, pstd_settings_restore(s, course, found.step, diag), diag);
    if (status != PST_OK || !found.any)
        return status;
    changed = pst_calloc(PST_TAG_DAEMON, 1, sizeof(*changed));
    status = changed == NULL ? pst_diag_nomem(diag, sizeof(*changed)) : PST_OK;
    if (changed != NULL)
        status = restore_plan(s, changed, &found, diag);
    status = pstd_agree_status(s->w, status, diag);
    if (status == PST_OK && changed->carried != NULL) {
        pst_engine_free(s->w->engine);
        s->w->engine = NULL;
        s->w->changed = changed;
        return PST_OK;
    }
    pstd_changed_free(changed);
    return status;
}

/* --- an order during the run ---------------------------------------------- */

enum pst_status pstd_session_change(struct pstd_session *s,
                                    const struct pstd_order *order,
                                    struct pst_diag *diag)
{
    const enum pst_alive_phase before = pst_alive_begin_phase(PST_ALIVE_LOAD);
    struct pstd_change_order o = {.call = -1};
    enum pst_status status;

    pstd_change_order_read(order->data, &o);
    if (o.kind == PSTD_CHANGE_OPTIONS) {
        status = pstd_session_set(s, o.value, diag);
        pst_alive_restore_phase(before);
        return status;
    }
    status = o.kind == PSTD_CHANGE_GET
                 ? pstd_attr_get(s, current_batch(s->w)->plan, &o, diag)
                 : make_change(s, &o, diag);
    if (status == PST_OK && o.kind != PSTD_CHANGE_GET)
        pstd_health_reset(s); /* steps of the changed model take another time */
    pst_alive_restore_phase(before);
    return status;
}
