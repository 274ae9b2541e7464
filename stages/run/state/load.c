// SPDX-License-Identifier: Apache-2.0
/* Loads checkpoints: each rank reads the tensors that it holds. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "stages/run/rank/step/device.h"
#include "stages/run/state/average.h"
#include "stages/run/state/carried.h"
#include "stages/run/state/entries.h"
#include "stages/run/state/match.h"

#define LISTED    8  /* maximum number of names in a message */
#define MAX_LOADS 20 /* tries in a folder whose checkpoints disappear */

struct loader {
    const struct pst_checkpoint *ckpt;
    bool averaged; /* take averages in the place of parameters */
    const struct pst_engine *engine;
};

/* Returns the saved tensor with that name, or with another name of the same
 * parameter; NULL: none. */
static const struct pst_safetensors_entry *find_tensor(const struct loader *l,
                                                       const char *name)
{
    const struct pst_safetensors_entry *e = pst_checkpoint_find(l->ckpt, name);
    const struct pst_plan *plan = l->engine->grid->plan;

    for (size_t i = 0; e == NULL && i < plan->params.n; i++) {
        const struct pst_plan_param *p = &plan->params.at[i];
        const size_t tail = strlen(p->fqn), all = strlen(name);

        if (all < tail + 1 || strcmp(name + all - tail, p->fqn) != 0 ||
            name[all - tail - 1] != '.')
            continue;
        for (unsigned k = 0; k < p->n_aliases && e == NULL; k++) {
            char other[1400];

            snprintf(other, sizeof(other), "%.*s%s", (int)(all - tail), name,
                     p->aliases[k]);
            e = pst_checkpoint_find(l->ckpt, other);
        }
    }
    return e;
}

/* True if the checkpoint has averages of --ema. */
static bool has_averages(const struct loader *l)
{
    for (size_t i = 0; i < l->ckpt->where.n; i++)
        if (pst_optim_is_average(l->ckpt->where.entries[i].key))
            return true;
    return false;
}

/* True for an optimizer state that the checkpoint lacks: its run did not train
 * the parameter, or other options (an optimizer by a group, momentum) made the
 * state unnecessary. */
static bool is_untrained(const struct loader *l, const char *name)
{
    return pst_optim_state_of(name) != NULL && find_tensor(l, name) == NULL;
}

/* Returns the saved tensor of a parameter, or the saved average that replaces
 * it in this engine (average.h). */
static const struct pst_safetensors_entry *find_param(const struct loader *l,
                                                      const char *name)
{
    const struct pst_safetensors_entry *e = find_tensor(l, name), *average;
    const int i = pst_plan_find_param(l->engine->grid->plan,
                                      name + strlen(PST_CHECKPOINT_PARAM));

    if (e == NULL ||
        (i >= 0 && pst_engine_keeps_average(l->engine, (unsigned)i)))
        return e;
    average =
        pst_checkpoint_average(l->ckpt, e->name + strlen(PST_CHECKPOINT_PARAM));
    return average != NULL ? average : e;
}

/* Returns the tensor to load for an entry. A run that adds --ema begins its
 * averages with the parameters. */
static const struct pst_safetensors_entry *find_entry(const struct loader *l,
                                                      const char *name)
{
    const bool is_average = pst_optim_is_average(name);
    const bool is_param = pst_has_prefix(name, PST_CHECKPOINT_PARAM);
    const struct pst_safetensors_entry *e = NULL;
    char other[1300];

    if (!is_average && !(l->averaged && is_param))
        return is_param ? find_param(l, name) : find_tensor(l, name);
    (void)snprintf(other, sizeof(other), "%s.%s", is_average ? "param" : "ema",
                   strchr(name, '.') + 1);
    e = find_tensor(l, is_average ? name : other);
    return e != NULL ? e : find_param(l, is_average ? other : name);
}

/* True if e is a saved bf16 parameter that has to be converted to f32: an
 * average begins with its value, or it is loaded in place of an average that
 * was not saved. */
static bool is_converted(const struct loader *l,
                         const struct pst_safetensors_entry *e,
                         const struct pst_entry *entry)
{
    struct pst_meta as = e->meta;

    as.dtype = entry->meta.dtype;
    return (l->averaged || pst_optim_is_average(entry->name)) &&
           e->meta.dtype == PST_BF16 && as.dtype == PST_F32 &&
           entry->begin == 0 && entry->bytes == pst_meta_bytes(&as) &&
           pst_meta_same(&as, &entry->meta);
}

