// SPDX-License-Identifier: Apache-2.0
#include "daemon/common/frame.h"

#include "stages/base/alloc.h"

#include <string.h>

#define MAX_DEPTH 8 /* control.proto needs 4 */

static void *proto_alloc(void *ctx, size_t size)
{
    (void)ctx;
    return pst_alloc(PST_TAG_CLIENT, size);
}

static void proto_free(void *ctx, void *p)
{
    (void)ctx;
    pst_free(p);
}

static ProtobufCAllocator allocator = {.alloc = proto_alloc,
                                       .free = proto_free};

/* A packed message that is being walked. */
struct scan {
    const unsigned char *at, *end;
    size_t fields, unknown, max_fields;
    struct pst_diag *diag;
};

static enum pst_status garbled(struct scan *s, const char *what)
{
    return pst_diag_set(s->diag, PST_ERR_INPUT, "bad frame: %s", what);
}

static enum pst_status scan_varint(struct scan *s, uint64_t *ret)
{
    uint64_t value = 0;

    for (unsigned shift = 0; shift < 70; shift += 7) {
        if (s->at == s->end)
            return garbled(s, "it ends within a number");
        if (shift < 64)
            value |= (uint64_t)(*s->at & 0x7f) << shift;
        if (!(*s->at++ & 0x80)) {
            *ret = value;
            return PST_OK;
        }
    }
    return garbled(s, "a number of more than 10 bytes");
}

static enum pst_status scan_skip(struct scan *s, uint64_t n)
{
    if (n > (size_t)(s->end - s->at))
        return garbled(s, "a field is longer than the frame");
    s->at += n;
    return PST_OK;
}

static enum pst_status scan_message(struct scan *s,
                                    const ProtobufCMessageDescriptor *desc,
                                    unsigned depth);

/* NULL: a field that we do not know. */
static enum pst_status scan_bytes(struct scan *s,
                                  const ProtobufCFieldDescriptor *field,
                                  unsigned depth)
{
    const unsigned char *end = s->end;
    uint64_t n = 0;
    enum pst_status status = scan_varint(s, &n);

    if (status != PST_OK)
        return status;
    if (n > (size_t)(s->end - s->at))
        return garbled(s, "a field is longer than what holds it");
    if (field == NULL || field->type != PROTOBUF_C_TYPE_MESSAGE) {
        s->at += n;
        return PST_OK;
    }
    s->end = s->at + n;
    status = scan_message(s, field->descriptor, depth + 1);
    s->end = end;
    return status;
}

static enum pst_status scan_field(struct scan *s,
                                  const ProtobufCMessageDescriptor *desc,
                                  unsigned depth)
{
    const ProtobufCFieldDescriptor *field;
    uint64_t tag = 0;
    enum pst_status status = scan_varint(s, &tag);

    if (status != PST_OK)
        return status;
    if (tag >> 3 == 0 || tag >> 3 >= 1u << 29)
        return garbled(s, "a field number out of range");
    field = protobuf_c_message_descriptor_get_field(desc, (unsigned)(tag >> 3));
    if (++s->fields > s->max_fields)
        return garbled(s, "too many fields");
    if (field == NULL && ++s->unknown > PSTD_UNKNOWN_FIELD)
        return garbled(s, "too many unknown fields");
    switch (tag & 7) {
    case 0:
        return scan_varint(s, &tag);
    case 1:
        return scan_skip(s, 8);
    case 2:
        return scan_bytes(s, field, depth);
    case 5:
        return scan_skip(s, 4);
    default:
        return garbled(s, "an unknown kind of field");
    }
}

static enum pst_status scan_message(struct scan *s,
                                    const ProtobufCMessageDescriptor *desc,
                                    unsigned depth)
{
    if (depth > MAX_DEPTH)
        return garbled(s, "nested too deep");
    while (s->at < s->end) {
        const enum pst_status status = scan_field(s, desc, depth);

        if (status != PST_OK)
            return status;
    }
    return PST_OK;
}

