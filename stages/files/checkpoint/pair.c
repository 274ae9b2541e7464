// SPDX-License-Identifier: Apache-2.0
#include "stages/files/checkpoint/pair.h"

#include <string.h>

#include "stages/base/host/fs.h"
#include "stages/files/checkpoint/owner_record.h"

/* True if the run of `by` has replaced that of `of`, whose folder `dir` it
 * could not write. other: the path of the other folder in by's record. */
static bool has_replaced(const struct pst_owner_record *by, const char *other,
                         const struct pst_owner_record *of, const char *dir)
{
    return dir != NULL && by->run[0] != '\0' && by->replaces[0] != '\0' &&
           strcmp(by->run, of->run) != 0 &&
           strcmp(by->replaces,
                  of->run[0] != '\0' ? of->run : PST_OWNER_NONE) == 0 &&
           pst_path_is_same(other, dir);
}

static bool has_rewind(const struct pst_checkpoint_rewinds *rewinds,
                       const struct pst_checkpoint_rewind *r)
{
    for (unsigned i = 0; i < rewinds->n; i++)
        if (rewinds->at[i].course == r->course)
            return true;
    return false;
}

/* Returns the earliest step of a rewind that only the other folder records. */
static uint64_t find_missed(const struct pst_owner_record *of,
                            const struct pst_checkpoint_rewinds *all)
{
    for (unsigned i = 0; i < all->n && of->exists; i++)
        if (!has_rewind(&of->rewinds, &all->at[i]))
            return all->at[i].step;
    return 0;
}

enum pst_status pst_checkpoint_read_pair(const char *first, const char *second,
                                         struct pst_checkpoint_pair *ret,
                                         struct pst_diag *diag)
{
    struct pst_owner_record r[2] = {0};
    struct pst_checkpoint_pair pair = {.lineage.newest = UINT64_MAX};
    enum pst_status status = PST_OK;
    bool unread = false;

    if (first != NULL)
        status = pst_owner_record_read(first, &r[0], diag);
    if (status == PST_OK && second != NULL)
        status = pst_owner_record_read(second, &r[1], diag);
    if (status == PST_ERR_IO && r[0].run[0] != '\0') {
        unread = true;
        status = PST_OK;
    }
    if (status != PST_OK)
        return status;
    pair.replaced[0] = has_replaced(&r[1], r[1].first, &r[0], first);
    pair.replaced[1] =
        !pair.replaced[0] && has_replaced(&r[0], r[0].fallback, &r[1], second);
    pair.of_second = pair.replaced[0] || r[0].run[0] == '\0';
    memcpy(pair.run, r[pair.of_second].run, sizeof(pair.run));
    for (unsigned i = 0; i < 2; i++) {
        const struct pst_checkpoint_rewinds *of = &r[i].rewinds;

        pair.lineage.ignored[i] =
            pair.replaced[i] ||
            (r[i].run[0] != '\0' && strcmp(r[i].run, pair.run) != 0);
        for (unsigned k = 0; k < of->n && !pair.lineage.ignored[i]; k++)
            pst_checkpoint_add_rewind(&pair.lineage.rewinds, of->at[k].course,
                                      of->at[k].step);
    }
    pair.lineage.ignored[1] |= unread;
    pair.missed = find_missed(&r[0], &pair.lineage.rewinds);
    *ret = pair;
    return PST_OK;
}
