// SPDX-License-Identifier: Apache-2.0
/* gather, scatter, index and index_put. Of several writes to one element the
 * last one wins; sums are made in the order of the list (embed.cu). */
#include "stages/ops/cuda/code/elements/places.h"
#include "stages/ops/cuda/code/fault.cuh"

/* Returns the offset in the table of element i of the list; -1: none. */
PST_DEVICE int64_t places_at(const struct pst_cuda_places &p, int64_t i,
                             bool reports)
{
    int64_t at = pst_nd_at(p.nd, 1, i);

    for (uint32_t k = 0; k < p.n; k++) {
        const int64_t raw =
            pst_index_at(p.index[k], p.wide[k], pst_nd_at(p.nd, k + 2, i));
        const int64_t place =
            p.wrap && raw < 0 && raw >= -p.size[k] ? raw + p.size[k] : raw;

        if (place < 0 || place >= p.size[k]) {
            if (reports)
                pst_fault_set(p.fault, raw, p.size[k]);
            return -1;
        }
        at += place * p.stride[k];
    }
    return at;
}

template <typename T>
PST_DEVICE void places_read(const struct pst_cuda_places &p)
{
    PST_GRID_LOOP(i, p.nd.numel)
    {
        const int64_t at = places_at(p, i, true);

        ((T *)p.list)[pst_nd_at(p.nd, 0, i)] =
            at >= 0 ? ((const T *)p.table)[at] : T(0);
    }
}

template <typename T>
PST_DEVICE void places_write(const struct pst_cuda_places &p)
{
    PST_GRID_LOOP(i, p.nd.numel)
    {
        const int64_t at = places_at(p, i, false);

        if (at >= 0 && p.last[at] == (int32_t)i)
            ((T *)p.table)[at] =
                p.list != nullptr ? ((const T *)p.list)[pst_nd_at(p.nd, 0, i)]
                                  : (T)p.number;
    }
}

PST_CUDA_KERNEL(pst_places_read, struct pst_cuda_places)
{
    switch (p.bytes) {
    case 1:
        places_read<uint8_t>(p);
        break;
    case 2:
        places_read<uint16_t>(p);
        break;
    case 4:
        places_read<uint32_t>(p);
        break;
    default:
        places_read<uint64_t>(p);
    }
}

/* 1. Sets last (initially -1) of each element of the table to the last element
 * of the list that is written to it. */
PST_CUDA_KERNEL(pst_places_last, struct pst_cuda_places)
{
    PST_GRID_LOOP(i, p.nd.numel)
    {
        const int64_t at = places_at(p, i, true);

        if (at >= 0)
            atomicMax(&p.last[at], (int32_t)i);
    }
}

/* 2. Writes the elements of the list that step 1 has selected. */
PST_CUDA_KERNEL(pst_places_write, struct pst_cuda_places)
{
    switch (p.bytes) {
    case 1:
        places_write<uint8_t>(p);
        break;
    case 2:
        places_write<uint16_t>(p);
        break;
    case 4:
        places_write<uint32_t>(p);
        break;
    default:
        places_write<uint64_t>(p);
    }
}

PST_CUDA_KERNEL(pst_places_keys, struct pst_cuda_places)
{
    PST_GRID_LOOP(i, p.nd.numel)
    {
        p.keys[i] = places_at(p, i, true);
        p.values[i] = ((const float *)p.list)[pst_nd_at(p.nd, 0, i)];
    }
}
