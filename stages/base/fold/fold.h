// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_BASE_FOLD_FOLD_H
#define PENSTOCK_STAGES_BASE_FOLD_FOLD_H
/*
 * Folds a protobuf message so that repeated layers are stored once. The message
 * becomes lines of text (message.c). Lines are left out if each equals the line
 * one period earlier except for its numbers, and if these grow by the same
 * amounts in each period (lines.c). Of 96 equal blocks, only the first is
 * stored, with the increments of its numbers from block to block.
 *
 *     %relu = relu(%linear)        %relu_1 = relu(%linear_2)    +1 +2
 *
 * Digits are a number if there are at most 18 and the first is not 0. A name
 * after '%' ends in "_N" or has the implicit number 0, as PyTorch counts its
 * names.
 *
 * Any thread. The input of unfolding is untrusted.
 */
#include "stages/base/diag.h"
#include "stages/base/str.h"
#include "stages/base/vec.h"

#include <protobuf-c/protobuf-c.h>

/* A run: lines `line` to `line + count - 1` of the text. Each is the line
 * `period` lines earlier with increments added to its numbers. There are
 * n_deltas increments, in the order of the numbers in the first `period` lines
 * (or in all lines, if count is less). Every further period adds the same
 * increments. Trailing zeros are left out. */
struct pst_fold_run {
    /* line: number of the run's first line, from 0 */
    uint32_t line, period, count;
    /* the run's increments are deltas[first] to deltas[first + n_deltas - 1] */
    size_t first, n_deltas;
};

struct pst_folded {
    /* lines outside of runs, with newlines */
    struct pst_str lines;
    struct PST_VEC(struct pst_fold_run) runs; /* ascending, disjoint */
    struct PST_VEC(int64_t) deltas;
};

void pst_folded_fini(struct pst_folded *folded);

/* --- fold.c --------------------------------------------------------------- */

/* Folds a packed message that pst_wire_scan accepts. PST_ERR_UNSUPPORTED if it
 * has parts that cannot be folded, or if unfolding would exceed
 * pst_fold_limit. The caller passes ret zeroed and releases
 * it, also after a failure. */
enum pst_status pst_fold(const ProtobufCMessageDescriptor *descriptor,
                         const void *data, size_t size, struct pst_folded *ret,
                         struct pst_diag *diag) PST_MUST_CHECK;
/* Returns the packed message. PST_ERR_INPUT if its lines take more than
 * pst_fold_limit. The caller passes ret zeroed and releases it, also after a
 * failure. */
enum pst_status pst_unfold(const struct pst_folded *folded, struct pst_str *ret,
                           struct pst_diag *diag) PST_MUST_CHECK;
/* Returns the bytes that unfolded lines and their offsets may take, for lines
 * of `size` bytes in the file: runs repeat lines without taking bytes there. A
 * model of 1000 layers has about 10 MiB of lines. */
static inline size_t pst_fold_limit(size_t size)
{
    return 8 * size + ((size_t)16 << 20);
}

/* --- lines.c -------------------------------------------------------------- */

/* Folds text, which ends with a newline. The caller passes ret zeroed and
 * releases it, also after a failure. */
enum pst_status pst_fold_lines(const char *text, size_t len,
                               struct pst_folded *ret,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* Restores the text. PST_ERR_INPUT if the runs do not fit the lines, or if the
 * text and the offsets of its lines exceed max bytes. The caller passes ret
 * zeroed and releases it, also after a failure. */
enum pst_status pst_unfold_lines(const struct pst_folded *folded, size_t max,
                                 struct pst_str *ret,
                                 struct pst_diag *diag) PST_MUST_CHECK;

/* Appends a protobuf varint: 7 bits in each byte, the lowest first. */
void pst_put_varint(struct pst_str *out, uint64_t value);

/* --- runs.c --------------------------------------------------------------- */

enum pst_status pst_fold_pack_runs(const struct pst_folded *folded,
                                   struct pst_str *ret,
                                   struct pst_diag *diag) PST_MUST_CHECK;
/* Decodes what pst_fold_pack_runs encoded: runs, and at most `max` deltas. The
 * data is untrusted: PST_ERR_INPUT. */
enum pst_status pst_fold_unpack_runs(const void *data, size_t size, size_t max,
                                     struct pst_folded *ret,
                                     struct pst_diag *diag) PST_MUST_CHECK;

/* --- message.c ------------------------------------------------------------ */

/* Converts a packed message that pst_wire_scan has accepted to lines;
 * PST_ERR_UNSUPPORTED if it has parts that lines cannot express (bytes, unknown
 * fields). */
enum pst_status pst_message_lines(const ProtobufCMessageDescriptor *descriptor,
                                  const void *data, size_t size,
                                  struct pst_str *ret,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* Converts lines back to a packed message. The lines are untrusted:
 * PST_ERR_INPUT. */
enum pst_status pst_message_pack(const struct pst_str *lines,
                                 struct pst_str *ret,
                                 struct pst_diag *diag) PST_MUST_CHECK;

#endif
