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
    struct pst_meta meta; /* contiguous strides */
    /* data of a tensor to be saved, or of a file that is loaded as a whole */
    const void *data;
    size_t bytes;
    /* file that contains the tensor; NULL for a tensor to be saved */
    const struct pst_file *file;
    uint64_t offset;
    /* True for a tensor of complex numbers in a file, which is read as pairs of
     * real numbers: an additional last dimension contains the two parts. */
    bool is_complex;
};

/* Reads the header. Returns owned. */
enum pst_status pst_safetensors_open(const char *path,
                                     struct pst_safetensors **ret,
                                     struct pst_diag *diag) PST_MUST_CHECK;
void pst_safetensors_close(struct pst_safetensors *st);
/* Return the number of entries and an entry, in the order of their data; valid
 * until close. pst_safetensors_find returns NULL if the name is absent. */
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
/* Reads all tensors into memory; the `data` of entries is then valid until
 * close. */
enum pst_status pst_safetensors_load(struct pst_safetensors *st,
                                     struct pst_diag *diag) PST_MUST_CHECK;
/* Returns a value of __metadata__; NULL if absent. */
const char *pst_safetensors_metadata(const struct pst_safetensors *st,
                                     const char *key);
/* Returns the file, for its size and digest; valid until close. */
const struct pst_file *pst_safetensors_file(const struct pst_safetensors *st);

/*
 * Writes a file: new, declare every tensor, begin, put every tensor once in any
 * order, commit. The file appears under its name on commit (base/host/fs.h).
 * Data is ordered by descending element size, so that every tensor is aligned.
 * Errors of put and commit are final; free without commit removes the file.
 */
enum pst_status pst_safetensors_writer_new(
    const char *path, struct pst_safetensors_writer **ret,
    struct pst_diag *diag) PST_MUST_CHECK;
void pst_safetensors_writer_free(struct pst_safetensors_writer *w);
const char *pst_safetensors_writer_path(const struct pst_safetensors_writer *w);
/* Returns the path of the temporary file, until commit. */
const char *pst_safetensors_writer_now(const struct pst_safetensors_writer *w);
/* Declares a tensor; its index is the number of declarations before it. Copies
 * name and sizes, ignores strides. */
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
/* Writes a whole tensor: pst_meta_bytes bytes of contiguous data. */
enum pst_status pst_safetensors_writer_put(
    struct pst_safetensors_writer *w, size_t index, const void *data,
    struct pst_diag *diag) PST_MUST_CHECK;
/* Writes a tensor in pieces, from its beginning to its end; an empty tensor
 * needs one piece of 0 bytes. */
enum pst_status pst_safetensors_writer_append(
    struct pst_safetensors_writer *w, size_t index, const void *data,
    size_t bytes, struct pst_diag *diag) PST_MUST_CHECK;
/*
 * Let several processes write parts of the same tensors into one file. The
 * process that called begin writes its own parts with put_part, from byte
 * `begin` of a tensor on and in any pieces. share gives the file its full size,
 * makes it visible to other hosts and returns its path. The other processes
 * open and join it (base/host/fs.h); commit follows when all of them are done.
 * put_at writes a part of another process, at an offset in the file.
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
/* Completes the file. PST_ERR_INTERNAL if a tensor is incomplete. */
enum pst_status pst_safetensors_writer_commit(
    struct pst_safetensors_writer *w, struct pst_diag *diag) PST_MUST_CHECK;

/* Writes a whole file from the name, meta and data of the entries. */
enum pst_status pst_safetensors_save(
    const char *path, const struct pst_safetensors_entry *entries, size_t n,
    struct pst_diag *diag) PST_MUST_CHECK;

#endif
