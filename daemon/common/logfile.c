// SPDX-License-Identifier: Apache-2.0
#include "daemon/common/logfile.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "stages/base/host/fault.h"
#include "stages/base/host/fs.h"

#define LINE_MAX_BYTES 4096
#define CLAIM          "job.lock"
#define RETRY_US       50000
/* attempts to lock, RETRY_US apart: a killed rank may soon be gone */
#define RETRIES 40

struct row {
    const char *name, *level;
};

static const struct row rows[] = {
#define ROW(id, name, level, fields) {(name), (level)},
    PSTD_EVENT_LIST(ROW)
#undef ROW
};

const char *pstd_event_name(enum pstd_event event)
{
    return rows[event].name;
}

const char *pstd_event_level(enum pstd_event event)
{
    return rows[event].level;
}

void pstd_note_init(struct pstd_note *note, enum pstd_event event)
{
    note->event = event;
    note->n = 0;
    note->used = 0;
    note->payload = NULL;
}

static struct pstd_note_field *add_note_field(struct pstd_note *note,
                                              const char *key,
                                              enum pstd_field_type type)
{
    struct pstd_note_field *field;

    if (note->n == PSTD_NOTE_FIELDS)
        return NULL;
    field = &note->fields[note->n++];
    field->key = key;
    field->type = type;
    return field;
}

void pstd_note_text(struct pstd_note *note, const char *key, const char *text)
{
    const size_t left = sizeof(note->text) - note->used;
    struct pstd_note_field *field;
    size_t len = text != NULL ? strlen(text) : 0;

    if (left == 0)
        return;
    field = add_note_field(note, key, PSTD_FIELD_TEXT);
    if (field == NULL)
        return;
    len = PST_MIN(len, left - 1);
    field->text = note->used;
    if (len > 0)
        memcpy(note->text + note->used, text, len);
    note->text[note->used + len] = '\0';
    note->used += len + 1;
}

void pstd_note_error(struct pstd_note *note, const struct pst_diag *diag)
{
    if (diag->error != PST_E_NONE)
        pstd_note_text(note, "id", pst_error_id(diag->error));
    pstd_note_text(note, "text", diag->text);
}

void pstd_note_int(struct pstd_note *note, const char *key, int64_t i)
{
    struct pstd_note_field *field = add_note_field(note, key, PSTD_FIELD_INT);

    if (field != NULL)
        field->i = i;
}

void pstd_note_real(struct pstd_note *note, const char *key, double f)
{
    struct pstd_note_field *field = add_note_field(note, key, PSTD_FIELD_REAL);

    if (field != NULL)
        field->f = f;
}

static const struct pstd_note_field *find_field(const struct pstd_note *note,
                                                const char *key,
                                                enum pstd_field_type type)
{
    for (unsigned i = 0; i < note->n; i++)
        if (note->fields[i].type == type &&
            strcmp(note->fields[i].key, key) == 0)
            return &note->fields[i];
    return NULL;
}

const char *pstd_note_get_text(const struct pstd_note *note, const char *key)
{
    const struct pstd_note_field *f = find_field(note, key, PSTD_FIELD_TEXT);

    return f != NULL ? note->text + f->text : NULL;
}

int64_t pstd_note_get_int(const struct pstd_note *note, const char *key)
{
    const struct pstd_note_field *f = find_field(note, key, PSTD_FIELD_INT);

    return f != NULL ? f->i : 0;
}

double pstd_note_get_real(const struct pstd_note *note, const char *key)
{
    const struct pstd_note_field *f = find_field(note, key, PSTD_FIELD_REAL);

    return f != NULL ? f->f : (double)NAN;
}

static void add_time(struct pst_str *out, uint64_t time_us)
{
    const time_t seconds = (time_t)(time_us / 1000000);
    struct tm tm;
    char text[32];

    (void)gmtime_r(&seconds, &tm);
    (void)strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &tm);
    pst_str_addf(out, "ts=%s.%06uZ", text, (unsigned)(time_us % 1000000));
}

static void add_field(struct pst_str *out, const struct pstd_note *note,
                      const struct pstd_note_field *field)
{
    char number[32];

    pst_str_addf(out, " %s=", field->key);
    switch (field->type) {
    case PSTD_FIELD_TEXT:
        pst_str_add_logfmt(out, note->text + field->text);
        break;
    case PSTD_FIELD_INT:
        pst_str_addf(out, "%lld", (long long)field->i);
        break;
    case PSTD_FIELD_REAL:
        pst_format_f64(field->f, number);
        pst_str_add(out, number);
        break;
    }
}

