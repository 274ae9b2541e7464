// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FILES_SAFETENSORS_H
#define PENSTOCK_STAGES_FILES_SAFETENSORS_H
/*
 * Reader and writer of safetensors files: 8 bytes of header length, a JSON
 * header, the tensors' data without gaps. The reader treats the file as
 * untrusted. One thread at a time.
 */
#include "stages/base/host/fs.h"
#include "stages/graph/tensor.h"

struct pst_safetensors;
struct pst_safetensors_writer;

struct pst_safetensors_entry {
    const char *name;
    struct pst_meta meta; /* contiguous */
    /* Data of a tensor to be saved, or of a file loaded as a whole. */
    const void *data;
    size_t bytes;
    const struct pst_file
        *file; /* for a tensor of an opened file: its location */
    uint64_t offset;
    /* For a tensor of a file: complex numbers, read as pairs. The last
     * dimension, which the file does not have, holds the two parts. */
    bool is_complex;
};

/* Reads the header. Returns owned. */
enum pst_status pst_safetensors_open(const char *path,
                                     struct pst_safetensors **ret,
                                     struct pst_diag *diag) PST_MUST_CHECK;
void pst_safetensors_close(struct pst_safetensors *st);
/* Entries in the order of their data; valid until close. find returns NULL if
 * absent. */
size_t pst_safetensors_count(const struct pst_safetensors *st);
const struct pst_safetensors_entry *pst_safetensors_at(
    const struct pst_safetensors *st, size_t i);
const struct pst_safetensors_entry *pst_safetensors_find(
    const struct pst_safetensors *st, const char *name);
/* Reads `bytes` bytes from byte `begin` of the tensor on, as values of its
 * dtype. Any thread. */
enum pst_status pst_safetensors_read(const struct pst_safetensors_entry *entry,
                                     size_t begin, size_t bytes, void *dst,
                                     struct pst_diag *diag) PST_MUST_CHECK;
/* Reads all tensors into memory: their data is valid until close. */
enum pst_status pst_safetensors_load(struct pst_safetensors *st,
                                     struct pst_diag *diag) PST_MUST_CHECK;
/* Returns a value of __metadata__, NULL if absent. */
const char *pst_safetensors_metadata(const struct pst_safetensors *st,
                                     const char *key);
/* Returns the file, for its size and digest; valid until close. */
const struct pst_file *pst_safetensors_file(const struct pst_safetensors *st);

/*
 * Writing: new, declare everything, begin, put every tensor once in any order,
 * commit. The file appears under its name on commit (base/host/fs.h). Data is
 * ordered by descending element size, so that every tensor is aligned. Errors
 * of put and commit are final; free without commit removes the file.
 */
enum pst_status pst_safetensors_writer_new(
    const char *path, struct pst_safetensors_writer **ret,
    struct pst_diag *diag) PST_MUST_CHECK;
void pst_safetensors_writer_free(struct pst_safetensors_writer *w);
const char *pst_safetensors_writer_path(const struct pst_safetensors_writer *w);
/* Returns the path of the temporary file, until commit. */
const char *pst_safetensors_writer_now(const struct pst_safetensors_writer *w);
/* Name and sizes are copied, strides ignored; index counts from 0. */
enum pst_status pst_safetensors_writer_declare(
    struct pst_safetensors_writer *w, const char *name,
    const struct pst_meta *meta, struct pst_diag *diag) PST_MUST_CHECK;
/* Declares pairs (pst_meta_is_pairs) as complex numbers; f32 only. */
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
/* The same in pieces, from the beginning of the tensor to its end; an empty
 * tensor needs one piece of 0 bytes. */
enum pst_status pst_safetensors_writer_append(
    struct pst_safetensors_writer *w, size_t index, const void *data,
    size_t bytes, struct pst_diag *diag) PST_MUST_CHECK;
/*
 * Lets several processes write parts of the same tensors into one file. The
 * process that called begin puts its part, from byte `begin` on and in any
 * pieces, and shares the file: its path is then *ret_path, and it has its full
 * size, on other hosts too. The others open and join it (base/host/fs.h); it is
 * committed when they are done. put_at writes parts of others, at an offset of
 * the file.
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
/* PST_ERR_INTERNAL if an entry is incomplete. */
enum pst_status pst_safetensors_writer_commit(
    struct pst_safetensors_writer *w, struct pst_diag *diag) PST_MUST_CHECK;

/* Writes a whole file, from name, meta and data of the entries. */
enum pst_status pst_safetensors_save(
    const char *path, const struct pst_safetensors_entry *entries, size_t n,
    struct pst_diag *diag) PST_MUST_CHECK;

#endif
