// SPDX-License-Identifier: Apache-2.0
#include "stages/files/data_look.h"

#include "stages/base/alloc.h"

#include <inttypes.h>
#include <string.h>

#define PIECE     (64u << 10) /* bytes per read */
#define MAX_WIDTH 8u
#define MAX_WORDS 16u /* number of pieces examined for the width */
/* maximum number of bytes compared with a bound */
#define MAX_BYTES (256ull << 20)

/* --- formats ------------------------------------------------------------- */

static const struct {
    unsigned at, n;
    const char *bytes, *what;
} others[] = {
    {8, 2, "{\"", "tensors with names (.safetensors)"},
    {0, 6, "\x93NUMPY", "an array of NumPy (.npy)"},
    {0, 4, "PK\3\4", "an archive (.npz, .pt, .zip)"},
    {0, 3, "\x1f\x8b\x08", "compressed (.gz)"},
    {0, 4, "\x28\xb5\x2f\xfd", "compressed (.zst)"},
    {0, 6,
     "\xfd"
     "7zXZ",
     "compressed (.xz)"},
    {0, 9, "MMIDIDX\0", "an index of Megatron (.idx); its .bin has the tokens"},
    {0, 8, "TNTIDX\0", "an index of fairseq (.idx); its .bin has the tokens"},
    {0, 8, "\x89HDF\r\n\x1a\n", "an HDF5 file"},
    {0, 6, "ARROW1", "an Arrow file"},
    {0, 4, "PAR1", "a Parquet file"},
    {0, 4, "GGUF", "a GGUF file"},
};

/* Magic numbers of llm.c's files. A header is 256 integers of 4 bytes: magic
 * number, version, number of tokens, ... */
#define LLMC_BYTES 1024u
static const struct {
    uint32_t magic;
    unsigned width; /* bytes of a token; 0: the file has no tokens */
    const char *what;
} llmc[] = {
    {20240520, 2, "tokens"},
    {20240801, 4, "tokens of Llama 3"},
    {20240522, 0, "an evaluation (HellaSwag, MMLU)"},
    {20240326, 0, "the weights of a model"},
    {20240327, 0, "a model's state for debugging"},
    {20240803, 0, "the weights of a Llama"},
};

/* Refuses files of other formats: their headers would be read as tokens, and
 * shift all tokens after them. */
static enum pst_status check_format(const struct pst_tokens_file *t,
                                    const unsigned char *begin,
                                    struct pst_diag *diag)
{
    uint64_t header;

    memcpy(&header, begin, sizeof(header));
    for (size_t i = 0; i < PST_COUNT(others); i++)
        if (memcmp(begin + others[i].at, others[i].bytes, others[i].n) == 0 &&
            (others[i].at == 0 || header < t->file->size))
            return pst_diag_set(diag, PST_E_DATA_FORMAT,
                                "%s is taken for a file of tokens (its name "
                                "does not end in .safetensors), but begins as "
                                "%s",
                                t->path, others[i].what);
    return PST_OK;
}

/* Skips an llm.c header if there is one; checks its token width and number of
 * tokens. */
static enum pst_status skip_llmc(struct pst_tokens_file *t,
                                 const unsigned char *begin,
                                 struct pst_diag *diag)
{
    uint32_t words[3];
    uint64_t there;
    size_t i = 0;

    memcpy(words, begin, sizeof(words));
    while (i < PST_COUNT(llmc) && llmc[i].magic != words[0])
        i++;
    if (i == PST_COUNT(llmc) || words[1] == 0 || words[1] > 255 ||
        t->file->size < LLMC_BYTES)
        return PST_OK;
    if (llmc[i].width == 0)
        return pst_diag_set(diag, PST_E_DATA_FORMAT,
                            "%s is taken for a file of tokens, but has the "
                            "header of llm.c for %s",
                            t->path, llmc[i].what);
    if (t->width != llmc[i].width)
        return pst_diag_set(diag, PST_E_DATA_FORMAT,
                            "%s has the header of llm.c for %s, which are %u "
                            "bytes each: give --token-dtype uint%u",
                            t->path, llmc[i].what, llmc[i].width,
                            8 * llmc[i].width);
    there = (t->file->size - LLMC_BYTES) / t->width;
    if (words[2] != there)
        return pst_diag_set(diag, PST_E_DATA_FORMAT,
                            "%s: its header (of llm.c) announces %" PRIu32
                            " tokens, but %" PRIu64 " follow it: the file is "
                            "cut or damaged",
                            t->path, words[2], there);
    t->begin = LLMC_BYTES;
    return PST_OK;
}

