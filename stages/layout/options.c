// SPDX-License-Identifier: Apache-2.0
#include "stages/layout/options.h"

#include <string.h>

#include "stages/base/checked.h"

unsigned pst_exec_threads(const struct pst_exec_options *o)
{
    const unsigned size = PST_MAX(o->ranks, 1) * PST_MAX(o->replicas, 1);

    return o->threads > 0 ? o->threads : PST_MAX(1, pst_cpu_count() / size);
}

void pst_exec_fill(struct pst_exec_options *o)
{
    o->replicas = PST_MAX(o->replicas, 1);
    o->threads = pst_exec_threads(o);
    if (o->device == NULL)
        o->device = pst_device_default();
    if (!o->train)
        o->schedule = "gpipe"; /* only forwards, in the order of microbatches */
}

size_t pst_memory_of_host(const struct pst_memory *memory,
                          const struct pst_exec_options *options)
{
    const bool ram =
        options->stash != NULL && strcmp(options->stash, "ram") == 0;

    return pst_size_add(memory->arena, ram ? memory->outside : 0);
}

const char *pst_sharing_word(enum pst_sharing shard)
{
    static const char *const words[] = {"none", "zero1", "zero2", "zero3"};

    return words[shard];
}
