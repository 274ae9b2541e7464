// SPDX-License-Identifier: Apache-2.0
#include "daemon/ctl/sandbox.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "daemon/common/options/sets.h"
#include "stages/base/host/guard.h"
#include "stages/base/host/headroom.h"
#include "stages/base/str.h"
#include "stages/files/data/list.h"
#include "stages/ops/rates/rates.h"

/* System files that the C library and penstock read: memory, processors,
 * cgroups, time zones. */
static const char *const system_files[] = {
    "/proc/self",          "/proc/meminfo",       "/proc/cpuinfo",
    "/proc/stat",          "/proc/sys/vm",        "/proc/sys/kernel",
    "/sys/fs/cgroup",      "/sys/devices/system", "/etc/localtime",
    "/usr/share/zoneinfo",
};

/* Allows reading a file. For an index (.json), also allows its folder, since an
 * index names files beside it. */
static void allow_file(struct pst_guard *guard, const char *path)
{
    const char *slash = strrchr(path, '/');
    struct pst_str folder = {0};

    pst_guard_allow_links(guard, path);
    if (!pst_has_suffix(path, ".json"))
        return;
    if (slash != NULL)
        pst_str_addn(&folder, path, (size_t)(slash - path) + 1);
    else
        pst_str_add(&folder, ".");
    if (!folder.failed)
        pst_guard_allow_links(guard, folder.text);
    pst_str_fini(&folder);
}

/* Allows reading data files and the indices beside them, and listing the
 * folders that patterns search. */
static void add_data(struct pst_guard *guard, const char *text)
{
    struct pst_data_list list;

    /* Ignored: a wrong list is reported when the data are opened. */
    if (pst_data_list_read(text, &list, NULL) != PST_OK)
        return;
    for (size_t i = 0; i < list.files.n; i++) {
        const char *path = list.files.at[i];
        struct pst_str index = {0};

        allow_file(guard, path);
        if (pst_has_suffix(path, ".bin")) {
            pst_str_addn(&index, path, strlen(path) - strlen("bin"));
            pst_str_add(&index, "idx");
            pst_guard_allow_links(guard, pst_str_text(&index));
        }
        pst_str_fini(&index);
    }
    pst_data_list_fini(&list);
    for (const char *at = text; at != NULL;) {
        const size_t n = strcspn(at, ","), fixed = strcspn(at, ",*?[");
        struct pst_str folder = {0};

        pst_str_addn(&folder, at, fixed);
        if (folder.len > 0 && strrchr(folder.text, '/') != NULL)
            strrchr(folder.text, '/')[1] = '\0';
        if (fixed < n)
            pst_guard_allow_links(
                guard, folder.len > 0 && strchr(folder.text, '/') != NULL
                           ? folder.text
                           : ".");
        pst_str_fini(&folder);
        at = at[n] == ',' ? at + n + 1 : NULL;
    }
}

static void add_sets(struct pst_guard *guard, const char *text)
{
    struct pst_arena arena;
    struct pstd_sets sets;

    pst_arena_init(&arena, PST_TAG_CLIENT);
    if (pstd_sets_read("", text, &arena, &sets, NULL) == PST_OK)
        for (unsigned i = 0; i < sets.n; i++)
            add_data(guard, sets.at[i].files);
    pst_arena_fini(&arena);
}

static void add_path(struct pst_guard *guard, const struct pstd_option *row,
                     const char *path)
{
    if (row->groups & PSTD_OPT_WRITTEN)
        pst_guard_allow_write(guard, path);
    else if (pst_data_list_is_pattern(path)) /* --weights 'FOLDER/a-*' */
        add_data(guard, path);
    else
        allow_file(guard, path);
}

/* Allows reading the files of a list of paths separated by ':'. */
static void add_plugins(struct pst_guard *guard, const char *at)
{
    while (at != NULL) {
        const size_t n = pstd_path_length(at);
        struct pst_str path = {0};

        pst_str_addn(&path, at, n);
        if (path.len > 0 && !path.failed)
            pst_guard_allow_links(guard, path.text);
        pst_str_fini(&path);
        at = at[n] == ':' ? at + n + 1 : NULL;
    }
}

static void add_options(struct pst_guard *guard,
                        const struct pstd_config *config)
{
    size_t n;
    const struct pstd_option *rows = pstd_options(&n);

    for (size_t i = 0; i < n; i++) {
        const void *at = (const char *)config + rows[i].at;
        const char *text;

        if (!config->given[i])
            continue;
        if (rows[i].type == PSTD_PATH || rows[i].type == PSTD_FILES ||
            rows[i].type == PSTD_SETS || rows[i].type == PSTD_SOURCE) {
            text = *(const char *const *)at;
            if (text != NULL && rows[i].type == PSTD_PATH)
                add_path(guard, &rows[i], text);
            else if (text != NULL && rows[i].type == PSTD_FILES)
                add_data(guard, text);
            else if (text != NULL && rows[i].type == PSTD_SETS)
                add_sets(guard, text);
            else if (text != NULL && pstd_option_path(&rows[i], text) != NULL)
                pst_guard_allow_links(guard, pstd_option_path(&rows[i], text));
        }
    }
    add_plugins(guard, config->plugin);
    for (size_t i = 0; i < config->swap.n; i++) { /* the texts are FQN=FILE */
        const char *file = strchr(config->swap.at[i], '=');

        if (file != NULL)
            pst_guard_allow_links(guard, file + 1);
    }
}

/* Returns the private memory of this process in bytes, as RLIMIT_DATA counts
 * it; 0: unknown. */
static uint64_t data_bytes(void)
{
    FILE *f = fopen("/proc/self/statm", "re");
    char line[160] = "", *field = line;

    if (f == NULL)
        return 0;
    if (fgets(line, sizeof(line), f) == NULL)
        line[0] = '\0';
    (void)fclose(f);
    for (int i = 0; i < 5 && field != NULL; i++) {
        field = strchr(field, ' ');
        field += field != NULL;
    }
    return field == NULL
               ? 0
               : strtoull(field, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Limits the memory of this process: if a malicious file exhausts it, an
 * allocation fails before the kernel kills this process or others. */
static void limit_memory(void)
{
    const char *root = getenv("PST_HEADROOM_ROOT");
    const uint64_t data = data_bytes();
    struct pst_headroom headroom;
    struct rlimit limit;
    uint64_t most;

    pst_headroom_read(root != NULL ? root : "", &headroom);
    most = PST_MIN(headroom.host, headroom.group);
    if (data == 0 || most > INT64_MAX || getrlimit(RLIMIT_DATA, &limit) != 0)
        return;
    most += data;
    if (limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur <= most)
        return;
    limit.rlim_cur = most;
    (void)setrlimit(RLIMIT_DATA, &limit);
}

enum pst_status pstctl_sandbox(const struct pstd_config *config,
                               struct pst_diag *diag)
{
    struct pst_guard guard;

    /* Reads the file of rates now, before access is limited. */
    (void)pst_rates_here();
    limit_memory();
    pst_guard_begin(&guard);
    for (size_t i = 0; i < PST_COUNT(system_files); i++)
        pst_guard_allow_read(&guard, system_files[i]);
    for (size_t i = 0; i < config->n_args; i++)
        pst_guard_allow_links(&guard, config->args[i]);
    add_options(&guard, config);
    (void)pst_guard_enforce(&guard);
    return guard.err == 0
               ? PST_OK
               : pst_diag_errno(
                     diag, guard.err,
                     "cannot restrict this process to the files that it "
                     "needs");
}