/* --- the width ----------------------------------------------------------- */

/* Counts of the elements examined so far. An element of `width` bytes has a low
 * part, which would be a token if the width were smaller. */
struct words {
    uint64_t n;
    /* elements that are larger than their low part; elements of at least 2^18,
     * which no vocabulary has */
    uint64_t high, large;
    /* elements with a nonzero low part; the largest low part */
    uint64_t low, most;
};

static void count_words(struct words *w, const unsigned char *bytes, size_t n,
                        unsigned part, unsigned width)
{
    for (size_t i = 0; i + width <= n; i += width) {
        uint64_t x = 0, low;

        memcpy(&x, bytes + i, width); /* little-endian */
        low = x & (UINT64_MAX >> (64 - 8 * part));
        w->n++;
        w->high += low != x;
        w->large += x >> 18 != 0;
        w->low += low != 0;
        w->most = PST_MAX(w->most, low);
    }
}

/*
 * Decides if elements are integers of `width` bytes, not several tokens of
 * `part` bytes each. Numbers below 2^18 with three or seven zero parts are no
 * coincidence. With two parts, the second must be 0, or mostly 0 and at most 3,
 * as in 4-byte tokens of a vocabulary between 2^16 and 2^18.
 */
static bool are_wide(const struct words *w, unsigned part, unsigned width)
{
    if (w->n < 16 || w->low < w->n / 2 || w->large > 0)
        return false;
    return w->high == 0 || width > 2 * part ||
           (part == 2 && w->high < w->n / 2 && w->most >= 1u << 15);
}

static enum pst_status check_width(const struct pst_tokens_file *t,
                                   unsigned char *buffer, struct pst_diag *diag)
{
    const uint64_t size = t->file->size - t->begin;
    const uint64_t pieces = PST_MIN((size + PIECE - 1) / PIECE, MAX_WORDS);
    struct words words[MAX_WIDTH + 1] = {{0}};

    for (uint64_t i = 0; i < pieces; i++) {
        const uint64_t at = i * (size / pieces) / MAX_WIDTH * MAX_WIDTH;
        const size_t n = (size_t)PST_MIN(size - at, PIECE);
        enum pst_status status =
            pst_file_read_at(t->file, t->begin + at, buffer, n, diag);

        if (status != PST_OK)
            return status;
        for (unsigned width = 2 * t->width; width <= MAX_WIDTH; width *= 2)
            count_words(&words[width], buffer, n, t->width, width);
    }
    for (unsigned width = MAX_WIDTH; width > t->width; width /= 2)
        if (size % width == 0 && are_wide(&words[width], t->width, width))
            return pst_diag_set(
                diag, PST_E_DATA_WIDTH,
                "%s: read as uint%u, %u of each %u tokens %s zero: it looks "
                "like integers of %u bytes; %s",
                t->path, 8 * t->width, width / t->width - 1, width / t->width,
                words[width].high == 0 ? "are" : "are mostly", width,
                width == 8   ? "write the tokens in 4 bytes or fewer"
                : width == 4 ? "give --token-dtype uint32"
                             : "give --token-dtype uint16");
    return PST_OK;
}

enum pst_status pst_tokens_read_head(struct pst_tokens_file *tokens,
                                     struct pst_diag *diag)
{
    unsigned char begin[16];
    enum pst_status status;
    unsigned char *buffer;

    if (tokens->file->size < sizeof(begin))
        return PST_OK;
    status = pst_file_read_at(tokens->file, 0, begin, sizeof(begin), diag);
    if (status == PST_OK)
        status = check_format(tokens, begin, diag);
    if (status == PST_OK)
        status = skip_llmc(tokens, begin, diag);
    if (status != PST_OK)
        return status;
    buffer = pst_alloc(PST_TAG_ARCHIVE, PIECE);
    if (buffer == NULL)
        return pst_diag_nomem(diag, PIECE);
    status = check_width(tokens, buffer, diag);
    pst_free(buffer);
    return status;
}

/* --- the vocabulary ------------------------------------------------------ */

/* A sequence of integers in a file. */
struct integers {
    uint64_t n;
    unsigned width;
    enum pst_status (*read)(const struct integers *in, uint64_t first, size_t n,
                            void *dst, struct pst_diag *diag);
    int64_t (*at)(const struct integers *in, const void *bytes, size_t i);
    const void *from;
};

static bool is_excluded(const struct pst_data_bound *bound, int64_t x)
{
    return (x < 0 || x >= bound->below) &&
           !(bound->ignores && x == bound->ignored);
}

