// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/plugin/plugin.h"

#include "lib/object.h"

int penstock_op_register(const struct penstock_plugin *plugin,
                         struct penstock_error *error)
{
    struct pst_diag diag;
    enum pst_status status;

    pst_diag_init(&diag);
    status = plugin == NULL
                 ? pst_diag_set(&diag, PST_E_LIBRARY_ARGUMENT, "plugin is NULL")
                 : pst_plugin_add(plugin, &diag);
    return pstl_return(status, &diag, error);
}
