// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_INTAKE_H
#define PENSTOCK_DAEMON_INTAKE_H
/*
 * Requests for outputs of a served model: a bounded queue from the loop thread
 * to the exec thread, and a list of answers back. The two threads share only
 * this queue and the mailbox, whose orders are few and small. Each function
 * names its thread.
 */
#include "stages/base/diag.h"
#include "stages/graph/tensor.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

/* Maximum sizes. */
#define PSTD_ASK_BYTES    (16u << 20)  /* bytes of a request or an answer */
#define PSTD_INTAKE_BYTES (256u << 20) /* bytes of all waiting requests */

/* An input or output of the model, and its part of a request. */
struct pstd_port {
    char *name;
    unsigned index;       /* index among the plan's inputs or outputs */
    struct pst_meta meta; /* meta of one microbatch, contiguous */
    /* Dimension along which samples are concatenated. -1: there is none; each
     * request has the whole input, or the output is one sample. */
    int dim;
    int64_t each;        /* size of one sample along dim */
    bool optional;       /* no answered output depends on this input */
    size_t outer, inner; /* a sample is `outer` pieces of `inner` bytes */
};

/* Inputs and outputs of a served model. A request has one or more samples: rows
 * of the model's inputs, or whole microbatches if the inputs of a microbatch
 * have different numbers of rows. */
struct pstd_signature {
    struct pstd_port *inputs, *outputs;
    size_t n_inputs, n_outputs;
    int64_t samples;       /* samples per microbatch */
    unsigned microbatches; /* microbatches per step */
    bool separate;         /* requests do not share microbatches */
    uint64_t step;         /* step of the checkpoint; 0: start values */
    int64_t most;          /* maximum samples of a request */
};

/* One request. */
struct pstd_ask {
    struct pstd_ask *next;
    uint64_t client, id; /* serial of the client; the client's request id */
    int64_t samples;
    double came;            /* time at which it was queued (pst_now) */
    size_t bytes;           /* size of `data` */
    unsigned char *data;    /* inputs one after the other, contiguous; owned */
    unsigned char **inputs; /* address of each input in data; NULL: left out.
                               The array is owned */
    unsigned char *result;  /* outputs one after the other; owned */
    size_t result_bytes;
    struct pst_diag diag; /* reason, if there is no result */
};

/* Statistics since the intake was created. */
struct pstd_intake_counts {
    /* Requests by outcome; gone: their client has closed its connection. */
    uint64_t answered, failed, refused, gone;
    uint64_t samples, steps; /* answered samples; steps that were run */
    uint64_t waiting;        /* requests that wait now */
    double seconds; /* sum of the seconds from request to answer, if answered */
    /* longest time from request to answer since the last reset */
    double longest;
};

struct pstd_intake;

/* Called on the loop thread when there are answers. */
typedef void (*pstd_answers_fn)(void *ctx);

/* Loop thread. Creates an intake (*ret, owned). limit: maximum number of
 * waiting requests. */
enum pst_status pstd_intake_new(uv_loop_t *loop, unsigned limit,
                                pstd_answers_fn answers, void *ctx,
                                struct pstd_intake **ret,
                                struct pst_diag *diag) PST_MUST_CHECK;
/* Loop thread, after the exec thread has ended. Closes the intake; its memory
 * is freed in the close callback. NULL is accepted. */
void pstd_intake_close(struct pstd_intake *in);
/* Loop thread. Returns the signature, borrowed until close; NULL until the exec
 * thread has opened the intake. */
const struct pstd_signature *pstd_intake_signature(
    const struct pstd_intake *in);
/* Loop thread. Queues a request; takes it, also on failure. PST_ERR_BUSY: too
 * many wait, or the job accepts no more. */
enum pst_status pstd_intake_put(struct pstd_intake *in, struct pstd_ask *ask,
                                struct pst_diag *diag) PST_MUST_CHECK;
/* Loop thread. Drops the waiting requests of a client that is gone. */
void pstd_intake_drop_client(struct pstd_intake *in, uint64_t client);
/* Loop thread. Returns the next answer, owned; NULL: there is none. */
struct pstd_ask *pstd_intake_pop_answer(struct pstd_intake *in);
/* Any thread. Returns the statistics. again: resets `longest`. */
struct pstd_intake_counts pstd_intake_counts(struct pstd_intake *in,
                                             bool again);

/* Exec thread. Takes the signature; from now on requests are accepted. */
void pstd_intake_open(struct pstd_intake *in, struct pstd_signature *signature);
/* Exec thread. Waits until the waiting requests fill a step, or the oldest has
 * waited batch_s seconds, or no more are accepted. Returns those that fit into
 * a step, as a list in order, owned; NULL: none of this happened within ms
 * milliseconds. */
struct pstd_ask *pstd_intake_take(struct pstd_intake *in, unsigned ms,
                                  double batch_s);
/* Exec thread. Passes a list of requests with results or diagnoses, which it
 * takes, to the loop thread. */
void pstd_intake_put_answers(struct pstd_intake *in, struct pstd_ask *list);
/* Exec thread. Counts a step. */
void pstd_intake_count_step(struct pstd_intake *in);
/* Any thread. Accepts no more requests. at_once: answers the waiting ones with
 * PST_ERR_BUSY. */
void pstd_intake_shut(struct pstd_intake *in, bool at_once);

/* Places a request of so many samples in a step, at the beginning of a
 * microbatch if s->separate. *at: end of the previous request. The request
 * begins at *ret_begin, at or after *at; sets *at to its end. False: it does
 * not fit into the step. */
bool pstd_signature_place(const struct pstd_signature *s, int64_t samples,
                          int64_t *at, int64_t *ret_begin);
/* Returns the bytes of so many samples, or the size of an input without
 * samples. */
size_t pstd_port_bytes(const struct pstd_port *port, int64_t samples);
void pstd_signature_fini(struct pstd_signature *s);
void pstd_ask_free(struct pstd_ask *ask);

#endif
