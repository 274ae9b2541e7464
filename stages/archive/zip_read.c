// SPDX-License-Identifier: Apache-2.0
#include "stages/archive/zip.h"

#include <zip.h>

#include "stages/base/str.h"

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

    if (zip_error_code_zip(error) == ZIP_ER_CRC)
        return pst_diag_set(diag, PST_ERR_INPUT,
                            "\"%s\" is damaged (wrong checksum)", entry->name);
    return pst_diag_set(diag, PST_ERR_INPUT, "cannot read \"%s\": %s",
                        entry->name, zip_error_strerror(error));
}

/* Both readers must have found the same directory. */
static bool same_for_libzip(const struct pst_zip *zip,
                            const struct pst_zip_entry *entry)
{
    zip_stat_t s;

    return zip_stat_index(zip->handle, entry->index, 0, &s) == 0 &&
           s.size == entry->size && s.crc == entry->crc &&
           pst_has_suffix(s.name, entry->name);
}

enum pst_status pst_zip_read(struct pst_zip *zip,
                             const struct pst_zip_entry *entry, uint64_t max,
                             char **ret, struct pst_diag *diag)
{
    enum pst_status status = PST_OK;
    zip_file_t *f;
    uint64_t n = 0;
    char end, *data;

    if (entry->size > max)
        return pst_diag_set(diag, PST_ERR_INPUT,
                            "\"%s\" is too large (%llu bytes)", entry->name,
                            (unsigned long long)entry->size);
    if (!same_for_libzip(zip, entry))
        return pst_diag_set(diag, PST_ERR_INPUT,
                            "the zip directory can be read in two ways");
    data = pst_alloc(PST_TAG_ARCHIVE, (size_t)entry->size + 1);
    if (data == NULL)
        return pst_diag_nomem(diag, (size_t)entry->size + 1);
    f = zip_fopen_index(zip->handle, entry->index, 0);
    while (f != NULL && n < entry->size) {
        const zip_int64_t got = zip_fread(f, data + n, entry->size - n);

        if (got <= 0)
            break;
        n += (uint64_t)got;
    }
    /* The checksum is compared when the end is reached. */
    if (f == NULL || n < entry->size || zip_fread(f, &end, 1) != 0)
        status = read_failed(zip, entry, f, diag);
    if (f != NULL)
        zip_fclose(f);
    if (status != PST_OK) {
        pst_free(data);
        return status;
    }
    data[n] = '\0';
    *ret = data;
    return PST_OK;
}

enum pst_status pst_zip_content(struct pst_zip *zip,
                                struct pst_zip_entry *entry, size_t align,
                                const void **ret, struct pst_diag *diag)
{
    enum pst_status status;
    char *copy = NULL;

    if (!entry->deflated && entry->begin % align == 0) {
        *ret = zip->file.data + entry->begin;
        return PST_OK;
    }
    if (entry->copy == NULL) {
        status = pst_zip_read(zip, entry, SIZE_MAX / 4, &copy, diag);
        if (status != PST_OK)
            return status;
        entry->copy = copy;
    }
    *ret = entry->copy;
    return PST_OK;
}
