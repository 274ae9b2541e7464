// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_RANK_STEP_TRAFFIC_H
#define PENSTOCK_STAGES_RUN_RANK_STEP_TRAFFIC_H
/*
 * A rank's messages in flight. What leaves a device's memory is held until the
 * kernels before it have made it, and copied to the host's copy if the
 * transport cannot send from there; what arrives is copied the other way.
 * Whoever sends or receives has made his messages when the rank started;
 * nothing is allocated in a step. The rank's own thread.
 */
#include "stages/base/arena.h"
#include "stages/device/device.h"
#include "stages/net/transport.h"
#include "stages/run/rank/step/signs.h"

typedef enum pst_status (*pst_message_fn)(void *ctx);

struct pst_message {
    struct pst_request request;
    unsigned char *data;
    size_t len;
    enum pst_space space; /* of data */
    int tag;
    unsigned peer; /* rank of the job */
    bool send;
    /* Of data in a device's memory: what it is made by, or has come to. */
    struct pst_event event;
    enum { PST_MESSAGE_HELD, PST_MESSAGE_FLIES, PST_MESSAGE_LANDS } state;
    unsigned *counter;   /* of messages that somebody waits for; NULL: nobody */
    pst_message_fn then; /* runs when counter comes to 0; NULL: nothing does */
    void *ctx;
};

struct pst_traffic {
    struct pst_transport *transport; /* borrowed, as all that is pointed to */
    struct pst_device_memory *mem;
    struct pst_rank_signs *signs;
    struct pst_message **active; /* in flight */
    unsigned n_active;
    unsigned rank;         /* own, of the job */
    bool staged;           /* the transport cannot send from mem */
    struct pst_diag *diag; /* of the step */
};

/* Room for n messages at a time; the members above are set. */
enum pst_status pst_traffic_init(struct pst_traffic *t, unsigned n,
                                 struct pst_arena *heap,
                                 struct pst_diag *diag) PST_MUST_CHECK;
/* Borrows the message until its counter has gone down again. */
enum pst_status pst_traffic_post(struct pst_traffic *t,
                                 struct pst_message *m) PST_MUST_CHECK;
/* Tests what is in flight; the first failure wins. */
enum pst_status pst_traffic_poll(struct pst_traffic *t) PST_MUST_CHECK;

#endif
