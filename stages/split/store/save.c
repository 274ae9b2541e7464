// SPDX-License-Identifier: Apache-2.0
/* Saves plans. A plan is written to a temporary directory that then replaces
 * the old one, so a failed save leaves the old plan. */
#include "stages/base/str.h"
#include "stages/files/safetensors.h"
#include "stages/ops/core/op.h"
#include "stages/split/split.h"
#include "stages/split/store/pack.h"
#include "stages/split/store/values.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define TAG       PST_TAG_PLAN
#define PIECE     ((size_t)4 << 20)
#define TEMP      ".tmp-" /* a process number follows */
#define MAX_TRIES 20

/* True for names of a plan's files, also those of an interrupted save:
 * "plan.pb.tmp-...". */
static bool is_plan_file(const char *name)
{
    const char *rest = name + strlen(PST_PLAN_FILE);

    if (pst_has_prefix(name, PST_PLAN_FILE))
        return *rest == '\0' || pst_has_prefix(rest, ".tmp-");
    rest = strstr(name, ".safetensors");
    if (!pst_has_prefix(name, "stage-") || rest == NULL)
        return false;
    rest += strlen(".safetensors");
    return *rest == '\0' || pst_has_prefix(rest, ".tmp-");
}

/* Checks that an existing directory is empty or contains a plan. */
static enum pst_status check_folder(const char *dir, struct pst_diag *diag)
{
    DIR *handle = opendir(dir);
    struct dirent *entry;
    bool ours = true;

    if (handle == NULL && errno == ENOTDIR)
        return pst_diag_set(diag, PST_E_PLAN_EXISTS,
                            "%s is a file; a plan is a folder", dir);
    if (handle == NULL)
        return errno == ENOENT ? PST_OK
                               : pst_diag_errno(diag, errno, "%s", dir);
    // NOLINTNEXTLINE(concurrency-mt-unsafe): a stream of our own
    while ((entry = readdir(handle)) != NULL)
        ours = ours && (strcmp(entry->d_name, ".") == 0 ||
                        strcmp(entry->d_name, "..") == 0 ||
                        is_plan_file(entry->d_name));
    closedir(handle);
    return ours ? PST_OK
                : pst_diag_set(diag, PST_E_PLAN_FOLDER,
                               "%s: the folder holds files that belong to no "
                               "plan; choose another one",
                               dir);
}

/* --- weights ------------------------------------------------------------ */

static enum pst_status declare_weights(struct pst_plan *plan, unsigned stage,
                                       struct pst_safetensors_writer *w,
                                       struct pst_diag *diag)
{
    for (size_t i = 0; i < plan->params.n; i++) {
        const struct pst_plan_param *param = &plan->params.at[i];
        enum pst_status status;

        if (param->owner_stage != stage)
            continue;
        status =
            pst_safetensors_writer_declare(w, param->fqn, &param->meta, diag);
        if (status != PST_OK)
            return status;
    }
    return pst_safetensors_writer_begin(w, diag);
}

/* Writes a parameter; if possible in pieces, to save memory. */
static enum pst_status write_param(struct pst_plan *plan, unsigned i,
                                   struct pst_safetensors_writer *w,
                                   size_t index, struct pst_diag *diag)
{
    const size_t bytes = pst_meta_bytes(&plan->params.at[i].meta);
    const bool parts = pst_plan_reads_parts(plan, i);
    const size_t piece = parts ? PST_MIN(bytes, PIECE) : bytes;
    void *buffer = pst_alloc(TAG, piece);
    enum pst_status status;
    size_t at = 0;

    if (buffer == NULL)
        return pst_diag_nomem(diag, piece);
    do {
        const size_t n = PST_MIN(bytes - at, piece);

        status = parts ? pst_plan_read_part(plan, i, at, n, buffer, diag)
                       : pst_plan_read_param(plan, i, buffer, diag);
        if (status == PST_OK)
            status = pst_safetensors_writer_append(w, index, buffer, n, diag);
        at += n;
    } while (status == PST_OK && at < bytes);
    pst_free(buffer);
    return status;
}

