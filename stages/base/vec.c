// SPDX-License-Identifier: Apache-2.0
#include "stages/base/vec.h"

#include "stages/base/checked.h"

int pst_vec_grow(enum pst_tag tag, void **at, size_t *cap, size_t n,
                 size_t more, size_t size)
{
    size_t need, bytes, capacity;
    void *p;

    if (PST_ADD(n, more, &need))
        return 0;
    if (need <= *cap)
        return 1;
    capacity = PST_MAX(*cap, (size_t)4);
    while (capacity < need && !PST_MUL(capacity, (size_t)2, &capacity))
        ;
    capacity = PST_MAX(capacity, need);
    if (PST_MUL(capacity, size, &bytes))
        return 0;
    p = pst_realloc(tag, *at, bytes);
    if (!p)
        return 0;
    *at = p;
    *cap = capacity;
    return 1;
}
