// SPDX-License-Identifier: Apache-2.0
#include "daemon/ctl/run/setup.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "daemon/common/control/lock.h"
#include "daemon/common/control/socket.h"
#include "daemon/ctl/model.h"
#include "daemon/ctl/out.h"
#include "stages/base/alloc.h"
#include "stages/split/convert/join.h"

static bool exists(const char *socket, const char *end)
{
    struct pst_str path = {0};
    struct stat st;
    bool ret;

    pst_str_addf(&path, "%s%s", socket, end);
    ret = !path.failed && lstat(path.text, &st) == 0;
    pst_str_fini(&path);
    return ret;
}

/* Refuses a --socket if a file beside it has the name of one of the job's own
 * files. Such a file is accepted if there is a lock file, too: then a killed
 * job has left both. */
static enum pst_status check_beside(const char *socket, struct pst_diag *diag)
{
    static const char *const ends[] = {PSTD_SOCKET_OUTPUT, PSTD_SOCKET_RESULT,
                                       PSTD_SOCKET_LAST};

    if (pstd_lock_exists(socket, PSTD_SOCKET_OWNER) ||
        pstd_lock_exists(socket, PSTD_SOCKET_LOCK))
        return PST_OK;
    for (size_t i = 0; i < PST_COUNT(ends); i++)
        if (exists(socket, ends[i]))
            return pst_diag_set(diag, PST_E_SOCKET_PATH,
                                "%s%s exists, and the job would write a file "
                                "of its own there; choose another path with "
                                "--socket",
                                socket, ends[i]);
    return PST_OK;
}

enum pst_status pstctl_setup_name(struct pstctl_setup *s,
                                  const struct pstd_config *config,
                                  struct pst_diag *diag)
{
    struct pst_str name = {0};
    const char *given = config->job, *base = config->args[0];
    enum pst_status status;

    for (const char *p = base; *p != '\0'; p++)
        if (*p == '/' && p[1] != '\0' && p[1] != '/')
            base = p + 1;
    if (given != NULL)
        pst_str_add(&name, given);
    else
        pst_str_addf(&name, "%.24s-%d", base, (int)getpid());
    pstd_socket_job(pst_str_text(&name), &s->job);
    pst_str_fini(&name);
    if (config->socket != NULL) {
        pst_str_add(&s->socket, config->socket);
        status = pstd_socket_check(pst_str_text(&s->socket), diag);
        if (status == PST_OK)
            status = check_beside(pst_str_text(&s->socket), diag);
    } else {
        status = pstd_socket_path(pst_str_text(&s->job), 0, &s->socket, diag);
    }
    pst_str_addf(&s->output, "%s" PSTD_SOCKET_OUTPUT, pst_str_text(&s->socket));
    pst_str_addf(&s->record, "%s" PSTD_SOCKET_RESULT, pst_str_text(&s->socket));
    pst_str_addf(&s->last, "%s" PSTD_SOCKET_LAST, pst_str_text(&s->socket));
    if (status == PST_OK &&
        (s->output.failed || s->record.failed || s->last.failed))
        status = pst_diag_nomem(diag, s->socket.len);
    return status;
}

#define SHM "/dev/shm"
/* Size of the files through which PMIx (Open MPI 4.1) shares data about the
 * ranks between processes. */
#define MPI_FILE ((rlim_t)4 << 20)
/* Space that mpirun and its ranks need in the folder of their session: two of
 * these files, and small ones, about one more for each rank. */
#define MPI_BYTES (2 * MPI_FILE + (64 << 10))
#define MPI_FILES 20

static enum pst_status name_journal(struct pstctl_setup *s,
                                    struct pst_diag *diag)
{
    pst_str_fini(&s->journal);
    pst_str_addf(&s->journal, "%s/events", pst_str_text(&s->temp.path));
    return s->journal.failed ? pst_diag_nomem(diag, s->temp.path.len) : PST_OK;
}

/* Creates the temporary folder if there is none, or if it was removed, for
 * example by a program that cleans /tmp. A new folder also changes the path of
 * the journal. A folder that another user has created under the old name is not
 * used. */
static enum pst_status make_temp(struct pstctl_setup *s, struct pst_diag *diag)
{
    bool fresh;
    enum pst_status status =
        pstctl_scratch_ensure(pstctl_scratch_base(), &s->temp, &fresh, diag);

