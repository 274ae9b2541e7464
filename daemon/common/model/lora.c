// SPDX-License-Identifier: Apache-2.0
#include "daemon/common/model/lora.h"

#include <math.h>
#include <string.h>

#include "stages/modules/lora/lora.h"

#define ALPHA 8.0 /* default of peft */

static enum pst_status refuse_spec(const char *spec, const char *why,
                                   struct pst_diag *diag)
{
    return pst_diag_set(diag, PST_E_OPTION_VALUE,
                        "--lora %.200s: expected PATTERN:rank=R[,alpha=X]"
                        "[,dropout=P]%s",
                        spec, why);
}

/* Cuts one KEY=VALUE out of the text and parses it. */
static enum pst_status parse_pair(char *text, const char *spec,
                                  struct pst_lora *ret, struct pst_diag *diag)
{
    if (pst_has_prefix(text, "rank=")) {
        if (!pst_parse_i64(text + strlen("rank="), &ret->rank) || ret->rank < 1)
            return refuse_spec(spec, ", with a rank of 1 or more", diag);
        return PST_OK;
    }
    if (pst_has_prefix(text, "alpha=")) {
        if (!pst_parse_f64(text + strlen("alpha="), &ret->alpha) ||
            !isfinite(ret->alpha) || ret->alpha <= 0.0)
            return refuse_spec(spec, ", with an alpha above 0", diag);
        return PST_OK;
    }
    if (pst_has_prefix(text, "dropout=")) {
        if (!pst_parse_f64(text + strlen("dropout="), &ret->dropout) ||
            !(ret->dropout >= 0.0 && ret->dropout < 1.0))
            return refuse_spec(spec, ", with a dropout from 0 to less than 1",
                               diag);
        return PST_OK;
    }
    return refuse_spec(spec, "", diag);
}

/* Parses PATTERN:rank=R[,alpha=X][,dropout=P]. Only the pattern may contain
 * colons. */
static enum pst_status parse_spec(struct pst_arena *arena, const char *spec,
                                  struct pst_lora *ret, struct pst_diag *diag)
{
    char *text = pst_arena_strdup(arena, spec), *colon, *next;
    enum pst_status status = PST_OK;

    if (text == NULL)
        return pst_diag_nomem(diag, strlen(spec));
    colon = strrchr(text, ':');
    if (colon == NULL || colon == text)
        return refuse_spec(spec, "", diag);
    *colon = '\0';
    *ret = (struct pst_lora){.pattern = text, .alpha = ALPHA};
    for (char *at = colon + 1; at != NULL && status == PST_OK; at = next) {
        next = strchr(at, ',');
        if (next != NULL)
            *next++ = '\0';
        status = parse_pair(at, spec, ret, diag);
    }
    if (status == PST_OK && ret->rank == 0)
        return refuse_spec(spec, "", diag);
    return status;
}

enum pst_status pstd_lora_add(const struct pst_model *model,
                              const struct pstd_list *specs, uint64_t seed,
                              struct pst_model **ret, struct pst_diag *diag)
{
    enum pst_status status = PST_OK;
    struct pst_arena arena;
    struct pst_lora *loras;

    pst_arena_init(&arena, PST_TAG_CLIENT);
    loras = pst_arena_calloc(&arena, specs->n + 1, sizeof(*loras));
    if (loras == NULL)
        status = pst_diag_nomem(diag, specs->n * sizeof(*loras));
    for (size_t i = 0; i < specs->n && status == PST_OK; i++)
        status = parse_spec(&arena, specs->at[i], &loras[i], diag);
    if (status == PST_OK)
        status = pst_model_adapt(model, loras, specs->n, seed, ret, diag);
    pst_arena_fini(&arena);
    return status;
}
