// SPDX-License-Identifier: Apache-2.0
#include "stages/files/zip.h"

#include <string.h>
#include <zip.h>

#include "stages/base/str.h"

#define PIECE ((size_t)1 << 20)  /* bytes per read */
#define SMALL ((size_t)16 << 20) /* larger entries are not kept in memory */
/* JSON of a graph with repeated layers reaches a ratio of about 50. */
#define DOCUMENT_RATIO 256u

struct pst_zip_entry *pst_zip_find(const struct pst_zip *zip, const char *name)
{
    struct pst_zip_entry *e = pst_map_get(&zip->by_name, name);

    return e != NULL && !e->folder ? e : NULL;
}

static enum pst_status read_failed(const struct pst_zip *zip,
                                   const struct pst_zip_entry *entry,
                                   zip_file_t *f, struct pst_diag *diag)
{
    zip_error_t *error =
        f != NULL ? zip_file_get_error(f) : zip_get_error(zip->handle);
    const enum pst_status status = pst_file_check_size(&zip->file, diag);

    if (status != PST_OK)
        return status;
    if (zip_error_code_zip(error) == ZIP_ER_CRC)
        return pst_diag_set(diag, PST_E_ZIP_DAMAGED,
                            "\"%s\" is damaged (wrong checksum)", entry->name);
    if (zip_error_code_zip(error) == ZIP_ER_OK)
        return pst_diag_set(diag, PST_E_ZIP_DAMAGED,
                            "\"%s\" is damaged (of another size than the "
                            "directory says)",
                            entry->name);
    return pst_diag_set(diag, PST_E_ZIP_DAMAGED, "cannot read \"%s\": %s",
                        entry->name, zip_error_strerror(error));
}

/* True if libzip sees the same directory entry as our reader. */
static bool same_for_libzip(const struct pst_zip *zip,
                            const struct pst_zip_entry *entry)
{
    zip_stat_t s;

    return zip_stat_index(zip->handle, entry->index, 0, &s) == 0 &&
           s.size == entry->size && s.crc == entry->crc &&
           pst_has_suffix(s.name, entry->name);
}

/* Destination of the part [begin, end) of a content. */
struct part {
    uint64_t begin, end;
    unsigned char *dst;
};

/* Reads all of the content, which verifies its checksum, and copies the
 * part. */
static bool read_content(zip_file_t *f, const struct pst_zip_entry *entry,
                         const struct part *part, void *rest)
{
    uint64_t at = 0;
    char end;

    while (at < entry->size) {
        const bool inside = at >= part->begin && at < part->end;
        const uint64_t until = inside             ? part->end
                               : at < part->begin ? part->begin
                                                  : entry->size;
        void *to = inside ? part->dst + (at - part->begin) : rest;
        const zip_int64_t got =
            zip_fread(f, to, PST_MIN(until - at, (uint64_t)PIECE));

        if (got <= 0)
            return false;
        at += (uint64_t)got;
    }
    /* libzip compares the checksum when it reaches the end. */
    return zip_fread(f, &end, 1) == 0;
}

static enum pst_status read_verified(struct pst_zip *zip,
                                     const struct pst_zip_entry *entry,
                                     const struct part *part,
                                     struct pst_diag *diag)
{
    const bool all = part->begin == 0 && part->end == entry->size;
    enum pst_status status = PST_OK;
    zip_file_t *f;
    void *rest;

    if (!same_for_libzip(zip, entry))
        return pst_diag_set(diag, PST_E_ZIP_DAMAGED,
                            "the zip directory can be read in two ways");
    rest = pst_alloc(PST_TAG_ARCHIVE, all ? 1 : PIECE);
    if (rest == NULL)
        return pst_diag_nomem(diag, PIECE);
    f = zip_fopen_index(zip->handle, entry->index, 0);
    if (f == NULL || !read_content(f, entry, part, rest))
        status = read_failed(zip, entry, f, diag);
    if (f != NULL)
        zip_fclose(f);
    pst_free(rest);
    return status;
}

enum pst_status pst_zip_read(struct pst_zip *zip,
                             const struct pst_zip_entry *entry, uint64_t max,
                             char **ret, struct pst_diag *diag)
{
    struct part part = {0, entry->size, NULL};
    enum pst_status status;
    char *data;

    if (entry->size > max)
        return pst_diag_set(diag, PST_E_PT2_BOMB,
                            "\"%s\" is too large (%llu bytes)", entry->name,
                            (unsigned long long)entry->size);
    if (entry->deflated && entry->size / DOCUMENT_RATIO > entry->packed &&
        entry->size > PIECE)
        return pst_diag_set(diag, PST_E_PT2_BOMB,
                            "\"%s\" would be more than %u times as large as in "
                            "the file (%llu bytes)",
                            entry->name, DOCUMENT_RATIO,
                            (unsigned long long)entry->size);
    data = pst_alloc(PST_TAG_ARCHIVE, (size_t)entry->size + 1);
    if (data == NULL)
        return pst_diag_nomem(diag, (size_t)entry->size + 1);
    part.dst = (unsigned char *)data;
    status = read_verified(zip, entry, &part, diag);
    if (status != PST_OK) {
        pst_free(data);
        return status;
    }
    data[entry->size] = '\0';
    *ret = data;
    return PST_OK;
}

