// SPDX-License-Identifier: Apache-2.0
/* `penstock ask`: requests outputs from a served model. */
#include "daemon/ctl/ctl.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "daemon/common/setup.h"
#include "daemon/ctl/job/owner.h"
#include "daemon/ctl/print.h"
#include "daemon/ctl/serve/tensors.h"
#include "stages/base/alloc.h"
#include "stages/base/host/alive.h"

struct ask_job {
    const struct pstd_config *config;
    struct pstctl_conn conn;
    pstd_frame *frame; /* frame with the signature */
    const pstctl_signature *signature;
    struct pstctl_tensors inputs, outputs;
    uint64_t samples; /* samples of the inputs, summed over all requests */
    uint64_t most;    /* maximum samples of a request */
    uint64_t step;    /* step of the checkpoint that gave the last answer */
    /* the inputs are inconsistent: they are sent unchanged, and the job reports
     * the error */
    bool whole;
};

/* Reports that the ranks have ended; after a restart they may answer. */
static enum pst_status report_lost(struct pst_diag *diag)
{
    return pst_diag_set(diag, PST_E_SERVE_LOST,
                        "the job ended, or lost a rank, before it answered; "
                        "ask again");
}

/* Connects to the job; reports PST_E_SERVE_LOST while its ranks are being
 * started. */
static enum pst_status connect_to(struct ask_job *a, struct pst_diag *diag)
{
    const enum pst_status status = pstctl_connect(a->config, &a->conn, diag);

    if (status == PST_ERR_BUSY && diag->error == PST_E_JOB_STARTING)
        return pst_diag_set(diag, PST_E_SERVE_LOST,
                            "the job's ranks are being started; ask again");
    return status;
}

/* Waits for the reply to request `id`; drops other replies. */
static enum pst_status await_reply(struct ask_job *a, uint64_t id,
                                   pstd_frame **ret, struct pst_diag *diag)
{
    const double limit = a->config->ask_timeout, begin = pst_now();

    for (;;) {
        const double left = begin + limit - pst_now();
        const int ms =
            limit > 0 ? (int)PST_MIN(1e3 * PST_MAX(left, 0.0), 1e9) : -1;
        pstd_frame *frame = NULL;
        enum pst_status status = pstctl_read(&a->conn, ms, &frame, diag);

        if (status == PST_ERR_NO_DAEMON || status == PST_ERR_IO)
            return report_lost(diag);
        if (status == PST_AGAIN)
            return pst_diag_set(diag, PST_E_SERVE_TIMEOUT,
                                "no answer within %g s (--timeout); ask again",
                                limit);
        if (status != PST_OK)
            return status;
        if (frame->body_case == PST__CONTROL__FRAME__BODY_REPLY &&
            (frame->reply->id == id || frame->reply->id == 0)) {
            *ret = frame;
            return PST_OK;
        }
        pstd_frame_free(frame);
    }
}

/* Sends a request and waits for the reply. A reply that is not of kind `body`
 * is an error, with the job's text if it has one. */
static enum pst_status call_job(struct ask_job *a, pstctl_request *request,
                                Pst__Control__Reply__BodyCase body,
                                pstd_frame **ret, struct pst_diag *diag)
{
    pstd_frame *frame = NULL;
    enum pst_status status = pstctl_send(&a->conn, request, diag);

    if (status == PST_ERR_IO || status == PST_ERR_NO_DAEMON)
        return report_lost(diag);
    if (status == PST_OK)
        status = await_reply(a, request->id, &frame, diag);
    if (status != PST_OK)
        return status;
    if (frame->reply->status != PST_OK)
        status = pstctl_reply_status(frame->reply, diag);
    else if (frame->reply->body_case != body)
        status = pstctl_refuse_answer(diag);
    if (status == PST_OK)
        *ret = frame;
    else
        pstd_frame_free(frame);
    return status;
}

static enum pst_status get_signature(struct ask_job *a, struct pst_diag *diag)
{
    Pst__Control__GetSignature get = PST__CONTROL__GET_SIGNATURE__INIT;
    pstctl_request request = PST__CONTROL__REQUEST__INIT;
    enum pst_status status;

