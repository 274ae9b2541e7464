// SPDX-License-Identifier: Apache-2.0
/* Fuzz targets for archives and for files of weights. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "stages/base/str.h"
#include "stages/files/given.h"
#include "stages/files/zip.h"
#include "stages/frontend/model.h"
#include "stages/graph/graph.h"
#include "tests/fuzz/targets/target.h"

#define MAX_CONTENT ((uint64_t)4 << 20)

bool fuzz_zip(const uint8_t *data, size_t size)
{
    struct pst_zip *zip;
    struct pst_diag diag;
    enum pst_status status;

    pst_diag_init(&diag);
    status = pst_zip_open(fuzz_file(data, size), &zip, &diag);
    if (status != PST_OK)
        return fuzz_refused(status, &diag);
    for (size_t i = 0; i < zip->entries.n; i++) {
        struct pst_zip_entry *entry = &zip->entries.at[i];
        unsigned char part[16];
        char *text = NULL;

        fuzz_check(entry->begin <= size && entry->packed <= size - entry->begin,
                   "an entry lies beyond the file");
        status = pst_zip_read(zip, entry, MAX_CONTENT, &text, &diag);
        if (status == PST_OK)
            fuzz_check(text[entry->size] == '\0', "no NUL behind an entry");
        else
            (void)fuzz_refused(status, &diag);
        pst_free(text);
        if (entry->size > sizeof(part) && entry->size < MAX_CONTENT &&
            pst_zip_read_part(zip, entry, entry->size - sizeof(part),
                              sizeof(part), part, &diag) != PST_OK)
            fuzz_check(status != PST_OK, "a part of what is whole is refused");
    }
    pst_zip_close(zip);
    return true;
}

/* --- a whole model ------------------------------------------------------- */

static void put32(uint8_t *at, uint32_t value)
{
    for (unsigned i = 0; i < 4; i++)
        at[i] = (uint8_t)(value >> (8 * i));
}

/* Returns the CRC-32 that zip entries have. */
static uint32_t checksum(const uint8_t *data, size_t size)
{
    static uint32_t table[256];
    uint32_t crc = 0xffffffffu;

    for (uint32_t i = 0; table[255] == 0 && i < 256; i++) {
        uint32_t x = i;

        for (unsigned bit = 0; bit < 8; bit++)
            x = (x >> 1) ^ (0xedb88320u & (0u - (x & 1)));
        table[i] = x;
    }
    for (size_t i = 0; i < size; i++)
        crc = (crc >> 8) ^ table[(crc ^ data[i]) & 0xff];
    return ~crc;
}

/* Corrects the checksums of stored entries: otherwise nearly every change would
 * end at the comparison of checksums. */
static void fix_checksums(uint8_t *data, size_t size)
{
    static const uint8_t central[] = {'P', 'K', 1, 2};

    for (size_t at = 0; size >= 46 && at <= size - 46; at++) {
        uint32_t header, begin, bytes, crc;

        if (data[at] != 'P' ||
            memcmp(data + at, central, sizeof(central)) != 0 ||
            fuzz_get(data + at + 10, 2) != 0)
            continue;
        bytes = fuzz_get(data + at + 20, 4);
        header = fuzz_get(data + at + 42, 4);
        if (header > size - 46 || bytes > size)
            continue;
        begin = header + 30 + fuzz_get(data + header + 26, 2) +
                fuzz_get(data + header + 28, 2);
        if (begin > size || bytes > size - begin)
            continue;
        crc = checksum(data + begin, bytes);
        put32(data + at + 16, crc);
        if ((fuzz_get(data + header + 6, 2) & 8) == 0)
            put32(data + header + 14, crc);
        else if (bytes + begin <= size - 16 &&
                 memcmp(data + begin + bytes, "PK\7\10", 4) == 0)
            put32(data + begin + bytes + 4, crc);
    }
}

/* Reads the weights in the file, as far as they are small. */
static void use_weights(const struct pst_model *model)
{
    unsigned char data[256];
    struct pst_diag diag;

    for (size_t i = 0; i < model->weights_by_fqn.n; i++) {
        const struct pst_weight *w = model->weights_by_fqn.entries[i].value;
        struct pst_meta meta = w->meta;

        pst_diag_init(&diag);
        pst_meta_set_contiguous(&meta);
        if (pst_meta_bytes(&meta) <= sizeof(data) &&
            pst_model_read(model, w, &meta, data, &diag) == PST_OK)
            fuzz_check_values(meta.dtype, data, pst_meta_bytes(&meta));
    }
}

