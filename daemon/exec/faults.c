// SPDX-License-Identifier: Apache-2.0
/* Completes the report of a step that was not applied: the operator that first
 * produced a non-finite number, and the rows of the data. */
#include <string.h>

#include "daemon/exec/session.h"
#include "stages/base/alloc.h"
#include "stages/files/safetensors.h"

/* --- --dump-fault --------------------------------------------------------- */

struct dump {
    const struct pst_plan *plan; /* plan that ran the failed microbatch */
    struct pst_safetensors_entry *entries;
    void **data;
    size_t n;
};

static enum pst_status read_inputs(struct pstd_session *s, unsigned microbatch,
                                   struct dump *d, struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    for (unsigned i = 0; i < d->plan->inputs.n && status == PST_OK; i++) {
        const struct pst_plan_input *in = &d->plan->inputs.at[i];
        const size_t bytes = pst_meta_bytes(&in->meta);
        struct pst_safetensors_entry *e = &d->entries[d->n];

        if (!pst_plan_reads_input(d->plan, i))
            continue;
        d->data[d->n] = pst_alloc(PST_TAG_DAEMON, PST_MAX(bytes, (size_t)1));
        if (d->data[d->n] == NULL)
            return pst_diag_nomem(diag, bytes);
        *e = (struct pst_safetensors_entry){
            .name = in->name, .meta = in->meta, .data = d->data[d->n]};
        pst_meta_set_contiguous(&e->meta);
        status =
            pst_data_fill(s->data, s->step, microbatch, i, d->data[d->n], diag);
        d->n++;
    }
    return status;
}

static enum pst_status write_dump(struct pstd_session *s, unsigned microbatch,
                                  struct pst_diag *diag)
{
    const struct pst_batch *b = &s->w->batch;
    struct dump d = {.plan = b->tail != NULL &&
                                     microbatch >= b->microbatches - b->n_tail
                                 ? b->tail
                                 : b->plan};
    const size_t n = d.plan->inputs.n + 1;
    enum pst_status status;

    d.entries = pst_calloc(PST_TAG_DAEMON, n, sizeof(*d.entries));
    d.data = pst_calloc(PST_TAG_DAEMON, n, sizeof(*d.data));
    status = d.entries == NULL || d.data == NULL
                 ? pst_diag_nomem(diag, n)
                 : read_inputs(s, microbatch, &d, diag);
    if (status == PST_OK)
        status =
            pst_safetensors_save(s->config.dump_fault, d.entries, d.n, diag);
    for (size_t i = 0; d.data != NULL && i < n; i++)
        pst_free(d.data[i]);
    pst_free(d.data);
    pst_free(d.entries);
    return status;
}

/* Rank 0: writes the tensors of the faulty microbatch to the file --dump-fault.
 * microbatch -1: writes nothing, since the fault is in no microbatch. Adds the
 * file, or why it was not written, to the text. */
static void dump_microbatch(struct pstd_session *s, int microbatch,
                            struct pst_str *text)
{
    struct pstd_note note;
    struct pst_diag why;

    if (s->config.dump_fault == NULL || s->w->rank != 0 || s->data == NULL ||
        microbatch < 0)
        return;
    if (write_dump(s, (unsigned)microbatch, &why) != PST_OK) {
        pst_str_addf(text, "; --dump-fault: %s", why.text);
        return;
    }
    pst_str_addf(text, "; %s has it", s->config.dump_fault);
    pstd_note_init(&note, PSTD_EVENT_DUMP);
    pstd_note_text(&note, "path", s->config.dump_fault);
    pstd_mailbox_post(s->w->mailbox, &note, true);
}

/* --- the text ------------------------------------------------------------- */

/* Adds the rows of the data in the microbatch, or in the step if microbatch is
 * -1; nothing on ranks that do not read data. */
static void add_rows(struct pstd_session *s, int microbatch,
                     struct pst_str *text)
{
    if (s->data == NULL)
        return;
    if (microbatch >= 0)
        pst_str_addf(text, "; microbatch %d is ", microbatch);
    else
        pst_str_add(text, "; the step is ");
    pst_data_rows(s->data, s->step,
                  microbatch >= 0 ? (unsigned)microbatch : PST_DATA_STEP, text);
}

enum pst_status pstd_session_explain(struct pstd_session *s,
                                     const struct pst_step_result *r,
                                     struct pst_diag *diag)
{
    const struct pst_diag why = *diag;
    struct pst_str text = {0}, origin = {0};
    int microbatch = r->microbatch;
    enum pst_status status = PST_OK;

    if (r->diverged && !r->no_targets)
        status = pst_engine_trace(s->w->engine, s->step, pst_data_fill, s->data,
                                  r, &origin, &microbatch, diag);
    if (status == PST_OK) {
        pst_str_add(&text, why.text);
        if (origin.len > 0)
            pst_str_addf(&text, "; the first number that is not finite: %s",
                         origin.text);
        add_rows(s, microbatch, &text);
        dump_microbatch(s, microbatch, &text);
        status = pst_diag_pass(diag, &why, "%s", pst_str_text(&text));
    }
    pst_str_fini(&text);
    pst_str_fini(&origin);
    return status;
}
