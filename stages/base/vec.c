// SPDX-License-Identifier: Apache-2.0
#include "stages/base/vec.h"

#include "stages/base/checked.h"

int pst_vec_grow(enum pst_tag tag, void **at, size_t *cap, size_t n,
                 size_t more, size_t size)
{
    size_t need, bytes, room;
    void *p;

    if (PST_ADD(n, more, &need))
        return 0;
    if (need <= *cap)
        return 1;
    room = PST_MAX(*cap, (size_t)4);
    while (room < need && !PST_MUL(room, (size_t)2, &room))
        ;
    room = PST_MAX(room, need);
    if (PST_MUL(room, size, &bytes))
        return 0;
    p = pst_realloc(tag, *at, bytes);
    if (!p)
        return 0;
    *at = p;
    *cap = room;
    return 1;
}
