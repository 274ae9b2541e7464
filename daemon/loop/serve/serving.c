// SPDX-License-Identifier: Apache-2.0
#include "daemon/loop/serve/serving.h"

#include "stages/base/alloc.h"

/* --- the signature -------------------------------------------------------- */

/* Makes the message that describes an input or output. sizes: memory for
 * PST_MAX_RANK numbers. */
static void fill_port(const struct pstd_port *from, uint64_t *sizes,
                      Pst__Control__Port *to)
{
    pst__control__port__init(to);
    to->name = from->name;
    to->dtype = (char *)pst_dtype_safetensors(from->meta.dtype);
    to->dim = from->dim;
    to->optional = from->optional;
    to->size = sizes;
    to->n_size = from->meta.rank;
    for (unsigned d = 0; d < from->meta.rank; d++)
        sizes[d] = (int)d == from->dim ? (uint64_t)from->each
                                       : (uint64_t)from->meta.size[d];
}

/* Messages of all inputs or all outputs, pointers to them, and their sizes. */
struct ports {
    Pst__Control__Port *at, **pointers;
    uint64_t *sizes;
};

static void fini_ports(struct ports *p)
{
    pst_free(p->at);
    pst_free(p->pointers);
    pst_free(p->sizes);
}

static enum pst_status init_ports(struct ports *p, const struct pstd_port *from,
                                  size_t n, struct pst_diag *diag)
{
    const size_t capacity = (n + 1) * PST_MAX_RANK;

    p->at = pst_calloc(PST_TAG_DAEMON, n + 1, sizeof(*p->at));
    // NOLINTNEXTLINE(bugprone-sizeof-expression): an array of pointers
    p->pointers = pst_calloc(PST_TAG_DAEMON, n + 1, sizeof(*p->pointers));
    p->sizes = pst_calloc(PST_TAG_DAEMON, capacity, sizeof(*p->sizes));
    if (p->at == NULL || p->pointers == NULL || p->sizes == NULL)
        return pst_diag_nomem(diag, capacity * sizeof(*p->sizes));
    for (size_t i = 0; i < n; i++) {
        fill_port(&from[i], p->sizes + i * PST_MAX_RANK, &p->at[i]);
        p->pointers[i] = &p->at[i];
    }
    return PST_OK;
}

static enum pst_status find_signature(struct pstd_call *call,
                                      const struct pstd_signature **ret)
{
    if (call->d->rank != 0)
        return pst_diag_set(&call->diag, PST_E_CONTROL_REQUEST,
                            "this is rank %u; rank 0 answers requests",
                            call->d->rank);
    *ret = pstd_intake_signature(call->d->intake);
    if (*ret == NULL)
        return pst_diag_set(&call->diag, PST_E_SERVE_LOST,
                            "the job is not ready for requests");
    return PST_OK;
}

enum pst_status pstd_serving_signature(struct pstd_call *call)
{
    Pst__Control__Signature reply = PST__CONTROL__SIGNATURE__INIT;
    struct ports in = {0}, out = {0};
    const struct pstd_signature *s = NULL;
    enum pst_status status = find_signature(call, &s);

    if (status != PST_OK)
        return status;
    status = init_ports(&in, s->inputs, s->n_inputs, &call->diag);
    if (status == PST_OK)
        status = init_ports(&out, s->outputs, s->n_outputs, &call->diag);
    if (status == PST_OK) {
        reply.inputs = in.pointers;
        reply.n_inputs = s->n_inputs;
        reply.outputs = out.pointers;
        reply.n_outputs = s->n_outputs;
        reply.most_samples = (uint64_t)s->most;
        reply.step = s->step;
        call->reply.body_case = PST__CONTROL__REPLY__BODY_SIGNATURE;
        call->reply.signature = &reply;
        pstd_call_reply(call);
        status = PST_AGAIN;
    }
    fini_ports(&in);
    fini_ports(&out);
    return status;
}

/* --- requests ------------------------------------------------------------- */

enum pst_status pstd_serving_infer(struct pstd_call *call)
{
    const struct pstd_signature *s = NULL;
    struct pstd_ask *ask = NULL;
    enum pst_status status = find_signature(call, &s);

    if (status != PST_OK)
        return status;
    status = pstd_serving_read(s, call->request->infer, &ask, &call->diag);
    if (status != PST_OK)
        return status;
    ask->client = call->client->serial;
    ask->id = call->request->id;
    status = pstd_intake_put(call->d->intake, ask, &call->diag);
    if (status != PST_OK)
        return status;
    call->client->asked++;
    return PST_AGAIN; /* pstd_serving_send_answers sends the answer */
}

/* --- answers -------------------------------------------------------------- */

static struct pstd_client *find_client(struct pstd_daemon *d, uint64_t serial)
{
    for (struct pstd_client *at = d->control.clients; at != NULL; at = at->next)
        if (at->serial == serial && !at->closing)
            return at;
    return NULL;
}

static void send_reply(struct pstd_client *client, const struct pstd_ask *ask,
                       Pst__Control__Reply *reply)
{
    pstd_frame frame = PST__CONTROL__FRAME__INIT;

    reply->id = ask->id;
    frame.body_case = PST__CONTROL__FRAME__BODY_REPLY;
    frame.reply = reply;
    pstd_client_send(client, &frame);
}

