// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_REPORT_PAGE_H
#define PENSTOCK_DAEMON_CTL_REPORT_PAGE_H
/* A story as one page: HTML that is XML, too, with its pictures and style in
 * it; it asks for nothing and runs nothing. One thread. */
#include "daemon/ctl/report/story.h"
#include "stages/base/str.h"

void pstctl_page(const struct pstctl_story *story, struct pst_str *out);

#endif
