// SPDX-License-Identifier: Apache-2.0
#include "daemon/common/control/frame.h"

#include "stages/base/alloc.h"
#include "stages/base/untrusted/wire.h"

#include <stdbool.h>
#include <string.h>

#define MAX_DEPTH 8 /* control.proto needs 4 */

/* Allocates memory for protobuf-c. ctx: NULL, or a bool that is set to true if
 * no memory is left. */
static void *proto_alloc(void *ctx, size_t size)
{
    void *ret = pst_alloc(PST_TAG_CLIENT, size);

    if (ret == NULL && ctx != NULL)
        *(bool *)ctx = true;
    return ret;
}

static void proto_free(void *ctx, void *p)
{
    (void)ctx;
    pst_free(p);
}

static ProtobufCAllocator allocator = {.alloc = proto_alloc,
                                       .free = proto_free};

/* Upper bound of the heap that unpacking a frame takes. Replies with many small
 * messages take most, relative to the frame's size: logs, which have the
 * smallest ones, take 6.7 times that size. */
#define HEAP(size) (12 * (size) + 65536)

enum pst_status pstd_frame_unpack(const void *data, size_t size,
                                  size_t max_fields, pstd_frame **ret,
                                  struct pst_diag *diag)
{
    const struct pst_wire_limits limits = {.fields = max_fields,
                                           .unknown = PSTD_UNKNOWN_FIELD,
                                           .empty = PSTD_UNKNOWN_FIELD,
                                           .bytes = HEAP(size),
                                           .depth = MAX_DEPTH};
    bool no_memory = false;
    ProtobufCAllocator telling = {proto_alloc, proto_free, &no_memory};
    struct pst_diag why;
    const enum pst_status status = pst_wire_scan(
        &pst__control__frame__descriptor, data, size, &limits, &why);
    pstd_frame *frame;

    if (status == PST_ERR_INPUT)
        return pst_diag_set(diag, PST_E_CONTROL_FRAME, "bad frame: %s",
                            why.text);
    if (status != PST_OK)
        return pst_diag_pass(diag, &why, "bad frame: %s", why.text);
    frame = pst__control__frame__unpack(&telling, size, data);
    if (frame == NULL && no_memory)
        return pst_diag_nomem(diag, size);
    if (frame == NULL)
        return pst_diag_set(diag, PST_E_CONTROL_FRAME,
                            "bad frame: it is not a message of this protocol");
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

size_t pstd_frame_length(const unsigned char head[4])
{
    return (size_t)head[0] | (size_t)head[1] << 8 | (size_t)head[2] << 16 |
           (size_t)head[3] << 24;
}

enum pst_status pstd_frames_pop(struct pstd_frames *frames, pstd_frame **ret,
                                struct pst_diag *diag)
{
    enum pst_status status;
    size_t size;

    if (frames->n < 4)
        return PST_AGAIN;
    size = pstd_frame_length(frames->at);
    if (size == 0 || size > frames->max_bytes)
        return pst_diag_set(diag, PST_E_CONTROL_FRAME,
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
        return pst_diag_set(diag, PST_E_JOB_REQUEST_SIZE,
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