/* Finds the first integer that the bound excludes or, without a bound, the
 * first one that is *value: *ret is its position, or n; *value is the integer.
 */
static enum pst_status find_integer(const struct integers *in,
                                    const struct pst_data_bound *bound,
                                    uint64_t *ret, int64_t *value,
                                    struct pst_diag *diag)
{
    const int64_t wanted = *value;
    const uint64_t each = PIECE / in->width;
    const uint64_t all = (in->n + each - 1) / each;
    const uint64_t pieces = PST_MIN(all, MAX_BYTES / PIECE);
    void *buffer = pst_alloc(PST_TAG_ARCHIVE, PIECE);
    enum pst_status status = PST_OK;

    *ret = in->n;
    if (buffer == NULL)
        return pst_diag_nomem(diag, PIECE);
    for (uint64_t p = 0; p < pieces && *ret == in->n && status == PST_OK; p++) {
        const uint64_t first =
            (p * (all / pieces) + p * (all % pieces) / pieces) * each;
        const size_t n = (size_t)PST_MIN(in->n - first, each);

        status = in->read(in, first, n, buffer, diag);
        for (size_t i = 0; i < n && status == PST_OK; i++) {
            *value = in->at(in, buffer, i);
            if (bound != NULL ? is_excluded(bound, *value) : *value == wanted) {
                *ret = first + i;
                break;
            }
        }
    }
    pst_free(buffer);
    return status;
}

static enum pst_status read_tokens(const struct integers *in, uint64_t first,
                                   size_t n, void *dst, struct pst_diag *diag)
{
    const struct pst_tokens_file *t = in->from;

    return pst_file_read_at(t->file, t->begin + first * t->width, dst,
                            n * t->width, diag);
}

static int64_t token_at(const struct integers *in, const void *bytes, size_t i)
{
    uint32_t token = 0;

    /* little-endian */
    memcpy(&token, (const char *)bytes + i * in->width, in->width);
    return token;
}

enum pst_status pst_tokens_compare(const struct pst_tokens_file *tokens,
                                   uint64_t n, const char *input,
                                   const struct pst_data_bound *bound,
                                   struct pst_diag *diag)
{
    const struct integers in = {n, tokens->width, read_tokens, token_at,
                                tokens};
    uint64_t place;
    int64_t value = 0;
    enum pst_status status = find_integer(&in, bound, &place, &value, diag);

    if (status != PST_OK || place == n)
        return status;
    return pst_diag_set(diag, PST_E_DATA_VOCABULARY,
                        "%s: token %" PRId64 " at place %" PRIu64
                        " is outside of the vocabulary: %s allows the numbers "
                        "0 to %" PRId64 " in input '%s'",
                        tokens->path, value, place, bound->what,
                        bound->below - 1, input);
}

enum pst_status pst_tokens_find(const struct pst_tokens_file *tokens,
                                uint64_t n, int64_t token, bool *ret,
                                struct pst_diag *diag)
{
    const struct integers in = {n, tokens->width, read_tokens, token_at,
                                tokens};
    uint64_t place;
    const enum pst_status status =
        find_integer(&in, NULL, &place, &token, diag);

    *ret = status == PST_OK && place < n;
    return status;
}

static enum pst_status read_rows(const struct integers *in, uint64_t first,
                                 size_t n, void *dst, struct pst_diag *diag)
{
    return pst_safetensors_read(in->from, first * in->width, n * in->width, dst,
                                diag);
}

static int64_t element_at(const struct integers *in, const void *bytes,
                          size_t i)
{
    const struct pst_safetensors_entry *entry = in->from;

    return pst_load_i64(entry->meta.dtype, bytes, (int64_t)i);
}

enum pst_status pst_rows_compare(const struct pst_safetensors_entry *entry,
                                 const char *path,
                                 const struct pst_data_bound *bound,
                                 struct pst_diag *diag)
{
    const uint64_t n = (uint64_t)pst_meta_numel(&entry->meta);
    const struct integers in = {n, (unsigned)pst_dtype_size(entry->meta.dtype),
                                read_rows, element_at, entry};
    uint64_t place;
    int64_t value = 0;
    enum pst_status status = find_integer(&in, bound, &place, &value, diag);

    if (status != PST_OK || place == n)
        return status;
    return pst_diag_set(
        diag, PST_E_DATA_VOCABULARY,
        "%s: tensor '%s' has the number %" PRId64 " (element %" PRIu64
        " of %" PRIu64 "), but %s allows 0 to %" PRId64 "%s",
        path, entry->name, value, place, n, bound->what, bound->below - 1,
        bound->ignores ? " and the target that it ignores" : "");
}
