// SPDX-License-Identifier: Apache-2.0
#include "stages/files/checkpoint/pair.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "stages/base/alloc.h"
#include "stages/base/host/fs.h"
#include "stages/files/checkpoint/checkpoint.h"
#include "stages/files/checkpoint/owner.h"
#include "stages/files/checkpoint/owner_record.h"

/* True if the run of record `by` has replaced the run of record `of`, but could
 * not write its folder `dir`. other: the path of the other folder in by's
 * record. */
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

/* Returns the step of the earliest rewind in `all` that `of` lacks; 0: none. */
static uint64_t find_missed(const struct pst_owner_record *of,
                            const struct pst_checkpoint_rewinds *all)
{
    for (unsigned i = 0; i < all->n && of->exists; i++)
        if (!has_rewind(&of->rewinds, &all->at[i]))
            return all->at[i].step;
    return 0;
}

/* Sets *ret to whether `dir`, whose record has this id, is not the folder that
 * the run of `by` had at that path at its last save. path: that of the other
 * folder in by's record. */
static enum pst_status find_gone(const struct pst_owner_record *by,
                                 const char *path, const char *dir,
                                 const char *id, bool *ret,
                                 struct pst_diag *diag)
{
    char whole[PATH_MAX];
    enum pst_status status;

    *ret = false;
    if (dir == NULL || by->other[0] == '\0' || strcmp(by->other, id) == 0)
        return PST_OK;
    status = pst_owner_store_folder(dir, whole, diag);
    if (status == PST_OK)
        *ret = pst_path_is_same(path, whole);
    return status;
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
    if (!pair.lineage.ignored[1])
        status =
            find_gone(&r[1], r[1].first, first, r[0].id, &pair.gone[0], diag);
    if (status == PST_OK && !pair.lineage.ignored[0])
        status = find_gone(&r[0], r[0].fallback, second, r[1].id, &pair.gone[1],
                           diag);
    if (status != PST_OK)
        return status;
    pair.missed = find_missed(&r[0], &pair.lineage.rewinds);
    *ret = pair;
    return PST_OK;
}

/* True if the second folder is known to be another run's; false if its record
 * cannot be read. */
static bool is_of_other_run(const struct pst_checkpoint_pair *pair,
                            const char *dir)
{
    struct pst_checkpoint_run run = {0};
    struct pst_diag ignored;
    bool ret = false;

    if (pair->lineage.ignored[1] &&
        pst_checkpoint_read_run(dir, &run, &ignored) == PST_OK)
        ret = true;
    pst_free(run.fallback);
    return ret;
}

enum pst_status pst_checkpoint_read_second(const char *dir,
                                           struct pst_checkpoint_second *ret,
                                           struct pst_diag *diag)
{
    struct pst_checkpoint_query query = {.step = PST_CHECKPOINT_LATEST};
    struct pst_checkpoint_second second = {0};
    struct pst_checkpoint_pair pair = {0};
    struct pst_checkpoint_run run = {0};
    struct pst_checkpoint *ckpt = NULL;
    struct pst_diag ignored;
    enum pst_status status = pst_checkpoint_read_run(dir, &run, diag);

    if (status == PST_OK)
        status = pst_checkpoint_read_pair(dir, run.fallback, &pair, diag);
    second.rewinds = pair.lineage.rewinds;
    if (status != PST_OK || run.fallback == NULL) {
        pst_free(run.fallback);
        *ret = second;
        return status;
    }
    second.dir = run.fallback;
    second.gone = access(second.dir, F_OK) != 0;
    query.dir = second.dir;
    query.lineage = &pair.lineage;
    if (!second.gone && !is_of_other_run(&pair, second.dir)) {
        status = pst_checkpoint_open(&query, &ckpt, &ignored);
        second.step = status == PST_OK ? ckpt->info.step : 0;
        second.unread = status != PST_OK && status != PST_ERR_NOT_FOUND &&
                        status != PST_ERR_INPUT;
        pst_checkpoint_close(ckpt);
    }
    *ret = second;
    return PST_OK;
}

bool pst_checkpoint_describe_second(const char *dir,
                                    const struct pst_checkpoint_info *info,
                                    bool gone, struct pst_str *ret)
{
    struct pst_checkpoint_second second = {0};
    struct pst_diag ignored;
    bool left, later;

    if (pst_checkpoint_read_second(dir, &second, &ignored) != PST_OK ||
        second.dir == NULL)
        return false;
    left = pst_checkpoint_is_left(&second.rewinds, info->course, info->step);
    later = second.step >= info->step || second.unread || (gone && second.gone);
    if (left)
        pst_str_addf(ret,
                     "this is step %" PRIu64 " of %s, which is not in the past "
                     "of the run any more: see its second folder, %s",
                     info->step, dir, second.dir);
    else if (later)
        pst_str_addf(ret,
                     "this is step %" PRIu64 " of %s; the second folder of the "
                     "run, %s, %s a later save",
                     info->step, dir, second.dir,
                     second.step >= info->step ? "has" : "may have");
    pst_free(second.dir);
    return left || later;
}
