// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_LOOP_RECORD_PROM_H
#define PENSTOCK_DAEMON_LOOP_RECORD_PROM_H
/*
 * Numbers of the job in a file for the textfile collector of Prometheus's
 * node-exporter (--prom). They are what events of rank 0 said last, or how many
 * of them there were; one table has their names. Loop thread.
 */
#include "daemon/common/logfile.h"

#define PSTD_MAX_METRICS 64

struct pstd_metric {
    const char *name, *type, *help;
    enum pstd_event event;
    const char *field; /* whose value it is; NULL: how many events; "ts": when
                          the newest was, seconds since 1970 */
    const char *is;    /* not NULL: the field is a text, and it is asked whether
                          it is this one (gauge) or how often it was */
    enum pstd_event until; /* 1 from `event` to this one; 0: no such thing */
};

const struct pstd_metric *pstd_metrics(size_t *ret_n);

/* Zeros write no file. */
struct pstd_prom {
    const char *path; /* borrowed */
    const char *job;  /* borrowed */
    bool known[PSTD_MAX_METRICS];
    double values[PSTD_MAX_METRICS];
    bool changed;
    bool failing; /* the last one was not written */
};

void pstd_prom_note(struct pstd_prom *prom, const struct pstd_note *note,
                    uint64_t time_us);
/* The newest step, also if it was not told: what is slow is not at a stand. */
void pstd_prom_newest(struct pstd_prom *prom, uint64_t step, double loss,
                      uint64_t time_us);
/* For who begins to read the log later: what other events have told than those
 * that come every 15 s, as fields with the names of the metrics. */
void pstd_prom_recall(const struct pstd_prom *prom, struct pstd_note *note);
/* The text of the file. */
void pstd_prom_format(const struct pstd_prom *prom, struct pst_str *out);
/* Replaces the file if something is new; readers see all or nothing of it.
 * PST_ERR_IO: once for failures in a row. */
enum pst_status pstd_prom_write(struct pstd_prom *prom,
                                struct pst_diag *diag) PST_MUST_CHECK;

#endif
