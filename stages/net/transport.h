// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_NET_TRANSPORT_H
#define PENSTOCK_STAGES_NET_TRANSPORT_H
/*
 * Point-to-point messages between ranks.
 *
 * Threads: exec thread only; with one_process, once `threads` is set, each rank
 * may have a thread of its own, which posts, tests and waits for it. Nothing
 * here blocks except open, close and wait.
 * Order: messages with the same (source, destination, tag) arrive in send
 * order. Lengths of a send and its receive must be equal; if they are not, the
 * receive (with self the send too) ends with PST_ERR_PEER. That is for finding
 * a mistake, not for living with it: Open MPI 4.1 may write past the end of a
 * receive that is too short. Ranks agree on the plan before they send.
 * Ownership: posting borrows the request and its buffer until test() returns
 * anything but PST_AGAIN; nobody may touch either before that.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "stages/base/diag.h"
#include "stages/base/space.h"
#include "stages/net/tags.h"

struct pst_transport;

/* Caller-allocated, normally embedded in the action it serves. */
struct pst_request {
    void *impl; /* the transport's, while in flight */
    /* enum pst_status: PST_AGAIN, then the final one. With the final one come
     * the bytes, also for another thread. */
    atomic_int state;
};

struct pst_transport_ops {
    const char *name;
    unsigned spaces;  /* PST_SPACE_*: that it sends from and receives into */
    bool one_process; /* which has all ranks */
    /* spec: self: "N" ranks in this process; mpi: "" (MPI_Init_thread with
     * MPI_THREAD_FUNNELED by the calling thread, a private duplicate of the
     * world). Returns owned *ret_t; release with close(). */
    enum pst_status (*open)(const char *spec, struct pst_transport **ret_t,
                            struct pst_diag *diag);
    /* Waits for requests in flight. NULL is accepted. */
    void (*close)(struct pst_transport *t);
    unsigned (*size)(const struct pst_transport *t);
    /* Rank of this process; self: 0 (it has all of them). */
    unsigned (*rank)(const struct pst_transport *t);
    /* Processes of the job on this host, this one included; self: 1. */
    unsigned (*host_size)(const struct pst_transport *t);
    /* `self_rank` is the sender (isend) or receiver (irecv): one of this
     * process's ranks. */
    enum pst_status (*isend)(struct pst_transport *t, unsigned self_rank,
                             unsigned peer, int tag, const void *buf,
                             size_t len, struct pst_request *req);
    enum pst_status (*irecv)(struct pst_transport *t, unsigned self_rank,
                             unsigned peer, int tag, void *buf, size_t len,
                             struct pst_request *req);
    /* PST_ERR_PEER and PST_ERR_DAMAGED are final for that peer. */
    enum pst_status (*test)(struct pst_transport *t, struct pst_request *req);
    /* Takes a message with this tag, from any rank, if one has come; PST_AGAIN:
     * none. Only for tags that irecv never has, and for messages so short
     * that they travel without being asked for. One of another length is
     * dropped: PST_ERR_PEER. */
    enum pst_status (*take)(struct pst_transport *t, int tag, void *buf,
                            size_t len, unsigned *ret_from);
    /* Gives messages in flight a chance to move; called between kernels. */
    void (*progress)(struct pst_transport *t);
    /* Returns when something has moved for one of this process's ranks since
     * *seen, which it sets (0 at first), or after so many seconds, or earlier:
     * ranks that have a process each only give the processor up. */
    void (*wait)(struct pst_transport *t, unsigned self_rank, uint64_t *seen,
                 double seconds);
    /* Ends every rank of the job at once (fatal error of this one). */
    void (*abort)(struct pst_transport *t, int exit_code);
};

/* Every transport starts with this. */
struct pst_pulse;
struct pst_transport {
    const struct pst_transport_ops *ops;
    struct pst_pulse *pulse; /* stages/run/watch/pulse.h; NULL: none */
    bool threads;            /* of ranks; set once, before there are some */
    /* Messages are sent with a checksum (CRC32C), and looked at when they have
     * come: PST_ERR_DAMAGED. Set on all ranks alike, while none is under way;
     * nothing leaves a process of `self`, which ignores it. */
    bool checks;
};

extern const struct pst_transport_ops pst_transport_self, pst_transport_mpi;
/* NULL if there is none of that name. */
const struct pst_transport_ops *pst_transport_find(const char *name);

#endif