/* Appends the line to out, up to the first field that does not fit. */
void pstd_log_format(const struct pstd_log_head *head,
                     const struct pstd_note *note, struct pst_str *out)
{
    const size_t start = out->len;

    add_time(out, head->time_us);
    pst_str_addf(out, " level=%s rank=", rows[note->event].level);
    if (head->is_supervisor)
        pst_str_add(out, "-");
    else
        pst_str_addf(out, "%u", head->rank);
    pst_str_add(out, " stage=");
    pst_str_add_logfmt(out, head->stage);
    pst_str_add(out, " job=");
    pst_str_add_logfmt(out, head->job);
    pst_str_addf(out, " event=%s seq=%llu", rows[note->event].name,
                 (unsigned long long)head->seq);
    for (unsigned i = 0; i < note->n; i++) {
        const size_t before = out->len;

        add_field(out, note, &note->fields[i]);
        if (out->failed || out->len - start > LINE_MAX_BYTES - 16) {
            if (!out->failed)
                out->len = before;
            pst_str_add(out, " cut=1");
            break;
        }
    }
    pst_str_add(out, "\n");
}

static enum pst_status open_file(const char *path, int *ret,
                                 struct pst_diag *diag)
{
    /* Without O_NONBLOCK a FIFO would block here, and later at writes. A link
     * may be another user's: following it would write to any file of ours. */
    const int fd = open(path,
                        O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY |
                            O_NONBLOCK | O_NOFOLLOW,
                        0640);
    const bool unread = fd < 0 && errno == ENXIO;
    struct stat st;

    if (fd < 0 && errno == ELOOP && lstat(path, &st) == 0 &&
        S_ISLNK(st.st_mode))
        return pst_diag_set(diag, PST_E_FILE_WRONG_KIND,
                            "the log file %s is a symbolic link: remove it, or "
                            "choose another --log-dir",
                            path);
    if (fd < 0 && !unread)
        return pst_diag_errno(diag, errno, "cannot open the log file %s", path);
    if (unread || fstat(fd, &st) != 0 ||
        (!S_ISREG(st.st_mode) && !S_ISCHR(st.st_mode))) {
        if (fd >= 0)
            (void)close(fd);
        return pst_diag_set(diag, PST_E_FILE_WRONG_KIND,
                            "the log file %s is not a regular file", path);
    }
    (void)fcntl(fd, F_SETFL, O_APPEND);
    *ret = fd;
    return PST_OK;
}

/* Finds the job that the newest line of the file names; "?": none. */
static void read_last_job(const char *path, char ret[128])
{
    char text[LINE_MAX_BYTES + 1];
    const char *at, *found = NULL;
    struct pst_file file;
    enum pst_status status;
    size_t n;

    (void)snprintf(ret, 128, "?");
    /* Refuses pipes and devices, which may block. */
    if (pst_file_open(path, &file, NULL) != PST_OK)
        return;
    n = (size_t)PST_MIN(file.size, LINE_MAX_BYTES);
    status = pst_file_read_at(&file, file.size - n, text, n, NULL);
    pst_file_close(&file);
    if (status != PST_OK)
        return;
    text[n] = '\0';
    for (at = text; (at = strstr(at, " job=")) != NULL; at++)
        found = at + strlen(" job=");
    if (found != NULL)
        (void)snprintf(ret, 128, "%.*s", (int)strcspn(found, " \n"), found);
}

/* Takes the lock if it is free. Returns true if another process has it, false
 * if it was taken or the file system has no locks. */
