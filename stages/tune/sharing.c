// SPDX-License-Identifier: Apache-2.0
#include "stages/tune/sharing.h"

#include <string.h>

#include "stages/base/str.h"

struct word {
    const char *at, *mode; /* text; at: name or stage, empty for the default */
    size_t len, mode_len;
    enum pst_sharing sharing; /* the mode that was read */
    int stage;                /* -1: `at` is a name, or empty */
};

struct reader {
    const struct pst_uses *uses;
    struct PST_VEC(struct word) words;
    struct pst_diag *diag;
};

static enum pst_status read_mode(struct reader *r, struct word *w)
{
    for (int s = PST_SHARING_NONE; s <= PST_SHARING_ZERO3; s++) {
        const char *text = pst_sharing_word((enum pst_sharing)s);

        if (strlen(text) == w->mode_len &&
            strncmp(text, w->mode, w->mode_len) == 0) {
            w->sharing = (enum pst_sharing)s;
            return PST_OK;
        }
    }
    return pst_diag_set(r->diag, PST_E_SHARD_WORDS,
                        "--shard: \"%.*s\" is none of none, zero1, zero2, "
                        "zero3 (of all), STAGE=MODE or NAME=MODE",
                        (int)w->mode_len, w->mode);
}

/* Sets the stage of a word from the number of a stage or a name. */
static enum pst_status read_target(struct reader *r, struct word *w)
{
    const unsigned n = (unsigned)r->uses->plan->stages.n;
    unsigned stage = 0;
    size_t i = 0;

    w->stage = -1;
    for (; i < w->len && w->at[i] >= '0' && w->at[i] <= '9'; i++)
        stage = PST_MIN(stage * 10 + (unsigned)(w->at[i] - '0'), 100000u);
    if (i < w->len || w->len == 0)
        return PST_OK;
    w->stage = (int)stage;
    return stage < n ? PST_OK
                     : pst_diag_set(r->diag, PST_E_SHARD_WORDS,
                                    "--shard %.*s: there are %u stages",
                                    (int)(w->len + 1 + w->mode_len), w->at, n);
}

static enum pst_status read_words(struct reader *r, const char *text)
{
    for (const char *at = text; *at != '\0';) {
        const size_t len = strcspn(at, ",");
        const char *is = memchr(at, '=', len);
        struct word w = {.at = at, .mode = is != NULL ? is + 1 : at};
        enum pst_status status;

        w.len = is != NULL ? (size_t)(is - at) : 0;
        w.mode_len = len - (size_t)(w.mode - at);
        status = read_mode(r, &w);
        if (status == PST_OK && is != NULL && w.len == 0)
            status = pst_diag_set(r->diag, PST_E_SHARD_WORDS,
                                  "--shard: a name is missing in front of "
                                  "\"=%s\"",
                                  pst_sharing_word(w.sharing));
        if (status == PST_OK)
            status = read_target(r, &w);
        if (status == PST_OK && !pst_vec_push(PST_TAG_EXEC, &r->words, w))
            status = pst_diag_nomem(r->diag, sizeof(w));
        if (status != PST_OK)
            return status;
        at += len + (at[len] == ',');
    }
    return PST_OK;
}

static bool is_below(const char *fqn, const struct word *w)
{
    return strncmp(fqn, w->at, w->len) == 0 &&
           (fqn[w->len] == '\0' || fqn[w->len] == '.');
}

static bool names_param(const struct word *w, const struct pst_plan_param *p)
{
    bool ret = w->len > 0 && w->stage < 0 && is_below(p->fqn, w);

    for (unsigned i = 0; i < p->n_aliases && w->len > 0 && w->stage < 0; i++)
        ret = ret || is_below(p->aliases[i], w);
    return ret;
}

static bool is_of_stage(const struct word *w, const struct pst_plan_param *p)
{
    for (unsigned i = 0; i < p->n_stages; i++)
        if (w->stage == (int)p->stages[i])
            return true;
    return false;
}