    request.body_case = PST__CONTROL__REQUEST__BODY_GET_SIGNATURE;
    request.get_signature = &get;
    status = call_job(a, &request, PST__CONTROL__REPLY__BODY_SIGNATURE,
                      &a->frame, diag);
    if (status == PST_OK)
        a->signature = a->frame->reply->signature;
    return status;
}

/* --- samples -------------------------------------------------------------- */

static const Pst__Control__Port *find_port(Pst__Control__Port **ports, size_t n,
                                           const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(ports[i]->name, name) == 0)
            return ports[i];
    return NULL;
}

/* Returns the number of samples of a tensor, from its size along port->dim; 0:
 * its shape does not fit the port. */
static uint64_t tensor_samples(const struct pst_meta *meta,
                               const Pst__Control__Port *port)
{
    uint64_t n = 0;

    if (port == NULL || port->dim < 0 || port->n_size != meta->rank ||
        (unsigned)port->dim >= meta->rank)
        return 0;
    for (unsigned d = 0; d < meta->rank; d++) {
        if ((int)d == port->dim && port->size[d] > 0 &&
            (uint64_t)meta->size[d] % port->size[d] == 0)
            n = (uint64_t)meta->size[d] / port->size[d];
        else if ((uint64_t)meta->size[d] != port->size[d])
            return 0;
    }
    return n;
}

/* Counts the samples of the inputs. Inconsistent inputs are sent unchanged, so
 * that the job reports the error. */
static void count_samples(struct ask_job *a)
{
    const pstctl_signature *s = a->signature;

    a->most = s->most_samples;
    for (size_t i = 0; i < a->inputs.all.n; i++) {
        const struct pstctl_tensor *t = &a->inputs.all.at[i];
        const Pst__Control__Port *port =
            find_port(s->inputs, s->n_inputs, t->name);
        const uint64_t n = tensor_samples(&t->meta, port);

        if (port != NULL && port->dim < 0)
            continue;
        a->whole = a->whole || n == 0 || (a->samples > 0 && n != a->samples);
        a->samples = n;
    }
    if (a->samples == 0 || a->most == 0)
        a->whole = true;
}

/* Describes samples that are concatenated along dim. *ret_outer: product of the
 * dimensions before dim; *ret_inner: bytes of one sample in each of these
 * parts. */
static void divide_samples(const struct pst_meta *meta, int dim,
                           uint64_t samples, size_t *ret_outer,
                           size_t *ret_inner)
{
    *ret_outer = 1;
    for (int d = 0; d < dim; d++)
        *ret_outer *= (size_t)meta->size[d];
    *ret_inner =
        pst_meta_bytes(meta) / PST_MAX(*ret_outer, (size_t)1) / (size_t)samples;
}

/* --- one request ---------------------------------------------------------- */

/* Makes the message of a tensor, or of its samples `from` to from + n - 1. In
 * the second case *ret_copy, owned, has their data. */
static enum pst_status pack_tensor(const struct ask_job *a,
                                   const struct pstctl_tensor *t, uint64_t from,
                                   uint64_t n, uint64_t *sizes,
                                   Pst__Control__Tensor *ret,
                                   unsigned char **ret_copy,
                                   struct pst_diag *diag)
{
    const pstctl_signature *s = a->signature;
    const Pst__Control__Port *port = find_port(s->inputs, s->n_inputs, t->name);
    size_t outer, inner;

    pst__control__tensor__init(ret);
    ret->name = t->name;
    ret->dtype = (char *)pst_dtype_safetensors(t->meta.dtype);
    ret->size = sizes;
    ret->n_size = t->meta.rank;
    ret->data.data = t->data;
    ret->data.len = pst_meta_bytes(&t->meta);
    for (unsigned d = 0; d < t->meta.rank; d++)
        sizes[d] = (uint64_t)t->meta.size[d];
    *ret_copy = NULL;
    if (a->whole || port == NULL || port->dim < 0 || n == a->samples)
        return PST_OK;
    divide_samples(&t->meta, port->dim, a->samples, &outer, &inner);
    sizes[port->dim] = n * port->size[port->dim];
    ret->data.len = outer * inner * (size_t)n;
    ret->data.data = *ret_copy = pst_alloc(PST_TAG_CLIENT, ret->data.len + 1);
    if (*ret_copy == NULL)
        return pst_diag_nomem(diag, ret->data.len);
    for (size_t o = 0; o < outer; o++)
        memcpy(*ret_copy + o * inner * (size_t)n,
               t->data + (o * (size_t)a->samples + (size_t)from) * inner,
               inner * (size_t)n);
    return PST_OK;
}

