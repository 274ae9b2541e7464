// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_REPORT_LINE_H
#define PENSTOCK_DAEMON_CTL_REPORT_LINE_H
/* Parser for log lines (docs/log.md), which are untrusted. One thread. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PSTCTL_LINE_FIELDS 48

struct pstctl_line {
    double time; /* seconds since 1970 */
    int rank;    /* rank that wrote the line; -1: the supervisor */
    uint64_t seq;
    const char *level, *stage, *job, *event;
    size_t n;
    const char *keys[PSTCTL_LINE_FIELDS], *values[PSTCTL_LINE_FIELDS];
};

/* Parses text in place; ret borrows it. False: it is not a log line. */
bool pstctl_line_parse(char *text, struct pstctl_line *ret);
/* Return "" and NaN if the field is missing. */
const char *pstctl_line_text(const struct pstctl_line *line, const char *key);
double pstctl_line_number(const struct pstctl_line *line, const char *key);

#endif
