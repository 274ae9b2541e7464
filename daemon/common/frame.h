// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_COMMON_FRAME_H
#define PENSTOCK_DAEMON_COMMON_FRAME_H
/*
 * Frames of the control socket (docs/socket.md): 4 bytes of length, then a
 * packed Frame. What comes in is untrusted: size, number of fields and depth
 * are counted before anything is unpacked. Any thread, one at a time.
 */
#include "stages/base/diag.h"

#include "control.pb-c.h"

#define PSTD_PROTO         1
#define PSTD_REQUEST_MAX   (1u << 20)  /* bytes towards the daemon */
#define PSTD_REPLY_MAX     (16u << 20) /* bytes from the daemon */
#define PSTD_REQUEST_FIELD 4096        /* fields of a frame */
#define PSTD_REPLY_FIELD   (1u << 20)
#define PSTD_UNKNOWN_FIELD 64

typedef Pst__Control__Frame pstd_frame;

/* Bytes that came in and are not yet frames. */
struct pstd_frames {
    unsigned char *at;
    size_t n, cap;
    size_t max_bytes, max_fields; /* of one frame */
};

void pstd_frames_init(struct pstd_frames *frames, size_t max_bytes,
                      size_t max_fields);
void pstd_frames_fini(struct pstd_frames *frames);
enum pst_status pstd_frames_push(struct pstd_frames *frames, const void *data,
                                 size_t size,
                                 struct pst_diag *diag) PST_MUST_CHECK;
/* PST_AGAIN: not complete yet. Returns owned. After an error the stream is
 * lost. */
enum pst_status pstd_frames_next(struct pstd_frames *frames, pstd_frame **ret,
                                 struct pst_diag *diag) PST_MUST_CHECK;

/* What the 4 bytes in front of a frame say. */
size_t pstd_frame_length(const unsigned char head[4]);
/* One frame without its length. Returns owned. */
enum pst_status pstd_frame_unpack(const void *data, size_t size,
                                  size_t max_fields, pstd_frame **ret,
                                  struct pst_diag *diag) PST_MUST_CHECK;
void pstd_frame_free(pstd_frame *frame);
/* With its length in front; *ret by pst_free. */
enum pst_status pstd_frame_pack(const pstd_frame *frame, size_t max,
                                unsigned char **ret, size_t *ret_size,
                                struct pst_diag *diag) PST_MUST_CHECK;

#endif
