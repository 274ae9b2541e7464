// SPDX-License-Identifier: Apache-2.0
/* Removes checkpoints that newer ones have replaced. */
#include <string.h>

#include "daemon/exec/session.h"
#include "stages/files/checkpoint/checkpoint.h"
#include "stages/files/checkpoint/owner.h"

/* Returns the number of checkpoints to keep. --keep 1 keeps two until the step
 * after the newest one has succeeded, which shows that the newest one is good.
 */
static unsigned keep_count(const struct pstd_session *s)
{
    return s->config.keep == 1 ? 2
                               : (unsigned)PST_MIN(s->config.keep, UINT32_MAX);
}

/* Reports a checkpoint that pruning keeps because it cannot be read or removed;
 * reports each cause once. */
static void emit_kept(void *ctx, const char *dir, uint64_t step,
                      const char *text)
{
    struct pstd_session *s = ctx;
    const uint64_t hash = pst_hash(text, strlen(text), step);

    for (size_t i = 0; i < PST_COUNT(s->kept); i++) {
        if (s->kept[i] == hash)
            return;
    }
    s->kept[s->n_kept++ % PST_COUNT(s->kept)] = hash;
    pstd_session_emit_checkpoint(s, PSTD_EVENT_CHECKPOINT_KEPT, dir, step,
                                 text);
}

static void prune_checkpoints(struct pstd_session *s, unsigned keep)
{
    const char *dir =
        s->in_fallback ? s->config.checkpoint_fallback : s->config.checkpoint;
    const struct pst_checkpoint_owner *owner =
        s->in_fallback ? s->fallback_owner : s->owner;
    uint64_t damaged[PST_COUNT(s->passed)];
    struct pst_checkpoint_rule rule = {
        .keep = keep, .damaged = damaged, .stays = emit_kept, .ctx = s};

    if (owner == NULL || pst_checkpoint_check_owner(owner, NULL) != PST_OK)
        return;
    for (size_t i = 0; i < s->n_passed; i++) {
        const struct pstd_passed *p = &s->passed[i];

        if (p->fallback == s->in_fallback)
            damaged[rule.n_damaged++] = p->step;
    }
    pst_checkpoint_prune(dir, s->saved, &rule);
}

void pstd_session_prune(struct pstd_session *s)
{
    prune_checkpoints(s, keep_count(s));
}

void pstd_session_prune_proven(struct pstd_session *s)
{
    if (s->prune_due)
        prune_checkpoints(s, 1);
    s->prune_due = false;
}

void pstd_session_remove_passed(struct pstd_session *s)
{
    size_t n = 0;

    for (size_t i = 0; i < s->n_passed; i++) {
        if (s->passed[i].step != s->saved ||
            s->passed[i].fallback != s->in_fallback)
            s->passed[n++] = s->passed[i];
    }
    s->n_passed = n;
}
