// SPDX-License-Identifier: Apache-2.0
#include "daemon/loop/record/tensorboard.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/common/config.h"
#include "daemon/common/options/sets.h"
#include "stages/base/alloc.h"
#include "stages/base/crc32c.h"
#include "stages/base/host/fs.h"
#include "stages/base/str.h"
#include "tensorboard.pb-c.h"

#define START 1 /* status of a SessionLog */

/* Curves, each from a field of an event of rank 0. */
static const struct {
    const char *tag;
    enum pstd_event event;
    const char *field;
} rows[] = {
    {"train/loss", PSTD_EVENT_STEP, "loss"},
    {"train/lr", PSTD_EVENT_STEP, "lr"},
    {"train/grad_norm", PSTD_EVENT_STEP, "grad_norm"},
    {"train/loss_scale", PSTD_EVENT_STEP, "loss_scale"},
    {"speed/step_s", PSTD_EVENT_STEP, "step_s"},
    {"speed/samples_s", PSTD_EVENT_STEP, "samples_s"},
    {"speed/tok_s", PSTD_EVENT_STEP, "tok_s"},
    {"speed/mfu", PSTD_EVENT_STEP, "mfu"},
    {"speed/bubble", PSTD_EVENT_STEP, "bubble"},
    {"eval/loss", PSTD_EVENT_EVALUATED, "loss"},
    {"eval/best_loss", PSTD_EVENT_EVALUATED, "best_loss"},
    {"eval/bits_per_byte", PSTD_EVENT_EVALUATED, "bits_per_byte"},
    {"eval/metric", PSTD_EVENT_EVALUATED, "metric"},
    {"eval/best_metric", PSTD_EVENT_EVALUATED, "best_metric"},
    /* The tags get the name of the set: eval/NAME/loss. */
    {"loss", PSTD_EVENT_EVAL_SET, "loss"},
    {"bits_per_byte", PSTD_EVENT_EVAL_SET, "bits_per_byte"},
    {"metric", PSTD_EVENT_EVAL_SET, "metric"},
};

static bool has_number(const struct pstd_note *note, const char *key)
{
    for (unsigned i = 0; i < note->n; i++)
        if (note->fields[i].type == PSTD_FIELD_REAL &&
            strcmp(note->fields[i].key, key) == 0)
            return true;
    return false;
}

