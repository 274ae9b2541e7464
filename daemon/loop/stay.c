// SPDX-License-Identifier: Apache-2.0
#include "daemon/loop/stay.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/common/inputs.h"
#include "daemon/common/past.h"
#include "stages/base/alloc.h"
#include "stages/base/host/fs.h"
#include "stages/files/checkpoint/owner.h"

#define MAX_FILE  ((size_t)1 << 20)
#define MAX_TRIES 3 /* maximum number of starts without a newer checkpoint */

/* Content of the file --kept-run: a line of these fields, then the options. */
struct kept {
    struct pstd_past past;
    unsigned tries; /* number of starts from the newest checkpoint */
    char run_id[PSTD_RUN_ID];
    struct pstd_inputs inputs; /* the run's inputs when it began */
    struct pst_str options;
};

static void fini_kept(struct kept *k)
{
    pstd_inputs_fini(&k->inputs);
    pst_str_fini(&k->options);
}

static bool keeps_run(const struct pstd_daemon *d)
{
    return d->config->stay && d->config->kept_run != NULL && d->rank == 0;
}

/* Replaces the content of the file in place, since a file without a name cannot
 * be renamed. The text of a run only grows: if the process is killed before it
 * truncates the file, nothing of the old text is left. */
static enum pst_status write_file(const char *path, const struct pst_str *text,
                                  struct pst_diag *diag)
{
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    enum pst_status status = PST_OK;
    ssize_t n;

    if (fd < 0)
        return pst_diag_errno(diag, errno, "%s", path);
    n = pwrite(fd, pst_str_text(text), text->len, 0);
    if (n < 0 || ftruncate(fd, n) != 0)
        status = pst_diag_errno(diag, errno, "%s", path);
    else if ((size_t)n != text->len)
        status = pst_diag_errno(diag, ENOSPC, "%s", path);
    (void)close(fd);
    return status;
}

static enum pst_status write_kept(const struct pstd_daemon *d,
                                  const struct kept *k, struct pst_diag *diag)
{
    struct pst_str text = {0};
    enum pst_status status;

    pst_str_addf(&text, "%s %d %" PRIu64 " %u %s %d %s %s",
                 k->past.run[0] != '\0' ? k->past.run : "-", k->past.resumed,
                 k->past.step, k->tries,
                 k->past.second[0] != '\0' ? k->past.second : "-", k->past.anew,
                 k->past.own[0] != '\0' ? k->past.own : "-",
                 k->run_id[0] != '\0' ? k->run_id : "-");
    for (size_t i = 0; i < k->inputs.n; i++)
        pst_str_addf(&text, "\t%s\t%s", k->inputs.at[i].what,
                     k->inputs.at[i].digest);
    pst_str_add(&text, "\n");
    pst_str_addn(&text, pst_str_text(&k->options), k->options.len);
    status = text.failed ? pst_diag_nomem(diag, k->options.len)
                         : write_file(d->config->kept_run, &text, diag);
    pst_str_fini(&text);
    return status;
}

static enum pst_status refuse_damaged(struct pst_diag *diag)
{
    return pst_diag_set(diag, PST_E_RUN_KEPT,
                        "the run that the ranks died in does not go on: its "
                        "options could not be kept, or were written to; "
                        "`penstock train --resume` with its options goes on "
                        "from its newest checkpoint");
}

static void set_name(char ret[33], const char *text)
{
    (void)snprintf(ret, 33, "%s", strcmp(text, "-") == 0 ? "" : text);
}

/* Parses the inputs, each of which is "\tWHAT\tDIGEST", up to the line's end.
 * Older programs wrote none. */
static enum pst_status parse_inputs(const char *text, struct pstd_inputs *ret,
                                    struct pst_diag *diag)
{
    struct pstd_input row;
    int n = 0;

    while (*text == '\t' && sscanf(text, "\t%63[^\t\n]\t%32[0-9a-f]%n",
                                   row.what, row.digest, &n) == 2) {
        if (!pst_vec_push(PST_TAG_DAEMON, ret, row))
            return pst_diag_nomem(diag, sizeof(row));
        text += n;
    }
    return *text == '\n' ? PST_OK : refuse_damaged(diag);
}

