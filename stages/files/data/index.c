// SPDX-License-Identifier: Apache-2.0
#include "stages/files/data/index.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "stages/base/alloc.h"
#include "stages/base/str.h"

#define MAGIC   "MMIDIDX\0\0"
#define HEADER  34u /* bytes before the lengths */
#define PER_SEQ 12u /* bytes of a length and an offset */
#define PIECE   16384u

/* Widths of the dtypes by Megatron's codes; 0: a dtype that cannot be that of
 * tokens. */
static const struct {
    unsigned width;
    const char *name;
} dtypes[] = {
    {0, "0"},     {1, "uint8"},   {0, "int8"},    {2, "int16"},  {4, "int32"},
    {0, "int64"}, {0, "float64"}, {0, "float32"}, {2, "uint16"},
};

/* Adds the lengths of n sequences. False: a length is negative, or the sum
 * exceeds the tokens of the file. */
static enum pst_status add_lengths(const struct pst_file *index, uint64_t n,
                                   uint64_t most, uint64_t *ret,
                                   struct pst_diag *diag)
{
    int32_t *piece = pst_alloc(PST_TAG_ARCHIVE, PIECE * sizeof(*piece));
    enum pst_status status = PST_OK;

    *ret = 0;
    if (piece == NULL)
        return pst_diag_nomem(diag, PIECE * sizeof(*piece));
    for (uint64_t at = 0; at < n && status == PST_OK && *ret <= most;
         at += PIECE) {
        const size_t here = (size_t)PST_MIN(n - at, PIECE);

        status = pst_file_read_at(index, HEADER + at * sizeof(*piece), piece,
                                  here * sizeof(*piece), diag);
        for (size_t i = 0; i < here && status == PST_OK && *ret <= most; i++)
            *ret = piece[i] < 0 ? UINT64_MAX : *ret + (uint64_t)piece[i];
    }
    pst_free(piece);
    return status;
}

static enum pst_status read_index(const struct pst_file *index,
                                  const struct pst_file *tokens,
                                  unsigned *ret_width, struct pst_diag *diag)
{
    unsigned char header[HEADER];
    uint64_t version, n, sum, there;
    enum pst_status status = PST_OK;

    if (index->size >= HEADER)
        status = pst_file_read_at(index, 0, header, HEADER, diag);
    if (status != PST_OK)
        return status;
    if (index->size < HEADER || memcmp(header, MAGIC, sizeof(MAGIC) - 1) != 0)
        return pst_diag_set(diag, PST_E_DATA_FORMAT,
                            "%s is no index of Megatron-LM, so that the width "
                            "of the tokens beside it is not known: move it "
                            "away if it has nothing to do with %s",
                            index->path, tokens->path);
    memcpy(&version, header + 9, sizeof(version));
    memcpy(&n, header + 18, sizeof(n));
    if (version != 1)
        return pst_diag_set(diag, PST_E_DATA_FORMAT,
                            "%s has version %" PRIu64 ", only 1 is known",
                            index->path, version);
    if (header[17] >= PST_COUNT(dtypes) || dtypes[header[17]].width == 0)
        return pst_diag_set(
            diag, PST_E_DATA_FORMAT,
            "%s: the dtype of %s has code %u%s%s, tokens have "
            "1, 2 or 4 bytes",
            index->path, tokens->path, header[17],
            header[17] < PST_COUNT(dtypes) ? ": " : "",
            header[17] < PST_COUNT(dtypes) ? dtypes[header[17]].name : "");
    *ret_width = dtypes[header[17]].width;
    there = tokens->size / *ret_width;
    if (n > (index->size - HEADER) / PER_SEQ)
        return pst_diag_set(diag, PST_E_DATA_FORMAT,
                            "%s is cut: it announces %" PRIu64
                            " sequences, and has %" PRIu64 " bytes",
                            index->path, n, index->size);
    status = add_lengths(index, n, there, &sum, diag);
    if (status == PST_OK && (sum != there || tokens->size % *ret_width != 0))
        status = pst_diag_set(diag, PST_E_DATA_FORMAT,
                              "%s: the lengths in %s add up to %s%" PRIu64
                              " tokens of %u bytes, but the file has %" PRIu64
                              " bytes: one of them is cut or damaged",
                              tokens->path, index->path,
                              sum > there ? "more than " : "",
                              PST_MIN(sum, there), *ret_width, tokens->size);
    return status;
}

enum pst_status pst_tokens_index(const struct pst_file *tokens,
                                 unsigned *ret_width, struct pst_diag *diag)
{
    char path[4096];
    struct pst_file index = {0};
    struct stat st;
    const size_t n = strlen(tokens->path);
    enum pst_status status;

    *ret_width = 0;
    if (!pst_has_suffix(tokens->path, ".bin") || n >= sizeof(path))
        return PST_OK;
    (void)snprintf(path, sizeof(path), "%.*s.idx", (int)(n - 4), tokens->path);
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode))
        return PST_OK;
    status = pst_file_open(path, &index, diag);
    if (status == PST_OK)
        status = read_index(&index, tokens, ret_width, diag);
    pst_file_close(&index);
    return status;
}
