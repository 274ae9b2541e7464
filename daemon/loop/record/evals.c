// SPDX-License-Identifier: Apache-2.0
#include "daemon/loop/record/evals.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Returns a field, or NaN if the event has none of that name. */
static double get_number(const struct pstd_note *note, const char *key)
{
    for (unsigned i = 0; i < note->n; i++)
        if (note->fields[i].type == PSTD_FIELD_REAL &&
            strcmp(note->fields[i].key, key) == 0)
            return note->fields[i].f;
    return NAN;
}

void pstd_eval_record_note(struct pstd_eval_record *record,
                           const struct pstd_note *note)
{
    const char *set = pstd_note_get_text(note, "set");
    struct pstd_eval_newest e = {.set = ""};
    unsigned i = 0;

    if (note->event == PSTD_EVENT_TRAIN_BEGIN)
        record->n = 0;
    /* Each named set has its own event; "evaluated" repeats one of them. */
    if (note->event != PSTD_EVENT_EVAL_SET &&
        (note->event != PSTD_EVENT_EVALUATED || set != NULL))
        return;
    if (set != NULL)
        (void)snprintf(e.set, sizeof(e.set), "%s", set);
    e.step = (uint64_t)pstd_note_get_int(note, "step");
    e.loss = get_number(note, "loss");
    e.metric = get_number(note, "metric");
    e.bits_per_byte = get_number(note, "bits_per_byte");
    while (i < record->n && strcmp(record->at[i].set, e.set) != 0)
        i++;
    if (i == PSTD_MAX_SETS)
        return;
    record->at[i] = e;
    record->n = PST_MAX(record->n, i + 1);
}
