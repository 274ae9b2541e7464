// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_ARCHIVE_ZIP_H
#define PENSTOCK_STAGES_ARCHIVE_ZIP_H
/*
 * Read-only zip container of a .pt2 over a mapped file. All headers, names and
 * ranges are checked by us on opening (pt2-format 6); libzip inflates and
 * verifies checksums. Stored entries are handed out as pointers into the map,
 * so that weights are read from disk when they are touched. One thread.
 */
#include "stages/base/arena.h"
#include "stages/base/fs.h"
#include "stages/base/map.h"
#include "stages/base/vec.h"

#include <stdbool.h>

struct pst_zip_entry {
    const char *name; /* below the root folder */
    uint64_t size;    /* bytes of the content */
    uint64_t packed;  /* bytes in the file */
    uint64_t header;  /* offset of the local header */
    uint64_t begin;   /* offset of the first packed byte */
    uint64_t index;   /* in the central directory */
    uint32_t crc;
    bool deflated;
    bool folder;
    void *copy; /* content on the heap, if it was needed; owned */
};

struct pst_zip {
    struct pst_map_file file;
    struct pst_arena arena;
    const char *root; /* folder that all entries stand in; "" if none */
    struct PST_VEC(struct pst_zip_entry) entries; /* order of directory */
    struct pst_map by_name;                       /* -> struct pst_zip_entry */
    struct zip *handle;                           /* libzip's */
};

/* Returns owned. Messages begin with the path; those of the functions below
 * do not. */
enum pst_status pst_zip_open(const char *path, struct pst_zip **ret,
                             struct pst_diag *diag) PST_MUST_CHECK;
void pst_zip_close(struct pst_zip *zip);

/* Entry of that name below the root, NULL if there is none. */
struct pst_zip_entry *pst_zip_find(const struct pst_zip *zip, const char *name);

/* Content in a block of its own with a NUL behind it, checksum verified.
 * Refused if larger than max. Caller frees with pst_free. */
enum pst_status pst_zip_read(struct pst_zip *zip,
                             const struct pst_zip_entry *entry, uint64_t max,
                             char **ret, struct pst_diag *diag) PST_MUST_CHECK;

/* Content at an address that is a multiple of align (<= 16): in the map where
 * possible (checksum not verified), else a heap copy that the zip owns. */
enum pst_status pst_zip_content(struct pst_zip *zip,
                                struct pst_zip_entry *entry, size_t align,
                                const void **ret,
                                struct pst_diag *diag) PST_MUST_CHECK;

#endif
