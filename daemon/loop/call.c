// SPDX-License-Identifier: Apache-2.0
#include "daemon/loop/call.h"

#include "stages/base/alloc.h"
#include "stages/base/str.h"

enum pst_status pstd_call_digest(struct pstd_call *call, char ret[33])
{
    Pst__Control__Request request = *call->request;
    unsigned char *data;
    size_t size;

    request.id = 0;
    size = pst__control__request__get_packed_size(&request);
    data = pst_alloc(PST_TAG_CLIENT, size);
    if (data == NULL)
        return pst_diag_nomem(&call->diag, size);
    pst_digest(data, pst__control__request__pack(&request, data), ret);
    pst_free(data);
    return PST_OK;
}

static void add_packed(struct pst_str *out, const pstd_frame *frame)
{
    unsigned char *data = NULL;
    size_t size = 0;

    if (pstd_frame_pack(frame, PSTD_REPLY_MAX, &data, &size, NULL) == PST_OK)
        pst_str_addn(out, (const char *)data, size);
    else
        out->failed = 1;
    pst_free(data);
}

void pstd_call_reply(struct pstd_call *call)
{
    pstd_frame frame = PST__CONTROL__FRAME__INIT;

    call->reply.id = call->request->id;
    frame.body_case = PST__CONTROL__FRAME__BODY_REPLY;
    frame.reply = &call->reply;
    if (call->client != NULL)
        pstd_client_send(call->client, &frame);
    else
        add_packed(call->record, &frame);
}

void pstd_call_accept(struct pstd_call *call, const struct pst_diag *outcome,
                      uint64_t seq, uint64_t run, const char *run_id)
{
    Pst__Control__Accepted accepted = PST__CONTROL__ACCEPTED__INIT;

    accepted.seq = seq;
    accepted.run = run;
    accepted.run_id = (char *)run_id; /* packing does not change it */
    call->reply.status = outcome->status;
    call->reply.text = (char *)outcome->text;
    call->reply.error_id = (char *)pst_error_id(outcome->error);
    if (outcome->status == PST_OK) {
        call->reply.body_case = PST__CONTROL__REPLY__BODY_ACCEPTED;
        call->reply.accepted = &accepted;
    }
    pstd_call_reply(call);
}