static enum pst_status write_params(struct pst_plan *plan, unsigned stage,
                                    struct pst_safetensors_writer *w,
                                    struct pst_diag *diag)
{
    size_t index = 0;

    for (size_t i = 0; i < plan->params.n; i++) {
        enum pst_status status;

        if (plan->params.at[i].owner_stage != stage)
            continue;
        status = write_param(plan, (unsigned)i, w, index++, diag);
        if (status != PST_OK)
            return status;
    }
    return pst_safetensors_writer_commit(w, diag);
}

/* Stores the size and digest of the weights file in *stage. */
static enum pst_status record_weights(struct pst_stage *stage, const char *path,
                                      struct pst_diag *diag)
{
    struct pst_file file;
    enum pst_status status = pst_file_open(path, &file, diag);

    if (status != PST_OK)
        return status;
    stage->weights_size = file.size;
    status = pst_file_digest(&file, stage->weights_digest, diag);
    pst_file_close(&file);
    return status;
}

static enum pst_status save_weights(struct pst_plan *plan, unsigned stage,
                                    const char *dir, struct pst_diag *diag)
{
    struct pst_safetensors_writer *w = NULL;
    struct pst_str path = {0};
    enum pst_status status;
    pst_str_addf(&path, "%s/%s", dir, plan->stages.at[stage].weights);
    if (path.failed)
        return pst_diag_nomem(diag, 0);
    status = pst_safetensors_writer_new(path.text, &w, diag);
    if (status == PST_OK)
        status = declare_weights(plan, stage, w, diag);
    if (status == PST_OK)
        status = write_params(plan, stage, w, diag);
    /* All values of a loaded plan have been read from its old file by now; the
     * old file's digest is not compared again. */
    if (status == PST_OK)
        status = record_weights(&plan->stages.at[stage], path.text, diag);
    pst_safetensors_writer_free(w);
    pst_str_fini(&path);
    return status;
}

/* --- the folder --------------------------------------------------------- */

/* Returns the length of the shortest prefix of the path that does not exist; 0:
 * the whole path exists. */
static size_t missing_part(char *path)
{
    struct stat st;

    for (size_t n = 1; path[0] != '\0'; n++) {
        const char was = path[n];
        bool missing;

        if (was != '/' && was != '\0')
            continue;
        path[n] = '\0';
        missing = stat(path, &st) != 0 && errno == ENOENT;
        path[n] = was;
        if (missing)
            return n;
        if (was == '\0')
            break;
    }
    return 0;
}

/* Removes the directories of the path, from the whole path up to its prefix of
 * `shortest` bytes; those that are not empty stay. */
static void remove_dirs(char *path, size_t shortest)
{
    size_t n = strlen(path);

    while (shortest > 0 && n >= shortest) {
        path[n] = '\0';
        (void)rmdir(path); /* fails if other processes have put files there */
        while (n > 0 && path[n - 1] != '/')
            n--;
        while (n > 0 && path[n - 1] == '/')
            n--;
    }
}

static enum pst_status save_files(struct pst_plan *plan, const char *dir,
                                  const char *plan_path, struct pst_diag *diag)
{
    enum pst_status status = PST_OK;
    void *data = NULL;
    size_t size = 0;

    for (unsigned i = 0; status == PST_OK && i < plan->stages.n; i++)
        status = save_weights(plan, i, dir, diag);
    if (status == PST_OK)
        status = pst_plan_pack(plan, &data, &size, diag);
    if (status == PST_OK)
        status = pst_file_write(plan_path, data, size, diag);
    pst_free(data);
    return status;
}

/* Removes a directory. Failures are ignored, since leftovers beside the plan do
 * no harm. */
static void remove_folder(const char *path)
{
    if (pst_remove_tree(path, NULL) != PST_OK)
        errno = 0;
}

/* Puts the new directory in the place of the old one, which is missing, empty
 * or a plan, and removes the old one. */