/* Returns the CRC32C of the data, masked as TFRecord requires. */
static uint32_t masked_crc(const void *data, size_t size)
{
    const uint32_t crc = pst_crc32c(0, data, size);

    return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

static void put_le(unsigned char *at, uint64_t x, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        at[i] = (unsigned char)(x >> 8 * i);
}

static void record_failure(struct pstd_tensorboard *t, int err)
{
    if (!t->failing)
        t->reported = false;
    t->failing = true;
    (void)pst_diag_errno(&t->why, err, "cannot write %s", t->path);
}

/* Appends a record. If it was written only in part, removes it, since readers
 * would stop there; if that fails, closes the file. */
static void append_record(struct pstd_tensorboard *t,
                          const unsigned char *bytes, size_t size)
{
    const off_t end = lseek(t->fd, 0, SEEK_END);
    ssize_t n;

    do
        n = write(t->fd, bytes, size);
    while (n < 0 && errno == EINTR);
    if (n == (ssize_t)size) {
        t->failing = false;
        return;
    }
    record_failure(t, n < 0 ? errno : ENOSPC);
    if (n > 0 && (end < 0 || ftruncate(t->fd, end) != 0)) {
        (void)close(t->fd);
        t->fd = -1;
    }
}

static void write_event(struct pstd_tensorboard *t,
                        const Pst__Tensorboard__Event *event)
{
    const size_t size = pst__tensorboard__event__get_packed_size(event);
    unsigned char *record = pst_alloc(PST_TAG_DAEMON, size + 16);

    if (record == NULL) {
        record_failure(t, ENOMEM);
        return;
    }
    put_le(record, size, 8);
    put_le(record + 8, masked_crc(record, 8), 4);
    (void)pst__tensorboard__event__pack(event, record + 12);
    put_le(record + 12 + size, masked_crc(record + 12, size), 4);
    append_record(t, record, size + 16);
    pst_free(record);
}

static Pst__Tensorboard__Event event_at(uint64_t time_us, int64_t step)
{
    Pst__Tensorboard__Event ret = PST__TENSORBOARD__EVENT__INIT;

    ret.wall_time = 1e-6 * (double)time_us;
    ret.step = step;
    return ret;
}

/* Writes the version record, without which readers ignore the records of
 * write_start. */
static void write_version(struct pstd_tensorboard *t, uint64_t time_us)
{
    Pst__Tensorboard__Event event = event_at(time_us, 0);

    event.what_case = PST__TENSORBOARD__EVENT__WHAT_FILE_VERSION;
    event.file_version = "brain.Event:2";
    write_event(t, &event);
    t->begun = !t->failing;
}

/* Records that the run continues with step `step`; readers drop earlier records
 * of this and later steps. */
static void write_start(struct pstd_tensorboard *t, uint64_t time_us,
                        int64_t step)
{
    Pst__Tensorboard__SessionLog log = PST__TENSORBOARD__SESSION_LOG__INIT;
    Pst__Tensorboard__Event event = event_at(time_us, step);

    log.status = START;
    event.what_case = PST__TENSORBOARD__EVENT__WHAT_SESSION_LOG;
    event.session_log = &log;
    write_event(t, &event);
}

static void write_values(struct pstd_tensorboard *t,
                         const struct pstd_note *note, uint64_t time_us)
{
    Pst__Tensorboard__Value values[PST_COUNT(rows)], *list[PST_COUNT(rows)];
    const char *set = note->event == PSTD_EVENT_EVAL_SET
                          ? pstd_note_get_text(note, "set")
                          : NULL;
    char tags[PST_COUNT(rows)][PSTD_SET_NAME + 32];
    Pst__Tensorboard__Summary summary = PST__TENSORBOARD__SUMMARY__INIT;
    Pst__Tensorboard__Event event =
        event_at(time_us, pstd_note_get_int(note, "step"));

    for (size_t i = 0; i < PST_COUNT(rows); i++) {
        Pst__Tensorboard__Value *v = &values[summary.n_value];

        if (rows[i].event != note->event || !has_number(note, rows[i].field))
            continue;
        pst__tensorboard__value__init(v);
        /* protobuf-c does not change the text */
        v->tag = (char *)rows[i].tag;
        if (set != NULL) {
            (void)snprintf(tags[i], sizeof(tags[i]), "eval/%s/%s", set,
                           rows[i].tag);
            v->tag = tags[i];
        }
        v->what_case = PST__TENSORBOARD__VALUE__WHAT_SIMPLE_VALUE;
        v->simple_value = (float)pstd_note_get_real(note, rows[i].field);
        list[summary.n_value++] = v;
    }
    if (summary.n_value == 0)
        return;
    summary.value = list;
    event.what_case = PST__TENSORBOARD__EVENT__WHAT_SUMMARY;
    event.summary = &summary;
    write_event(t, &event);
}

/* --- options -------------------------------------------------------------- */

/* Sets *ret to the value of an option: a number, a flag or a text. */
static void set_value(const struct pstd_option *row, const char *text,
                      Pst__Tensorboard__Setting *ret)
{
    const bool is_number =
        row != NULL && (row->type == PSTD_UINT || row->type == PSTD_REAL ||
                        row->type == PSTD_MIB || row->type == PSTD_RAMP ||
                        row->type == PSTD_EVERY);

    pst__tensorboard__setting__init(ret);
    if (is_number && pst_parse_f64(text, &ret->number)) {
        ret->what_case = PST__TENSORBOARD__SETTING__WHAT_NUMBER;
    } else if (row != NULL && row->type == PSTD_FLAG) {
        ret->what_case = PST__TENSORBOARD__SETTING__WHAT_FLAG;
        ret->flag = strcmp(text, "1") == 0;
    } else {
        ret->what_case = PST__TENSORBOARD__SETTING__WHAT_TEXT;
        ret->text = (char *)text; /* protobuf-c does not change the text */
    }
}

static void write_plugin(struct pstd_tensorboard *t, uint64_t time_us,
                         ProtobufCBinaryData content)
{
    Pst__Tensorboard__Plugin plugin = PST__TENSORBOARD__PLUGIN__INIT;
    Pst__Tensorboard__Metadata metadata = PST__TENSORBOARD__METADATA__INIT;
    Pst__Tensorboard__Value value = PST__TENSORBOARD__VALUE__INIT;
    Pst__Tensorboard__Value *list[] = {&value};
    Pst__Tensorboard__Summary summary = PST__TENSORBOARD__SUMMARY__INIT;
    Pst__Tensorboard__Event event = event_at(time_us, 0);

    plugin.plugin_name = (char *)"hparams";
    plugin.content = content;
    metadata.plugin_data = &plugin;
    value.tag = (char *)"_hparams_/session_start_info";
    value.metadata = &metadata;
    summary.n_value = 1;
    summary.value = list;
    event.what_case = PST__TENSORBOARD__EVENT__WHAT_SUMMARY;
    event.summary = &summary;
    write_event(t, &event);
}

/* Writes the options that the run was given. */
static void write_options(struct pstd_tensorboard *t,
                          const struct pstd_note *note, uint64_t time_us)
{
    enum { MOST = 128 };
    Pst__Tensorboard__Setting values[MOST];
    Pst__Tensorboard__NamedSetting named[MOST], *list[MOST];
    Pst__Tensorboard__SessionStart start =
        PST__TENSORBOARD__SESSION_START__INIT;
    Pst__Tensorboard__HParams all = PST__TENSORBOARD__HPARAMS__INIT;
    const char *given = pstd_note_get_text(note, "options"), *name, *text;
    char *copy = pst_strdup(PST_TAG_DAEMON, given != NULL ? given : "");
    char *at = copy;
    ProtobufCBinaryData content = {0};

    for (size_t i = 0;
         i < MOST && copy != NULL && pstd_config_next_given(&at, &name, &text);
         i++) {
        set_value(pstd_option_find(~UINT64_C(0), name), text, &values[i]);
        pst__tensorboard__named_setting__init(&named[i]);
        named[i].key = (char *)name;
        named[i].value = &values[i];
        list[start.n_hparams++] = &named[i];
    }
    start.hparams = list;
    start.start_time_secs = 1e-6 * (double)time_us;
    all.session_start_info = &start;
    content.len = pst__tensorboard__hparams__get_packed_size(&all);
    content.data = pst_alloc(PST_TAG_DAEMON, content.len);
    if (copy == NULL || content.data == NULL) {
        record_failure(t, ENOMEM);
    } else {
        (void)pst__tensorboard__hparams__pack(&all, content.data);
        write_plugin(t, time_us, content);
    }
    pst_free(content.data);
    pst_free(copy);
}

void pstd_tensorboard_note(struct pstd_tensorboard *t,
                           const struct pstd_note *note, uint64_t time_us)
{
    if (t->fd >= 0 && !t->begun)
        write_version(t, time_us);
    if (t->fd < 0 || !t->begun)
        return;
    if (note->event == PSTD_EVENT_TRAIN_BEGIN) {
        write_start(t, time_us, pstd_note_get_int(note, "first_step") + 1);
        if (pstd_note_get_text(note, "options") != NULL)
            write_options(t, note, time_us);
    }
    if (note->event == PSTD_EVENT_ROLLED_BACK)
        write_start(t, time_us, pstd_note_get_int(note, "to") + 1);
    else if (note->event != PSTD_EVENT_TRAIN_BEGIN)
        write_values(t, note, time_us);
}

static enum pst_status open_file(struct pstd_tensorboard *t, const char *dir,
                                 uint64_t time_us, struct pst_diag *diag)
{
    struct pst_str path = {0};
    char host[65] = "";
    enum pst_status status = PST_OK;

    (void)gethostname(host, sizeof(host) - 1);
    pst_str_addf(&path, "%s/events.out.tfevents.%010" PRIu64 ".%s.%d", dir,
                 time_us / 1000000, host, (int)getpid());
    t->path = path.failed ? NULL : pst_strdup(PST_TAG_DAEMON, path.text);
    if (t->path == NULL)
        status = pst_diag_nomem(diag, path.len);
    pst_str_fini(&path);
    if (status != PST_OK)
        return status;
    t->fd =
        open(t->path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0640);
    if (t->fd < 0)
        status = pst_diag_errno(diag, errno, "cannot make %s", t->path);
    return status;
}

enum pst_status pstd_tensorboard_open(struct pstd_tensorboard *t,
                                      const char *dir, struct pst_diag *diag)
{
    const uint64_t now_us = pstd_now_us();
    enum pst_status status = pst_mkdirs(dir, 0750, diag);

    if (status == PST_OK)
        status = open_file(t, dir, now_us, diag);
    if (status != PST_OK)
        return status;
    write_version(t, now_us);
    if (t->failing)
        *diag = t->why;
    return t->failing ? diag->status : PST_OK;
}

void pstd_tensorboard_close(struct pstd_tensorboard *t)
{
    if (t->fd >= 0)
        (void)close(t->fd);
    pst_free(t->path);
    *t = (struct pstd_tensorboard)PSTD_TENSORBOARD_NONE;
}
