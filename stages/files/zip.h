// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FILES_ZIP_H
#define PENSTOCK_STAGES_FILES_ZIP_H
/*
 * Read-only zip container of a .pt2. We check all headers, names and ranges on
 * opening; libzip inflates and verifies checksums. The file is never
 * memory-mapped; contents are read on demand. One thread.
 */
#include "stages/base/arena.h"
#include "stages/base/host/fs.h"
#include "stages/base/map.h"
#include "stages/base/vec.h"

#include <stdbool.h>

struct pst_zip_entry {
    const char *name; /* path below the root folder */
    uint64_t size;    /* bytes of the content */
    uint64_t packed;  /* bytes in the file */
    uint64_t header;  /* offset of the local header */
    uint64_t begin;   /* offset of the first packed byte */
    uint64_t index;   /* index in the central directory */
    uint32_t crc;
    bool deflated;
    bool folder;
    bool verified; /* all of it has been read with the right checksum */
};

/* State of the last deflated entry that was read in part, since it may contain
 * many tensors: its whole content if that is small, else the stream and its
 * position. */
struct pst_zip_last {
    const struct pst_zip_entry *entry; /* NULL: no entry was read in part */
    char *content;
    struct zip_file *stream;
    uint64_t at;
};

struct pst_zip {
    struct pst_file file;
    struct pst_arena arena;
    const char *root; /* folder that contains all entries; "": none */
    /* in the order of the directory */
    struct PST_VEC(struct pst_zip_entry) entries;
    /* name -> struct pst_zip_entry */
    struct pst_map by_name;
    struct zip *handle; /* handle of libzip */
    struct pst_zip_last last;
};

/* Opens an archive. Returns owned. Messages begin with the path, unlike those
 * of the functions below. */
enum pst_status pst_zip_open(const char *path, struct pst_zip **ret,
                             struct pst_diag *diag) PST_MUST_CHECK;
void pst_zip_close(struct pst_zip *zip);

/* Finds an entry by its name below the root; NULL if there is none. */
struct pst_zip_entry *pst_zip_find(const struct pst_zip *zip, const char *name);

/* Reads the content into a new block, followed by NUL, and verifies its
 * checksum. Refuses more than max bytes. The caller frees it with pst_free. */
enum pst_status pst_zip_read(struct pst_zip *zip,
                             const struct pst_zip_entry *entry, uint64_t max,
                             char **ret, struct pst_diag *diag) PST_MUST_CHECK;

/* Frees the state of the last entry that was read in part. */
void pst_zip_free_partial(struct pst_zip *zip);
/* Reads bytes [begin, begin + bytes) of the content into dst. The first call
 * reads all of the content and verifies its checksum, piece by piece. Parts of
 * a deflated entry should be read in order: a large one is inflated from its
 * beginning for each part that precedes the last one. */
enum pst_status pst_zip_read_part(struct pst_zip *zip,
                                  struct pst_zip_entry *entry, uint64_t begin,
                                  size_t bytes, void *dst,
                                  struct pst_diag *diag) PST_MUST_CHECK;

#endif
