// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_BASE_UNTRUSTED_WIRE_H
#define PENSTOCK_STAGES_BASE_UNTRUSTED_WIRE_H
/*
 * Checks a packed protobuf message against its descriptor and limits before it
 * is unpacked: two bytes of a forged message may cost hundreds on the heap, and
 * unknown fields are copied. Any thread.
 */
#include "stages/base/diag.h"

#include <protobuf-c/protobuf-c.h>

struct pst_wire_limits {
    /* fields at all depths; each element of a packed list is one */
    size_t fields;
    size_t unknown; /* fields that the descriptor lacks */
    size_t empty;   /* messages without any field, nested ones included */
    size_t bytes;   /* peak heap use of unpacking, in bytes */
    unsigned depth; /* depth of nested messages; 0: none are allowed */
};

/* Returns PST_ERR_INPUT, with one sentence, if the message exceeds a limit, is
 * truncated or malformed, has a field whose wire type does not fit the
 * descriptor, has a string that contains NUL, or repeats a singular message
 * field (merging takes quadratic time). protobuf-c unpacks any message that
 * passes, unless memory runs out. */
enum pst_status pst_wire_scan(const ProtobufCMessageDescriptor *descriptor,
                              const void *data, size_t size,
                              const struct pst_wire_limits *limits,
                              struct pst_diag *diag) PST_MUST_CHECK;

#endif
