// SPDX-License-Identifier: Apache-2.0
#include "lib/saves/folders.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "stages/base/alloc.h"
#include "stages/base/host/fs.h"
#include "stages/files/checkpoint/owner.h"
#include "stages/files/checkpoint/pair.h"

#define TAG PST_TAG_CLIENT

void pstl_folder_fini(struct pstl_folder *folder)
{
    pst_free(folder->path);
    pst_vec_fini(&folder->all);
    *folder = (struct pstl_folder){0};
}

static enum pst_status read_rewinds(const char *path,
                                    struct pst_checkpoint_rewinds *ret,
                                    struct pst_diag *diag)
{
    struct pst_checkpoint_pair pair = {0};
    struct pst_checkpoint_run run = {0};
    enum pst_status status = pst_checkpoint_read_run(path, &run, diag);

    if (status == PST_OK)
        status = pst_checkpoint_read_pair(path, run.fallback, &pair, diag);
    pst_free(run.fallback);
    /* If the second folder belongs to another run, which has replaced this one,
     * this run has no rewinds. */
    if (status == PST_OK && !pair.lineage.ignored[0])
        *ret = pair.lineage.rewinds;
    return status;
}

enum pst_status pstl_folder_read(const char *path, struct pstl_folder *ret,
                                 struct pst_diag *diag)
{
    struct pst_checkpoint_rows rows = {0};
    enum pst_status status;

    *ret = (struct pstl_folder){.path = pst_strdup(TAG, path)};
    if (ret->path == NULL)
        return pst_diag_nomem(diag, strlen(path));
    if (!pst_vec_reserve(TAG, &ret->all, 1))
        return pst_diag_nomem(diag, sizeof(*ret->all.at));
    status = read_rewinds(path, &ret->rewinds, diag);
    if (status == PST_OK)
        status = pst_checkpoint_table(path, false, &rows, diag);
    if (status == PST_OK && !pst_vec_reserve(TAG, &ret->all, rows.n + 1))
        status = pst_diag_nomem(diag, rows.n * sizeof(*ret->all.at));
    for (size_t i = 0; i < rows.n && status == PST_OK; i++) {
        const struct pst_checkpoint_row *row = &rows.at[i];
        struct pstl_known *known = &ret->all.at[ret->all.n++];

        *known = (struct pstl_known){
            .step = row->step,
            .left =
                row->status == PST_OK &&
                pst_checkpoint_is_left(&ret->rewinds, row->course, row->step)};
        memcpy(known->digest, row->digest, sizeof(known->digest));
    }
    pst_vec_fini(&rows);
    return status;
}

uint64_t pstl_folder_newest(const struct pstl_folder *folder)
{
    for (size_t i = 0; i < folder->all.n; i++)
        if (!folder->all.at[i].left)
            return folder->all.at[i].step;
    return 0;
}

static struct pstl_known *find_step(const struct pstl_folder *folder,
                                    uint64_t step)
{
    for (size_t i = 0; i < folder->all.n; i++)
        if (folder->all.at[i].step == step)
            return &folder->all.at[i];
    return NULL;
}

void pstl_folder_add(struct pstl_folder *folder, uint64_t step,
                     const char *digest)
{
    struct pstl_known *known = find_step(folder, step);

    if (known == NULL) {
        size_t at = folder->all.n++;

        for (; at > 0 && folder->all.at[at - 1].step < step; at--)
            folder->all.at[at] = folder->all.at[at - 1];
        known = &folder->all.at[at];
    }
    *known = (struct pstl_known){.step = step};
    (void)snprintf(known->digest, sizeof(known->digest), "%s", digest);
}

/* End of a message: how the caller can continue. */
#define REMEDY "go on from it with penstock_load, or save to another folder"

/* Returns the step to which the run has last gone back. */
static uint64_t find_back(const struct pst_checkpoint_rewinds *rewinds)
{
    return rewinds->n > 0 ? rewinds->at[rewinds->n - 1].step : 0;
}

enum pst_status pstl_folder_check(const struct pstl_folder *now,
                                  const struct pstl_folder *known,
                                  uint64_t step, struct pst_diag *diag)
{
    if (known != NULL && pst_checkpoint_course(&now->rewinds) >
                             pst_checkpoint_course(&known->rewinds))
        return pst_diag_set(
            diag, PST_E_CHECKPOINT_OTHER_RUN,
            "the run in the folder %.500s has gone back to step %" PRIu64
            ", in another program, since this session (now at step %" PRIu64
            ") has loaded or saved its checkpoint: " REMEDY,
            now->path, find_back(&now->rewinds), step);
    for (size_t i = 0; i < now->all.n; i++) {
        const struct pstl_known *is = &now->all.at[i], *was;

        was = known != NULL ? find_step(known, is->step) : NULL;
        if (was == NULL)
            return pst_diag_set(
                diag, PST_E_CHECKPOINT_OTHER_RUN,
                "the folder %.500s has a checkpoint of step %" PRIu64
                ", which another program has made, and which this session "
                "(now at step %" PRIu64 ") has not loaded: " REMEDY,
                now->path, is->step, step);
        if (is->digest[0] != '\0' && was->digest[0] != '\0' &&
            strcmp(is->digest, was->digest) != 0)
            return pst_diag_set(
                diag, PST_E_CHECKPOINT_OTHER_RUN,
                "another program has replaced the checkpoint of step %" PRIu64
                " in the folder %.500s since this session (now at step %" PRIu64
                ") has loaded or saved it: " REMEDY,
                is->step, now->path, step);
    }
    return PST_OK;
}

/* --- all folders ---------------------------------------------------------- */

enum pst_status pstl_folders_reserve(struct pstl_folders *folders,
                                     struct pst_diag *diag)
{
    return pst_vec_reserve(TAG, folders, folders->n + 1)
               ? PST_OK
               : pst_diag_nomem(diag, sizeof(*folders->at));
}

struct pstl_folder *pstl_folders_find(const struct pstl_folders *folders,
                                      const char *path)
{
    for (size_t i = 0; i < folders->n; i++)
        if (pst_path_is_same(folders->at[i].path, path))
            return &folders->at[i];
    return NULL;
}

void pstl_folders_put(struct pstl_folders *folders, struct pstl_folder *folder)
{
    struct pstl_folder *old = pstl_folders_find(folders, folder->path);

    if (old == NULL)
        old = &folders->at[folders->n++];
    else
        pstl_folder_fini(old);
    *old = *folder;
    *folder = (struct pstl_folder){0};
}

void pstl_folders_fini(struct pstl_folders *folders)
{
    for (size_t i = 0; i < folders->n; i++)
        pstl_folder_fini(&folders->at[i]);
    pst_vec_fini(folders);
}