static enum pst_status read_converted(const struct pst_safetensors_entry *e,
                                      const struct pst_entry *entry, void *to,
                                      struct pst_diag *diag)
{
    const size_t bytes = pst_meta_bytes(&e->meta);
    void *from = pst_alloc(PST_TAG_EXEC, PST_MAX(bytes, (size_t)1));
    enum pst_status status;

    if (from == NULL)
        return pst_diag_nomem(diag, bytes);
    status = pst_safetensors_read(e, 0, bytes, from, diag);
    if (status == PST_OK)
        pst_copy_strided(&e->meta, from, &entry->meta, to);
    pst_free(from);
    return status;
}

static enum pst_status load_entry(void *ctx, struct pst_rank *r,
                                  const struct pst_entry *entry,
                                  struct pst_diag *diag)
{
    const struct loader *l = ctx;
    const struct pst_safetensors_entry *e = find_entry(l, entry->name);
    char want[PST_META_TEXT], got[PST_META_TEXT];
    struct pst_rank_device *d = pst_rank_device(r);
    void *at = pst_rank_at(d, entry->offset);
    enum pst_status status;

    if (e == NULL && is_untrained(l, entry->name)) {
        memset(pst_device_host(&d->mem, at), 0, entry->bytes);
        pst_device_push(&d->mem, at, entry->bytes);
        return PST_OK;
    }
    if (e == NULL)
        return pst_diag_set(diag,
                            strcmp(l->ckpt->info.model_digest,
                                   pst_carried_model(l->engine)) != 0
                                ? PST_E_CHECKPOINT_OTHER_MODEL
                                : PST_E_CHECKPOINT_DAMAGED,
                            "the checkpoint has no '%s'", entry->name);
    if (is_converted(l, e, entry)) {
        status = read_converted(e, entry, pst_device_host(&d->mem, at), diag);
        if (status == PST_OK)
            pst_device_push(&d->mem, at, entry->bytes);
        return status;
    }
    if (e->meta.dtype != entry->meta.dtype &&
        pst_optim_state_of(entry->name) != NULL)
        return pst_diag_set(
            diag, PST_E_CHECKPOINT_OTHER_OPTIONS,
            "'%s' is %s in the checkpoint, and %s with these options: give the "
            "--state-dtype that it was written with",
            entry->name, pst_dtype_name(e->meta.dtype),
            pst_dtype_name(entry->meta.dtype));
    if (!pst_meta_same(&e->meta, &entry->meta))
        return pst_diag_set(diag, PST_E_CHECKPOINT_OTHER_MODEL,
                            "'%s' is %s in the checkpoint, %s in the plan%s",
                            entry->name, pst_meta_text(&e->meta, got),
                            pst_meta_text(&entry->meta, want),
                            pst_carried_is_in(l->ckpt)
                                ? ": a change of the run has cast it, which "
                                  "its own plan follows, and serve "
                                  "--eval-model"
                                : "");
    status = pst_safetensors_read(e, entry->begin, entry->bytes,
                                  pst_device_host(&d->mem, at), diag);
    if (status == PST_OK)
        pst_device_push(&d->mem, at, entry->bytes);
    return status;
}

/* True if this run trains the parameter. */
static bool is_trained(const struct pst_engine *engine, unsigned param)
{
    return engine->grid->options.train &&
           pst_uses_total(&engine->grid->uses, param) > 0;
}

/* Sets ret to the name of the parameter's first optimizer state. Returns false
 * if it has none. */
static bool state_name(const struct pst_engine *engine, unsigned param,
                       char ret[1200])
{
    const struct pst_plan_param *p = &engine->grid->plan->params.at[param];
    const struct pst_optim_options *o = pst_grid_update(engine->grid, param);
    struct pst_meta meta;

    if (!engine->grid->options.train || p->kind != PST_VALUE_PARAM)
        return false;
    for (unsigned k = 0; k < PST_OPTIM_MAX_STATES; k++)
        if (pst_optim_state(o, k, &p->meta, &meta))
            return snprintf(ret, 1200, "%s.%s", o->row->states[k], p->fqn) <
                   1200;
    return false;
}

/* Appends "; NAMES WHAT" for the parameters that only this run trains (here),
 * or that only the checkpoint's run trained (not here). */