/* Parses a line "NAME RESUMED STEP TRIES SECOND ANEW OWN ID" with the inputs,
 * and pairs of NUL-terminated texts. */
static enum pst_status parse_kept(const char *text, size_t size,
                                  struct kept *ret, struct pst_diag *diag)
{
    const char *line = memchr(text, '\n', size);
    const char *const end = text + size;
    char name[33], second[33], own[33] = "-", id[PSTD_RUN_ID] = "-";
    unsigned resumed, anew = 0;
    int n = 0, at = 0;
    size_t ends = 0;

    if (line != NULL && (line + 1 == end || end[-1] == '\0'))
        n = sscanf(text, "%32s %u %" SCNu64 " %u %32s %u %32s %32s%n", name,
                   &resumed, &ret->past.step, &ret->tries, second, &anew, own,
                   id, &at);
    if (n != 5 && n != 7 && n != 8) /* older programs wrote 5 or 7 fields */
        return refuse_damaged(diag);
    if (n == 8 && parse_inputs(text + at, &ret->inputs, diag) != PST_OK)
        return diag->status;
    for (const char *p = line + 1; p < end; p++)
        ends += *p == '\0';
    if (ends % 2 != 0)
        return refuse_damaged(diag);
    set_name(ret->past.run, name);
    set_name(ret->past.second, second);
    set_name(ret->past.own, own);
    set_name(ret->run_id, id);
    ret->past.resumed = resumed != 0;
    ret->past.anew = anew != 0;
    pst_str_addn(&ret->options, line + 1, (size_t)(end - line - 1));
    return ret->options.failed ? pst_diag_nomem(diag, size) : PST_OK;
}

/* Reads the file of an unfinished run. *ret_any: there may be such a run: the
 * file is not empty. */
static enum pst_status read_kept(const struct pstd_daemon *d, struct kept *ret,
                                 bool *ret_any, struct pst_diag *diag)
{
    char *text = NULL;
    size_t size = 0;
    enum pst_status status =
        pst_file_read(d->config->kept_run, MAX_FILE, &text, &size, diag);

    *ret_any = status != PST_OK || size > 0;
    if (status == PST_OK && size > 0)
        status = parse_kept(text, size, ret, diag);
    pst_free(text);
    return status;
}

/* Updates the file. If that fails, for instance for lack of memory, reports the
 * error, followed by `consequence`. */
static void update_file(struct pstd_daemon *d, const struct kept *k,
                        const char *consequence)
{
    struct pstd_note note;
    struct pst_diag why;

    if (write_kept(d, k, &why) == PST_OK)
        return;
    (void)pst_diag_pass(&why, &why, "%s; %s", why.text, consequence);
    pstd_note_init(&note, PSTD_EVENT_DOUBT);
    pstd_note_int(&note, "run", (int64_t)d->known.run);
    pstd_note_text(&note, "text", why.text);
    pstd_daemon_publish(d, &note);
}

enum pst_status pstd_stay_write(struct pstd_daemon *d,
                                const struct pstd_config *config,
                                const struct pst_str *options, const char *id,
                                struct pst_diag *diag)
{
    struct kept k = {.options = *options}; /* borrows the text */
    enum pst_status status;

    (void)snprintf(k.run_id, sizeof(k.run_id), "%s", id);
    if (!keeps_run(d))
        return PST_OK;
    status = pstd_past_init(&k.past, config, diag);
    if (status == PST_OK)
        status = pstd_inputs_check_run(&k.inputs, config, diag);
    if (status == PST_OK)
        update_file(d, &k,
                    "the run is not begun again if the ranks are restarted");
    pstd_inputs_fini(&k.inputs);
    return status;
}

static void add_option(struct pst_str *options, const char *name,
                       const char *value)
{
    if (value == NULL)
        return;
    pst_str_addn(options, name, strlen(name) + 1);
    pst_str_addn(options, value, strlen(value) + 1);
}

/* Makes the options of the next start, and counts it. An error means that there
 * were too many starts without a newer checkpoint. */
static enum pst_status prepare_restart(struct pstd_daemon *d, struct kept *k,
                                       uint64_t *ret_step,
                                       struct pst_diag *diag)
{
    struct pstd_past_next next = {0};
    struct pstd_config config;
    uint64_t step = 0;
    enum pst_status status = pstd_config_copy(&config, d->config, diag);

