// SPDX-License-Identifier: Apache-2.0
#include "daemon/common/inputs.h"

#include <stdio.h>
#include <string.h>

#include "daemon/common/config.h"
#include "daemon/common/options/sets.h"
#include "stages/files/data/list.h"
#include "stages/files/given.h"

#define WHOLE_BYTES  ((uint64_t)4 << 20)
#define SAMPLES      ((uint64_t)64)
#define SAMPLE_BYTES ((uint64_t)4096)

/* --- data files ----------------------------------------------------------- */

static enum pst_status hash_piece(const struct pst_file *file, uint64_t at,
                                  size_t bytes, uint64_t *hash)
{
    unsigned char piece[SAMPLE_BYTES];
    const enum pst_status status =
        pst_file_read_at(file, at, piece, bytes, NULL);

    if (status == PST_OK)
        *hash = pst_hash(piece, bytes, *hash);
    return status;
}

/* Digests the whole file if it is small. Otherwise digests pieces spread over
 * it, since reading everything would delay the start; the last piece ends at
 * the end of the file. */
enum pst_status pstd_hash_data(const struct pst_file *file, uint64_t *ret)
{
    const bool whole = file->size <= WHOLE_BYTES;
    const uint64_t last = file->size - PST_MIN(file->size, SAMPLE_BYTES);
    uint64_t hash = 0;
    enum pst_status status = PST_OK;

    for (uint64_t at = 0; whole && at < file->size && status == PST_OK;
         at += SAMPLE_BYTES)
        status = hash_piece(
            file, at, (size_t)PST_MIN(file->size - at, SAMPLE_BYTES), &hash);
    for (uint64_t k = 0; !whole && k < SAMPLES && status == PST_OK; k++)
        status = hash_piece(file,
                            last / (SAMPLES - 1) * k +
                                last % (SAMPLES - 1) * k / (SAMPLES - 1),
                            SAMPLE_BYTES, &hash);
    *ret = hash;
    return status;
}

/* Adds an open file: its size to *bytes, its digest to *digest. only: the data
 * consist of this file alone, and *digest becomes the file's digest. */
static enum pst_status add_open_file(const struct pst_file *file, bool only,
                                     uint64_t *bytes, uint64_t *digest)
{
    uint64_t one[2] = {0, file->size};
    const enum pst_status status = pstd_hash_data(file, &one[0]);

    *bytes += file->size;
    if (status == PST_OK)
        *digest = only ? one[0] : pst_hash(one, sizeof(one), *digest);
    return status;
}

static enum pst_status add_file(const char *path, bool only, uint64_t *bytes,
                                uint64_t *digest)
{
    struct pst_file file = {0};
    enum pst_status status = pst_file_open(path, &file, NULL);

    if (status == PST_OK)
        status = add_open_file(&file, only, bytes, digest);
    pst_file_close(&file);
    return status;
}

/* Adds the size and digest of each shard that a tensor index file lists. */
static enum pst_status add_shards(const char *path, uint64_t *bytes,
                                  uint64_t *digest)
{
    struct pst_given *given;
    enum pst_status status = pst_given_open(path, &given, NULL);

    if (status != PST_OK)
        return status;
    for (size_t i = 0; i < pst_given_files(given) && status == PST_OK; i++)
        status = add_open_file(pst_given_file(given, i), false, bytes, digest);
    pst_given_close(given);
    return status;
}

void pstd_describe_data(const char *text, struct pst_str *ret)
{
    uint64_t bytes = 0, digest = 0;
    struct pst_data_list list;
    enum pst_status status = pst_data_list_read(text, &list, NULL);

    if (status != PST_OK) {
        pst_str_add(ret, PSTD_NOT_READABLE);
        return;
    }
    for (size_t i = 0; i < list.files.n && status == PST_OK; i++) {
        const char *path = list.files.at[i];

        status = add_file(path, list.files.n == 1, &bytes, &digest);
        if (status == PST_OK && pst_has_suffix(path, PST_DATA_SHARD_INDEX))
            status = add_shards(path, &bytes, &digest);
    }
    if (status != PST_OK)
        pst_str_add(ret, PSTD_NOT_READABLE);
    else if (list.files.n > 1)
        pst_str_addf(ret, "%zu files, ", list.files.n);
    if (status == PST_OK)
        pst_str_addf(ret, "%llu bytes, digest %016llx",
                     (unsigned long long)bytes, (unsigned long long)digest);
    for (unsigned k = 0; k < list.n && list.weighted && status == PST_OK; k++)
        pst_str_addf(ret, "%s%.9g", k > 0 ? ":" : ", weights ",
                     list.sources[k].weight);
    pst_data_list_fini(&list);
}

/* --- inputs of a job ------------------------------------------------------ */

enum pst_status pstd_inputs_check(struct pstd_inputs *inputs, const char *what,
                                  const char *path, const char *digest,
                                  struct pst_diag *diag)
{
    struct pstd_input row;

    for (size_t i = 0; i < inputs->n; i++) {
        const struct pstd_input *was = &inputs->at[i];

        if (strcmp(was->what, what) != 0)
            continue;
        if (strcmp(was->digest, digest) == 0)
            return PST_OK;
        return pst_diag_set(diag, PST_E_PLAN_REPLACED,
                            "%s was replaced since the job began: the digest "
                            "of %s was %.8s, and is %.8s",
                            path, what, was->digest, digest);
    }
    (void)snprintf(row.what, sizeof(row.what), "%s", what);
    (void)snprintf(row.digest, sizeof(row.digest), "%s", digest);
    return pst_vec_push(PST_TAG_DAEMON, inputs, row)
               ? PST_OK
               : pst_diag_nomem(diag, sizeof(row));
}

enum pst_status pstd_inputs_check_data(struct pstd_inputs *inputs,
                                       const char *what, const char *path,
                                       struct pst_diag *diag)
{
    struct pst_str text = {0};
    enum pst_status status = PST_OK;
    char digest[33];

    pstd_describe_data(path, &text);
    if (text.failed) {
        status = pst_diag_nomem(diag, text.len);
    } else if (strcmp(pst_str_text(&text), PSTD_NOT_READABLE) != 0) {
        pst_digest(pst_str_text(&text), text.len, digest);
        status = pstd_inputs_check(inputs, what, path, digest, diag);
    }
    pst_str_fini(&text);
    return status;
}

/* A pstd_set_fn. ctx: struct pstd_inputs. */
static enum pst_status check_set(void *ctx, const struct pstd_set *set,
                                 struct pst_diag *diag)
{
    char what[16 + PSTD_SET_NAME];

    (void)snprintf(what, sizeof(what), "--eval-data%s%s",
                   set->name[0] != '\0' ? " " : "", set->name);
    return pstd_inputs_check_data(ctx, what, set->files, diag);
}

enum pst_status pstd_inputs_check_run(struct pstd_inputs *inputs,
                                      const struct pstd_config *config,
                                      struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    if (config->data != NULL)
        status = pstd_inputs_check_data(inputs, "--data", config->data, diag);
    if (status == PST_OK && config->eval_data != NULL)
        status = pstd_sets_each("--eval-data", config->eval_data, check_set,
                                inputs, diag);
    if (status == PST_OK && config->eval_model != NULL)
        status = pstd_inputs_check_data(inputs, "--eval-model",
                                        config->eval_model, diag);
    return status;
}

void pstd_inputs_fini(struct pstd_inputs *inputs)
{
    pst_vec_fini(inputs);
}