    return status == PST_OK && fresh && s->journal.len > 0
               ? name_journal(s, diag)
               : status;
}

static enum pst_status make_folder(const struct pstctl_scratch *scratch,
                                   const char *name, struct pst_str *ret,
                                   struct pst_diag *diag)
{
    pst_str_fini(ret);
    return pstctl_scratch_folder(scratch, name, ret, diag);
}

static enum pst_status save_plan(struct pstctl_setup *s, struct pst_plan *plan,
                                 struct pst_diag *diag)
{
    enum pst_status status = make_temp(s, diag);

    if (status == PST_OK)
        status = make_folder(&s->temp, "plan", &s->made, diag);
    if (status != PST_OK)
        return status;
    s->plan = s->made.text;
    return pst_plan_save(plan, s->plan, diag);
}

/* Saves the plan in the temporary folder. Saves it once more if the folder was
 * removed meanwhile, since ranks must read exactly this plan. */
static enum pst_status keep_plan(struct pstctl_setup *s, struct pst_plan *plan,
                                 struct pst_diag *diag)
{
    enum pst_status status = save_plan(s, plan, diag);

    if (s->temp.fd >= 0 && !pstctl_scratch_exists(&s->temp))
        status = save_plan(s, plan, diag);
    if (status == PST_OK && !pstctl_scratch_exists(&s->temp))
        status = pst_diag_set(diag, PST_E_FILE_MISSING,
                              "the folder %s was removed while the plan of the "
                              "run was written; try again, or set TMPDIR to a "
                              "folder that nobody cleans",
                              s->temp.path.text);
    return status;
}

#define OF_PLAN  "the plan"
#define OF_MODEL "the model"

/* True if the ranks may be started again, so that inputs are compared with
 * those of the first start. */
static bool may_restart(const struct pstd_config *config)
{
    return config->max_restarts > 0 || pstd_stays(config);
}

/* Checks that the plan that the ranks will read is that of the first start. If
 * the plan cannot be read, the ranks report that. */
static enum pst_status check_plan(struct pstctl_setup *s, struct pst_diag *diag)
{
    struct pst_plan *plan = NULL;
    struct pst_diag ignored;
    enum pst_status status = PST_OK;

    if (pst_plan_load(s->plan, &plan, &ignored) == PST_OK)
        status =
            pstd_inputs_check(&s->inputs, OF_PLAN, s->plan, plan->digest, diag);
    pst_plan_free(plan);
    return status;
}

static enum pst_status add_digest(struct pst_plan *plan, unsigned i,
                                  struct pst_str *all, struct pst_diag *diag)
{
    const size_t bytes = pst_meta_bytes(&plan->params.at[i].meta);
    void *buffer = pst_alloc(PST_TAG_CLIENT, PST_MAX(bytes, (size_t)1));
    enum pst_status status;
    char digest[33];

    if (buffer == NULL)
        return pst_diag_nomem(diag, bytes);
    status = pst_plan_read_param(plan, i, buffer, diag);
    if (status == PST_OK) {
        pst_digest(buffer, bytes, digest);
        pst_str_addf(all, "%s %s\n", plan->params.at[i].fqn, digest);
    }
    pst_free(buffer);
    return status;
}

/* Checks that the start values are those of the first start. Other digests do
 * not show that: the digest of the model file does not depend on --weights and
 * --swap, and digests of the plan's files depend on the cut. */
static enum pst_status check_values(struct pstctl_setup *s,
                                    const struct pstd_config *config,
                                    struct pst_plan *plan,
                                    struct pst_diag *diag)
{
    struct pst_str all = {0};
    enum pst_status status = PST_OK;
    char digest[33];

    if (!may_restart(config))
        return PST_OK;
    for (unsigned i = 0; i < plan->params.n && status == PST_OK; i++)
        status = add_digest(plan, i, &all, diag);
    if (status == PST_OK && all.failed)
        status = pst_diag_nomem(diag, all.len);
    if (status == PST_OK) {
        pst_digest(pst_str_text(&all), all.len, digest);
        status = pstd_inputs_check(&s->inputs, "the start values",
                                   config->weights != NULL ? config->weights
                                                           : "a file of --swap",
                                   digest, diag);
    }
    pst_str_fini(&all);
    return status;
}

