// SPDX-License-Identifier: Apache-2.0
// The header is C++11, alone and beside that of the library.
#include <penstock_plugin.h>

#include <penstock.h>

static const struct penstock_plugin plugin = {
    sizeof(struct penstock_plugin), PENSTOCK_PLUGIN_ABI, "mine", "1", 0, 0};

const struct penstock_plugin *penstock_plugin(void)
{
    return &plugin;
}