bool fuzz_model(const uint8_t *data, size_t size)
{
    uint8_t *copy = (uint8_t *)fuzz_text(data, size);
    struct pst_str text = {0};
    struct pst_graph *again = NULL;
    struct pst_model *model;
    struct pst_diag diag;
    enum pst_status status;

    pst_diag_init(&diag);
    fix_checksums(copy, size);
    status = pst_model_open(fuzz_file(copy, size), &model, &diag);
    free(copy);
    if (status != PST_OK)
        return fuzz_refused(status, &diag);
    pst_graph_print(model->graph, &text);
    status = pst_graph_parse(pst_str_text(&text), &again, &diag);
    fuzz_check(status == PST_OK, diag.text);
    pst_graph_free(again);
    pst_str_fini(&text);
    use_weights(model);
    pst_model_close(model);
    return true;
}

/* --- weights ------------------------------------------------------------- */

static void use_entry(const struct pst_safetensors_entry *entry)
{
    unsigned char part[64];
    const size_t n = PST_MIN(entry->bytes, sizeof(part));
    struct pst_diag diag;

    fuzz_check(entry->bytes == pst_meta_bytes(&entry->meta),
               "an entry has other bytes than its shape");
    fuzz_check(entry->file == NULL ||
                   (entry->offset <= entry->file->size &&
                    entry->bytes <= entry->file->size - entry->offset),
               "an entry lies beyond the file");
    if (n > 0 &&
        pst_safetensors_read(entry, entry->bytes - n, n, part, &diag) != PST_OK)
        fuzz_check(false, diag.text);
    fuzz_check_values(entry->meta.dtype, part, n);
}

bool fuzz_safetensors(const uint8_t *data, size_t size)
{
    struct pst_safetensors *st;
    struct pst_diag diag;
    enum pst_status status;

    pst_diag_init(&diag);
    status = pst_safetensors_open(fuzz_file(data, size), &st, &diag);
    if (status != PST_OK)
        return fuzz_refused(status, &diag);
    for (size_t i = 0; i < pst_safetensors_count(st); i++) {
        const struct pst_safetensors_entry *entry = pst_safetensors_at(st, i);

        use_entry(entry);
        fuzz_check(pst_safetensors_find(st, entry->name) == entry,
                   "an entry is not found by its name");
    }
    (void)pst_safetensors_metadata(st, "format");
    status = pst_safetensors_load(st, &diag);
    fuzz_check(status == PST_OK, diag.text);
    pst_safetensors_close(st);
    return true;
}

/* Writes the shard that the index refers to, whatever the index says about it.
 */
static void put_shard(void)
{
    static const char header[] =
        "{\"__metadata__\":{\"format\":\"pt\",\"tied\":\"a\"},"
        "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}";
    unsigned char file[8 + sizeof(header) - 1 + 8] = {sizeof(header) - 1};

    memcpy(file + 8, header, sizeof(header) - 1);
    fuzz_put("a.safetensors", file, sizeof(file));
}

bool fuzz_index(const uint8_t *data, size_t size)
{
    static bool made;
    struct pst_given *given;
    struct pst_diag diag;
    enum pst_status status;
    char path[128];

    if (!made)
        put_shard();
    made = true;
    pst_diag_init(&diag);
    fuzz_put("model.safetensors.index.json", data, size);
    (void)snprintf(path, sizeof(path), "%s/model.safetensors.index.json",
                   fuzz_folder());
    status = pst_given_open(path, &given, &diag);
    if (status != PST_OK)
        return fuzz_refused(status, &diag);
    for (size_t i = 0; i < pst_given_count(given); i++)
        fuzz_check(pst_given_find(given, pst_given_name(given, i)) != NULL,
                   "a tensor is not found by its name");
    if (pst_given_metadata(given, "format") != NULL)
        fuzz_check(pst_given_find(given, "tied") == pst_given_find(given, "a"),
                   "a tied tensor is another one");
    pst_given_close(given);
    return true;
}
