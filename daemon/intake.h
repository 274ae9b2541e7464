// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_INTAKE_H
#define PENSTOCK_DAEMON_INTAKE_H
/*
 * Where requests for outputs of a served model wait: a bounded queue from the
 * loop thread to the exec thread, and a list of answers back. Beside the
 * mailbox, whose orders are few and small, it is the only other place where
 * the two threads meet. Each function names its thread.
 */
#include "stages/base/diag.h"
#include "stages/graph/tensor.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#define PSTD_ASK_BYTES    (16u << 20)  /* largest request, and largest answer */
#define PSTD_INTAKE_BYTES (256u << 20) /* all waiting requests */

/* An input or output of the model, as a request has it. */
struct pstd_port {
    char *name;
    unsigned index;       /* in the plan */
    struct pst_meta meta; /* meta of one microbatch, contiguous */
    /* The dimension of samples; -1: an input that is not divided, which each
     * request has whole. An output without dimensions counts as one sample. */
    int dim;
    int64_t each;        /* size of one sample along dim */
    bool optional;       /* nothing that is answered depends on this input */
    size_t outer, inner; /* of a sample: pieces, bytes of one */
};

/* Inputs and outputs of a served model. A request has one or more samples: rows
 * of the model's inputs, or whole microbatches where inputs differ in the rows
 * of one. */
struct pstd_signature {
    struct pstd_port *inputs, *outputs;
    size_t n_inputs, n_outputs;
    int64_t samples;       /* samples per microbatch */
    unsigned microbatches; /* microbatches per step */
    bool apart;            /* requests do not share microbatches */
    uint64_t step;         /* step of the checkpoint; 0: start values */
    int64_t most;          /* samples that a request may have */
};

/* One request. */
struct pstd_ask {
    struct pstd_ask *next;
    uint64_t client, id; /* whose it is; the client's own number of it */
    int64_t samples;
    double came;
    size_t bytes;           /* of data */
    unsigned char *data;    /* inputs one after the other, contiguous; owned */
    unsigned char **inputs; /* by input, within data; NULL: left out; owned */
    unsigned char *result;  /* outputs one after the other; owned */
    size_t result_bytes;
    struct pst_diag diag; /* why there is no result */
};

/* Since the intake was made. */
struct pstd_intake_counts {
    uint64_t answered, failed, refused, gone; /* requests */
    uint64_t samples, steps;
    uint64_t waiting; /* now */
    double seconds;   /* from request to answer, sum over those answered */
    double longest;   /* longest since the statistics were reset */
};

struct pstd_intake;

/* Loop thread; there are answers. */
typedef void (*pstd_answers_fn)(void *ctx);

/* Loop thread. limit: requests that may wait. Returns owned. */
enum pst_status pstd_intake_new(uv_loop_t *loop, unsigned limit,
                                pstd_answers_fn answers, void *ctx,
                                struct pstd_intake **ret,
                                struct pst_diag *diag) PST_MUST_CHECK;
/* Loop thread, after the exec thread has ended. Memory is freed in the close
 * callback. NULL is accepted. */
void pstd_intake_close(struct pstd_intake *in);
/* Loop thread; NULL until it is open. Borrowed until close. */
const struct pstd_signature *pstd_intake_signature(
    const struct pstd_intake *in);
/* Loop thread. Takes the ask, also on failure. PST_ERR_BUSY: so many wait, or
 * the job takes no more. */
enum pst_status pstd_intake_put(struct pstd_intake *in, struct pstd_ask *ask,
                                struct pst_diag *diag) PST_MUST_CHECK;
/* Loop thread. The client is gone: its requests that wait are dropped. */
void pstd_intake_forget(struct pstd_intake *in, uint64_t client);
/* Loop thread. The next answer, owned; NULL: there is none. */
struct pstd_ask *pstd_intake_answer(struct pstd_intake *in);
/* Any thread. again: the longest one counts from now on. */
struct pstd_intake_counts pstd_intake_counts(struct pstd_intake *in,
                                             bool again);

/* Exec thread. Takes the signature: from now on there may be requests. */
void pstd_intake_open(struct pstd_intake *in, struct pstd_signature *signature);
/* Exec thread. Waits at most ms until the requests that wait fill a step, or
 * the oldest has waited batch_s, or no more are taken. Returns those that fit
 * into a step, a list in order, owned; NULL: it is not time for one. */
struct pstd_ask *pstd_intake_take(struct pstd_intake *in, unsigned ms,
                                  double batch_s);
/* Exec thread. Takes a list with results or diagnoses. */
void pstd_intake_give(struct pstd_intake *in, struct pstd_ask *list);
/* Exec thread. A step was made. */
void pstd_intake_count_step(struct pstd_intake *in);
/* Any thread. No request is taken any more. at_once: those that wait are
 * answered with PST_ERR_BUSY. */
void pstd_intake_shut(struct pstd_intake *in, bool at_once);

/* Samples of a step that a list of requests takes up to and with this one,
 * where the one before has ended at *at; false: it does not fit. */
bool pstd_signature_place(const struct pstd_signature *s, int64_t samples,
                          int64_t *at, int64_t *ret_begin);
/* Bytes of so many samples. */
size_t pstd_port_bytes(const struct pstd_port *port, int64_t samples);
void pstd_signature_fini(struct pstd_signature *s);
void pstd_ask_free(struct pstd_ask *ask);

#endif