/* --- deflated entries, in part -------------------------------------------- */

void pst_zip_free_partial(struct pst_zip *zip)
{
    if (zip->last.stream != NULL)
        zip_fclose(zip->last.stream);
    pst_free(zip->last.content);
    zip->last = (struct pst_zip_last){0};
}

static enum pst_status verify_entry(struct pst_zip *zip,
                                    struct pst_zip_entry *entry,
                                    const struct part *part,
                                    struct pst_diag *diag)
{
    const enum pst_status status = read_verified(zip, entry, part, diag);

    entry->verified = status == PST_OK;
    return status;
}

/* Inflates and keeps all of a small entry. */
static enum pst_status keep_content(struct pst_zip *zip,
                                    struct pst_zip_entry *entry,
                                    struct pst_diag *diag)
{
    const size_t size = (size_t)entry->size;
    char *content = pst_alloc(PST_TAG_ARCHIVE, PST_MAX(size, (size_t)1));
    const struct part all = {0, size, (unsigned char *)content};
    enum pst_status status = content != NULL
                                 ? verify_entry(zip, entry, &all, diag)
                                 : pst_diag_nomem(diag, size);

    if (status == PST_OK)
        zip->last.content = content;
    else
        pst_free(content);
    return status;
}

/* Inflates up to byte `end` into dst, which has capacity for all of these
 * bytes; dst NULL: discards the bytes. */
static bool inflate_to(struct pst_zip_last *last, uint64_t end, void *rest,
                       unsigned char *dst)
{
    while (last->at < end) {
        const uint64_t left = end - last->at;
        const zip_int64_t got =
            zip_fread(last->stream, dst != NULL ? dst : rest,
                      PST_MIN(left, (uint64_t)PIECE));

        if (got <= 0)
            return false;
        last->at += (uint64_t)got;
        dst = dst != NULL ? dst + got : NULL;
    }
    return true;
}

/* Inflates from the end of the last part, or from the beginning if the last
 * part ended after the start of this one. */
static enum pst_status inflate_part(struct pst_zip *zip,
                                    const struct part *part,
                                    struct pst_diag *diag)
{
    struct pst_zip_last *last = &zip->last;
    const struct pst_zip_entry *entry = last->entry;
    void *rest = pst_alloc(PST_TAG_ARCHIVE, PIECE);
    enum pst_status status = PST_OK;

    if (rest == NULL)
        return pst_diag_nomem(diag, PIECE);
    if (last->stream != NULL && last->at > part->begin) {
        zip_fclose(last->stream);
        last->stream = NULL;
    }
    if (last->stream == NULL) {
        last->at = 0;
        last->stream = zip_fopen_index(zip->handle, entry->index, 0);
    }
    if (last->stream == NULL || !inflate_to(last, part->begin, rest, NULL) ||
        !inflate_to(last, part->end, rest, part->dst)) {
        status = read_failed(zip, entry, last->stream, diag);
        pst_zip_free_partial(zip);
    }
    pst_free(rest);
    return status;
}

static enum pst_status read_deflated(struct pst_zip *zip,
                                     struct pst_zip_entry *entry,
                                     const struct part *part,
                                     struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    if (zip->last.entry != entry) {
        pst_zip_free_partial(zip);
        if (entry->size <= SMALL)
            status = keep_content(zip, entry, diag);
        else if (!entry->verified)
            return verify_entry(zip, entry, part, diag);
        if (status != PST_OK)
            return status;
        zip->last.entry = entry;
    }
    if (zip->last.content == NULL)
        return inflate_part(zip, part, diag);
    if (part->end > part->begin)
        memcpy(part->dst, zip->last.content + part->begin,
               (size_t)(part->end - part->begin));
    return PST_OK;
}

enum pst_status pst_zip_read_part(struct pst_zip *zip,
                                  struct pst_zip_entry *entry, uint64_t begin,
                                  size_t bytes, void *dst,
                                  struct pst_diag *diag)
{
    const struct part part = {begin, begin + bytes, dst};

    if (begin > entry->size || bytes > entry->size - begin)
        return pst_diag_set(diag, PST_E_INTERNAL_BUG,
                            "%zu bytes at %llu of \"%s\", which has %llu",
                            bytes, (unsigned long long)begin, entry->name,
                            (unsigned long long)entry->size);
    if (entry->deflated)
        return read_deflated(zip, entry, &part, diag);
    if (entry->verified)
        return pst_file_read_at(&zip->file, entry->begin + begin, dst, bytes,
                                diag);
    return verify_entry(zip, entry, &part, diag);
}
