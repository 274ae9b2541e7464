// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_REPORT_CHART_H
#define PENSTOCK_DAEMON_CTL_REPORT_CHART_H
/* Charts of a page as inline SVG: lines, and stacked bars. Their colours are
 * the classes c0 to c8 of the page's style. One thread. */
#include "daemon/ctl/report/story.h"
#include "stages/base/str.h"

struct pstctl_series {
    const char *name;
    const struct pstctl_points *points;
    bool dots; /* draws a mark at each point */
};

/* Appends text to a page, escaping < > & and quotes, and characters that hide
 * or reverse text. */
void pstctl_html_add(struct pst_str *out, const char *text);
/* Draws curves over the step number; draws nothing if there are no points. */
void pstctl_chart_lines(const struct pstctl_series *series, size_t n,
                        struct pst_str *out);
/* A row of a bar chart: a bar of several parts. */
struct pstctl_bar {
    char name[64], text[64]; /* labels left and right of the bar */
    double parts[PSTCTL_N_MEMORY];
};
void pstctl_chart_bars(const struct pstctl_bar *bars, size_t n,
                       const char *const *parts, size_t n_parts, double most,
                       struct pst_str *out);

#endif
