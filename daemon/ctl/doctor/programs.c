// SPDX-License-Identifier: Apache-2.0
/* Checks the programs that a job needs, their environment, and sockets of
 * earlier jobs. */
#include "daemon/ctl/ctl.h"
#include "daemon/ctl/doctor/check.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/common/control/socket.h"
#include "stages/base/host/alive.h"
#include "stages/base/host/cpu.h"
#include "stages/device/device.h"

/* Time limit of mpirun, which takes 0.1 to 2 s to start a process, more on a
 * busy host. */
#define MPIRUN_S 20.0
#define END_S    1.0 /* seconds that mpirun has to end after a signal */

extern char **environ;

/* --- programs ------------------------------------------------------------- */

/* True if execvp finds the program: searches the folders of PATH. */
static bool is_in_path(const char *name)
{
    const char *path = pstctl_environment("PATH");
    char file[4096];

    while (path != NULL && *path != '\0') {
        const size_t n = strcspn(path, ":");

        if (snprintf(file, sizeof(file), "%.*s/%s", (int)n, path, name) <
                (int)sizeof(file) &&
            access(file, X_OK) == 0)
            return true;
        path += n + (path[n] == ':');
    }
    return false;
}

static bool has_ended(pid_t pid, double within_s, int *ret_status)
{
    const double until = pst_now() + within_s;

    while (waitpid(pid, ret_status, WNOHANG) == 0) {
        if (pst_now() > until)
            return false;
        (void)usleep(5000);
    }
    return true;
}

/* Ends mpirun: by SIGTERM, so that it can end its own processes, and then by
 * SIGKILL. */
static void end_process(pid_t pid)
{
    int ignored;

    (void)kill(pid, SIGTERM);
    if (has_ended(pid, END_S, &ignored))
        return;
    (void)kill(pid, SIGKILL);
    (void)has_ended(pid, END_S, &ignored);
}

/* Returns the exit code of `mpirun -n 1 true`, discarding its output; -1: not
 * started; -2: it did not end. */
static int try_mpirun(void)
{
    static char *const words[] = {
        "mpirun", "--oversubscribe", "-n", "1", "true", NULL};
    posix_spawn_file_actions_t files;
    int code = -1;
    pid_t pid;

    if (posix_spawn_file_actions_init(&files) != 0)
        return -1;
    for (int fd = 0; fd < 3; fd++)
        (void)posix_spawn_file_actions_addopen(
            &files, fd, "/dev/null", fd == 0 ? O_RDONLY : O_WRONLY, 0);
    if (posix_spawnp(&pid, words[0], &files, NULL, words, environ) == 0) {
        if (has_ended(pid, MPIRUN_S, &code)) {
            code = WIFEXITED(code) ? WEXITSTATUS(code) : 128 + WTERMSIG(code);
        } else {
            end_process(pid);
            code = -2;
        }
    }
    (void)posix_spawn_file_actions_destroy(&files);
    return code;
}

static void check_mpirun(struct pstctl_doctor *d)
{
    int code;

    if (!is_in_path("mpirun")) {
        pstctl_add_finding(
            d, PSTCTL_FAULT,
            "apt install openmpi-bin, or add its folder to PATH; "
            "without it jobs run only with --transport self",
            "there is no mpirun in PATH");
        return;
    }
    if (geteuid() == 0) { /* `penstock run` sets these variables, too */
        // NOLINTBEGIN(concurrency-mt-unsafe): there is one thread
        (void)setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 0);
        (void)setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 0);
        // NOLINTEND(concurrency-mt-unsafe)
    }
    code = try_mpirun();
    if (code == -2)
        pstctl_add_finding(
            d, PSTCTL_FAULT,
            "run `mpirun --oversubscribe -n 1 true` to see where it "
            "waits: for a host's name, a network interface, a disk or "
            "a batch system",
            "mpirun does not answer within %g s", MPIRUN_S);
    else if (code != 0)
        pstctl_add_finding(d, PSTCTL_FAULT,
                           "run `mpirun --oversubscribe -n 1 true` to see its "
                           "error",
                           "mpirun cannot start a process: exit code %d", code);
}

static void check_root(struct pstctl_doctor *d)
{
    if (geteuid() == 0 &&
        (pstctl_environment("OMPI_ALLOW_RUN_AS_ROOT") == NULL ||
         pstctl_environment("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM") == NULL))
        pstctl_add_finding(d, PSTCTL_NOTE,
                           "`penstock run` allows it; mpirun by hand needs "
                           "--allow-run-as-root. A user of its own is safer",
                           "this is root");
}