static void add_differing(const struct loader *l, bool here, const char *what,
                          struct pst_str *out)
{
    const struct pst_plan *plan = l->engine->grid->plan;
    unsigned n = 0;

    for (size_t i = 0; i < plan->params.n; i++) {
        const struct pst_plan_param *p = &plan->params.at[i];
        char name[1200];

        if (is_trained(l->engine, (unsigned)i) != here ||
            !state_name(l->engine, (unsigned)i, name) ||
            (find_tensor(l, name) == NULL) != here)
            continue;
        if (n < LISTED)
            pst_str_addf(out, "%s'%.200s'",
                         n > 0          ? ", "
                         : out->len > 0 ? "; "
                                        : "",
                         p->fqn);
        n++;
    }
    if (n > LISTED)
        pst_str_addf(out, " and %u more", n - LISTED);
    if (n > 0)
        pst_str_add(out, what);
}

/* True if this run keeps an average of the parameter. */
static bool has_average(const struct pst_engine *engine, unsigned param)
{
    struct pst_meta meta;

    return is_trained(engine, param) &&
           pst_optim_state(pst_grid_update(engine->grid, param), PST_OPTIM_EMA,
                           &engine->grid->plan->params.at[param].meta, &meta);
}

/* Appends how many averages of --ema only this run keeps, or only the run of
 * the checkpoint did. */
static void add_averages(const struct loader *l, struct pst_str *out)
{
    const struct pst_plan *plan = l->engine->grid->plan;
    unsigned begin = 0, dropped = 0;

    for (size_t i = 0; i < plan->params.n; i++) {
        const bool here = has_average(l->engine, (unsigned)i);
        struct pst_str name = {0};

        pst_str_addf(&name, "ema.%s", plan->params.at[i].fqn);
        if (!name.failed) {
            const bool there = find_tensor(l, name.text) != NULL;

            begin += here && !there;
            dropped += there && !here;
        }
        pst_str_fini(&name);
    }
    if (dropped > 0)
        pst_str_addf(out,
                     "%saverages are dropped, since there is no --ema now; "
                     "parameters with one: %u",
                     out->len > 0 ? "; " : "", dropped);
    if (begin > 0)
        pst_str_addf(
            out,
            "%saverages begin with the values of the checkpoint, which "
            "has none; parameters with one: %u",
            out->len > 0 ? "; " : "", begin);
}

/* Describes how the model differs from that of the checkpoint. */
static void describe_other(const struct loader *l, struct pst_str *out)
{
    if (out == NULL)
        return;
    if (pst_match_is_other(l->engine, l->ckpt))
        pst_str_add(out, "this is another export of the model that saved the "
                         "checkpoint, and computes the same: it goes on with "
                         "the values of the checkpoint");
    add_differing(l, false,
                  ": trained before and not now, the states of the "
                  "optimizer are dropped",
                  out);
    add_differing(l, true,
                  ": not trained before, the states of the optimizer "
                  "begin here",
                  out);
    if (l->engine->grid->options.train)
        add_averages(l, out);
}

/* Sets engine->updates, engine->since and the loss scale from the checkpoint.
 * Checkpoints of older programs count steps instead of updates, and for them
 * `since` comes from the plan. Optimizer states that the checkpoint lacks start
 * now. */
static void read_counts(struct pst_engine *engine, const struct loader *l)
{
    const struct pst_checkpoint *ckpt = l->ckpt;
    const struct pst_loss_scaler saved = {
        ckpt->info.loss_scale, ckpt->info.good, ckpt->info.overflows};

    engine->updates = ckpt->info.updates;
    engine->scaler =
        pst_loss_scaler_resume(&engine->grid->options.loss_scale, &saved);
    for (size_t i = 0; i < engine->grid->plan->params.n; i++)
        engine->since[i] = ckpt->info.counts_updates
                               ? 0
                               : engine->grid->plan->params.at[i].since;
    for (size_t i = 0; i < ckpt->names.since.n; i++) {
        const struct pst_state_since *s = &ckpt->names.since.at[i];
        const int param = pst_plan_find_param(engine->grid->plan, s->param);

        if (param >= 0)
            engine->since[param] = s->updates;
    }
    for (size_t i = 0; i < engine->grid->plan->params.n; i++) {
        char name[1200];

        if (is_trained(engine, (unsigned)i) &&
            state_name(engine, (unsigned)i, name) && is_untrained(l, name))
            engine->since[i] = engine->updates;
    }
}