enum pst_status pstd_scan(const ProtobufCMessageDescriptor *descriptor,
                          const void *data, size_t size, size_t max_fields,
                          struct pst_diag *diag)
{
    struct scan s = {.at = data, .max_fields = max_fields, .diag = diag};

    s.end = s.at + size;
    return scan_message(&s, descriptor, 0);
}

enum pst_status pstd_frame_unpack(const void *data, size_t size,
                                  size_t max_fields, pstd_frame **ret,
                                  struct pst_diag *diag)
{
    const enum pst_status status = pstd_scan(&pst__control__frame__descriptor,
                                             data, size, max_fields, diag);
    pstd_frame *frame;

    if (status != PST_OK)
        return status;
    frame = pst__control__frame__unpack(&allocator, size, data);
    if (frame == NULL)
        return pst_diag_set(diag, PST_ERR_INPUT,
                            "bad frame: it is no message of this protocol");
    *ret = frame;
    return PST_OK;
}

void pstd_frame_free(pstd_frame *frame)
{
    if (frame != NULL)
        pst__control__frame__free_unpacked(frame, &allocator);
}

void pstd_frames_init(struct pstd_frames *frames, size_t max_bytes,
                      size_t max_fields)
{
    memset(frames, 0, sizeof(*frames));
    frames->max_bytes = max_bytes;
    frames->max_fields = max_fields;
}

void pstd_frames_fini(struct pstd_frames *frames)
{
    pst_free(frames->at);
    frames->at = NULL;
    frames->n = frames->cap = 0;
}

enum pst_status pstd_frames_push(struct pstd_frames *frames, const void *data,
                                 size_t size, struct pst_diag *diag)
{
    if (size > frames->cap - frames->n) {
        const size_t cap = PST_MAX(2 * frames->cap, frames->n + size);
        unsigned char *at = pst_realloc(PST_TAG_CLIENT, frames->at, cap);

        if (at == NULL)
            return pst_diag_nomem(diag, cap);
        frames->at = at;
        frames->cap = cap;
    }
    if (size > 0)
        memcpy(frames->at + frames->n, data, size);
    frames->n += size;
    return PST_OK;
}

enum pst_status pstd_frames_next(struct pstd_frames *frames, pstd_frame **ret,
                                 struct pst_diag *diag)
{
    enum pst_status status;
    size_t size;

    if (frames->n < 4)
        return PST_AGAIN;
    size = (size_t)frames->at[0] | (size_t)frames->at[1] << 8 |
           (size_t)frames->at[2] << 16 | (size_t)frames->at[3] << 24;
    if (size == 0 || size > frames->max_bytes)
        return pst_diag_set(diag, PST_ERR_INPUT,
                            "bad frame: %zu bytes, allowed are 1 to %zu", size,
                            frames->max_bytes);
    if (frames->n - 4 < size)
        return PST_AGAIN;
    status =
        pstd_frame_unpack(frames->at + 4, size, frames->max_fields, ret, diag);
    frames->n -= 4 + size;
    memmove(frames->at, frames->at + 4 + size, frames->n);
    return status;
}

enum pst_status pstd_frame_pack(const pstd_frame *frame, size_t max,
                                unsigned char **ret, size_t *ret_size,
                                struct pst_diag *diag)
{
    const size_t size = pst__control__frame__get_packed_size(frame);
    unsigned char *data;

    if (size > max)
        return pst_diag_set(diag, PST_ERR_USAGE,
                            "a message of %zu bytes, allowed are %zu", size,
                            max);
    data = pst_alloc(PST_TAG_CLIENT, 4 + size);
    if (data == NULL)
        return pst_diag_nomem(diag, 4 + size);
    for (unsigned i = 0; i < 4; i++)
        data[i] = (unsigned char)(size >> (8 * i));
    (void)pst__control__frame__pack(frame, data + 4);
    *ret = data;
    *ret_size = 4 + size;
    return PST_OK;
}