static bool is_locked(int fd, int how)
{
    return flock(fd, how | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

static enum pst_status refuse_locked(const char *dir, const char *path,
                                     struct pst_diag *diag)
{
    char job[128];
    struct pst_str first = {0};

    read_last_job(path, job);
    /* The supervisor's log may still be empty when that of rank 0 is not. */
    pst_str_addf(&first, "%s/rank-0.log", dir);
    if (job[0] == '?' && !first.failed)
        read_last_job(first.text, job);
    pst_str_fini(&first);
    return pst_diag_set(diag, PST_E_JOB_LOG_IN_USE,
                        "the log folder %s belongs to a job that runs (%s, "
                        "which writes %s): stop that job, or choose another "
                        "--log-dir",
                        dir, job, path);
}

static enum pst_status check_unlocked(const char *dir, const char *name,
                                      struct pst_diag *diag)
{
    struct pst_str path = {0};
    enum pst_status status = PST_OK;
    int fd = -1;

    pst_str_addf(&path, "%s/%s.log", dir, name);
    if (path.failed)
        status = pst_diag_nomem(diag, path.len);
    else /* NFS implements the lock as a byte-range lock, which needs a writable
            file */
        fd = open(path.text, O_RDWR | O_APPEND | O_CLOEXEC | O_NOCTTY);
    if (fd >= 0 && is_locked(fd, LOCK_SH))
        status = refuse_locked(dir, path.text, diag);
    if (fd >= 0)
        (void)close(fd);
    pst_str_fini(&path);
    return status;
}

enum pst_status pstd_logfile_check(const char *dir, struct pst_diag *diag)
{
    const enum pst_status status = check_unlocked(dir, "supervisor", diag);

    return status == PST_OK ? check_unlocked(dir, "rank-0", diag) : status;
}

void pstd_logfile_release(const char *dir, struct pstd_log_claim *claim,
                          bool begun)
{
    struct pst_str path = {0};

    if (claim->fd < 0)
        return;
    pst_str_addf(&path, "%s/" CLAIM, dir);
    if (!begun && !path.failed) {
        (void)unlink(path.text); /* ours while it is locked */
        if (claim->made)
            (void)rmdir(dir); /* stays if it is not empty */
    }
    pst_str_fini(&path);
    (void)close(claim->fd);
    claim->fd = -1;
}

enum pst_status pstd_logfile_claim(const char *dir, struct pstd_log_claim *ret,
                                   struct pst_diag *diag)
{
    struct pst_str path = {0};
    struct pst_diag ignored;
    struct pstd_log_claim claim = {-1, access(dir, F_OK) != 0};
    struct stat st;
    enum pst_status status = pstd_logfile_check(dir, diag);

    *ret = (struct pstd_log_claim){.fd = -1};
    if (status != PST_OK)
        return status;
    /* If the lock file cannot be created here, there is no claim: the ranks
     * report the problem, or have the folder on another host. */
    pst_str_addf(&path, "%s/" CLAIM, dir);
    if (pst_mkdirs(dir, 0750, &ignored) == PST_OK && !path.failed)
        claim.fd = open(path.text,
                        O_RDWR | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW |
                            O_NONBLOCK,
                        0640);
    pst_str_fini(&path);
    /* A file that was unlinked meanwhile belonged to a job that was refused. */
    if (claim.fd >= 0 && (is_locked(claim.fd, LOCK_EX) ||
                          fstat(claim.fd, &st) != 0 || st.st_nlink == 0)) {
        (void)close(claim.fd);
        return pst_diag_set(diag, PST_E_JOB_LOG_IN_USE,
                            "the log folder %s belongs to another job that is "
                            "being started: stop that job, or choose another "
                            "--log-dir",
                            dir);
    }
    /* A job may have begun, and given up its claim, since the first check. */
    status = pstd_logfile_check(dir, diag);
    if (status == PST_OK)
        *ret = claim;
    else
        pstd_logfile_release(dir, &claim, true);
    return status;
}

/* Locks the file until it is closed; gives up if another process keeps the lock
 * for 2 s. That may be a rank on a lost host, whose lock the file system
 * releases after minutes only. */
static void lock_file(int fd)
{
    for (int i = 0; is_locked(fd, LOCK_EX) && i < RETRIES; i++)
        (void)usleep(RETRY_US);
}

enum pst_status pstd_logfile_open(struct pstd_logfile *file, const char *dir,
                                  const char *name, struct pst_diag *diag)
{
    struct pst_str path = {0};
    enum pst_status status = pst_mkdirs(dir, 0750, diag);

    *file = (struct pstd_logfile){.fd = -1};
    if (status != PST_OK)
        return status;
    pst_str_addf(&path, "%s/%s.log", dir, name);
    if (path.failed)
        status = pst_diag_nomem(diag, path.len);
    else
        status = open_file(path.text, &file->fd, diag);
    if (status != PST_OK) {
        pst_str_fini(&path);
        return status;
    }
    lock_file(file->fd);
    file->path = path.text;
    return PST_OK;
}

enum pst_status pstd_logfile_reopen(struct pstd_logfile *file,
                                    struct pst_diag *diag)
{
    struct stat was, is;
    int fd = -1;
    enum pst_status status;

    if (file->path == NULL)
        return PST_OK;
    status = open_file(file->path, &fd, diag);
    if (status != PST_OK)
        return status;
    if (fstat(file->fd, &was) == 0 && fstat(fd, &is) == 0 &&
        was.st_dev == is.st_dev && was.st_ino == is.st_ino) {
        (void)close(fd); /* the other descriptor has the lock */
        return PST_OK;
    }
    (void)is_locked(fd, LOCK_EX);
    (void)close(file->fd);
    file->fd = fd;
    return PST_OK;
}

static bool write_all(int fd, const char *data, size_t len, int *ret_err)
{
    while (len > 0) {
        const ssize_t n = write(fd, data, len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            *ret_err = n < 0 ? errno : ENOSPC;
            return false;
        }
        data += n;
        len -= (size_t)n;
    }
    return true;
}

/* Drops and counts a line that cannot be written: a full disk must not end the
 * job. Ends a partly written line with a newline. */
void pstd_logfile_write(struct pstd_logfile *file, const char *line, size_t len)
{
    struct stat before = {0}, after;
    int err = 0;

    if (file->path == NULL)
        return;
    if (file->partial_line && !write_all(file->fd, "\n", 1, &err)) {
        file->lost++;
        return;
    }
    file->partial_line = false;
    pst_fault_point("log");
    (void)fstat(file->fd, &before);
    file->failing = !write_all(file->fd, line, len, &err);
    if (!file->failing)
        return;
    file->lost++;
    file->partial_line =
        fstat(file->fd, &after) == 0 && after.st_size > before.st_size;
    (void)pst_diag_errno(&file->why, err, "%s", file->path);
}

void pstd_logfile_close(struct pstd_logfile *file)
{
    if (file->path != NULL)
        (void)close(file->fd);
    pst_free(file->path);
    file->path = NULL;
    file->fd = -1;
}

uint64_t pstd_now_us(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}
