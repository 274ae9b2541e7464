// SPDX-License-Identifier: Apache-2.0
#include "stages/base/host/headroom.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stages/base/checked.h"
#include "stages/base/str.h"

#define MAX_PATH 4096

/* --- this host ------------------------------------------------------------ */

/* Reads a small file; "" if it cannot be read. */
static void read_text(const char *root, const char *path, char *out,
                      size_t size)
{
    char full[2 * MAX_PATH];
    FILE *f = NULL;
    size_t n = 0;

    if (snprintf(full, sizeof(full), "%s%s", root, path) < (int)sizeof(full))
        f = fopen(full, "re");
    if (f != NULL) {
        n = fread(out, 1, size - 1, f);
        (void)fclose(f);
    }
    out[n] = '\0';
}

/* Parses the number after `key` at the beginning of a line. */
static bool find_number(const char *text, const char *key, uint64_t *ret)
{
    const size_t n = strlen(key);

    for (const char *line = text; line != NULL && *line != '\0';) {
        if (strncmp(line, key, n) == 0) {
            const char *p = line + n + strspn(line + n, " \t");
            char *end;

            *ret = strtoull(p, &end, 10);
            return end != p && *p != '-';
        }
        line = strchr(line, '\n');
        line = line != NULL ? line + 1 : NULL;
    }
    return false;
}

/* File names of one version of control groups. */
struct version {
    const char *mount, *limit, *usage, *cache[2];
    const char *events; /* file with a line "oom_kill N" */
};

static const struct version versions[] = {
    {"/sys/fs/cgroup",
     "memory.max",
     "memory.current",
     {"inactive_file ", "active_file "},
     "memory.events"},
    {"/sys/fs/cgroup/memory",
     "memory.limit_in_bytes",
     "memory.usage_in_bytes",
     {"total_inactive_file ", "total_active_file "},
     "memory.oom_control"},
};

static bool group_number(const char *root, const char *folder, const char *name,
                         uint64_t *ret)
{
    char path[MAX_PATH], text[64];

    if (snprintf(path, sizeof(path), "%s/%s", folder, name) >=
        (int)sizeof(path))
        return false;
    read_text(root, path, text, sizeof(text));
    return find_number(text, "", ret); /* "max" means no limit */
}

/* Returns the bytes left in one group; page cache counts as use, but the kernel
 * reclaims it when needed. */
static bool group_headroom(const char *root, const struct version *v,
                           const char *folder, uint64_t *ret)
{
    uint64_t limit, usage, cache = 0, part;
    char path[MAX_PATH], stat[16384];

    if (!group_number(root, folder, v->limit, &limit) ||
        !group_number(root, folder, v->usage, &usage))
        return false;
    (void)snprintf(path, sizeof(path), "%.4000s/memory.stat", folder);
    read_text(root, path, stat, sizeof(stat));
    for (int i = 0; i < 2; i++)
        if (find_number(stat, v->cache[i], &part))
            cache = pst_size_add(cache, part);
    usage -= PST_MIN(cache, usage);
    *ret = limit > usage ? limit - usage : 0;
    return true;
}

/* Checks the group of this process and all its ancestors: each has its own
 * limit. */
static void read_group_limits(const char *root, const struct version *v,
                              const char *group, void *ctx)
{
    struct pst_headroom *const ret = ctx;
    char folder[MAX_PATH];
    const size_t mount = strlen(v->mount);
    uint64_t headroom;

    if (snprintf(folder, sizeof(folder), "%s%s", v->mount, group) >=
        (int)sizeof(folder))
        return;
    for (;;) {
        char *slash = strrchr(folder, '/');

        if (group_headroom(root, v, folder, &headroom) &&
            headroom < ret->group) {
            ret->group = headroom;
            ret->group_id = pst_hash(folder, strlen(folder), ret->host_id);
        }
        if (slash == NULL || (size_t)(slash - folder) < mount)
            return;
        *slash = '\0';
    }
}

static void count_kills(const char *root, const struct version *v,
                        const char *group, void *ctx)
{
    uint64_t *const kills = ctx;
    char path[MAX_PATH], text[1024];

    if (snprintf(path, sizeof(path), "%s%s/%s", v->mount, group, v->events) >=
        (int)sizeof(path))
        return;
    read_text(root, path, text, sizeof(text));
    (void)find_number(text, "oom_kill ", kills);
}

typedef void (*group_fn)(const char *root, const struct version *v,
                         const char *group, void *ctx);

/* Calls fn for each line "0::/path" (version 2) and "N:memory:/path". */
static void visit_groups(const char *root, group_fn fn, void *ctx)
{
    char text[MAX_PATH], *save = NULL;

    read_text(root, "/proc/self/cgroup", text, sizeof(text));
    for (char *line = strtok_r(text, "\n", &save); line != NULL;
         line = strtok_r(NULL, "\n", &save)) {
        char *names = strchr(line, ':');
        char *path = names != NULL ? strchr(names + 1, ':') : NULL;

        if (path == NULL || strstr(path, "..") != NULL)
            continue;
        *path++ = '\0';
        if (strcmp(line, "0:") == 0)
            fn(root, &versions[0], path, ctx);
        else if (strcmp(names, ":memory") == 0)
            fn(root, &versions[1], path, ctx);
    }
}

uint64_t pst_headroom_oom_kills(const char *root)
{
    uint64_t kills = UINT64_MAX;
    char text[32768];

    visit_groups(root, count_kills, &kills);
    if (kills != UINT64_MAX)
        return kills;
    read_text(root, "/proc/vmstat", text, sizeof(text));
    return find_number(text, "oom_kill ", &kills) ? kills : 0;
}

void pst_headroom_read(const char *root, struct pst_headroom *ret)
{
    char text[8192];
    uint64_t kib, bytes;

    *ret = (struct pst_headroom){.host = UINT64_MAX, .group = UINT64_MAX};
    read_text(root, "/proc/sys/kernel/random/boot_id", text, sizeof(text));
    ret->host_id = pst_hash(text, strlen(text), 0);
    read_text(root, "/proc/meminfo", text, sizeof(text));
    if (find_number(text, "MemAvailable:", &kib) &&
        !PST_MUL(kib, (uint64_t)1024, &bytes))
        ret->host = bytes;
    visit_groups(root, read_group_limits, ret);
}
