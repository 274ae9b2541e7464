// SPDX-License-Identifier: Apache-2.0
#include "stages/files/checkpoint/lineage.h"

#include <string.h>
#include <time.h>

void pst_checkpoint_add_rewind(struct pst_checkpoint_rewinds *rewinds,
                               uint64_t course, uint64_t step)
{
    struct pst_checkpoint_rewind all[PST_CHECKPOINT_REWINDS + 1];
    unsigned n = 0, old;
    bool added = false;

    for (unsigned i = 0; i < rewinds->n; i++) {
        const struct pst_checkpoint_rewind *r = &rewinds->at[i];

        if (r->course >= course && r->step <= step)
            return; /* a recorded rewind already includes it */
        if (r->course <= course && r->step >= step)
            continue; /* the new rewind includes it */
        if (!added && r->course > course) {
            all[n++] = (struct pst_checkpoint_rewind){course, step};
            added = true;
        }
        all[n++] = *r;
    }
    if (!added)
        all[n++] = (struct pst_checkpoint_rewind){course, step};
    old = n > PST_CHECKPOINT_REWINDS ? n - PST_CHECKPOINT_REWINDS : 0;
    rewinds->n = n - old;
    memcpy(rewinds->at, all + old, rewinds->n * sizeof(all[0]));
}

uint64_t pst_checkpoint_course(const struct pst_checkpoint_rewinds *rewinds)
{
    return rewinds->n > 0 ? rewinds->at[rewinds->n - 1].course : 0;
}

uint64_t pst_checkpoint_new_course(uint64_t before)
{
    struct timespec now = {0};
    uint64_t ms;

    (void)clock_gettime(CLOCK_REALTIME, &now);
    ms = now.tv_sec > 0
             ? (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000
             : 0;
    return ms > before ? ms : before + 1;
}

bool pst_checkpoint_is_left(const struct pst_checkpoint_rewinds *rewinds,
                            uint64_t course, uint64_t step)
{
    for (unsigned i = 0; i < rewinds->n; i++)
        if (rewinds->at[i].course > course && rewinds->at[i].step < step)
            return true;
    return false;
}
