// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_COMMON_PLUGINS_H
#define PENSTOCK_DAEMON_COMMON_PLUGINS_H
/* Applies the options --plugin and --check-plugins. Any thread. */
#include "daemon/common/config.h"

/* Loads the files of --plugin, before models and plans are opened; switches the
 * checks of --check-plugins on. */
enum pst_status pstd_plugins_load(const struct pstd_config *config,
                                  struct pst_diag *diag) PST_MUST_CHECK;

#endif
