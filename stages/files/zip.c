// SPDX-License-Identifier: Apache-2.0
#include "stages/files/zip.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zip.h>

#include "stages/base/str.h"

/* Limits far above any real model, and low enough to be harmless. */
#define MAX_ENTRIES ((uint64_t)1 << 20)
#define MAX_NAME    1024u
/* Maximum bytes of the central directory: less than MAX_ENTRIES entries with
 * the longest names, extra fields and comments would take. */
#define MAX_DIRECTORY ((uint64_t)256 << 20)
/* Deflate cannot compress better than this. */
#define MAX_RATIO 1032u

#define END_SIZE     22u /* end of central directory, without its comment */
#define LOCATOR_SIZE 20u
#define END64_SIZE   56u
#define CENTRAL_SIZE 46u
#define LOCAL_SIZE   30u

#define FLAG_ENCRYPTED 0x0001u
#define FLAG_STRONG    0x0040u
#define FLAG_MASKED    0x2000u

/* Location of the central directory. */
struct directory {
    uint64_t at, size, n;
    uint64_t end; /* first byte after the area that entries may use */
    unsigned char *bytes;
};

static uint16_t read_u16(const unsigned char *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static uint32_t read_u32(const unsigned char *p)
{
    return (uint32_t)read_u16(p) | (uint32_t)read_u16(p + 2) << 16;
}

static uint64_t read_u64(const unsigned char *p)
{
    return (uint64_t)read_u32(p) | (uint64_t)read_u32(p + 4) << 32;
}

static enum pst_status report_damage(struct pst_diag *diag, const char *what)
{
    return pst_diag_set(diag, PST_E_ZIP_DAMAGED, "%s", what);
}

static enum pst_status bad_entry(uint64_t i, struct pst_diag *diag,
                                 const char *what)
{
    return pst_diag_set(diag, PST_E_ZIP_DAMAGED,
                        "entry %llu of the zip directory %s",
                        (unsigned long long)i, what);
}

/* Finds the end record; only a comment may follow it. */
static enum pst_status find_end(const struct pst_zip *zip,
                                unsigned char ret[END_SIZE], uint64_t *ret_at,
                                struct pst_diag *diag)
{
    unsigned char tail[END_SIZE + 65535u];
    const uint64_t size = zip->file.size;
    const size_t n = (size_t)PST_MIN(size, sizeof(tail));
    enum pst_status status;
    unsigned char magic[2];

    if (size < 4)
        return report_damage(
            diag, "not a .pt2 archive (it does not begin like a zip file)");
    status = pst_file_read_at(&zip->file, 0, magic, 2, diag);
    if (status == PST_OK && memcmp(magic, "PK", 2) != 0)
        return report_damage(
            diag, "not a .pt2 archive (it does not begin like a zip file)");
    if (status == PST_OK)
        status = pst_file_read_at(&zip->file, size - n, tail, n, diag);
    if (status != PST_OK)
        return status;
    for (size_t at = n; at-- > 0;) {
        if (n - at < END_SIZE || memcmp(tail + at, "PK\5\6", 4) != 0)
            continue;
        if (at + END_SIZE + read_u16(tail + at + 20) == n) {
            memcpy(ret, tail + at, END_SIZE);
            *ret_at = size - n + at;
            return PST_OK;
        }
    }
    return report_damage(
        diag, "truncated or damaged: the zip directory at its end is missing");
}

/* Follows the zip64 locator, if there is one before the end record at offset
 * `end`. */
static enum pst_status read_end64(const struct pst_zip *zip, uint64_t end,
                                  struct directory *dir, bool *found,
                                  struct pst_diag *diag)
{
    unsigned char locator[LOCATOR_SIZE], p[END64_SIZE];
    enum pst_status status;
    uint64_t at;

    *found = false;
    if (end < LOCATOR_SIZE)
        return PST_OK;
    status = pst_file_read_at(&zip->file, end - LOCATOR_SIZE, locator,
                              LOCATOR_SIZE, diag);
    if (status != PST_OK || memcmp(locator, "PK\6\7", 4) != 0)
        return status;
    at = read_u64(locator + 8);
    if (read_u32(locator + 4) != 0 || read_u32(locator + 16) > 1)
        return report_damage(diag, "a zip file in several parts");
    if (end < LOCATOR_SIZE + END64_SIZE || at > end - LOCATOR_SIZE - END64_SIZE)
        return report_damage(diag,
                             "the zip64 end record lies outside the file");
    status = pst_file_read_at(&zip->file, at, p, END64_SIZE, diag);
    if (status != PST_OK)
        return status;
    if (memcmp(p, "PK\6\6", 4) != 0 || read_u64(p + 4) < END64_SIZE - 12 ||
        read_u64(p + 4) > end - LOCATOR_SIZE - at - 12)
        return report_damage(diag, "the zip64 end record is damaged");
    if (read_u32(p + 16) != 0 || read_u32(p + 20) != 0 ||
        read_u64(p + 24) != read_u64(p + 32))
        return report_damage(diag, "a zip file in several parts");
    *dir = (struct directory){.at = read_u64(p + 48),
                              .size = read_u64(p + 40),
                              .n = read_u64(p + 32),
                              .end = at};
    *found = true;
    return PST_OK;
}

static enum pst_status find_directory(const struct pst_zip *zip,
                                      struct directory *dir,
                                      struct pst_diag *diag)
{
    unsigned char p[END_SIZE];
    enum pst_status status;
    bool zip64 = false;
    uint64_t end = 0;

    status = find_end(zip, p, &end, diag);
    if (status == PST_OK)
        status = read_end64(zip, end, dir, &zip64, diag);
    if (status != PST_OK)
        return status;
    if (read_u16(p + 4) != 0 || read_u16(p + 6) != 0 ||
        read_u16(p + 8) != read_u16(p + 10))
        return report_damage(diag, "a zip file in several parts");
    if (!zip64) {
        *dir = (struct directory){.at = read_u32(p + 16),
                                  .size = read_u32(p + 12),
                                  .n = read_u16(p + 10),
                                  .end = end};
    } else if ((read_u16(p + 10) != 0xffff && read_u16(p + 10) != dir->n) ||
               (read_u32(p + 12) != 0xffffffff &&
                read_u32(p + 12) != dir->size) ||
               (read_u32(p + 16) != 0xffffffff &&
                read_u32(p + 16) != dir->at)) {
        return report_damage(diag,
                             "the two end records of the zip file differ");
    }
    if (dir->n > MAX_ENTRIES)
        return report_damage(diag, "too many entries in the zip directory");
    if (dir->at > dir->end || dir->size > dir->end - dir->at ||
        dir->size / CENTRAL_SIZE < dir->n)
        return report_damage(
            diag, "truncated or damaged: the zip directory lies outside");
    if (dir->size > MAX_DIRECTORY)
        return report_damage(diag, "the zip directory is too large");
    if (dir->n == 0)
        return report_damage(diag, "not a .pt2 archive (an empty zip file)");
    return PST_OK;
}

/* Reads extra field 1 (zip64): sizes and offset that do not fit 32 bits, in
 * this order, each only if its 32-bit field is all ones. */
static bool read_extra64(const unsigned char *p, size_t len,
                         struct pst_zip_entry *e)
{
    uint64_t *const fields[] = {&e->size, &e->packed, &e->header};

    while (len >= 4) {
        const size_t n = read_u16(p + 2);

        if (n > len - 4)
            return false;
        if (read_u16(p) == 1) {
            size_t at = 0;

            for (size_t i = 0; i < PST_COUNT(fields); i++) {
                if (*fields[i] != 0xffffffff)
                    continue;
                if (n - at < 8)
                    return false;
                *fields[i] = read_u64(p + 4 + at);
                at += 8;
            }
            return true;
        }
        p += 4 + n;
        len -= 4 + n;
    }
    /* A size of exactly 2^32 - 1 needs no extra field, but no entry is that
     * large. */
    return e->size != 0xffffffff && e->packed != 0xffffffff &&
           e->header != 0xffffffff;
}

/* Returns NULL if the name is valid, else the reason. */
static const char *name_fault(const char *name, size_t len)
{
    const char *begin = name;

    if (len == 0 || len > MAX_NAME)
        return "has an empty name or one that is too long";
    if (strlen(name) != len)
        return "has a name with a zero byte";
    for (const char *p = name; *p != '\0';) {
        const size_t n = pst_utf8_length(p);

        if (n == 0)
            return "has a name that is not valid UTF-8";
        if (*p == '\\')
            return "has a name with a backslash";
        p += n;
    }
    for (const char *p = name;; p++) {
        if (*p != '/' && *p != '\0')
            continue;
        /* A trailing slash marks a folder. */
        if ((p == begin && !(*p == '\0' && p > name)) ||
            (p - begin == 1 && begin[0] == '.') ||
            (p - begin == 2 && memcmp(begin, "..", 2) == 0))
            return "has a name with an empty, \".\" or \"..\" part";
        if (*p == '\0')
            return NULL;
        begin = p + 1;
    }
}

/* Checks the local header against the directory and finds where the data
 * begins. */
static enum pst_status read_local(const struct pst_zip *zip,
                                  struct pst_zip_entry *e,
                                  const struct directory *dir, uint64_t i,
                                  uint16_t method, struct pst_diag *diag)
{
    unsigned char p[LOCAL_SIZE + MAX_NAME];
    const size_t len = strlen(e->name); /* at most MAX_NAME bytes */
    enum pst_status status;

    if (e->header > dir->at || dir->at - e->header < LOCAL_SIZE + len)
        return bad_entry(i, diag, "points outside the file");
    status = pst_file_read_at(&zip->file, e->header, p, LOCAL_SIZE + len, diag);
    if (status != PST_OK)
        return status;
    if (memcmp(p, "PK\3\4", 4) != 0)
        return bad_entry(i, diag, "points at no local header");
    if (read_u16(p + 8) != method || read_u16(p + 26) != len ||
        memcmp(p + LOCAL_SIZE, e->name, len) != 0)
        return bad_entry(i, diag, "differs from its local header");
    e->begin = e->header + LOCAL_SIZE + len + read_u16(p + 28);
    if (e->begin > dir->at || e->packed > dir->at - e->begin)
        return bad_entry(i, diag, "reaches outside the file");
    return PST_OK;
}

/* Reads the entry at byte *at of the directory, and advances *at. */
static enum pst_status read_entry(struct pst_zip *zip,
                                  const struct directory *dir, uint64_t i,
                                  uint64_t *at, struct pst_diag *diag)
{
    const unsigned char *p = dir->bytes + *at;
    const uint64_t left = dir->size - *at;
    struct pst_zip_entry e = {0};
    const char *fault;
    uint16_t method;
    size_t name, extra, comment;
    enum pst_status status;

    if (left < CENTRAL_SIZE || memcmp(p, "PK\1\2", 4) != 0)
        return bad_entry(i, diag, "is missing or damaged");
    name = read_u16(p + 28);
    extra = read_u16(p + 30);
    comment = read_u16(p + 32);
    if (left - CENTRAL_SIZE < name + extra + comment)
        return bad_entry(i, diag, "overlaps the directory");
    method = read_u16(p + 10);
    e.index = i;
    e.crc = read_u32(p + 16);
    e.packed = read_u32(p + 20);
    e.size = read_u32(p + 24);
    e.header = read_u32(p + 42);
    e.deflated = method == 8;
    e.name =
        pst_arena_strndup(&zip->arena, (const char *)p + CENTRAL_SIZE, name);
    if (e.name == NULL)
        return pst_diag_nomem(diag, name);
    fault = name_fault(e.name, name);
    if (fault != NULL)
        return bad_entry(i, diag, fault);
    e.folder = e.name[name - 1] == '/';
    if (read_u16(p + 34) != 0 && read_u16(p + 34) != 0xffff)
        return bad_entry(i, diag, "lies in another part");
    if (read_u16(p + 8) & (FLAG_ENCRYPTED | FLAG_STRONG | FLAG_MASKED))
        return bad_entry(i, diag, "is encrypted");
    if (method != 0 && method != 8)
        return bad_entry(i, diag,
                         "is packed by a method that is not supported");
    if (!read_extra64(p + CENTRAL_SIZE + name, extra, &e))
        return bad_entry(i, diag, "has a damaged extra field");
    if (method == 0 ? e.size != e.packed : e.size / MAX_RATIO > e.packed + 1)
        return bad_entry(i, diag, "has an impossible size");
    status = read_local(zip, &e, dir, i, method, diag);
    if (status != PST_OK)
        return status;
    if (!pst_vec_push(PST_TAG_ARCHIVE, &zip->entries, e))
        return pst_diag_nomem(diag, sizeof(e));
    *at += CENTRAL_SIZE + name + extra + comment;
    return PST_OK;
}

static int compare_headers(const void *a, const void *b)
{
    const struct pst_zip_entry *x = *(const struct pst_zip_entry *const *)a;
    const struct pst_zip_entry *y = *(const struct pst_zip_entry *const *)b;

    return (x->header > y->header) - (x->header < y->header);
}

static enum pst_status check_overlap(const struct pst_zip *zip,
                                     struct pst_diag *diag)
{
    const struct pst_zip_entry **order;
    enum pst_status status = PST_OK;
    size_t n = zip->entries.n;

    order = pst_calloc(PST_TAG_ARCHIVE, n, sizeof(const void *));
    if (order == NULL)
        return pst_diag_nomem(diag, n * sizeof(void *));
    for (size_t i = 0; i < n; i++)
        order[i] = &zip->entries.at[i];
    qsort(order, n, sizeof(const void *), compare_headers);
    for (size_t i = 1; i < n && status == PST_OK; i++)
        if (order[i]->header < order[i - 1]->begin + order[i - 1]->packed)
            status = bad_entry(order[i]->index, diag, "overlaps another one");
    pst_free(order);
    return status;
}

/* Strips the folder that all names begin with, and fills the map of names. */
static enum pst_status strip_root(struct pst_zip *zip, struct pst_diag *diag)
{
    const char *first = zip->entries.at[0].name;
    size_t len = 0;

    for (size_t i = 0; i < zip->entries.n; i++)
        if (strcmp(zip->entries.at[i].name, "archive_format") == 0)
            first = ""; /* some writers use no root folder */
    if (strchr(first, '/') != NULL)
        len = (size_t)(strchr(first, '/') - first) + 1;
    zip->root = pst_arena_strndup(&zip->arena, first, len > 0 ? len - 1 : 0);
    if (zip->root == NULL)
        return pst_diag_nomem(diag, len);
    for (size_t i = 0; i < zip->entries.n; i++) {
        struct pst_zip_entry *e = &zip->entries.at[i];

        if (strncmp(e->name, first, len) != 0)
            return pst_diag_set(diag, PST_E_ZIP_DAMAGED,
                                "\"%s\" stands outside the folder \"%s\" "
                                "of the archive",
                                e->name, zip->root);
        e->name += len;
        if (pst_map_has(&zip->by_name, e->name))
            return pst_diag_set(diag, PST_E_ZIP_DAMAGED,
                                "two entries are called \"%s\"", e->name);
        if (!pst_map_put(&zip->by_name, e->name, e))
            return pst_diag_nomem(diag, strlen(e->name));
    }
    return PST_OK;
}

/* Opens libzip on a duplicate of our descriptor; it never memory-maps. */
static enum pst_status open_handle(struct pst_zip *zip, struct pst_diag *diag)
{
    const int fd = fcntl(zip->file.fd, F_DUPFD_CLOEXEC, 0);
    enum pst_status status;
    zip_error_t error;
    int code = 0;

    if (fd < 0)
        return pst_diag_errno(diag, errno, "%s", zip->file.path);
    zip->handle = zip_fdopen(fd, 0, &code);
    if (zip->handle == NULL) {
        const int err = errno;

        close(fd);
        zip_error_init_with_code(&error, code);
        status = zip_error_system_type(&error) == ZIP_ET_SYS
                     ? pst_diag_errno(diag, err, "%s", zip->file.path)
                     : pst_diag_set(diag, PST_E_ZIP_DAMAGED, "%s",
                                    zip_error_strerror(&error));
        zip_error_fini(&error);
        return status;
    }
    if (zip_get_num_entries(zip->handle, 0) != (zip_int64_t)zip->entries.n)
        return report_damage(diag, "the zip directory can be read in two ways");
    return PST_OK;
}

static enum pst_status read_directory(struct pst_zip *zip,
                                      struct directory *dir,
                                      struct pst_diag *diag)
{
    enum pst_status status;
    uint64_t at = 0;

    dir->bytes = pst_alloc(PST_TAG_ARCHIVE, (size_t)dir->size);
    if (dir->bytes == NULL)
        return pst_diag_nomem(diag, (size_t)dir->size);
    status = pst_file_read_at(&zip->file, dir->at, dir->bytes,
                              (size_t)dir->size, diag);
    for (uint64_t i = 0; i < dir->n && status == PST_OK; i++)
        status = read_entry(zip, dir, i, &at, diag);
    pst_free(dir->bytes);
    return status;
}

static enum pst_status read_all(struct pst_zip *zip, struct pst_diag *diag)
{
    struct directory dir = {0};
    enum pst_status status = find_directory(zip, &dir, diag);

    if (status == PST_OK)
        status = read_directory(zip, &dir, diag);
    if (status == PST_OK)
        status = check_overlap(zip, diag);
    if (status == PST_OK)
        status = strip_root(zip, diag);
    if (status == PST_OK)
        status = open_handle(zip, diag);
    return status;
}

enum pst_status pst_zip_open(const char *path, struct pst_zip **ret,
                             struct pst_diag *diag)
{
    struct pst_zip *zip = pst_calloc(PST_TAG_ARCHIVE, 1, sizeof(*zip));
    enum pst_status status;

    if (zip == NULL)
        return pst_diag_nomem(diag, sizeof(*zip));
    pst_arena_init(&zip->arena, PST_TAG_ARCHIVE);
    pst_map_init(&zip->by_name, PST_TAG_ARCHIVE);
    status = pst_file_open(path, &zip->file, diag);
    if (status == PST_OK) {
        status = read_all(zip, diag);
        if (status != PST_OK &&
            status != PST_ERR_IO) /* else the message already names the path */
            pst_diag_prefix(diag, "%s", path);
    }
    if (status != PST_OK) {
        pst_zip_close(zip);
        return status;
    }
    *ret = zip;
    return PST_OK;
}

void pst_zip_close(struct pst_zip *zip)
{
    if (zip == NULL)
        return;
    pst_zip_free_partial(zip);
    if (zip->handle != NULL)
        zip_discard(zip->handle);
    pst_vec_fini(&zip->entries);
    pst_map_fini(&zip->by_name);
    pst_file_close(&zip->file);
    pst_arena_fini(&zip->arena);
    pst_free(zip);
}
