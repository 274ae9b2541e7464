// SPDX-License-Identifier: Apache-2.0
#include "daemon/exec/spread.h"

#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "stages/base/alloc.h"
#include "stages/base/host/fs.h"

#define PIECE    ((size_t)60000) /* bytes per broadcast */
#define MAX_FILE ((uint64_t)64 << 30)

static enum pst_status send_pieces(struct pstd_executor *w,
                                   const struct pst_file *file, uint64_t size,
                                   int fd, struct pst_diag *diag)
{
    char *piece = pst_alloc(PST_TAG_DAEMON, PIECE);
    enum pst_status status =
        piece != NULL ? PST_OK : pst_diag_nomem(diag, PIECE);
    enum pst_status mine = PST_OK;
    struct pst_diag why;

    status = pstd_agree_status(w, status, diag);
    /* A rank with an error still takes part until the whole file has been
     * sent. */
    for (uint64_t at = 0; at < size && status == PST_OK; at += PIECE) {
        const size_t n = (size_t)PST_MIN(size - at, (uint64_t)PIECE);

        if (w->rank == 0 && mine == PST_OK)
            mine = pst_file_read_at(file, at, piece, n, &why);
        status = pstd_broadcast(w, piece, n, diag);
        if (w->rank != 0 && mine == PST_OK && status == PST_OK &&
            pwrite(fd, piece, n, (off_t)at) != (ssize_t)n)
            mine = pst_diag_errno(&why, errno, "a copy of rank 0's file");
    }
    pst_free(piece);
    if (mine != PST_OK)
        *diag = why;
    return status == PST_OK ? pstd_agree_status(w, mine, diag) : status;
}

enum pst_status pstd_spread_file(struct pstd_executor *w, const char *path,
                                 struct pstd_spread *ret, struct pst_diag *diag)
{
    struct pst_file file = {0};
    uint64_t size = 0;
    enum pst_status status = PST_OK;

    *ret = (struct pstd_spread){.file = -1};
    if (w->rank == 0 && (size_t)snprintf(ret->path, sizeof(ret->path), "%s",
                                         path) >= sizeof(ret->path))
        status = pst_diag_set(
            diag, PST_E_FILE_LONG_PATH,
            "%.80s...: the path has %zu bytes, at most %zu are possible", path,
            strlen(path), sizeof(ret->path) - 1);

    if (w->rank == 0 && status == PST_OK)
        status = pst_file_open(path, &file, diag);
    if (status == PST_OK && w->rank == 0 && file.size > MAX_FILE)
        status =
            pst_diag_set(diag, PST_E_FILE_TOO_LARGE, "%s is too large", path);
    if (w->rank != 0) {
        ret->file = memfd_create("penstock", MFD_CLOEXEC);
        if (ret->file < 0)
            status = pst_diag_errno(diag, errno, "a copy of rank 0's file");
        else
            (void)snprintf(ret->path, sizeof(ret->path), "/proc/self/fd/%d",
                           ret->file);
    }
    status = pstd_agree_status(w, status, diag);
    size = file.size;
    if (status == PST_OK && w->size > 1)
        status = pstd_broadcast(w, &size, sizeof(size), diag);
    if (status == PST_OK && w->size > 1)
        status = send_pieces(w, &file, size, ret->file, diag);
    if (w->rank == 0)
        pst_file_close(&file);
    return status;
}

void pstd_spread_fini(struct pstd_spread *spread)
{
    if (spread->file >= 0)
        (void)close(spread->file);
    spread->file = -1;
}
