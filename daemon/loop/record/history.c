// SPDX-License-Identifier: Apache-2.0
#include "daemon/loop/record/history.h"

#include "daemon/common/control/frame.h"
#include "stages/base/alloc.h"

static void pack_event(const struct pstd_note *note, uint64_t seq,
                       uint64_t time_us, struct pstd_packed *ret)
{
    Pst__Control__Field fields[PSTD_NOTE_FIELDS], *pointers[PSTD_NOTE_FIELDS];
    Pst__Control__Event event = PST__CONTROL__EVENT__INIT;
    pstd_frame frame = PST__CONTROL__FRAME__INIT;

    for (unsigned i = 0; i < note->n; i++) {
        const struct pstd_note_field *from = &note->fields[i];
        Pst__Control__Field *to = &fields[i];

        pst__control__field__init(to);
        to->key = (char *)from->key;
        if (from->type == PSTD_FIELD_TEXT) {
            to->value_case = PST__CONTROL__FIELD__VALUE_TEXT;
            to->text = (char *)note->text + from->text;
        } else if (from->type == PSTD_FIELD_INT) {
            to->value_case = PST__CONTROL__FIELD__VALUE_INTEGER;
            to->integer = from->i;
        } else {
            to->value_case = PST__CONTROL__FIELD__VALUE_NUMBER;
            to->number = from->f;
        }
        pointers[i] = to;
    }
    event.seq = seq;
    event.time_us = time_us;
    event.level = (char *)pstd_event_level(note->event);
    event.name = (char *)pstd_event_name(note->event);
    event.fields = pointers;
    event.n_fields = note->n;
    frame.body_case = PST__CONTROL__FRAME__BODY_EVENT;
    frame.event = &event;
    pst_free(ret->data);
    ret->data = NULL;
    if (pstd_frame_pack(&frame, PSTD_REPLY_MAX, &ret->data, &ret->size, NULL) !=
        PST_OK)
        ret->size = 0;
}

bool pstd_history_add(struct pstd_history *history,
                      const struct pstd_note *note, uint64_t time_us)
{
    const uint64_t seq = ++history->seq;
    struct pstd_packed *event = &history->events[seq % PSTD_EVENTS];

    pack_event(note, seq, time_us, event);
    if (history->journal != NULL)
        pstd_journal_add(history->journal, event->data, event->size);
    return event->data != NULL;
}

void pstd_history_set_journal(struct pstd_history *history,
                              struct pstd_journal *journal)
{
    history->journal = journal;
    history->seq = pstd_journal_next(journal) - 1;
}

static bool is_kept(const struct pstd_history *history)
{
    return history->journal != NULL &&
           pstd_journal_is_writable(history->journal);
}

uint64_t pstd_history_oldest(const struct pstd_history *history)
{
    if (is_kept(history))
        return pstd_journal_first(history->journal);
    return history->seq >= PSTD_EVENTS ? history->seq - PSTD_EVENTS + 1 : 1;
}

const struct pstd_packed *pstd_history_get(struct pstd_history *history,
                                           uint64_t seq)
{
    const struct pstd_packed *event = &history->events[seq % PSTD_EVENTS];

    if (seq < pstd_history_oldest(history) || seq > history->seq)
        return NULL;
    if (seq + PSTD_EVENTS > history->seq && event->data != NULL)
        return event;
    if (!is_kept(history))
        return NULL;
    pstd_journal_get(history->journal, seq, &history->old.data,
                     &history->old.size);
    return history->old.size > 0 ? &history->old : NULL;
}

void pstd_history_fini(struct pstd_history *history)
{
    for (size_t i = 0; i < PSTD_EVENTS; i++)
        pst_free(history->events[i].data);
    pst_free(history->old.data);
}
