// SPDX-License-Identifier: Apache-2.0
#include "daemon/swap_order.h"

#include <stdlib.h>
#include <string.h>

#include "stages/base/str.h"

void pstd_swap_order_write(const struct pstd_swap_order *from,
                           struct pst_str *out)
{
    pst_str_addf(out, "%d%d%d", from->aliases, from->keep, from->call);
    pst_str_addn(out, "", 1);
    pst_str_addn(out, from->module, strlen(from->module) + 1);
    pst_str_addn(out, from->path, strlen(from->path) + 1);
}

void pstd_swap_order_read(const char *data, struct pstd_swap_order *ret)
{
    ret->aliases = data[0] == '1';
    ret->keep = data[1] == '1';
    ret->call = (int)strtol(data + 2, NULL, 10);
    ret->module = data + strlen(data) + 1;
    ret->path = ret->module + strlen(ret->module) + 1;
}