static enum pst_status swap(const char *fresh, const char *dir,
                            struct pst_diag *diag)
{
    enum pst_status status = PST_OK;
    char *old;

    if (rename(fresh, dir) == 0)
        return PST_OK;
    if (errno != ENOTEMPTY && errno != EEXIST)
        return pst_diag_errno(diag, errno, "cannot put a plan at %s", dir);
    if (renameat2(AT_FDCWD, fresh, AT_FDCWD, dir, RENAME_EXCHANGE) == 0) {
        remove_folder(fresh);
        return PST_OK;
    }
    /* The file system cannot exchange two directories: for a moment there is no
     * plan at dir. */
    if (asprintf(&old, "%s.old", fresh) < 0)
        return pst_diag_nomem(diag, strlen(fresh));
    if (rename(dir, old) != 0)
        status = pst_diag_errno(diag, errno, "cannot replace %s", dir);
    else if (rename(fresh, dir) == 0)
        remove_folder(old);
    else
        status = pst_diag_errno(diag, errno,
                                rename(old, dir) == 0
                                    ? "cannot replace %s"
                                    : "cannot replace %s, now moved",
                                dir);
    free(old);
    return status;
}

/* Opens a folder and locks it. -1: it is missing, another process has locked
 * it, or the file system has no locks on folders (NFS). */
static int lock_folder(const char *path, int wait)
{
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0 || flock(fd, LOCK_EX | wait) == 0)
        return fd;
    (void)close(fd);
    return -1;
}

/* Makes the temporary folder and locks it, so that remove_leftovers() of
 * another process does not remove it. *ret: descriptor to close at the end; -1:
 * none. */
static enum pst_status make_fresh(const char *fresh, int *ret,
                                  struct pst_diag *diag)
{
    struct stat st;
    enum pst_status status;

    for (int i = 0; i < MAX_TRIES; i++) {
        status = pst_remove_tree(fresh, diag);
        if (status == PST_OK)
            status = pst_mkdirs(fresh, 0777, diag);
        *ret = status == PST_OK ? lock_folder(fresh, 0) : -1;
        if (status != PST_OK || lstat(fresh, &st) == 0)
            return status;
        /* Another process removed the folder before it was locked. */
        if (*ret >= 0)
            (void)close(*ret);
        *ret = -1;
    }
    return pst_diag_errno(diag, ENOENT, "cannot make %s", fresh);
}

/* Removes temporary folders DIR.tmp-PID of killed processes, which are those
 * that nobody has locked. Failures are ignored. */
static void remove_leftovers(const char *dir)
{
    const char *slash = strrchr(dir, '/');
    const char *base = slash != NULL ? slash + 1 : dir;
    const size_t n = strlen(base), prefix = (size_t)(base - dir);
    struct pst_str parent = {0};
    const struct dirent *entry;
    DIR *d;

    pst_str_addf(&parent, "%.*s.", (int)prefix, dir);
    d = parent.failed ? NULL : opendir(parent.text);
    pst_str_fini(&parent);
    while (d != NULL && (entry = readdir(d)) != NULL) {
        const char *name = entry->d_name;
        struct pst_str path = {0};
        int fd = -1;

        if (strncmp(name, base, n) != 0 || !pst_has_prefix(name + n, TEMP) ||
            name[n + strlen(TEMP)] == '\0' ||
            strspn(name + n + strlen(TEMP), "0123456789") !=
                strlen(name + n + strlen(TEMP)))
            continue;
        pst_str_addf(&path, "%.*s%s", (int)prefix, dir, name);
        if (!path.failed)
            fd = lock_folder(path.text, LOCK_NB);
        if (fd >= 0) {
            remove_folder(path.text);
            (void)close(fd);
        }
        pst_str_fini(&path);
    }
    if (d != NULL)
        (void)closedir(d);
    errno = 0;
}

/* Saves to dir, which contains no symbolic links and does not end with a
 * slash. */
