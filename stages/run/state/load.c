// SPDX-License-Identifier: Apache-2.0
/* Checkpoints of an engine: each rank reads what it has. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "stages/run/rank/step/device.h"
#include "stages/run/state/carried.h"
#include "stages/run/state/entries.h"
#include "stages/run/state/match.h"

struct loader {
    const struct pst_checkpoint *ckpt;
    const struct pst_engine *engine;
};

/* Whose checkpoints an engine opens at all; match.h has the rest. */
static const char *wanted_model(const struct pst_engine *engine)
{
    return engine->options.train ? pst_carried_model(engine) : NULL;
}

/* A parameter may have been saved under another of its names. */
static const struct pst_safetensors_entry *find(const struct loader *l,
                                                const char *name)
{
    const struct pst_safetensors_entry *e = pst_checkpoint_find(l->ckpt, name);
    const struct pst_plan *plan = l->engine->plan;

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

static enum pst_status load(void *ctx, struct pst_rank *r,
                            const struct pst_entry *entry,
                            struct pst_diag *diag)
{
    const struct loader *l = ctx;
    const struct pst_safetensors_entry *e = find(l, entry->name);
    char want[PST_META_TEXT], got[PST_META_TEXT];
    struct pst_rank_device *d = pst_rank_device(r);
    void *at = pst_rank_at(d, entry->offset);
    enum pst_status status;

    if (e == NULL && strncmp(entry->name, "param.", 6) != 0 &&
        strncmp(entry->name, "buffer.", 7) != 0)
        return pst_diag_set(diag, PST_E_CHECKPOINT_OTHER_OPTIONS,
                            "the checkpoint has no '%s': it was written with "
                            "optimizer %s",
                            entry->name, l->ckpt->info.optimizer);
    if (e == NULL)
        return pst_diag_set(diag,
                            strcmp(l->ckpt->info.model_digest,
                                   pst_carried_model(l->engine)) != 0
                                ? PST_E_CHECKPOINT_OTHER_MODEL
                                : PST_E_CHECKPOINT_DAMAGED,
                            "the checkpoint has no '%s'", entry->name);
    if (!pst_meta_same(&e->meta, &entry->meta))
        return pst_diag_set(diag, PST_E_CHECKPOINT_OTHER_MODEL,
                            "'%s' is %s in the checkpoint, %s in the plan",
                            entry->name, pst_meta_text(&e->meta, got),
                            pst_meta_text(&entry->meta, want));
    status = pst_safetensors_read(e, entry->begin, entry->bytes,
                                  pst_device_host(&d->mem, at), diag);
    if (status == PST_OK)
        pst_device_push(&d->mem, at, entry->bytes);
    return status;
}

/* Older programs counted steps, from where the plan in the checkpoint says. */
static void take_counts(struct pst_engine *engine,
                        const struct pst_checkpoint *ckpt)
{
    engine->updates = ckpt->info.updates;
    for (size_t i = 0; i < engine->plan->params.n; i++)
        engine->since[i] =
            ckpt->info.counts_updates ? 0 : engine->plan->params.at[i].since;
    for (size_t i = 0; i < ckpt->names.since.n; i++) {
        const struct pst_state_since *s = &ckpt->names.since.at[i];
        const int param = pst_plan_find_param(engine->plan, s->param);

        if (param >= 0)
            engine->since[param] = s->updates;
    }
}

static enum pst_status load_step(struct pst_engine *engine, const char *dir,
                                 uint64_t step, bool any_model,
                                 struct pst_diag *diag)
{
    const struct pst_checkpoint_query query = {
        .dir = dir, .step = step, .model_digest = wanted_model(engine)};
    struct loader l = {.engine = engine};
    struct pst_checkpoint *ckpt;
    enum pst_status status = pst_checkpoint_open(&query, &ckpt, diag);

    if (status != PST_OK)
        return status;
    l.ckpt = ckpt;
    status = pst_match_check(engine, ckpt, any_model, diag);
    if (status == PST_OK)
        take_counts(engine, ckpt);
    for (unsigned i = 0; i < engine->n_local && status == PST_OK; i++) {
        pst_rank_params_changed(engine->ranks[i]);
        status =
            pst_each_entry(engine, engine->ranks[i], false, load, &l, diag);
    }
    pst_checkpoint_close(ckpt);
    return status;
}

/* What rank 0 found; plain bytes. */
struct found {
    uint64_t step, changes;
    struct pst_data_place place;
    uint32_t fallback;
};

static enum pst_status find_in(const struct pst_engine *engine,
                               const struct pst_load_choice *choice,
                               const char *dir, struct pst_checkpoint_info *ret,
                               struct pst_diag *diag)
{
    const struct pst_checkpoint_query query = {
        .dir = dir,
        .step = choice->step,
        .model_digest = wanted_model(engine),
        .verify = true,
        .skipped = choice->skipped,
        .ctx = choice->ctx,
    };
    struct pst_checkpoint *ckpt;
    enum pst_status status = pst_checkpoint_open(&query, &ckpt, diag);

    if (status != PST_OK)
        return status;
    *ret = ckpt->info;
    pst_checkpoint_close(ckpt);
    return PST_OK;
}

/* The newer of two folders. One that has none, or none that is good, does not
 * matter if the other has one. */
static enum pst_status find_newest(const struct pst_engine *engine,
                                   const struct pst_load_choice *choice,
                                   struct pst_checkpoint_info *ret,
                                   bool *ret_fallback, struct pst_diag *diag)
{
    struct pst_checkpoint_info other;
    struct pst_diag why;
    enum pst_status status = find_in(engine, choice, choice->dir, ret, diag);
    enum pst_status second;

    *ret_fallback = false;
    if (choice->fallback == NULL ||
        (status != PST_OK && status != PST_ERR_NOT_FOUND &&
         status != PST_ERR_INPUT))
        return status;
    second = find_in(engine, choice, choice->fallback, &other, &why);
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

enum pst_status pst_engine_load(struct pst_engine *engine,
                                const struct pst_load_choice *choice,
                                struct pst_checkpoint_info *ret,
                                bool *ret_fallback, struct pst_diag *diag)
{
    struct pst_checkpoint_info info = {0};
    struct found found = {0};
    enum pst_status status = PST_OK;
    bool fallback = false;

    /* Rank 0 finds it, and reads every byte; all take that. */
    if (pst_engine_is_zero(engine)) {
        status = find_newest(engine, choice, &info, &fallback, diag);
        found = (struct found){.step = info.step,
                               .changes = info.changes,
                               .place = info.place,
                               .fallback = fallback};
    }
    status = pst_engine_settle(engine, status, diag);
    if (status != PST_OK)
        return status;
    status = pst_engine_broadcast(engine->transport, &found, sizeof(found),
                                  NULL, NULL, diag);
    if (status == PST_OK)
        status =
            load_step(engine, found.fallback ? choice->fallback : choice->dir,
                      found.step, choice->any_model, diag);
    status = pst_engine_settle(engine, status, diag);
    if (status != PST_OK)
        return status;
    info.step = found.step;
    info.changes = found.changes;
    info.place = found.place;
    *ret = info;
    if (ret_fallback != NULL)
        *ret_fallback = found.fallback;
    return PST_OK;
}