static void send_failure(struct pstd_client *client, const struct pstd_ask *ask,
                         const struct pst_diag *why)
{
    Pst__Control__Reply reply = PST__CONTROL__REPLY__INIT;

    reply.status = why->status;
    reply.text = (char *)why->text;
    reply.error_id = (char *)pst_error_id(why->error);
    send_reply(client, ask, &reply);
}

static void send_no_memory(struct pstd_client *client,
                           const struct pstd_ask *ask)
{
    struct pst_diag why;

    (void)pst_diag_carry(&why, PST_E_MEMORY_HOST, PST_ERR_BUSY,
                         "out of memory for the answer to a request");
    send_failure(client, ask, &why);
}

static void fill_tensor(const struct pstd_port *port,
                        const struct pstd_ask *ask, unsigned char *data,
                        uint64_t *sizes, Pst__Control__Tensor *to)
{
    pst__control__tensor__init(to);
    to->name = port->name;
    to->dtype = (char *)pst_dtype_safetensors(port->meta.dtype);
    to->size = sizes;
    /* The dimension of samples exists even if each sample is a scalar. */
    to->n_size = PST_MAX(port->meta.rank, 1u);
    for (unsigned d = 0; d < to->n_size; d++)
        sizes[d] = (int)d == port->dim ? (uint64_t)(port->each * ask->samples)
                                       : (uint64_t)port->meta.size[d];
    to->data.data = data;
    to->data.len = pstd_port_bytes(port, ask->samples);
}

static enum pst_status send_outputs(const struct pstd_signature *s,
                                    struct pstd_client *client,
                                    const struct pstd_ask *ask)
{
    const size_t n = s->n_outputs;
    Pst__Control__Tensor *tensors =
        pst_calloc(PST_TAG_DAEMON, n, sizeof(*tensors));
    Pst__Control__Tensor **pointers =
        // NOLINTNEXTLINE(bugprone-sizeof-expression): an array of pointers
        pst_calloc(PST_TAG_DAEMON, n, sizeof(*pointers));
    uint64_t *sizes =
        pst_calloc(PST_TAG_DAEMON, n * PST_MAX_RANK, sizeof(*sizes));
    const bool there = tensors != NULL && pointers != NULL && sizes != NULL;
    Pst__Control__Outputs outputs = PST__CONTROL__OUTPUTS__INIT;
    Pst__Control__Reply reply = PST__CONTROL__REPLY__INIT;
    unsigned char *at = ask->result;

    for (size_t k = 0; k < n && there; k++) {
        fill_tensor(&s->outputs[k], ask, at, sizes + k * PST_MAX_RANK,
                    &tensors[k]);
        pointers[k] = &tensors[k];
        at += tensors[k].data.len;
    }
    if (there) {
        outputs.outputs = pointers;
        outputs.n_outputs = n;
        outputs.step = s->step;
        reply.body_case = PST__CONTROL__REPLY__BODY_OUTPUTS;
        reply.outputs = &outputs;
        send_reply(client, ask, &reply);
    }
    pst_free(tensors);
    pst_free(pointers);
    pst_free(sizes);
    return there ? PST_OK : PST_ERR_NOMEM;
}

void pstd_serving_send_answers(void *ctx)
{
    struct pstd_daemon *d = ctx;
    struct pstd_ask *ask;

    if (d->intake == NULL)
        return;
    while ((ask = pstd_intake_pop_answer(d->intake)) != NULL) {
        const struct pstd_signature *s = pstd_intake_signature(d->intake);
        struct pstd_client *client = find_client(d, ask->client);

        if (client != NULL) {
            client->asked--;
            client->active_ms = uv_now(&d->loop);
            if (ask->diag.status != PST_OK)
                send_failure(client, ask, &ask->diag);
            else if (send_outputs(s, client, ask) != PST_OK)
                send_no_memory(client, ask);
            pstd_client_continue(client);
        }
        pstd_ask_free(ask);
    }
}

void pstd_serving_drop_client(void *ctx, const struct pstd_client *client)
{
    struct pstd_daemon *d = ctx;

    if (d->intake != NULL && client->asked > 0)
        pstd_intake_drop_client(d->intake, client->serial);
}

void pstd_serving_drop_all(struct pstd_daemon *d)
{
    if (d->intake == NULL)
        return;
    for (struct pstd_client *at = d->control.clients; at != NULL; at = at->next)
        if (at->asked > 0)
            pstd_control_drop(at, "the job has lost a rank");
}

void pstd_serving_emit(struct pstd_daemon *d)
{
    const struct pstd_intake_counts c = pstd_intake_counts(d->intake, true);
    struct pstd_note note;

    pstd_note_init(&note, PSTD_EVENT_SERVING);
    pstd_note_int(&note, "answered", (int64_t)c.answered);
    pstd_note_int(&note, "failed", (int64_t)c.failed);
    pstd_note_int(&note, "refused", (int64_t)c.refused);
    pstd_note_int(&note, "gone", (int64_t)c.gone);
    pstd_note_int(&note, "waiting", (int64_t)c.waiting);
    pstd_note_int(&note, "samples", (int64_t)c.samples);
    pstd_note_int(&note, "steps", (int64_t)c.steps);
    if (c.answered > 0) {
        pstd_note_real(&note, "mean_s", c.seconds / (double)c.answered);
        pstd_note_real(&note, "longest_s", c.longest);
    }
    pstd_daemon_publish(d, &note);
}
