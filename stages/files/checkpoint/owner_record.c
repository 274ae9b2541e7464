// SPDX-License-Identifier: Apache-2.0
#include "stages/files/checkpoint/owner_record.h"

#include "stages/base/alloc.h"
#include "stages/base/host/fs.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_OWNER ((size_t)64 << 10)

enum pst_status pst_owner_store_folder(const char *dir, char ret[PATH_MAX],
                                       struct pst_diag *diag)
{
    char cwd[PATH_MAX] = "";
    int n;

    if (!dir)
        dir = "";
    else if (dir[0] != '/' && !getcwd(cwd, sizeof(cwd)))
        return pst_diag_errno(diag, errno, "no path for %s", dir);
    n = snprintf(ret, PATH_MAX, "%s%s%s", cwd, cwd[0] ? "/" : "", dir);
    return n >= 0 && n < PATH_MAX
               ? PST_OK
               : pst_diag_set(diag, PST_E_FILE_LONG_PATH,
                              "%s: the path is too long", dir);
}

enum pst_status pst_owner_path(const char *dir, const char *file,
                               struct pst_str *ret, struct pst_diag *diag)
{
    pst_str_addf(ret, "%s/%s", dir, file);
    return ret->failed ? pst_diag_nomem(diag, strlen(dir)) : PST_OK;
}

static void get_text(const json_t *root, const char *key, char *ret,
                     size_t size)
{
    const char *text = json_string_value(json_object_get(root, key));

    snprintf(ret, size, "%s", text ? text : "");
}

/* Reads the rewinds, a list of [COURSE, STEP]; leaves out wrong items. */
static void get_rewinds(const json_t *root, struct pst_checkpoint_rewinds *ret)
{
    const json_t *list = json_object_get(root, "rewinds");

    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        const json_int_t course = json_integer_value(json_array_get(item, 0));
        const json_t *step = json_array_get(item, 1);

        if (course > 0 && json_is_integer(step) &&
            json_integer_value(step) >= 0)
            pst_checkpoint_add_rewind(ret, (uint64_t)course,
                                      (uint64_t)json_integer_value(step));
    }
}

static json_t *make_rewinds(const struct pst_checkpoint_rewinds *rewinds)
{
    json_t *list = json_array();

    for (unsigned i = 0; list && i < rewinds->n; i++) {
        json_t *item = json_pack("[I, I]", (json_int_t)rewinds->at[i].course,
                                 (json_int_t)rewinds->at[i].step);

        if (json_array_append_new(list, item) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

enum pst_status pst_owner_record_read(const char *dir,
                                      struct pst_owner_record *ret,
                                      struct pst_diag *diag)
{
    struct pst_str path = {0};
    char *text = NULL;
    size_t size = 0;
    struct pst_diag why = {0};
    enum pst_status status = pst_owner_path(dir, PST_OWNER_FILE, &path, diag);

    *ret = (struct pst_owner_record){0};
    if (status == PST_OK && access(path.text, F_OK) == 0) {
        status = pst_file_read(path.text, MAX_OWNER, &text, &size, &why);
        if (status != PST_OK)
            status = pst_diag_pass(
                diag, &why,
                "%s; the file says whose the checkpoints are: mend or remove "
                "it",
                why.text);
    }
    if (status == PST_OK && text) {
        json_t *root = json_loadb(text, size, JSON_REJECT_DUPLICATES, NULL);

        ret->exists = json_is_object(root);
        get_text(root, "run", ret->run, sizeof(ret->run));
        get_text(root, "model", ret->model, sizeof(ret->model));
        get_text(root, "host", ret->host, sizeof(ret->host));
        get_text(root, "fallback", ret->fallback, sizeof(ret->fallback));
        get_text(root, "first", ret->first, sizeof(ret->first));
        get_text(root, "id", ret->id, sizeof(ret->id));
        get_text(root, "other", ret->other, sizeof(ret->other));
        get_text(root, "replaces", ret->replaces, sizeof(ret->replaces));
        get_rewinds(root, &ret->rewinds);
        ret->pid = json_integer_value(json_object_get(root, "pid"));
        ret->held = json_is_true(json_object_get(root, "held"));
        ret->open = json_is_true(json_object_get(root, "open"));
        json_decref(root);
    }
    pst_free(text);
    pst_str_fini(&path);
    return status;
}

static bool is_utf8(const char *text)
{
    while (*text != '\0') {
        const size_t n = pst_utf8_length(text);

        if (n == 0)
            return false;
        text += n;
    }
    return true;
}

static bool is_link(const char *path)
{
    struct stat st;

    return lstat(path, &st) == 0 && S_ISLNK(st.st_mode);
}

/* Refuses a symbolic link: writing would replace its target, which may belong
 * to another user. */
static enum pst_status refuse_link(const char *path, struct pst_diag *diag)
{
    if (!is_link(path))
        return PST_OK;
    return pst_diag_set(diag, PST_E_FILE_WRONG_KIND,
                        "cannot write %s: it is a symbolic link, which no run "
                        "makes: remove it",
                        path);
}

enum pst_status pst_owner_record_write(const char *dir,
                                       const struct pst_owner_record *r,
                                       struct pst_diag *diag)
{
    struct pst_str path = {0};
    json_t *root = json_pack(
        "{s:i, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:o, s:s, s:I, s:b, s:b}",
        "version", 1, "run", r->run, "model", r->model, "fallback", r->fallback,
        "first", is_utf8(r->first) ? r->first : "", "id", r->id, "other",
        r->other, "replaces", r->replaces, "rewinds", make_rewinds(&r->rewinds),
        "host", r->host, "pid", (json_int_t)r->pid, "held", (int)r->held,
        "open", (int)r->open);
    char *text = root ? json_dumps(root, JSON_INDENT(1)) : NULL;
    enum pst_status status = pst_owner_path(dir, PST_OWNER_FILE, &path, diag);

    if (status == PST_OK && !is_utf8(r->fallback))
        status = pst_diag_set(diag, PST_E_CHECKPOINT_FOLDER,
                              "the path of --checkpoint-fallback is not UTF-8, "
                              "so %s cannot name it: choose another folder",
                              path.text);
    else if (status == PST_OK && !text)
        status = pst_diag_nomem(diag, sizeof(*r));
    if (status == PST_OK)
        status = refuse_link(path.text, diag);
    if (status == PST_OK)
        status = pst_file_write(path.text, text, strlen(text), diag);
    json_decref(root);
    free(text); /* allocated by jansson: free(), not pst_free() */
    pst_str_fini(&path);
    return status;
}

void pst_owner_record_remove(const char *dir)
{
    struct pst_str path = {0};

    /* A link was refused, and stays as the user made it. */
    if (pst_owner_path(dir, PST_OWNER_FILE, &path, NULL) == PST_OK &&
        !is_link(path.text))
        (void)unlink(path.text);
    pst_str_fini(&path);
}