static void check_daemon(struct pstctl_doctor *d)
{
    char self[4096];
    const ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 16);
    char *slash;

    self[n > 0 ? n : 0] = '\0';
    slash = strrchr(self, '/');
    if (slash != NULL) {
        strcpy(slash, "/penstockd"); // NOLINT: it fits
        if (access(self, X_OK) == 0)
            return;
    }
    if (!is_in_path("penstockd"))
        pstctl_add_finding(
            d, PSTCTL_FAULT,
            "install it beside penstock, or add its folder to PATH",
            "there is no penstockd beside penstock, nor in PATH");
}

/* --- environment ---------------------------------------------------------- */

/* True if the variable belongs to an option: PENSTOCK_LOG_DIR is --log-dir. */
static bool is_option(const char *name, size_t len)
{
    size_t n;
    const struct pstd_option *rows = pstd_options(&n);

    for (size_t i = 0; i < n; i++) {
        size_t k = 0;

        while (k < len && rows[i].name[k] != '\0' &&
               (name[k] == '_' ? '-' : name[k] - 'A' + 'a') == rows[i].name[k])
            k++;
        if (k == len && rows[i].name[k] == '\0')
            return true;
    }
    return false;
}

static void check_environment(struct pstctl_doctor *d)
{
    static const char *const own[] = {"PENSTOCK_FAULT", "PENSTOCK_TEST_CU",
                                      "PENSTOCK_SHADOW", "PENSTOCK_LIBCUDA",
                                      "PENSTOCK_GATE"};

    for (char **at = environ; *at != NULL; at++) {
        const size_t n = strcspn(*at, "=");
        bool known = false;

        if (strncmp(*at, "PENSTOCK_", 9) != 0 ||
            strncmp(*at, "PENSTOCK_LIBCUBLASLT=", 21) == 0) /* see gpus.c */
            continue;
        for (size_t i = 0; i < PST_COUNT(own); i++)
            known = known || strncmp(*at, own[i], strlen(own[i])) == 0;
        if (known)
            pstctl_add_finding(d, PSTCTL_WARNING,
                               "unset it, unless this is a test",
                               "%.*s is set, which is for tests", (int)n, *at);
        else if (is_option(*at + 9, n - 9))
            pstctl_add_finding(
                d, PSTCTL_NOTE, "unset it if it is not meant for all commands",
                "%.*s is set: it applies to every command that has "
                "this option",
                (int)n, *at);
        else
            pstctl_add_finding(
                d, PSTCTL_WARNING,
                "--help of a command lists its options: --log-dir is "
                "PENSTOCK_LOG_DIR",
                "%.*s is set, but there is no such option", (int)n, *at);
    }
}

static void check_products(struct pstctl_doctor *d)
{
    const char *better, *core = pst_device_cpu.tuned_for(&better);

    if (better != NULL)
        pstctl_add_finding(
            d, PSTCTL_WARNING,
            pstctl_environment("OPENBLAS_CORETYPE") != NULL
                ? "unset OPENBLAS_CORETYPE"
                : "set OPENBLAS_CORETYPE to the other one",
            "OpenBLAS uses kernels for %s, those for %s would be "
            "faster here",
            core, better);
    if (pstctl_environment("PST_ISA") != NULL)
        pstctl_add_finding(
            d, PSTCTL_WARNING, "unset PST_ISA",
            "PST_ISA keeps kernels to the instruction set \"%s\"",
            pst_isa_name(pst_cpu_isa()));
}

/* --- messages between ranks ----------------------------------------------- */

static void check_host_name(struct pstctl_doctor *d)
{
    struct addrinfo *found = NULL;
    char name[256] = "";
    int code;

    (void)gethostname(name, sizeof(name) - 1);
    code = getaddrinfo(name, NULL, NULL, &found);
    if (code == 0)
        freeaddrinfo(found);
    else
        pstctl_add_finding(
            d, PSTCTL_WARNING,
            "add it to /etc/hosts: mpirun looks it up for each rank",
            "the name of this host, %s, has no address: %s", name,
            gai_strerror(code));
}