/* Loads the values of parameters that no stage reads. They may differ from the
 * plan's if the checkpoint is from another export of the model. */
static enum pst_status load_unread(struct pst_engine *engine,
                                   const struct loader *l,
                                   struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < engine->grid->plan->params.n && status == PST_OK;
         i++) {
        const struct pst_plan_param *p = &engine->grid->plan->params.at[i];
        const struct pst_safetensors_entry *e = NULL;
        struct pst_str name = {0};

        if (p->n_stages != 0 || !pst_plan_is_state(p))
            continue;
        pst_plan_tensor_name(p, &name);
        if (!name.failed)
            e = find_tensor(l, name.text);
        pst_str_fini(&name);
        pst_free(engine->unread[i]);
        engine->unread[i] = NULL;
        if (e == NULL || !pst_meta_same(&e->meta, &p->meta))
            continue;
        engine->unread[i] =
            pst_alloc(PST_TAG_EXEC, PST_MAX(e->bytes, (size_t)1));
        status =
            engine->unread[i] == NULL
                ? pst_diag_nomem(diag, e->bytes)
                : pst_safetensors_read(e, 0, e->bytes, engine->unread[i], diag);
    }
    return status;
}

static enum pst_status load_step(struct pst_engine *engine, const char *dir,
                                 uint64_t step,
                                 const struct pst_load_choice *choice,
                                 struct pst_diag *diag)
{
    const struct pst_checkpoint_query query = {.dir = dir, .step = step};
    struct loader l = {.averaged = choice->averaged, .engine = engine};
    struct pst_checkpoint *ckpt;
    enum pst_status status = pst_checkpoint_open(&query, &ckpt, diag);

    if (status != PST_OK)
        return status;
    l.ckpt = ckpt;
    status = pst_match_check(engine, ckpt, choice->any_model, diag);
    if (status == PST_OK && l.averaged && !has_averages(&l) &&
        !pst_checkpoint_has_average(ckpt))
        status = pst_diag_set(diag, PST_E_CHECKPOINT_OTHER_OPTIONS,
                              "the checkpoint of step %" PRIu64
                              " has no averaged parameters: its run had no "
                              "--ema, or trained no parameter then",
                              step);
    if (status == PST_OK && choice->begun != NULL)
        *choice->begun = true;
    if (status == PST_OK)
        read_counts(engine, &l);
    if (status == PST_OK && pst_engine_is_zero(engine))
        describe_other(&l, choice->differs);
    if (status == PST_OK)
        status = load_unread(engine, &l, diag);
    for (unsigned i = 0; i < engine->n_local && status == PST_OK; i++) {
        pst_rank_params_changed(engine->ranks[i]);
        status = pst_each_entry(engine, engine->ranks[i], false, load_entry, &l,
                                diag);
    }
    pst_checkpoint_close(ckpt);
    return status;
}

/* The checkpoint that rank 0 has found; plain bytes, sent to all. */
struct found {
    uint64_t step, changes;
    struct pst_data_place place;
    uint32_t fallback;
};

static enum pst_status find_checkpoint(const struct pst_load_choice *choice,
                                       bool fallback,
                                       struct pst_checkpoint_info *ret,
                                       struct pst_diag *diag)
{
    const struct pst_checkpoint_query query = {
        .dir = fallback ? choice->fallback : choice->dir,
        .lineage = choice->lineage,
        .step = choice->step,
        .verify = true,
        .skipped = choice->skipped,
        .ctx = choice->ctx,
    };
    struct pst_checkpoint *ckpt;
    enum pst_status status;

    if (choice->lineage != NULL && choice->lineage->ignored[fallback])
        return pst_diag_set(diag, PST_E_CHECKPOINT_NONE,
                            "no checkpoint of this run in %s", query.dir);
    status = pst_checkpoint_open(&query, &ckpt, diag);
    if (status != PST_OK)
        return status;
    *ret = ckpt->info;
    pst_checkpoint_close(ckpt);
    return PST_OK;
}

/* Finds the checkpoint to load: the newer one of choice->dir and the fallback
 * folder. A folder without a good one is ignored if the other has one. */
