// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_STATE_EDGES_H
#define PENSTOCK_STAGES_RUN_STATE_EDGES_H
/*
 * Several hosts write into one file, each its own bytes. A host has the file in
 * pages and may write a page back whole: two that write into the same page can
 * undo what the other one wrote there. So a rank writes the pages that are its
 * own alone; the rest of its bytes, the edges, go to the rank that has opened
 * the file. Pure functions of the caller's memory; any thread.
 */
#include "stages/base/vec.h"
#include "stages/files/safetensors.h"

/* Bytes of one rank in the file. */
struct pst_span {
    uint64_t begin, bytes;
    size_t own_begin, own_end; /* of these bytes: in pages of the rank alone */
};

/* Sets own_begin and own_end. Spans that lie side by side, in this order, are
 * one range. page: of the largest of the hosts. */
void pst_spans_divide(struct pst_span *spans, size_t n, uint64_t page);

/* A number of edges: {offset, bytes} of each, and these bytes. */
struct pst_edges PST_VEC(unsigned char);

enum pst_status pst_edges_add(struct pst_edges *edges, uint64_t offset,
                              const void *data, size_t bytes,
                              struct pst_diag *diag) PST_MUST_CHECK;
/* Of another rank: to the file that is being written, which is looked at
 * through `file` to see that it has them. */
enum pst_status pst_edges_write(const struct pst_edges *edges,
                                struct pst_safetensors_writer *w,
                                const struct pst_file *file,
                                struct pst_diag *diag) PST_MUST_CHECK;

#endif
