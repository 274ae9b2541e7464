// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_BASE_STATUS_H
#define PENSTOCK_STAGES_BASE_STATUS_H
/*
 * Status codes of the whole project. A row has a name, a value, the exit code
 * (sysexits) of a program that ends with it, and a text.
 * Codes of errno, uv, MPI and zip are translated where they occur.
 */
#include "stages/base/macros.h"

#define PST_STATUS_LIST(X)                                                     \
    X(OK, 0, 0, "ok")                                                          \
    X(AGAIN, 1, 75, "not finished yet")                                        \
    X(ERR_NOMEM, -1, 1, "out of memory")                                       \
    X(ERR_USAGE, -2, 64, "wrong use")                                          \
    X(ERR_INPUT, -3, 65, "bad input")                                          \
    X(ERR_UNSUPPORTED, -4, 65, "not supported")                                \
    X(ERR_SHAPE, -5, 65, "shapes or dtypes do not fit")                        \
    X(ERR_RANGE, -6, 65, "value out of range")                                 \
    X(ERR_NOT_FOUND, -7, 65, "not found")                                      \
    X(ERR_VERSION, -8, 65, "version not supported")                            \
    X(ERR_MISMATCH, -9, 78, "does not match")                                  \
    X(ERR_CONFIG, -10, 78, "configuration")                                    \
    X(ERR_IO, -11, 74, "input or output failed")                               \
    X(ERR_PEER, -12, 1, "a peer failed")                                       \
    X(ERR_NO_DAEMON, -13, 69, "no daemon")                                     \
    X(ERR_BUSY, -14, 75, "busy, try again")                                    \
    X(ERR_DENIED, -15, 77, "not permitted")                                    \
    X(ERR_DIFFERENT, -16, 2, "there is a difference")                          \
    X(ERR_CANCELLED, -17, 130, "cancelled")                                    \
    X(ERR_TERMINATED, -19, 143, "ended by SIGTERM")                            \
    X(ERR_DAMAGED, -20, 1, "checksum mismatch in a message")                   \
    X(ERR_DEVICE, -21, 1, "a device failed")                                   \
    X(ERR_INTERNAL, -18, 1, "internal error") /* must be the last row */

enum pst_status {
#define PST_STATUS_ROW(name, value, exit_code, text) PST_##name = (value),
    PST_STATUS_LIST(PST_STATUS_ROW)
#undef PST_STATUS_ROW
};

/* Return, for example, "ERR_SHAPE", "shapes or dtypes do not fit", 65. Unknown
 * values are treated as ERR_INTERNAL. */
const char *pst_status_name(enum pst_status status);
const char *pst_status_text(enum pst_status status);
int pst_status_exit_code(enum pst_status status);

#endif
