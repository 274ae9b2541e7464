// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_COMMON_CONTROL_FRAME_H
#define PENSTOCK_DAEMON_COMMON_CONTROL_FRAME_H
/*
 * Frames of the control socket (docs/socket.md): 4 bytes of length, then a
 * packed Frame. Incoming data is untrusted: size, number of fields and depth
 * are checked before anything is unpacked. Any thread, one at a time.
 */
#include "stages/base/diag.h"

#include "control.pb-c.h"

#define PSTD_PROTO 1
/* Maximum bytes of a frame to the daemon, and of a frame from it. */
#define PSTD_REQUEST_MAX (1u << 20)
#define PSTD_REPLY_MAX   (16u << 20)
/* Maximum fields of a frame to the daemon, and of a frame from it; maximum
 * unknown fields of any frame. */
#define PSTD_REQUEST_FIELD 4096
#define PSTD_REPLY_FIELD   (1u << 20)
#define PSTD_UNKNOWN_FIELD 64

typedef Pst__Control__Frame pstd_frame;

/* Received bytes that are not complete frames yet. */
struct pstd_frames {
    unsigned char *at;
    size_t n, cap;                /* n: received bytes; cap: allocated bytes */
    size_t max_bytes, max_fields; /* limits of one frame */
};

void pstd_frames_init(struct pstd_frames *frames, size_t max_bytes,
                      size_t max_fields);
void pstd_frames_fini(struct pstd_frames *frames);
enum pst_status pstd_frames_push(struct pstd_frames *frames, const void *data,
                                 size_t size,
                                 struct pst_diag *diag) PST_MUST_CHECK;
/* Removes the next frame from the received bytes; *ret is owned. PST_AGAIN: no
 * complete frame yet. After any other error the stream is unusable. */
enum pst_status pstd_frames_pop(struct pstd_frames *frames, pstd_frame **ret,
                                struct pst_diag *diag) PST_MUST_CHECK;

/* Returns the length in the 4 bytes before a frame. */
size_t pstd_frame_length(const unsigned char head[4]);
/* Unpacks one frame, without its length. Returns owned. */
enum pst_status pstd_frame_unpack(const void *data, size_t size,
                                  size_t max_fields, pstd_frame **ret,
                                  struct pst_diag *diag) PST_MUST_CHECK;
void pstd_frame_free(pstd_frame *frame);
/* Packs a frame with its length in front; free *ret with pst_free. */
enum pst_status pstd_frame_pack(const pstd_frame *frame, size_t max,
                                unsigned char **ret, size_t *ret_size,
                                struct pst_diag *diag) PST_MUST_CHECK;

#endif
