// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_REPORT_PAGE_H
#define PENSTOCK_DAEMON_CTL_REPORT_PAGE_H
/* Renders a story as one HTML page that is also XML, with embedded pictures and
 * style; it loads nothing and has no scripts. One thread. */
#include "daemon/ctl/report/story.h"
#include "stages/base/str.h"

void pstctl_page_render(const struct pstctl_story *story, struct pst_str *out);

#endif