static enum pst_status save_at(struct pst_plan *plan, const char *dir,
                               struct pst_diag *diag)
{
    struct pst_str fresh = {0}, path = {0};
    int lock = -1;
    enum pst_status status;

    pst_str_addf(&fresh, "%s" TEMP "%ld", dir, (long)getpid());
    pst_str_addf(&path, "%s/%s", pst_str_text(&fresh), PST_PLAN_FILE);
    if (fresh.failed || path.failed) {
        status = pst_diag_nomem(diag, strlen(dir));
    } else {
        remove_leftovers(dir);
        status = make_fresh(fresh.text, &lock, diag);
        if (status == PST_OK)
            status = save_files(plan, fresh.text, path.text, diag);
        if (status == PST_OK)
            status = swap(fresh.text, dir, diag);
        if (status != PST_OK)
            remove_folder(fresh.text);
    }
    if (lock >= 0)
        (void)close(lock);
    pst_str_fini(&path);
    pst_str_fini(&fresh);
    return status;
}

enum pst_status pst_plan_save(struct pst_plan *plan, const char *dir,
                              struct pst_diag *diag)
{
    enum pst_status status;
    char *path = pst_strdup(TAG, dir), *real;
    size_t missing, n = strlen(dir);

    if (path == NULL)
        return pst_diag_nomem(diag, n);
    while (n > 1 && path[n - 1] == '/')
        path[--n] = '\0';
    real = realpath(path, NULL); /* NULL: the path does not exist yet */
    missing = missing_part(path);
    if (plan->dir != NULL && strcmp(plan->dir, dir) == 0)
        status = pst_diag_set(diag, PST_E_PLAN_EXISTS,
                              "%s: the plan is there already", dir);
    else
        status = check_folder(path, diag);
    if (status == PST_OK)
        status = pst_plan_check_values(plan, diag);
    if (status == PST_OK) {
        status = save_at(plan, real != NULL ? real : path, diag);
        if (status != PST_OK)
            remove_dirs(path, missing);
    }
    free(real);
    pst_free(path);
    return status;
}

static enum pst_status read_plan(const char *dir, struct pst_plan **ret,
                                 struct pst_diag *diag)
{
    struct pst_str path = {0};
    enum pst_status status;
    char *data = NULL;
    size_t size = 0;

    pst_str_addf(&path, "%s/%s", dir, PST_PLAN_FILE);
    if (path.failed)
        return pst_diag_nomem(diag, strlen(dir));
    status = pst_file_read(path.text, PST_PLAN_MAX_FILE, &data, &size, diag);
    if (status == PST_OK) {
        status = pst_plan_unpack(data, size, ret, diag);
        if (status != PST_OK)
            pst_diag_prefix(diag, "%s", dir);
    }
    pst_free(data);
    pst_str_fini(&path);
    return status;
}

enum pst_status pst_plan_load(const char *dir, struct pst_plan **ret,
                              struct pst_diag *diag)
{
    struct pst_plan *plan = NULL;
    enum pst_status status = pst_registry_init(diag);

    if (status == PST_OK)
        status = read_plan(dir, &plan, diag);
    if (status != PST_OK)
        return status;
    status = pst_plan_check(plan, diag);
    if (status == PST_OK)
        status = pst_plan_mark_depends(plan, diag);
    for (size_t i = 0; i < plan->stages.n && status == PST_OK; i++)
        if (plan->stages.at[i].weights_digest[0] == '\0')
            status = pst_diag_set(diag, PST_E_PLAN_DAMAGED,
                                  "stage %zu has no weights", i);
    if (status != PST_OK) {
        pst_diag_prefix(diag, "%s", dir);
    } else {
        plan->dir = pst_arena_strdup(&plan->arena, dir);
        status = plan->dir == NULL ? pst_diag_nomem(diag, strlen(dir))
                                   : pst_plan_check_weights(plan, diag);
    }
    if (status != PST_OK) {
        pst_plan_free(plan);
        return status;
    }
    pst_plan_measure(plan);
    *ret = plan;
    return PST_OK;
}
