// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_LOOP_RECORD_PROM_H
#define PENSTOCK_DAEMON_LOOP_RECORD_PROM_H
/*
 * Metrics of the job in a file for the textfile collector of Prometheus's
 * node-exporter (--prom). Their values are the newest values of fields of rank
 * 0's events, or counts of these events. One table names them. Loop thread.
 */
#include "daemon/common/logfile.h"
#include "daemon/loop/record/evals.h"

#define PSTD_MAX_METRICS 64

struct pstd_metric {
    const char *name, *type, *help;
    enum pstd_event event;
    /* The value is that of this field of `event`. NULL: it is the number of
     * such events. "ts": it is the time of the newest one, in seconds since
     * 1970. */
    const char *field;
    /* NULL, or a text to compare with the field's text. The value of a gauge is
     * 1 if they are equal, else 0. The value of a counter is the number of
     * events with that text. */
    const char *is;
    /* Not 0: the value is 1 from `event` until the event `until`, else 0. */
    enum pstd_event until;
};

/* A zeroed struct writes no file. */
struct pstd_prom {
    const char *path;                     /* borrowed */
    const char *job;                      /* borrowed */
    const struct pstd_eval_record *evals; /* borrowed; NULL: none */
    bool known[PSTD_MAX_METRICS];         /* by metric: it has a value */
    double values[PSTD_MAX_METRICS];
    bool changed; /* since the last write */
    bool failing; /* the last write failed */
};

void pstd_prom_note(struct pstd_prom *prom, const struct pstd_note *note,
                    uint64_t time_us);
/* Records the newest step even if it is not reported, so that a slow log does
 * not look like a hang. */
void pstd_prom_set_newest(struct pstd_prom *prom, uint64_t step, double loss,
                          uint64_t time_us);
/* Adds all metrics that do not come from periodic events to a note, as fields
 * with the names of the metrics, for readers that see only the newest part of
 * the log. */
void pstd_prom_add_to_note(const struct pstd_prom *prom,
                           struct pstd_note *note);
/* Appends the content of the file. */
void pstd_prom_format(const struct pstd_prom *prom, struct pst_str *out);
/* Replaces the file atomically if something has changed. Returns an error only
 * for the first of consecutive failures. */
enum pst_status pstd_prom_write(struct pstd_prom *prom,
                                struct pst_diag *diag) PST_MUST_CHECK;

#endif
