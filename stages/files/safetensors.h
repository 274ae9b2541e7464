// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FILES_SAFETENSORS_H
#define PENSTOCK_STAGES_FILES_SAFETENSORS_H
/*
 * Reader and writer of safetensors: 8 bytes header length, a JSON header, the
 * tensors' data without holes. The reader takes the file for untrusted. One
 * thread at a time.
 */
#include "stages/base/host/fs.h"
#include "stages/graph/tensor.h"

struct pst_safetensors;
struct pst_safetensors_writer;

struct pst_safetensors_entry {
    const char *name;
    struct pst_meta meta; /* contiguous */
    /* Of a tensor that is to be saved, or of a file that was loaded whole. */
    const void *data;
    size_t bytes;
    const struct pst_file *file; /* of one that was opened: where it lies */
    uint64_t offset;
    /* Of a file: complex numbers, as pairs. The last dimension, which is not
     * the file's, has their parts. */
    bool is_complex;
};

/* Reads the header. Returns owned. */
enum pst_status pst_safetensors_open(const char *path,
                                     struct pst_safetensors **ret,
                                     struct pst_diag *diag) PST_MUST_CHECK;
void pst_safetensors_close(struct pst_safetensors *st);
/* Entries, in the order of their data, live until close. NULL if absent. */
size_t pst_safetensors_count(const struct pst_safetensors *st);
const struct pst_safetensors_entry *pst_safetensors_at(
    const struct pst_safetensors *st, size_t i);
const struct pst_safetensors_entry *pst_safetensors_find(
    const struct pst_safetensors *st, const char *name);
/* `bytes` from byte `begin` of the tensor on, as values of its dtype. Any
 * thread. */
enum pst_status pst_safetensors_read(const struct pst_safetensors_entry *entry,
                                     size_t begin, size_t bytes, void *dst,
                                     struct pst_diag *diag) PST_MUST_CHECK;
/* Reads all tensors into memory: their data live until close. */
enum pst_status pst_safetensors_load(struct pst_safetensors *st,
                                     struct pst_diag *diag) PST_MUST_CHECK;
/* Value in __metadata__, NULL if absent. */
const char *pst_safetensors_metadata(const struct pst_safetensors *st,
                                     const char *key);
/* The file, for its size and digest; lives until close. */
const struct pst_file *pst_safetensors_file(const struct pst_safetensors *st);

/*
 * Writing: new, declare everything, begin, put every tensor once in any order,
 * commit. The file appears under its name on commit (base/host/fs.h). Data is
 * laid out by falling element size, so that every tensor is aligned. Errors of
 * put and commit are final; free without commit removes what was written.
 */
enum pst_status pst_safetensors_writer_new(
    const char *path, struct pst_safetensors_writer **ret,
    struct pst_diag *diag) PST_MUST_CHECK;
void pst_safetensors_writer_free(struct pst_safetensors_writer *w);
const char *pst_safetensors_writer_path(const struct pst_safetensors_writer *w);
/* Where its bytes are until it is committed. */
const char *pst_safetensors_writer_now(const struct pst_safetensors_writer *w);
/* Name and sizes are copied, strides ignored; index counts from 0. */
enum pst_status pst_safetensors_writer_declare(
    struct pst_safetensors_writer *w, const char *name,
    const struct pst_meta *meta, struct pst_diag *diag) PST_MUST_CHECK;
/* Pairs (pst_meta_is_pairs) as complex numbers; only those of f32 can be. */
enum pst_status pst_safetensors_writer_declare_complex(
    struct pst_safetensors_writer *w, const char *name,
    const struct pst_meta *meta, struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pst_safetensors_writer_metadata(
    struct pst_safetensors_writer *w, const char *key, const char *value,
    struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pst_safetensors_writer_begin(
    struct pst_safetensors_writer *w, struct pst_diag *diag) PST_MUST_CHECK;
/* data: pst_meta_bytes of the entry, contiguous. */
enum pst_status pst_safetensors_writer_put(
    struct pst_safetensors_writer *w, size_t index, const void *data,
    struct pst_diag *diag) PST_MUST_CHECK;
/* The same in pieces, from the tensor's begin to its end; of an empty one a
 * piece of nothing. */
enum pst_status pst_safetensors_writer_append(
    struct pst_safetensors_writer *w, size_t index, const void *data,
    size_t bytes, struct pst_diag *diag) PST_MUST_CHECK;
/*
 * Tensors that several processes write, each its part of them, into the same
 * file: who has begun puts his part, from byte `begin` on and in any pieces,
 * and shares the file, which is called *ret_path then and has its whole size,
 * for other hosts too. The others open it, and join it (base/host/fs.h); it is
 * committed when they are done. put_at: bytes of others, at an offset of the
 * file.
 */
enum pst_status pst_safetensors_writer_put_part(
    struct pst_safetensors_writer *w, size_t index, size_t begin,
    const void *data, size_t bytes, struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pst_safetensors_writer_put_at(
    struct pst_safetensors_writer *w, uint64_t offset, const void *data,
    size_t bytes, struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pst_safetensors_writer_share(
    struct pst_safetensors_writer *w, const char **ret_path,
    struct pst_diag *diag) PST_MUST_CHECK;
/* PST_ERR_INTERNAL if an entry was not put. */
enum pst_status pst_safetensors_writer_commit(
    struct pst_safetensors_writer *w, struct pst_diag *diag) PST_MUST_CHECK;

/* All of it at once: name, meta and data of the entries are used. */
enum pst_status pst_safetensors_save(
    const char *path, const struct pst_safetensors_entry *entries, size_t n,
    struct pst_diag *diag) PST_MUST_CHECK;

#endif