/* Checks whether ranks can copy messages from each other's memory. */
static void check_copies(struct pstctl_doctor *d)
{
    char scope[16], from = 1, to = 0;
    const struct iovec here = {&to, 1}, there = {&from, 1};

    if (process_vm_readv(getpid(), &here, 1, &there, 1, 0) != 1)
        pstctl_add_finding(
            d, PSTCTL_WARNING,
            "set OMPI_MCA_btl_vader_single_copy_mechanism=none, or "
            "give the container the right SYS_PTRACE",
            "ranks may not read each other's memory "
            "(process_vm_readv: %s)",
            strerrordesc_np(errno));
    else if (pstctl_read_system_file(d, "/proc/sys/kernel/yama/ptrace_scope",
                                     scope,
                                     sizeof(scope)) &&
             atoi(scope) > 1 && geteuid() != 0) // NOLINT(cert-err34-c)
        pstctl_add_finding(
            d, PSTCTL_WARNING,
            "set OMPI_MCA_btl_vader_single_copy_mechanism=none",
            "kernel.yama.ptrace_scope is %s: ranks may not read each "
            "other's memory",
            scope);
}

/* --- sockets -------------------------------------------------------------- */

static void check_path(struct pstctl_doctor *d)
{
    struct pst_str base = {0}, path = {0};
    struct stat st;

    pstd_socket_base(&base);
    pst_str_addf(&path, "%s/a-job-of-a-longer-name/rank1000.sock",
                 pst_str_text(&base));
    if (path.len > PSTD_SOCKET_PATH)
        pstctl_add_finding(
            d, PSTCTL_FAULT,
            "set XDG_RUNTIME_DIR to a folder with a shorter path",
            "paths of sockets below %s are longer than %d bytes",
            pst_str_text(&base), PSTD_SOCKET_PATH);
    if (pstctl_environment("XDG_RUNTIME_DIR") != NULL &&
        (stat(pstctl_environment("XDG_RUNTIME_DIR"), &st) != 0 ||
         !S_ISDIR(st.st_mode)))
        pstctl_add_finding(d, PSTCTL_FAULT,
                           "make the folder, or unset XDG_RUNTIME_DIR",
                           "XDG_RUNTIME_DIR is %s, which is not a folder",
                           pstctl_environment("XDG_RUNTIME_DIR"));
    else if (stat(pst_str_text(&base), &st) == 0 &&
             (st.st_uid != geteuid() || (st.st_mode & 077) != 0))
        pstctl_add_finding(
            d, PSTCTL_FAULT, "chmod 700 and chown it, or remove it",
            "%s, where sockets are, can be accessed by others or "
            "belongs to another user",
            pst_str_text(&base));
    pst_str_fini(&base);
    pst_str_fini(&path);
}

/* Finds stale sockets. A new job removes stale sockets of its own name only. */
static void check_stale(struct pstctl_doctor *d)
{
    struct pst_str base = {0};
    const struct dirent *e;
    unsigned n = 0;
    char example[512] = "";
    DIR *dir;

    pstd_socket_base(&base);
    dir = opendir(pst_str_text(&base));
    while (dir != NULL && (e = readdir(dir)) != NULL) {
        char path[PSTD_SOCKET_PATH + 1];

        if (e->d_name[0] == '.' ||
            snprintf(path, sizeof(path), "%s/%s/rank0.sock",
                     pst_str_text(&base), e->d_name) >= (int)sizeof(path) ||
            access(path, F_OK) != 0 || pstd_socket_answers(path))
            continue;
        if (n++ == 0)
            (void)snprintf(example, sizeof(example), "%.200s/%.200s",
                           pst_str_text(&base), e->d_name);
    }
    if (dir != NULL)
        (void)closedir(dir);
    if (n > 0)
        pstctl_add_finding(
            d, PSTCTL_WARNING,
            "remove the folders, if `penstock status --job NAME` has "
            "no answer",
            "%u jobs have left sockets that nobody listens at: %s%s", n,
            example, n > 1 ? ", ..." : "");
    pst_str_fini(&base);
}

const struct pstctl_check pstctl_checks_programs[] = {
    {"mpirun", "is there and starts a process", check_mpirun},
    {"penstockd", "is there", check_daemon},
    {"root", "who runs jobs", check_root},
    {"environment", "options in it", check_environment},
    {"products", "kernels of OpenBLAS, instruction set", check_products},
    {"host-name", "has an address", check_host_name},
    {"copies", "ranks may read each other's memory", check_copies},
    {"sockets", "their folder", check_path},
    {"stale", "sockets of jobs that are gone", check_stale},
};
const size_t pstctl_n_programs = PST_COUNT(pstctl_checks_programs);
