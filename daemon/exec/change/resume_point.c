// SPDX-License-Identifier: Apache-2.0
#include "daemon/exec/change/resume_point.h"

#include <string.h>

#include "daemon/exec/change/settings.h"
#include "stages/files/checkpoint/manifest.h"
#include "stages/run/state/carried.h"

/* number of newest checkpoints that are read: hardly all are damaged */
#define MAX_READ 16

static bool has_changes(const struct pst_checkpoint *ckpt)
{
    return pst_carried_is_in(ckpt) ||
           pstd_settings_has_changes(ckpt->info.options);
}

/* True if one of the newest checkpoints has a changed plan or changed options.
 * Only then does it matter which checkpoint is the newest undamaged one. */
static bool any_has_changes(const char *dir)
{
    struct pst_checkpoint_steps steps = {0};
    struct pst_diag ignored;
    bool any = false;

    if (pst_checkpoint_list(dir, &steps, &ignored) != PST_OK)
        steps.n = 0;
    for (size_t i = 0; i < PST_MIN(steps.n, (size_t)MAX_READ) && !any; i++) {
        const struct pst_checkpoint_query query = {.dir = dir,
                                                   .step = steps.at[i]};
        struct pst_checkpoint *ckpt;

        if (pst_checkpoint_open(&query, &ckpt, NULL) != PST_OK)
            continue;
        any = has_changes(ckpt);
        pst_checkpoint_close(ckpt);
    }
    pst_vec_fini(&steps);
    return any;
}

/* Finds the checkpoint to resume from. If one has a changed plan or options, or
 * --epochs counts from its position in the data, every byte is verified as in
 * loading, so that both select the same checkpoint. */
struct pstd_found pstd_find_checkpoint(const struct pstd_session *s,
                                       char course[PST_CHECKPOINT_OPTIONS])
{
    const char *const dirs[] = {s->config.checkpoint,
                                s->config.checkpoint_fallback};
    const bool latest = s->config.resume.step == 0;
    struct pstd_found found = {0};
    struct pst_checkpoint_pair pair;
    struct pst_diag ignored;
    bool first = true, verify = latest && pstd_needs_epochs(&s->config);

    if (pst_checkpoint_read_pair(dirs[0], dirs[1], &pair, &ignored) != PST_OK)
        return found;
    for (unsigned i = 0; i < PST_COUNT(dirs) && latest; i++)
        verify = verify || (dirs[i] != NULL && any_has_changes(dirs[i]));
    for (unsigned i = 0; i < PST_COUNT(dirs); i++) {
        const struct pst_checkpoint_query query = {
            .dir = dirs[i],
            .lineage = &pair.lineage,
            .step = latest ? PST_CHECKPOINT_LATEST : s->config.resume.step,
            .verify = verify};
        struct pst_checkpoint *ckpt;

        if (dirs[i] == NULL || pair.lineage.ignored[i] ||
            pst_checkpoint_open(&query, &ckpt, NULL) != PST_OK)
            continue;
        if (first || ckpt->info.step > found.step ||
            (ckpt->info.step == found.step &&
             ckpt->info.changes > found.changes)) {
            memcpy(course, ckpt->info.options, PST_CHECKPOINT_OPTIONS);
            found = (struct pstd_found){.step = ckpt->info.step,
                                        .changes = ckpt->info.changes,
                                        .any = pst_carried_is_in(ckpt),
                                        .fallback = i,
                                        .place = ckpt->info.place};
        }
        first = false;
        pst_checkpoint_close(ckpt);
    }
    return found;
}