/* Checks that the data of the job's run are those of the first start. A job
 * that stays has several runs in succession, which check their own data
 * (daemon/loop/stay.c). */
static enum pst_status check_data(struct pstctl_setup *s,
                                  const struct pstd_config *config,
                                  struct pst_diag *diag)
{
    return !may_restart(config) || pstd_stays(config)
               ? PST_OK
               : pstd_inputs_check_run(&s->inputs, config, diag);
}

/* Makes the plan from the model or plan that the job's arguments name. again:
 * for a restart of the job. */
static enum pst_status make_plan(struct pstctl_setup *s,
                                 const struct pstd_config *config, bool again,
                                 unsigned *ret_ranks, struct pst_diag *diag)
{
    struct pst_plan *whole = NULL;
    struct pstd_plan p = {0};
    enum pst_status status = pstd_plan_open(config->args[0], config, &p, diag);

    if (status == PST_OK) {
        const bool made = p.models.n > 0;

        status = pstd_inputs_check(
            &s->inputs, made ? OF_MODEL : OF_PLAN, config->args[0],
            made ? p.plan->model_digest : p.plan->digest, diag);
        if (status == PST_OK && made &&
            (config->weights != NULL || config->swap.n > 0))
            status = check_values(s, config, p.plan, diag);
        if (status != PST_OK)
            pstd_plan_close(&p);
    }
    if (status == PST_OK && config->reference) {
        status = pst_plan_join(p.plan, &whole, diag);
        if (status != PST_OK)
            pstd_plan_close(&p);
    }
    if (status != PST_OK)
        return status;
    s->stages = whole != NULL ? 1 : (unsigned)p.plan->stages.n;
    *ret_ranks = whole != NULL ? 1 : pstd_ranks(config, s->stages);
    if (p.models.n > 0 && !again && !config->quiet)
        pstctl_print_notes(p.plan);
    s->plan = config->args[0];
    if (p.models.n > 0 || whole != NULL)
        status = keep_plan(s, whole != NULL ? whole : p.plan, diag);
    pst_plan_free(whole);
    pstd_plan_close(&p);
    return status;
}

enum pst_status pstctl_setup_plan(struct pstctl_setup *s,
                                  const struct pstd_config *config,
                                  unsigned *ret_ranks, struct pst_diag *diag)
{
    enum pst_status status;

    pstctl_scratch_sweep(pstctl_scratch_base());
    pstd_socket_sweep();
    status = make_plan(s, config, false, ret_ranks, diag);
    return status == PST_OK ? check_data(s, config, diag) : status;
}

enum pst_status pstctl_setup_restore(struct pstctl_setup *s,
                                     const struct pstd_config *config,
                                     struct pst_diag *diag)
{
    const bool kept = pstctl_scratch_exists(&s->temp);
    struct pst_plan *plan = NULL;
    struct pst_diag ignored;
    enum pst_status status = check_data(s, config, diag);
    unsigned ranks;

    if (status == PST_OK &&
        (s->temp.fd >= 0 || s->made.len > 0 || s->journal.len > 0))
        status = make_temp(s, diag);
    if (status == PST_OK && s->made.len == 0)
        status = check_plan(s, diag);
    if (status != PST_OK || s->made.len == 0)
        return status;
    if (kept && pst_plan_load(s->made.text, &plan, &ignored) == PST_OK) {
        pst_plan_free(plan);
        return PST_OK;
    }
    return make_plan(s, config, true, &ranks, diag);
}

/* Makes a folder for memory that ranks share. If that fails, mpirun chooses how
 * ranks share memory. */
static void make_shm(struct pstctl_setup *s)
{
    struct pst_diag ignored;

    bool fresh;

    pstctl_scratch_sweep(SHM);
    if (pstctl_scratch_remove(&s->shm, &ignored) != PST_OK ||
        pstctl_scratch_ensure(SHM, &s->shm, &fresh, &ignored) != PST_OK)
        errno = 0;
}

enum pst_status pstctl_setup_journal(struct pstctl_setup *s,
                                     struct pst_diag *diag)
{
    const enum pst_status status = make_temp(s, diag);

    return status == PST_OK ? name_journal(s, diag) : status;
}

bool pstctl_setup_is_mpi(const struct pstd_config *config)
{
    return config->transport != NULL ? strcmp(config->transport, "self") != 0
                                     : !config->reference;
}

