// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_RANK_STEP_TRAFFIC_H
#define PENSTOCK_STAGES_RUN_RANK_STEP_TRAFFIC_H
/*
 * Messages of a rank that are in flight. A message from a device's memory is
 * held until the kernels before it have run, and staged in the host's copy if
 * the transport cannot send from the device; received data is copied the other
 * way. If the receiver's device can read the sender's memory on the same host,
 * the sender sends only the location of the bytes. The receiver copies them,
 * and then sets a flag or, for another process, sends an answer. Callers create
 * their messages when the rank starts; nothing is allocated in a step. The
 * rank's own thread.
 */
#include "stages/base/arena.h"
#include "stages/device/device.h"
#include "stages/net/transport.h"
#include "stages/run/rank/step/signs.h"

typedef enum pst_status (*pst_message_fn)(void *ctx);

/* Sent in place of a message's bytes if the receiver's device copies them from
 * the sender's memory. Only the members before `taken` are sent to another
 * process. */
struct pst_passing {
    uint64_t offset, len; /* bytes from the base of the sender's memory */
    uint64_t answer;      /* the answer has the tag PST_MSG_ANSWERS + answer */
    atomic_bool *taken;   /* set when the receiver has copied the bytes */
};

struct pst_message {
    struct pst_request request;
    unsigned char *data;
    size_t len;           /* bytes */
    enum pst_space space; /* memory space of data */
    int tag;
    unsigned peer; /* rank of the job */
    bool send;
    /* For data in a device's memory: passed when the kernels that write it have
     * run, or when received data has been copied to it. */
    struct pst_event event;
    /* HELD: a send that waits for the event; FLIES: posted to the transport;
     * LANDS: received, waits for the event; GIVEN: a send whose receiver has to
     * copy the bytes; ANSWERS: received, sends its answer. */
    enum {
        PST_MESSAGE_HELD,
        PST_MESSAGE_FLIES,
        PST_MESSAGE_LANDS,
        PST_MESSAGE_GIVEN,
        PST_MESSAGE_ANSWERS
    } state;
    struct pst_passing passing; /* written by the sender */
    atomic_bool taken;
    /* With another process: the receiver's answer, which is the message's tag.
     */
    struct pst_request answering;
    int32_t answer;
    /* decremented when the message is done; NULL: no action waits for it */
    unsigned *counter;
    pst_message_fn on_done; /* called when the counter reaches 0; may be NULL */
    void *ctx;
};

struct pst_traffic {
    /* All pointers but active are borrowed. */
    struct pst_transport *transport;
    struct pst_device_memory *mem;
    struct pst_rank_signs *signs;
    struct pst_message **active; /* messages in flight */
    unsigned n_active;
    /* Numbers of answers that are not in use; a stack. */
    uint32_t *answers;
    unsigned n_answers;
    unsigned rank; /* this rank's number in the job */
    bool staged;   /* the transport cannot access mem */
    /* By rank of the job: its memory, if both ranks can read each other's; else
     * NULL. NULL: no rank has such a memory. */
    const struct pst_device_memory *const *peers;
    struct pst_diag *diag; /* receives errors of the step */
};

/* Allocates the capacity for n messages at a time; transport, mem, signs, rank
 * and staged must be set. */
enum pst_status pst_traffic_init(struct pst_traffic *t, unsigned n,
                                 struct pst_arena *heap,
                                 struct pst_diag *diag) PST_MUST_CHECK;
/* Sends or receives the message, which is borrowed until its counter is
 * decremented. */
enum pst_status pst_traffic_post(struct pst_traffic *t,
                                 struct pst_message *m) PST_MUST_CHECK;
/* True if a message waits for this device, or for its receiver to copy the
 * bytes. If all ranks are one process, wait() of the transport does not end for
 * these. */
bool pst_traffic_polls(const struct pst_traffic *t);
/* Polls messages in flight; returns the first failure. */
enum pst_status pst_traffic_poll(struct pst_traffic *t) PST_MUST_CHECK;

#endif