/* Copies one output of an answer with n samples to position `from` of the
 * result. */
static enum pst_status store_output(struct ask_job *a, size_t k, uint64_t from,
                                    uint64_t n, const Pst__Control__Tensor *t,
                                    struct pst_diag *diag)
{
    const Pst__Control__Port *port = a->signature->outputs[k];
    struct pst_meta meta = {.rank = (unsigned)t->n_size};
    struct pstctl_tensor *to;
    size_t outer, inner;

    if (strcmp(t->name, port->name) != 0 || t->n_size > PST_MAX_RANK ||
        port->dim < 0 || (size_t)port->dim >= PST_MAX(t->n_size, (size_t)1) ||
        !pst_dtype_from_safetensors(t->dtype, &meta.dtype))
        return pstctl_refuse_answer(diag);
    for (size_t d = 0; d < t->n_size; d++)
        meta.size[d] = (int64_t)t->size[d];
    pst_meta_set_contiguous(&meta);
    if (pst_meta_check(&meta, diag) != PST_OK ||
        pst_meta_bytes(&meta) != t->data.len)
        return pstctl_refuse_answer(diag);
    divide_samples(&meta, port->dim, n, &outer, &inner);
    if (a->outputs.all.n <= k) {
        enum pst_status status;

        meta.size[port->dim] =
            meta.size[port->dim] / (int64_t)n * (int64_t)a->samples;
        status = pstctl_tensors_add(&a->outputs, t->name, &meta, &to, diag);
        if (status != PST_OK)
            return status;
    }
    to = &a->outputs.all.at[k];
    if (pst_meta_bytes(&to->meta) != outer * inner * (size_t)a->samples)
        return pstctl_refuse_answer(diag);
    for (size_t o = 0; o < outer; o++)
        memcpy(to->data + (o * (size_t)a->samples + (size_t)from) * inner,
               t->data.data + o * inner * (size_t)n, inner * (size_t)n);
    return PST_OK;
}

static enum pst_status store_outputs(struct ask_job *a, uint64_t from,
                                     uint64_t n,
                                     const Pst__Control__Outputs *outputs,
                                     struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    if (outputs->n_outputs != a->signature->n_outputs)
        return pstctl_refuse_answer(diag);
    a->step = outputs->step;
    for (size_t k = 0; k < outputs->n_outputs && status == PST_OK; k++)
        status = store_output(a, k, from, n, outputs->outputs[k], diag);
    return status;
}

static enum pst_status send_tensors(struct ask_job *a, uint64_t from,
                                    uint64_t n, Pst__Control__Tensor *tensors,
                                    Pst__Control__Tensor **pointers,
                                    unsigned char **copies, uint64_t *sizes,
                                    struct pst_diag *diag)
{
    Pst__Control__Infer infer = PST__CONTROL__INFER__INIT;
    pstctl_request request = PST__CONTROL__REQUEST__INIT;
    pstd_frame *frame = NULL;
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < a->inputs.all.n && status == PST_OK; i++) {
        status = pack_tensor(a, &a->inputs.all.at[i], from, n,
                             sizes + i * PST_MAX_RANK, &tensors[i], &copies[i],
                             diag);
        pointers[i] = &tensors[i];
    }
    infer.inputs = pointers;
    infer.n_inputs = a->inputs.all.n;
    request.body_case = PST__CONTROL__REQUEST__BODY_INFER;
    request.infer = &infer;
    if (status == PST_OK)
        status = call_job(a, &request, PST__CONTROL__REPLY__BODY_OUTPUTS,
                          &frame, diag);
    if (status == PST_OK)
        status = store_outputs(a, from, n, frame->reply->outputs, diag);
    pstd_frame_free(frame);
    return status;
}

