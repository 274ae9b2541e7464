// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_BASE_FOLD_FOLD_H
#define PENSTOCK_STAGES_BASE_FOLD_FOLD_H
/*
 * A protobuf message in which layers that are alike are stored once. The
 * message becomes lines of text (message.c). A line whose text is that of a
 * line before it, but for numbers that have grown, is no longer written when
 * its neighbours have the same distance and grow by the same amounts each time
 * (lines.c): of 96 equal blocks the first stays, and what is added to its
 * numbers from block to block.
 *
 *     %relu = relu(%linear)        %relu_1 = relu(%linear_2)    +1 +2
 *
 * Digits are a number if they fit 18 and no 0 leads them. A name behind '%'
 * ends in "_N" or has the hidden number 0 there, as PyTorch counts its names.
 *
 * Any thread. What is unfolded is untrusted.
 */
#include "stages/base/diag.h"
#include "stages/base/str.h"
#include "stages/base/vec.h"

#include <protobuf-c/protobuf-c.h>

/* Lines `line` to `line + count - 1` of the text are those `period` lines
 * before, with these numbers added: n_deltas for the first `period` lines (or
 * `count`, if that is less), in the order in which numbers stand there, and
 * again for each repetition. 0 at the end is left out. */
struct pst_fold_run {
    uint32_t line, period, count; /* line counts from 0 */
    size_t first, n_deltas;       /* in pst_folded.deltas */
};

struct pst_folded {
    struct pst_str lines;                     /* each with its end of line */
    struct PST_VEC(struct pst_fold_run) runs; /* ascending, apart */
    struct PST_VEC(int64_t) deltas;
};

void pst_folded_fini(struct pst_folded *folded);

/* --- fold.c --------------------------------------------------------------- */

/* A packed message that pst_wire_scan passes. PST_ERR_UNSUPPORTED if it has
 * what cannot be folded. ret is zeroed; it is to be released after a failure
 * too. */
enum pst_status pst_fold(const ProtobufCMessageDescriptor *descriptor,
                         const void *data, size_t size, struct pst_folded *ret,
                         struct pst_diag *diag) PST_MUST_CHECK;
/* The message, packed. Its lines may have `max` bytes. ret is zeroed; it is to
 * be released after a failure too. */
enum pst_status pst_unfold(const struct pst_folded *folded, size_t max,
                           struct pst_str *ret,
                           struct pst_diag *diag) PST_MUST_CHECK;

/* --- lines.c -------------------------------------------------------------- */

/* text ends in an end of line. ret is zeroed; it is to be released after a
 * failure too. */
enum pst_status pst_fold_lines(const char *text, size_t len,
                               struct pst_folded *ret,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* PST_ERR_INPUT for runs that do not fit the lines, or for a text of more than
 * max bytes. ret is zeroed; it is to be released after a failure too. */
enum pst_status pst_unfold_lines(const struct pst_folded *folded, size_t max,
                                 struct pst_str *ret,
                                 struct pst_diag *diag) PST_MUST_CHECK;

/* A number as protobuf has it: 7 bits in each byte, the lowest first. */
void pst_put_varint(struct pst_str *out, uint64_t value);

/* --- runs.c --------------------------------------------------------------- */

enum pst_status pst_fold_pack_runs(const struct pst_folded *folded,
                                   struct pst_str *ret,
                                   struct pst_diag *diag) PST_MUST_CHECK;
/* And back: fills in runs and deltas, of these at most `max`. They are
 * untrusted: PST_ERR_INPUT. */
enum pst_status pst_fold_unpack_runs(const void *data, size_t size, size_t max,
                                     struct pst_folded *ret,
                                     struct pst_diag *diag) PST_MUST_CHECK;

/* --- message.c ------------------------------------------------------------ */

/* A packed message that pst_wire_scan has passed as lines; PST_ERR_UNSUPPORTED
 * if it has what these cannot say (bytes, unknown fields). */
enum pst_status pst_message_lines(const ProtobufCMessageDescriptor *descriptor,
                                  const void *data, size_t size,
                                  struct pst_str *ret,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* And back. The lines are untrusted: PST_ERR_INPUT. */
enum pst_status pst_message_pack(const struct pst_str *lines,
                                 struct pst_str *ret,
                                 struct pst_diag *diag) PST_MUST_CHECK;

#endif
