// SPDX-License-Identifier: Apache-2.0
#include "daemon/ctl/run/unsaved.h"

#include <stdio.h>
#include <string.h>

#include "daemon/ctl/job/wait.h"

/* For each event that reports a change of the model or of options: the verb in
 * the text `changes`, and the field that names the changed object. */
static const struct {
    const char *event, *did, *field;
} rows[] = {
    {"swapped", "swapped", "module"},   {"frozen", "froze", "pattern"},
    {"unfrozen", "unfroze", "pattern"}, {"attr_set", "set", "name"},
    {"attr_cast", "cast", "name"},      {"set", "set", "options"},
};

static void add_change(struct pstctl_unsaved *u, const char *did,
                       const char *name, uint64_t step)
{
    const size_t n = strlen(u->changes);

    if (u->n < PSTCTL_UNSAVED) {
        u->at[u->n].begin = n + (n > 0 ? strlen(", ") : 0);
        u->at[u->n++].step = step;
    }
    (void)snprintf(u->changes + n, sizeof(u->changes) - n, "%s%s %.100s",
                   n > 0 ? ", " : "", did, name);
}

static void clear_state(struct pstctl_unsaved *u)
{
    *u = (struct pstctl_unsaved){.started = u->started, .step = u->step};
}

/* Handles an accepted request. A pause, or its end, is recorded when it is
 * accepted: it takes effect at the end of a step, and the job may die before
 * that. Each accepted `train` begins another run of a job that stays. */
static void track_request(struct pstctl_unsaved *u, const pstctl_event *event)
{
    const char *command = pstctl_text(event, "command");
    const char *status = pstctl_text(event, "status");

    if (command == NULL || status == NULL ||
        strcmp(status, pst_status_name(PST_OK)) != 0)
        return;
    if (strcmp(command, "train") == 0) {
        clear_state(u);
        u->training = true;
    }
    if (strcmp(command, "pause") == 0 || strcmp(command, "resume") == 0)
        u->paused = strcmp(command, "pause") == 0;
}

/* Updates the newest finished step. If --log-every is large, few steps have an
 * event `step`, so other events with a finished step count, too. The maximum is
 * kept, since a save may be reported after later steps. */
static void track_step(struct pstctl_unsaved *u, const pstctl_event *event)
{
    static const char *const finished[] = {
        "step",      "step_skipped",     "step_overflow",
        "evaluated", "checkpoint_saved", "paused"};
    const uint64_t step = (uint64_t)pstctl_integer(event, "step");

    if (strcmp(event->name, "train_begin") == 0)
        u->step = (uint64_t)pstctl_integer(event, "first_step");
    if (strcmp(event->name, "rolled_back") == 0)
        u->step = (uint64_t)pstctl_integer(event, "to");
    for (size_t i = 0; i < PST_COUNT(finished); i++)
        if (strcmp(event->name, finished[i]) == 0)
            u->step = PST_MAX(u->step, step);
}

/* A change is made only after the save in progress has ended, so each save that
 * ends after the change contains it. A restart that fails before the run has
 * begun again does not end the run: the job may be restarted once more. When a
 * run ends, its unsaved changes are kept until another run begins, since a
 * resume would lack them. */
void pstctl_unsaved_update(struct pstctl_unsaved *u, const pstctl_event *event)
{
    const char *name = event->name;

    track_step(u, event);
    if (strcmp(name, "request") == 0)
        track_request(u, event);
    if (strcmp(name, "paused") == 0)
        u->paused = true;
    if (strcmp(name, "continued") == 0 && !pstctl_is_unrequested(event))
        u->paused = false;
    if (strcmp(name, "start") == 0) {
        u->again = u->started;
        u->started = true;
    }
    /* From here on, a train_end itself says whether the run is repeated. */
    if (strcmp(name, "run_again") == 0)
        u->again = false;
    if (strcmp(name, "train_end") == 0 && !u->again &&
        !pstctl_is_repeated(event))
        u->training = u->paused = false;
    if (strcmp(name, "run_given_up") == 0)
        clear_state(u);
    if (strcmp(name, "train_begin") == 0) {
        u->again = false;
        u->training = true;
    }
    if (strcmp(name, "checkpoint_saved") == 0 ||
        strcmp(name, "train_begin") == 0) {
        u->changes[0] = '\0';
        u->n = 0;
    }
    for (size_t i = 0; i < PST_COUNT(rows); i++)
        if (strcmp(name, rows[i].event) == 0)
            add_change(u, rows[i].did, pstctl_text(event, rows[i].field),
                       (uint64_t)pstctl_integer(event, "step"));
}

const char *pstctl_unsaved_lost(const struct pstctl_unsaved *u, uint64_t step)
{
    const size_t len = strlen(u->changes);
    unsigned k = 0;

    /* A checkpoint of the step after which a change was made may be older than
     * the change. */
    while (k < u->n && u->at[k].step < step)
        k++;
    if (k == u->n && u->n < PSTCTL_UNSAVED)
        return "";
    k = PST_MIN(k, PSTCTL_UNSAVED - 1);
    return u->changes + (u->n > 0 ? PST_MIN(u->at[k].begin, len) : 0);
}
