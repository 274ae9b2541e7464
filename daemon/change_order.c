// SPDX-License-Identifier: Apache-2.0
#include "daemon/change_order.h"

#include <stdlib.h>
#include <string.h>

#include "stages/base/str.h"

void pstd_change_order_write(const struct pstd_change_order *from,
                             struct pst_str *out)
{
    pst_str_addf(out, "%d%d%d%d", (int)from->kind, from->aliases, from->keep,
                 from->call);
    pst_str_addn(out, "", 1);
    pst_str_addn(out, from->name, strlen(from->name) + 1);
    pst_str_addn(out, from->path, strlen(from->path) + 1);
    pst_str_addn(out, from->value, strlen(from->value) + 1);
}

void pstd_change_order_read(const char *data, struct pstd_change_order *ret)
{
    ret->kind = (enum pstd_change_kind)(data[0] - '0');
    ret->aliases = data[1] == '1';
    ret->keep = data[2] == '1';
    ret->call = (int)strtol(data + 3, NULL, 10);
    ret->name = data + strlen(data) + 1;
    ret->path = ret->name + strlen(ret->name) + 1;
    ret->value = ret->path + strlen(ret->path) + 1;
}