// NOLINTBEGIN(bugprone-sizeof-expression): arrays of pointers
static enum pst_status ask_once(struct ask_job *a, uint64_t from, uint64_t n,
                                struct pst_diag *diag)
{
    const size_t n_max = a->inputs.all.n + 1;
    Pst__Control__Tensor *tensors =
        pst_calloc(PST_TAG_CLIENT, n_max, sizeof(*tensors));
    Pst__Control__Tensor **pointers =
        pst_calloc(PST_TAG_CLIENT, n_max, sizeof(*pointers));
    unsigned char **copies = pst_calloc(PST_TAG_CLIENT, n_max, sizeof(*copies));
    uint64_t *sizes =
        pst_calloc(PST_TAG_CLIENT, n_max * PST_MAX_RANK, sizeof(*sizes));
    enum pst_status status =
        tensors == NULL || pointers == NULL || copies == NULL || sizes == NULL
            ? pst_diag_nomem(diag, n_max * sizeof(*tensors))
            : send_tensors(a, from, n, tensors, pointers, copies, sizes, diag);

    for (size_t i = 0; copies != NULL && i < n_max; i++)
        pst_free(copies[i]);
    pst_free(tensors);
    pst_free(pointers);
    pst_free(copies);
    pst_free(sizes);
    return status;
}
// NOLINTEND(bugprone-sizeof-expression)

/* Sends as many requests as the inputs need, one after the other. */
static enum pst_status ask_all(struct ask_job *a, struct pst_diag *diag)
{
    enum pst_status status = PST_OK;
    uint64_t from = 0;

    if (a->whole) {
        a->samples = PST_MAX(a->samples, (uint64_t)1);
        return ask_once(a, 0, a->samples, diag);
    }
    while (from < a->samples && status == PST_OK) {
        const uint64_t n = PST_MIN(a->most, a->samples - from);

        status = ask_once(a, from, n, diag);
        from += n;
    }
    return status;
}

static enum pst_status write_answer(const struct ask_job *a,
                                    struct pst_diag *diag)
{
    const struct pstd_config *c = a->config;
    enum pst_status status = pstctl_tensors_write(c->output, &a->outputs, diag);

    if (status != PST_OK || c->output == NULL)
        return status;
    if (c->json)
        return pstctl_json_print(
            json_pack("{s:I s:I s:s}", "samples", (json_int_t)a->samples,
                      "step", (json_int_t)a->step, "output", c->output),
            diag);
    pstctl_printf(stdout, "outputs for %" PRIu64 " samples in %s\n", a->samples,
                  c->output);
    return PST_OK;
}

static enum pst_status run_ask(const struct pstd_config *config,
                               struct pst_diag *diag)
{
    struct ask_job a = {.config = config, .conn = {.fd = -1}};
    enum pst_status status = pstctl_check_output(config->output, ".json", diag);

    if (status == PST_OK)
        status = connect_to(&a, diag);
    if (status == PST_OK)
        status = get_signature(&a, diag);
    if (status == PST_OK)
        status =
            pstctl_tensors_read(config->args[0], a.signature, &a.inputs, diag);
    if (status == PST_OK) {
        count_samples(&a);
        status = ask_all(&a, diag);
    }
    if (status == PST_OK)
        status = write_answer(&a, diag);
    pstctl_tensors_fini(&a.inputs);
    pstctl_tensors_fini(&a.outputs);
    pstd_frame_free(a.frame);
    pstctl_close(&a.conn);
    return status;
}

static const struct pstd_option_help ask_options[] = {
    {"output", "file to write the answer to (.safetensors or .json)", NULL,
     NULL},
    {NULL, NULL, NULL, NULL},
};

const struct pstctl_command pstctl_ask_job = {
    "ask",
    "INPUTS.safetensors|.json|.csv",
    1,
    1,
    PSTD_OPT_CONNECT | PSTD_OPT_ASK | PSTD_OPT_OUTPUT | PSTD_OPT_JSON,
    "ask a job that serves a model for outputs",
    "Sends the inputs to the job of `penstock serve` and writes its answer: to "
    "-o\n"
    "FILE.safetensors or FILE.json, else as JSON to standard output. If there "
    "are\n"
    "more samples than a request may have, several requests are sent. Exit "
    "code 75:\n"
    "the job is busy, is being started again, or lost a rank; the request was\n"
    "correct, ask again.",
    run_ask,
    false,
    ask_options};
