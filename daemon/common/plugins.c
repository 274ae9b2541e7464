// SPDX-License-Identifier: Apache-2.0
#include "daemon/common/plugins.h"

#include <string.h>

#include "stages/ops/plugin/guard.h"
#include "stages/ops/plugin/plugin.h"

enum pst_status pstd_plugins_load(const struct pstd_config *config,
                                  struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    if (config->check_plugins)
        pst_plugin_guard_set(true);
    for (const char *at = config->plugin; at != NULL && status == PST_OK;) {
        const size_t n = pstd_path_length(at);
        struct pst_str path = {0};

        pst_str_addn(&path, at, n);
        if (path.failed)
            status = pst_diag_nomem(diag, n);
        else if (n > 0)
            status = pst_plugin_load(path.text, diag);
        pst_str_fini(&path);
        at = at[n] == ':' ? at + n + 1 : NULL;
    }
    return status;
}