/* Refuses a limit of file sizes that is below what mpirun needs; `penstock
 * doctor` reports it, too. The ranks would otherwise wait for each other until
 * the watchdog ends them. */
static enum pst_status check_file_limit(struct pst_diag *diag)
{
    struct rlimit now;

    if (getrlimit(RLIMIT_FSIZE, &now) != 0 || now.rlim_cur >= MPI_FILE)
        return PST_OK;
    return pst_diag_set(diag, PST_E_FILE_SIZE_LIMIT,
                        "bytes of a file are limited to %llu (ulimit -f), and "
                        "mpirun needs files of %llu: ulimit -f unlimited, or "
                        "--transport self",
                        (unsigned long long)now.rlim_cur,
                        (unsigned long long)MPI_FILE);
}

/* Refuses a disk without the space that mpirun needs, for the same reason. */
static enum pst_status check_space(const char *dir, unsigned ranks,
                                   struct pst_diag *diag)
{
    const fsfilcnt_t files = MPI_FILES + (fsfilcnt_t)ranks;
    struct statvfs fs;

    /* No blocks or files in all: a file system that does not count them. */
    if (statvfs(dir, &fs) != 0)
        return PST_OK;
    if (fs.f_blocks > 0 && fs.f_bavail * fs.f_frsize < MPI_BYTES)
        return pst_diag_set(diag, PST_E_FILE_DISK_FULL,
                            "%s has %.1f MiB left, and mpirun needs %.1f: free "
                            "space, set TMPDIR to another folder, or "
                            "--transport self",
                            dir,
                            (double)fs.f_bavail * (double)fs.f_frsize / 0x1p20,
                            (double)MPI_BYTES / 0x1p20);
    if (fs.f_files > 0 && fs.f_favail < files)
        return pst_diag_set(diag, PST_E_FILE_DISK_FULL,
                            "%s has space for %llu more files, and mpirun "
                            "needs about %llu: remove files, set TMPDIR to "
                            "another folder, or --transport self",
                            dir, (unsigned long long)fs.f_favail,
                            (unsigned long long)files);
    return PST_OK;
}

/* Refuses a removed current folder: mpirun would end with an error of its own.
 */
static enum pst_status check_current_folder(struct pst_diag *diag)
{
    char dir[4096];

    if (getcwd(dir, sizeof(dir)) != NULL || errno != ENOENT)
        return PST_OK;
    return pst_diag_set(diag, PST_E_FILE_MISSING,
                        "the current folder was removed, and mpirun starts "
                        "ranks there: change to another folder, or --transport "
                        "self");
}

enum pst_status pstctl_setup_session(struct pstctl_setup *s,
                                     const struct pstd_config *config,
                                     struct pst_diag *diag)
{
    enum pst_status status;

    if (config->reference || !pstctl_setup_is_mpi(config))
        return PST_OK;
    status = check_file_limit(diag);
    if (status == PST_OK)
        status = check_current_folder(diag);
    if (status == PST_OK)
        status = make_temp(s, diag);
    if (status == PST_OK)
        status = make_folder(&s->temp, "mpi", &s->session, diag);
    if (status == PST_OK)
        status =
            check_space(pstctl_scratch_base(),
                        pstd_ranks(config, 1) * pstd_replicas(config), diag);
    if (status == PST_OK)
        make_shm(s);
    return status;
}

static void remove_scratch(struct pstctl_scratch *scratch, bool leave)
{
    struct pst_diag diag;

    if (leave)
        pstctl_scratch_abandon(scratch);
    else if (pstctl_scratch_remove(scratch, &diag) != PST_OK)
        pstctl_printf(stderr, "penstock: %s%s\n", diag.text,
                      pst_error_tag(diag.error));
}

void pstctl_setup_fini(struct pstctl_setup *s, bool leave)
{
    remove_scratch(&s->temp, leave);
    remove_scratch(&s->shm, leave);
    pstd_inputs_fini(&s->inputs);
    pst_str_fini(&s->made);
    pst_str_fini(&s->session);
    pst_str_fini(&s->journal);
    pst_str_fini(&s->job);
    pst_str_fini(&s->socket);
    pst_str_fini(&s->output);
    pst_str_fini(&s->record);
    pst_str_fini(&s->last);
}