static enum pst_status find_newest(const struct pst_load_choice *choice,
                                   struct pst_checkpoint_info *ret,
                                   bool *ret_fallback, struct pst_diag *diag)
{
    struct pst_checkpoint_info other;
    struct pst_diag why;
    enum pst_status status = find_checkpoint(choice, false, ret, diag);
    enum pst_status second;

    *ret_fallback = false;
    if (choice->fallback == NULL ||
        (status != PST_OK && status != PST_ERR_NOT_FOUND &&
         status != PST_ERR_INPUT))
        return status;
    second = find_checkpoint(choice, true, &other, &why);
    if (second != PST_OK && second != PST_ERR_NOT_FOUND &&
        second != PST_ERR_INPUT)
        return pst_diag_pass(diag, &why, "%s", why.text);
    if (second == PST_OK &&
        (status != PST_OK || other.step > ret->step ||
         (other.step == ret->step && other.changes > ret->changes))) {
        *ret = other;
        *ret_fallback = true;
        status = PST_OK;
    } else if (status == PST_ERR_NOT_FOUND && second == PST_ERR_INPUT) {
        status = pst_diag_pass(diag, &why, "%s", why.text);
    }
    return status;
}

/* COLLECTIVE. True, on all ranks, if the newest checkpoint could not be loaded
 * because a job has removed it after rank 0 had found it. Only rank 0 looks: to
 * another rank it may be absent because the folder is not shared. */
static bool was_removed(const struct pst_engine *engine,
                        const struct pst_load_choice *choice,
                        const struct found *found, enum pst_status status)
{
    struct pst_diag ignored;
    uint32_t gone = 0;

    if (choice->step != PST_CHECKPOINT_LATEST ||
        (status != PST_ERR_INPUT && status != PST_ERR_IO &&
         status != PST_ERR_NOT_FOUND))
        return false;
    if (pst_engine_is_zero(engine))
        gone = pst_checkpoint_is_rest(
            found->fallback ? choice->fallback : choice->dir, found->step);
    return pst_engine_broadcast(engine->transport, &gone, sizeof(gone), NULL,
                                NULL, &ignored) == PST_OK &&
           gone != 0;
}

/* COLLECTIVE. Finds a checkpoint and loads it. *ret_gone: see was_removed. */
static enum pst_status load_found(struct pst_engine *engine,
                                  const struct pst_load_choice *choice,
                                  struct pst_checkpoint_info *ret,
                                  bool *ret_fallback, bool *ret_gone,
                                  struct pst_diag *diag)
{
    struct pst_checkpoint_info info = {0};
    struct found found = {0};
    enum pst_status status = PST_OK;
    bool fallback = false;

    *ret_gone = false;
    /* Rank 0 finds the checkpoint and verifies every byte of it. All ranks load
     * that one. */
    if (pst_engine_is_zero(engine)) {
        status = find_newest(choice, &info, &fallback, diag);
        found = (struct found){.step = info.step,
                               .changes = info.changes,
                               .place = info.place,
                               .fallback = fallback};
    }
    status = pst_engine_agree(engine, status, diag);
    if (status != PST_OK)
        return status;
    status = pst_engine_broadcast(engine->transport, &found, sizeof(found),
                                  NULL, NULL, diag);
    if (status == PST_OK)
        status =
            load_step(engine, found.fallback ? choice->fallback : choice->dir,
                      found.step, choice, diag);
    status = pst_engine_agree(engine, status, diag);
    if (status != PST_OK) {
        *ret_gone = was_removed(engine, choice, &found, status);
        return status;
    }
    info.step = found.step;
    info.changes = found.changes;
    info.place = found.place;
    *ret = info;
    if (ret_fallback != NULL)
        *ret_fallback = found.fallback;
    return PST_OK;
}

enum pst_status pst_engine_load(struct pst_engine *engine,
                                const struct pst_load_choice *choice,
                                struct pst_checkpoint_info *ret,
                                bool *ret_fallback, struct pst_diag *diag)
{
    enum pst_status status = PST_OK;
    bool gone = true;

    engine->changes++;
    for (unsigned k = 0; k < MAX_LOADS && gone; k++) {
        /* A try that failed may have described its checkpoint. */
        if (k > 0 && choice->differs != NULL)
            pst_str_fini(choice->differs);
        status = load_found(engine, choice, ret, ret_fallback, &gone, diag);
    }
    return status;
}
