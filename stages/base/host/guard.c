// SPDX-License-Identifier: Apache-2.0
#include "stages/base/host/guard.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/landlock.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "stages/base/host/log.h"

#define MAX_LINKS 65536 /* maximum number of links followed in a folder */

/* Constants that the kernel headers may lack. */
#define RIGHT_REFER    (1ull << 13) /* exists from ABI 2 on */
#define RIGHT_TRUNCATE (1ull << 14) /* exists from ABI 3 on */
#define NET_TCP        3ull         /* exist from ABI 4 on: bind and connect */
/* exist from ABI 6 on: sockets without a path, signals */
#define SCOPES 3ull

#define READ_FILE LANDLOCK_ACCESS_FS_READ_FILE
#define READ      (READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
#define WRITE     (LANDLOCK_ACCESS_FS_WRITE_FILE | RIGHT_TRUNCATE)
#define MAKE                                                                   \
    (LANDLOCK_ACCESS_FS_REMOVE_DIR | LANDLOCK_ACCESS_FS_REMOVE_FILE |          \
     LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_REG | RIGHT_REFER)
#define OTHER                                                                  \
    (LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_MAKE_CHAR |               \
     LANDLOCK_ACCESS_FS_MAKE_SOCK | LANDLOCK_ACCESS_FS_MAKE_FIFO |             \
     LANDLOCK_ACCESS_FS_MAKE_BLOCK | LANDLOCK_ACCESS_FS_MAKE_SYM)

/* struct landlock_ruleset_attr as of ABI 6; older ABIs use a prefix of it. */
struct ruleset {
    uint64_t files, net, scopes;
};

void pst_guard_inherited(void)
{
    sigset_t none;

    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF &&
            open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd)
            _exit(1);
    (void)signal(SIGCHLD, SIG_DFL);
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL); // NOLINT: no other thread
    (void)umask(umask(077) & 077);
}

void pst_guard_process(bool core_files)
{
    struct rlimit cores;

    if (!core_files && getrlimit(RLIMIT_CORE, &cores) == 0) {
        cores.rlim_cur = 0;
        (void)setrlimit(RLIMIT_CORE, &cores);
    }
    (void)umask(umask(077) | 027);
}

void pst_guard_begin(struct pst_guard *guard)
{
    struct ruleset rules = {READ | WRITE | MAKE | OTHER, NET_TCP, SCOPES};
    size_t size = sizeof(rules);
    const long abi = syscall(SYS_landlock_create_ruleset, NULL, 0,
                             LANDLOCK_CREATE_RULESET_VERSION);

    *guard = (struct pst_guard){.fd = -1};
    if (abi < 1) {
        pst_debug("base", "no Landlock: %s", strerror(errno));
        return;
    }
    if (abi < 2)
        rules.files &= ~RIGHT_REFER;
    if (abi < 3)
        rules.files &= ~RIGHT_TRUNCATE;
    if (abi < 6)
        size = abi < 4 ? offsetof(struct ruleset, net)
                       : offsetof(struct ruleset, scopes);
    guard->abi = (unsigned)abi;
    guard->rights = rules.files;
    guard->fd = (int)syscall(SYS_landlock_create_ruleset, &rules, size, 0);
    if (guard->fd < 0)
        pst_debug("base", "no Landlock: %s", strerror(errno));
}

/* Adds a rule for a path and all paths below it. Returns true if it was
 * added. */
static bool add_rule(struct pst_guard *guard, const char *path, uint64_t rights)
{
    struct landlock_path_beneath_attr rule = {
        .parent_fd = open(path, O_PATH | O_CLOEXEC)};
    struct stat st;
    bool ret = false;

    if (rule.parent_fd < 0) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM)
            guard->err = errno;
        return false;
    }
    if (fstat(rule.parent_fd, &st) == 0) {
        /* The rule of a file may contain only rights that files have. */
        rule.allowed_access =
            rights & guard->rights &
            (S_ISDIR(st.st_mode) ? UINT64_MAX : READ_FILE | WRITE);
        ret = syscall(SYS_landlock_add_rule, guard->fd,
                      LANDLOCK_RULE_PATH_BENEATH, &rule, 0) == 0;
        if (!ret)
            pst_debug("base", "Landlock, %s: %s", path, strerror(errno));
    }
    (void)close(rule.parent_fd);
    return ret;
}

static bool is_regular(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

static void allow_links(struct pst_guard *guard, const char *folder)
{
    DIR *dir = opendir(folder);
    char path[PATH_MAX];
    struct dirent *entry;

    if (dir == NULL)
        return;
    for (unsigned n = 0; n < MAX_LINKS && (entry = readdir(dir)) != NULL; n++)
        if (entry->d_type == DT_LNK &&
            (size_t)snprintf(path, sizeof(path), "%s/%s", folder,
                             entry->d_name) < sizeof(path) &&
            is_regular(path))
            (void)add_rule(guard, path, READ_FILE);
    (void)closedir(dir);
}

void pst_guard_allow_read(struct pst_guard *guard, const char *path)
{
    if (guard->fd >= 0)
        (void)add_rule(guard, path, READ);
}

void pst_guard_allow_links(struct pst_guard *guard, const char *path)
{
    if (guard->fd >= 0 && add_rule(guard, path, READ))
        allow_links(guard, path);
}

void pst_guard_allow_write(struct pst_guard *guard, const char *path)
{
    char text[PATH_MAX], real[PATH_MAX];
    struct stat st;
    char *slash;

    if (guard->fd < 0)
        return;
    if (realpath(path, real) == NULL) { /* the path does not exist yet */
        if (strlen(path) >= sizeof(real))
            return;
        (void)strcpy(real, path);
    } else if (stat(real, &st) == 0 && !S_ISDIR(st.st_mode) &&
               !S_ISREG(st.st_mode)) {
        (void)add_rule(guard, real, WRITE);
        return;
    }
    /* Allows writing in the nearest folder above the path that exists. */
    (void)strcpy(text, real);
    do {
        for (slash = strrchr(text, '/'); slash != NULL && slash[1] == '\0';
             slash = strrchr(text, '/'))
            *slash = '\0'; /* trailing slash */
        if (slash == NULL || slash == text)
            (void)strcpy(text, slash == NULL ? "." : "/");
        else
            *slash = '\0';
    } while (!add_rule(guard, text, READ | WRITE | MAKE) && slash != NULL &&
             slash != text);
}

bool pst_guard_enforce(struct pst_guard *guard)
{
    bool ret;

    if (guard->fd < 0)
        return false;
    ret = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
          syscall(SYS_landlock_restrict_self, guard->fd, 0) == 0;
    if (!ret)
        pst_debug("base", "no Landlock: %s", strerror(errno));
    (void)close(guard->fd);
    guard->fd = -1;
    return ret;
}
