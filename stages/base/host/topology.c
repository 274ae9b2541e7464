// SPDX-License-Identifier: Apache-2.0
#include "stages/base/host/topology.h"

#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stages/base/host/thread.h"

#define TAG  PST_TAG_BASE
#define CPUS "/sys/devices/system/cpu/cpu"

/* Reads the first number of a file below the processor's folder, such as the
 * lowest processor of a list. Returns `otherwise` if there is none. */
static unsigned read_number(const char *root, unsigned id, const char *name,
                            unsigned otherwise)
{
    char path[4096];
    unsigned ret;
    FILE *file;

    (void)snprintf(path, sizeof(path), "%s" CPUS "%u/%s", root, id, name);
    file = fopen(path, "re");
    if (file == NULL)
        return otherwise;
    if (fscanf(file, "%u", &ret) != 1) // NOLINT(cert-err34-c): of the kernel
        ret = otherwise;
    (void)fclose(file);
    return ret;
}

/* Returns the NUMA node of a processor, from the entry "nodeN" of its folder; 0
 * if there is none. */
static unsigned read_node(const char *root, unsigned id)
{
    char path[4096];
    const struct dirent *e;
    unsigned ret = 0;
    DIR *dir;

    (void)snprintf(path, sizeof(path), "%s" CPUS "%u", root, id);
    dir = opendir(path);
    while (dir != NULL && (e = readdir(dir)) != NULL)
        if (strncmp(e->d_name, "node", 4) == 0 && e->d_name[4] >= '0' &&
            e->d_name[4] <= '9')
            ret = (unsigned)strtoul(e->d_name + 4, NULL, 10);
    if (dir != NULL)
        (void)closedir(dir);
    return ret;
}

static bool add_processor(struct pst_topology *t, const char *root, unsigned id)
{
    const struct pst_processor p = {
        .id = id,
        .core = read_number(root, id, "topology/thread_siblings_list", id),
        .cache = read_number(root, id, "cache/index3/shared_cpu_list", 0),
        .node = read_node(root, id),
    };

    return pst_vec_push(TAG, &t->processors, p);
}

/* Adds the processors of a list like "0-3,8". */
static enum pst_status add_list(struct pst_topology *t, const char *root,
                                const char *list, struct pst_diag *diag)
{
    while (*list != '\0') {
        char *end;
        unsigned long first = strtoul(list, &end, 10), last = first;

        if (*end == '-')
            last = strtoul(end + 1, &end, 10);
        if (end == list || last >= PST_MAX_PROCESSORS || first > last ||
            (*end != ',' && *end != '\0'))
            return pst_diag_set(diag, PST_E_HOST_BIND,
                                "\"%s\" is no list of processors", list);
        for (; first <= last; first++)
            if (!add_processor(t, root, (unsigned)first))
                return pst_diag_nomem(diag, sizeof(t->processors.at[0]));
        list = *end == ',' ? end + 1 : end;
    }
    return PST_OK;
}

static enum pst_status add_own(struct pst_topology *t, const char *root,
                               struct pst_diag *diag)
{
    const size_t size = CPU_ALLOC_SIZE(PST_MAX_PROCESSORS);
    cpu_set_t *set = CPU_ALLOC(PST_MAX_PROCESSORS);
    enum pst_status status = PST_OK;

    if (set == NULL)
        return pst_diag_nomem(diag, size);
    if (sched_getaffinity(0, size, set) != 0)
        status = pst_diag_errno(diag, errno, "the processors of this process");
    for (unsigned i = 0; i < PST_MAX_PROCESSORS && status == PST_OK; i++)
        if (CPU_ISSET_S(i, size, set) && !add_processor(t, root, i))
            status = pst_diag_nomem(diag, sizeof(t->processors.at[0]));
    CPU_FREE(set);
    return status;
}

static int compare(const void *a, const void *b)
{
    const struct pst_processor *x = a, *y = b;
    const unsigned keys[][2] = {{x->node, y->node},
                                {x->cache, y->cache},
                                {x->core, y->core},
                                {x->id, y->id}};

    for (size_t i = 0; i < PST_COUNT(keys); i++)
        if (keys[i][0] != keys[i][1])
            return keys[i][0] < keys[i][1] ? -1 : 1;
    return 0;
}

/* Counts cores, caches and NUMA nodes: each is a run of adjacent processors. */
static void count(struct pst_topology *t)
{
    for (size_t i = 0; i < t->processors.n; i++) {
        const struct pst_processor *p = &t->processors.at[i];
        const bool node = i == 0 || p->node != p[-1].node;
        const bool cache = node || p->cache != p[-1].cache;

        t->n_nodes += node;
        t->n_caches += cache;
        t->n_cores += cache || p->core != p[-1].core;
    }
}

enum pst_status pst_topology_read(const char *root, const char *mask,
                                  struct pst_topology *ret,
                                  struct pst_diag *diag)
{
    const enum pst_status status = mask != NULL
                                       ? add_list(ret, root, mask, diag)
                                       : add_own(ret, root, diag);

    if (status != PST_OK)
        return status;
    if (ret->processors.n > 0)
        qsort(ret->processors.at, ret->processors.n,
              sizeof(ret->processors.at[0]), compare);
    count(ret);
    return PST_OK;
}

void pst_topology_fini(struct pst_topology *topology)
{
    pst_vec_fini(&topology->processors);
}

void pst_topology_print(const struct pst_topology *topology,
                        struct pst_str *out)
{
    const unsigned n = (unsigned)topology->processors.n;

    pst_str_addf(out, "%u processor%s, %u core%s, %u NUMA node%s", n,
                 n == 1 ? "" : "s", topology->n_cores,
                 topology->n_cores == 1 ? "" : "s", topology->n_nodes,
                 topology->n_nodes == 1 ? "" : "s");
}

/* Returns the index of the first processor of core number `core`. */
static unsigned find_core(const struct pst_topology *t, unsigned core)
{
    unsigned i = 0;

    for (; i + 1 < t->processors.n; i++) {
        const struct pst_processor *p = &t->processors.at[i];

        if (core == 0)
            break;
        core -= p->core != p[1].core || p->node != p[1].node;
    }
    return i;
}

unsigned pst_topology_place(const struct pst_topology *topology,
                            unsigned thread, unsigned threads)
{
    const uint64_t n = topology->processors.n, cores = topology->n_cores;

    return threads <= cores
               ? find_core(topology, (unsigned)(thread * cores / threads))
               : (unsigned)(thread * n / threads);
}
