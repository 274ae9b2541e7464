// SPDX-License-Identifier: Apache-2.0
#include "daemon/common/control/paths.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "stages/base/host/fs.h"

_Static_assert(sizeof(((struct sockaddr_un *)0)->sun_path) ==
                   PSTD_SOCKET_PATH + 1,
               "size of a socket's address");

void pstd_socket_base(struct pst_str *out)
{
    // NOLINTNEXTLINE(concurrency-mt-unsafe): nobody sets the environment
    const char *runtime = getenv("XDG_RUNTIME_DIR");

    if (runtime != NULL && runtime[0] == '/' && access(runtime, W_OK) == 0)
        pst_str_addf(out, "%s/penstock", runtime);
    else
        pst_str_addf(out, "/tmp/penstock-%u", (unsigned)geteuid());
}

#define LONGEST_JOB 40 /* maximum bytes: socket paths are short */

void pstd_socket_job(const char *text, struct pst_str *out)
{
    size_t n = 0;

    for (const char *p = text; *p != '\0' && n < LONGEST_JOB; p++) {
        const char c =
            isalnum((unsigned char)*p) || strchr("._-", *p) != NULL ? *p : '_';

        if (n == 0 && c == '.')
            continue;
        pst_str_addn(out, &c, 1);
        n++;
    }
    if (n == 0)
        pst_str_add(out, "job");
}

enum pst_status pstd_socket_check_job(const char *name, struct pst_diag *diag)
{
    struct pst_str kept = {0};
    enum pst_status status = PST_OK;

    if (name == NULL)
        return PST_OK;
    pstd_socket_job(name, &kept);
    if (kept.failed)
        status = pst_diag_nomem(diag, kept.len);
    else if (strcmp(kept.text, name) != 0)
        status = pst_diag_set(diag, PST_E_OPTION_VALUE,
                              "--job \"%.80s\": a name has 1 to %d letters, "
                              "digits, \".\", \"_\" and \"-\", and no \".\" in "
                              "front",
                              name, LONGEST_JOB);
    pst_str_fini(&kept);
    return status;
}

enum pst_status pstd_socket_check(const char *path, struct pst_diag *diag)
{
    const size_t len = strlen(path);

    if (len == 0)
        return pst_diag_set(diag, PST_E_SOCKET_PATH,
                            "the socket path is empty");
    if (len > PSTD_SOCKET_PATH)
        return pst_diag_set(diag, PST_E_SOCKET_PATH,
                            "the socket path has %zu bytes, the system takes "
                            "%d: %s (choose a shorter one with --socket)",
                            len, PSTD_SOCKET_PATH, path);
    return PST_OK;
}

enum pst_status pstd_socket_path(const char *job, unsigned rank,
                                 struct pst_str *out, struct pst_diag *diag)
{
    pstd_socket_base(out);
    pst_str_addf(out, "/%s/rank%u.sock", job, rank);
    if (out->failed)
        return pst_diag_nomem(diag, out->len);
    return pstd_socket_check(out->text, diag);
}

void pstd_socket_folder(const char *path, struct pst_str *out)
{
    const char *slash = strrchr(path, '/');

    if (slash == NULL)
        pst_str_add(out, ".");
    else
        pst_str_addn(out, path, slash == path ? 1 : (size_t)(slash - path));
}

bool pstd_socket_is_trusted(unsigned uid)
{
    return uid == geteuid() || uid == 0;
}

/* Refuses a folder of another user, a link, or one open to others: a foreign
 * socket could be put in place of ours. */
static enum pst_status check_own(const char *dir, struct pst_diag *diag)
{
    struct stat st;

    if (lstat(dir, &st) != 0)
        return pst_diag_errno(diag, errno, "cannot look at %s", dir);
    if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid())
        return pst_diag_set(diag, PST_E_SOCKET_FOLDER,
                            "%s is not a folder of ours; remove it or choose a "
                            "place with --socket",
                            dir);
    if ((st.st_mode & 077) != 0)
        return pst_diag_set(diag, PST_E_SOCKET_FOLDER,
                            "%s is open to others (mode %03o); make it 0700",
                            dir, st.st_mode & 0777u);
    return PST_OK;
}

/* Refuses a folder in which another user could put a socket, which would answer
 * instead of our job. */
static enum pst_status check_folder(const char *dir, bool closed,
                                    struct pst_diag *diag)
{
    const char *why = NULL;
    struct stat st;

    if (lstat(dir, &st) != 0)
        return PST_OK; /* connect reports that nobody listens there */
    if (S_ISLNK(st.st_mode))
        why = "is a link";
    else if (!S_ISDIR(st.st_mode))
        return PST_OK;
    else if (!pstd_socket_is_trusted(st.st_uid))
        why = "is neither yours nor root's";
    else if (closed && (st.st_mode & 077) != 0)
        why = "is open to others; make its mode 0700";
    else if ((st.st_mode & 022) != 0 && !(st.st_mode & S_ISVTX))
        why = "can be written by others; take that right away from them";
    if (why == NULL)
        return PST_OK;
    return pst_diag_set(diag, PST_E_SOCKET_FOLDER,
                        "the folder %s of the socket %s "
                        "(mode %04o, user %u), so somebody else could answer",
                        dir, why, st.st_mode & 07777u, (unsigned)st.st_uid);
}

/* Checks the folder of a socket: if it is directly below BASE, only its owner
 * may have access to it and to BASE; any other folder must not let another user
 * replace the socket. */
enum pst_status pstd_socket_check_folders(const char *path,
                                          struct pst_diag *diag)
{
    struct pst_str base = {0}, dir = {0}, below = {0};
    enum pst_status status = PST_OK;
    bool own;

    pstd_socket_base(&base);
    pstd_socket_folder(path, &dir);
    pstd_socket_folder(pst_str_text(&dir), &below);
    own = strcmp(pst_str_text(&below), pst_str_text(&base)) == 0;
    if (base.failed || dir.failed || below.failed)
        status = pst_diag_nomem(diag, dir.len);
    if (status == PST_OK && own)
        status = check_folder(base.text, true, diag);
    if (status == PST_OK)
        status = check_folder(dir.text, own, diag);
    pst_str_fini(&base);
    pst_str_fini(&dir);
    pst_str_fini(&below);
    return status;
}

enum pst_status pstd_socket_check_base(const char *base, struct pst_diag *diag)
{
    return check_folder(base, true, diag);
}

int pstd_open_own_folder(int base, const char *name)
{
    struct stat st;

    if (fstatat(base, name, &st, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISDIR(st.st_mode) || st.st_uid != geteuid())
        return -1;
    return openat(base, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

enum pst_status pstd_socket_dirs(const char *path, bool own_dir,
                                 struct pst_diag *diag)
{
    struct pst_str dir = {0}, base = {0};
    enum pst_status status;

    pstd_socket_folder(path, &dir);
    if (own_dir)
        pstd_socket_folder(pst_str_text(&dir), &base);
    if (dir.failed || base.failed)
        status = pst_diag_nomem(diag, dir.len);
    else
        status = pst_mkdirs(dir.text, 0700, diag);
    if (status == PST_OK && own_dir)
        status = check_own(base.text, diag);
    if (status == PST_OK && own_dir)
        status = check_own(dir.text, diag);
    /* clients would refuse a socket in such a folder */
    else if (status == PST_OK)
        status = pstd_socket_check_folders(path, diag);
    pst_str_fini(&dir);
    pst_str_fini(&base);
    return status;
}
