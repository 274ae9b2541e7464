// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/plugin/plugin.h"

#include "lib/object.h"
#include "stages/ops/core/op.h"

int penstock_op_register(const struct penstock_plugin *plugin,
                         struct penstock_error *error)
{
    struct pst_diag diag;
    enum pst_status status;

    pst_diag_init(&diag);
    if (plugin == NULL)
        return pstl_return(
            pst_diag_set(&diag, PST_E_LIBRARY_ARGUMENT, "plugin is NULL"),
            &diag, error);
    status = pst_registry_hold(&diag);
    if (status != PST_OK)
        return pstl_return(status, &diag, error);
    status = pst_plugin_add(plugin, &diag);
    pst_registry_release();
    return pstl_return(status, &diag, error);
}
