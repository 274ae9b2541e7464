// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_BASE_WIRE_H
#define PENSTOCK_STAGES_BASE_WIRE_H
/*
 * Walks a packed protobuf message along its descriptor before anything of it
 * is unpacked: two bytes of a forged message may stand for hundreds on the
 * heap, and unknown fields are copied. Any thread.
 */
#include "stages/base/diag.h"

#include <protobuf-c/protobuf-c.h>

struct pst_wire_limits {
    size_t fields;  /* of all depths; elements of packed lists count */
    size_t unknown; /* of these, fields that the descriptor does not have */
    size_t empty;   /* messages without a field within the message */
    size_t bytes;   /* on the heap while and after it is unpacked */
    unsigned depth; /* 0: no messages within the message */
};

/* PST_ERR_INPUT, with one sentence, if the message is beyond a limit, is cut
 * or garbled, has a field of another kind than the descriptor, or a message
 * twice where that has one (merging these takes quadratic time): protobuf-c
 * refuses nothing that passes, but for want of memory. */
enum pst_status pst_wire_scan(const ProtobufCMessageDescriptor *descriptor,
                              const void *data, size_t size,
                              const struct pst_wire_limits *limits,
                              struct pst_diag *diag) PST_MUST_CHECK;

#endif
