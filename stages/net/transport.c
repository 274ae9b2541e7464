// SPDX-License-Identifier: Apache-2.0
#include "stages/net/transport.h"

#include <string.h>

const struct pst_transport_ops *pst_transport_find(const char *name)
{
    static const struct pst_transport_ops *const all[] = {&pst_transport_self,
                                                          &pst_transport_mpi};

    for (size_t i = 0; name && i < PST_COUNT(all); i++)
        if (strcmp(name, all[i]->name) == 0)
            return all[i];
    return NULL;
}