    if (status != PST_OK)
        return status;
    status =
        pstd_config_set_all(&config, PSTD_OPT_TRAIN, pst_str_text(&k->options),
                            k->options.len, diag);
    if (status == PST_OK)
        status = pstd_inputs_check_run(&k->inputs, &config, diag);
    if (status == PST_OK)
        status = pstd_past_find_step(&k->past, &config, &step, diag);
    if (status == PST_OK)
        status = pstd_past_next(&k->past, &config, &next, diag);
    pstd_config_fini(&config);
    *ret_step = step;
    if (status != PST_OK)
        return status;
    if (step > k->past.step)
        k->tries = 0;
    k->past.step = PST_MAX(step, k->past.step);
    /* A start that is tried again after a delay is counted once. */
    if (d->delayed == 0 && k->tries++ >= MAX_TRIES)
        return pst_diag_set(diag, PST_E_RUN_KEPT,
                            "the run was begun again %d times without a newer "
                            "checkpoint than that of step %" PRIu64,
                            MAX_TRIES, step);
    update_file(d, k, "this start is not counted");
    add_option(&k->options, "resume", next.resume);
    add_option(&k->options, "adopt", next.adopt);
    return k->options.failed ? pst_diag_nomem(diag, k->options.len) : PST_OK;
}

enum pst_status pstd_stay_next(struct pstd_daemon *d, bool *ret_any,
                               struct pst_str *options,
                               char ret_id[PSTD_RUN_ID], uint64_t *ret_step,
                               unsigned *ret_tries, struct pst_diag *diag)
{
    struct kept k = {0};
    enum pst_status status = PST_OK;

    *ret_any = false;
    *ret_step = *ret_tries = 0;
    if (keeps_run(d))
        status = read_kept(d, &k, ret_any, diag);
    if (status == PST_OK && *ret_any)
        status = prepare_restart(d, &k, ret_step, diag);
    if (status == PST_OK && *ret_any && k.run_id[0] == '\0')
        pst_checkpoint_name_run(k.run_id); /* an older program kept none */
    memcpy(ret_id, k.run_id, sizeof(k.run_id));
    *ret_tries = k.tries;
    *options = k.options;
    pstd_inputs_fini(&k.inputs);
    return status;
}

/* Records the name that the run has written to its folders. Returns true if the
 * name is new. */
static bool record_name(const struct pstd_daemon *d, struct kept *k)
{
    struct pstd_config config;
    struct pst_diag ignored;
    bool ret = false;

    if (pstd_config_copy(&config, d->config, &ignored) != PST_OK)
        return false;
    if (pstd_config_set_all(&config, PSTD_OPT_TRAIN, pst_str_text(&k->options),
                            k->options.len, &ignored) == PST_OK)
        ret = pstd_past_record_name(&k->past, &config);
    pstd_config_fini(&config);
    return ret;
}

void pstd_stay_record_begin(struct pstd_daemon *d)
{
    struct kept k = {0};
    struct pst_diag ignored;
    bool any;

    if (!keeps_run(d))
        return;
    /* The run has moved checkpoints newer than --resume=STEP away. The next
     * start must not do so again, since newer ones are then this run's own. */
    if (read_kept(d, &k, &any, &ignored) == PST_OK && any &&
        (record_name(d, &k) || !k.past.resumed)) {
        k.past.resumed = true;
        update_file(d, &k,
                    "after another restart newer checkpoints are set aside");
    }
    fini_kept(&k);
}

void pstd_stay_record_save(struct pstd_daemon *d, uint64_t step)
{
    struct kept k = {0};
    struct pst_diag ignored;
    bool any;

    if (!keeps_run(d))
        return;
    if (read_kept(d, &k, &any, &ignored) == PST_OK && any && k.past.step == 0) {
        k.past.step = step;
        k.tries = 0; /* the run has made progress */
        update_file(d, &k, "its progress is not recorded");
    }
    fini_kept(&k);
}

void pstd_stay_remove(const struct pstd_daemon *d)
{
    if (keeps_run(d) && truncate(d->config->kept_run, 0) != 0)
        errno = 0; /* the supervisor has ended, so the file is gone */
}
