// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_STATE_EDGES_H
#define PENSTOCK_STAGES_RUN_STATE_EDGES_H
/*
 * Several hosts write into one file, each its own bytes. A host caches the file
 * in pages and may write back whole pages, so two hosts that write into the
 * same page can overwrite each other's bytes. Therefore a rank writes only the
 * pages that belong to it alone, and sends the rest of its bytes, the edges, to
 * the rank that opened the file. Pure functions of the caller's memory; any
 * thread.
 */
#include "stages/base/vec.h"
#include "stages/files/safetensors.h"

/* Bytes of one rank in the file. */
struct pst_shard_span {
    uint64_t begin, bytes;
    /* The range of these bytes, relative to begin, that is in pages of this
     * rank alone. */
    size_t own_begin, own_end;
};

/* Sets own_begin and own_end. Adjacent spans, in this order, count as one
 * range. page: the largest page size of the hosts. */
void pst_spans_divide(struct pst_shard_span *spans, size_t n, uint64_t page);

/* Edges of a rank: for each one {offset in the file, number of bytes}, followed
 * by its bytes. */
struct pst_edges PST_VEC(unsigned char);

enum pst_status pst_edges_add(struct pst_edges *edges, uint64_t offset,
                              const void *data, size_t bytes,
                              struct pst_diag *diag) PST_MUST_CHECK;
/* Writes the edges of another rank to the file that w writes, and reads them
 * back through `file` to verify them. */
enum pst_status pst_edges_write(const struct pst_edges *edges,
                                struct pst_safetensors_writer *w,
                                const struct pst_file *file,
                                struct pst_diag *diag) PST_MUST_CHECK;

#endif
