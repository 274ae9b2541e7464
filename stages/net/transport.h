// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_NET_TRANSPORT_H
#define PENSTOCK_STAGES_NET_TRANSPORT_H
/*
 * Point-to-point messages between ranks.
 *
 * Threads: exec thread only; with one_process, once `threads` is set, each rank
 * may have its own thread, which posts, tests and waits for it. Nothing here
 * blocks except open, close and wait.
 * Order: messages with the same (source, destination, tag) arrive in send
 * order. Lengths of a send and its receive must be equal; if they are not, the
 * receive (with self also the send) ends with PST_ERR_PEER. No receive with a
 * tag of PST_MSG_IS_ALONE writes past its end. For other tags this only helps
 * to find a bug, since Open MPI 4.1 may write past the end of a receive that is
 * too short: ranks agree on the plan before they send.
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
    void *impl; /* owned by the transport while in flight */
    /* enum pst_status: PST_AGAIN, then the final status. The final status
     * publishes the received bytes to other threads. */
    atomic_int state;
};

struct pst_transport_ops {
    const char *name;
    unsigned spaces;  /* PST_SPACE_* that it can send from and receive into */
    bool one_process; /* all ranks of the job are in this process */
    /* spec: self: "N" ranks in this process; mpi: "" (MPI_Init_thread with
     * MPI_THREAD_FUNNELED by the calling thread, a private duplicate of the
     * world). Returns owned *ret_t; release with close(). */
    enum pst_status (*open)(const char *spec, struct pst_transport **ret_t,
                            struct pst_diag *diag);
    /* Waits for requests in flight. NULL is accepted. */
    void (*close)(struct pst_transport *t);
    unsigned (*size)(const struct pst_transport *t);
    /* Returns the rank of this process; self: 0 (it has all ranks). */
    unsigned (*rank)(const struct pst_transport *t);
    /* Returns the number of processes of the job on this host, including this
     * one; self: 1. */
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
    /* Receives a message with this tag from any rank; PST_AGAIN if there is
     * none. Only for tags that are not used with irecv, and for messages that
     * are short enough to be sent eagerly. A message of another length is
     * dropped: PST_ERR_PEER. */
    enum pst_status (*take)(struct pst_transport *t, int tag, void *buf,
                            size_t len, unsigned *ret_from);
    /* Lets messages in flight progress; called between kernels. */
    void (*progress)(struct pst_transport *t);
    /* Waits until a message of self_rank has progressed since *seen (0 at
     * first), and updates *seen. Waits for at most `seconds`; transports with
     * one rank per process only yield the processor. */
    void (*wait)(struct pst_transport *t, unsigned self_rank, uint64_t *seen,
                 double seconds);
    /* Ends every rank of the job at once, after a fatal error of this one. */
    void (*abort)(struct pst_transport *t, int exit_code);
};

/* The base of every transport. */
struct pst_pulse;
struct pst_transport {
    const struct pst_transport_ops *ops;
    struct pst_pulse *pulse; /* stages/run/watch/pulse.h; NULL: none */
    /* Each rank has a thread of its own; set once, before the threads start. */
    bool threads;
    /* Messages are sent with a checksum (CRC32C), which is verified on arrival:
     * PST_ERR_DAMAGED. Set equally on all ranks, while no message is in flight;
     * `self` ignores it, since nothing leaves the process. */
    bool checks;
    /* Called repeatedly while a rank waits for another one; an error ends the
     * wait. NULL: none. */
    enum pst_status (*look)(void *ctx, struct pst_diag *diag);
    void *look_ctx;
    /* A step of any engine on this transport has failed: engines can only be
     * freed, and ranks may be lost, so that nobody waits for one. */
    bool has_failed;
};

extern const struct pst_transport_ops pst_transport_self, pst_transport_mpi;
/* COLLECTIVE over the communicator. Opens a transport of `mpi` on an
 * application's communicator: comm is the address of an MPI_Comm, of which it
 * uses private duplicates. The application initializes and finalizes MPI; this
 * thread must be one that may call it. Several may be open in a process.
 * PST_ERR_CONFIG: MPI is not initialized, or its thread level is too low.
 * limit: seconds to wait for ranks that do not call it (PST_ERR_PEER); 0: no
 * limit. Returns owned *ret; close() is collective, too. */
enum pst_status pst_transport_mpi_on(const void *comm, double limit,
                                     struct pst_transport **ret,
                                     struct pst_diag *diag) PST_MUST_CHECK;
/* Writes the MPI_Comm of a communicator of Fortran, which is an integer
 * (MPI_Fint), to ret, where `size` bytes are. PST_ERR_CONFIG: MPI is not
 * initialized, or there is no such communicator. */
enum pst_status pst_transport_mpi_from_fortran(
    int comm, void *ret, size_t size, struct pst_diag *diag) PST_MUST_CHECK;
/* Returns NULL if there is no transport of that name. */
const struct pst_transport_ops *pst_transport_find(const char *name);

#endif