/* Returns why replicas cannot shard the parameter; NULL: they can. */
static const char *why_not_sharded(const struct reader *r, unsigned param)
{
    const struct pst_plan_param *p = &r->uses->plan->params.at[param];

    if (p->kind != PST_VALUE_PARAM)
        return "is not a parameter";
    if (p->transmit)
        return "is transmitted by its owner";
    if (pst_uses_total(r->uses, param) == 0)
        return "is not trained";
    if (p->meta.dtype != PST_F32)
        return "is not f32";
    return NULL;
}

/* Checks that a name matches something that can be sharded. */
static enum pst_status check_word(const struct reader *r, const struct word *w)
{
    const struct pst_plan *plan = r->uses->plan;
    const char *why = NULL;
    int first = -1;

    if (w->len == 0 || w->stage >= 0)
        return PST_OK;
    for (unsigned i = 0; i < plan->params.n; i++) {
        if (!names_param(w, &plan->params.at[i]))
            continue;
        why = why_not_sharded(r, i);
        if (why == NULL || w->sharing == PST_SHARING_NONE)
            return PST_OK;
        if (first < 0)
            first = (int)i;
    }
    if (first < 0)
        return pst_diag_set(r->diag, PST_E_SHARD_WORDS,
                            "--shard %.*s: the model has no parameter and no "
                            "module of that name",
                            (int)w->len, w->at);
    return pst_diag_set(r->diag, PST_E_SHARD_WORDS,
                        "--shard %.*s=%s: '%s' %s: replicas have it whole",
                        (int)w->len, w->at, pst_sharing_word(w->sharing),
                        plan->params.at[first].fqn,
                        why_not_sharded(r, (unsigned)first));
}

static enum pst_status find_mode(const struct reader *r, unsigned param,
                                 enum pst_sharing *ret)
{
    const struct pst_plan_param *p = &r->uses->plan->params.at[param];
    const struct word *best = NULL, *other = NULL;

    for (size_t i = 0; i < r->words.n; i++) {
        const struct word *w = &r->words.at[i];

        if (names_param(w, p)) {
            if (best == NULL || best->stage >= 0 || w->len >= best->len)
                best = w;
        } else if (w->stage >= 0 && is_of_stage(w, p)) {
            if (best != NULL && best->stage >= 0 && best->sharing != w->sharing)
                other = w;
            if (best == NULL || best->len == 0)
                best = w;
        } else if (w->len == 0 && best == NULL) {
            best = w;
        }
    }
    if (best != NULL && best->stage >= 0 && other != NULL &&
        why_not_sharded(r, param) == NULL)
        return pst_diag_set(r->diag, PST_E_SHARD_WORDS,
                            "--shard: '%s' is of stages %d and %d, which share "
                            "by %s and by %s: name it",
                            p->fqn, best->stage, other->stage,
                            pst_sharing_word(best->sharing),
                            pst_sharing_word(other->sharing));
    *ret = best != NULL ? best->sharing : PST_SHARING_NONE;
    return PST_OK;
}

enum pst_status pst_sharing_read(const char *text, const struct pst_uses *uses,
                                 unsigned char *ret, enum pst_sharing *ret_most,
                                 struct pst_diag *diag)
{
    struct reader r = {.uses = uses, .diag = diag};
    enum pst_status status = read_words(&r, text);
    enum pst_sharing most = PST_SHARING_NONE, mode = PST_SHARING_NONE;

    /* Words are not checked in two cases: for evaluation, whose options are
     * those of a training with perhaps more parameters, and for a model that
     * was changed in a run. */
    for (size_t i = 0; i < r.words.n && status == PST_OK && uses->train &&
                       uses->plan->base_digest[0] == '\0';
         i++)
        status = check_word(&r, &r.words.at[i]);
    for (unsigned i = 0; i < uses->plan->params.n && status == PST_OK; i++) {
        status = find_mode(&r, i, &mode);
        if (status != PST_OK)
            break;
        ret[i] = (unsigned char)mode;
        if (why_not_sharded(&r, i) == NULL)
            most = PST_MAX(most, mode);
    }
    pst_vec_fini(&r.words);
    if (status == PST_OK)
        *ret_most = most;
    return status;
}
