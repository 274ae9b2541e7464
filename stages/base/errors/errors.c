// SPDX-License-Identifier: Apache-2.0
#include "stages/base/errors/errors.h"

#include <errno.h>
#include <string.h>

struct row {
    const char *id, *tag;
    enum pst_status status;
    const char *cause, *remedy;
};

static const struct row rows[] = {
    {"", "", PST_OK, "", ""},
#define PST_ERROR(name, id, status, cause, remedy)                             \
    {(id), " [" id "]", PST_ERR_##status, (cause), (remedy)},
#include "stages/base/errors/all.def"
#undef PST_ERROR
};

/* Rows for errno values; all other values are FILE_SYSTEM. */
static const struct {
    int err;
    enum pst_error error;
} by_errno[] = {
    {ENOENT, PST_E_FILE_MISSING},     {EACCES, PST_E_FILE_PERMISSION},
    {EPERM, PST_E_FILE_PERMISSION},   {ENOSPC, PST_E_FILE_DISK_FULL},
    {EDQUOT, PST_E_FILE_DISK_FULL},   {EROFS, PST_E_FILE_READ_ONLY},
    {EFBIG, PST_E_FILE_SIZE_LIMIT},   {EISDIR, PST_E_FILE_WRONG_KIND},
    {ENOTDIR, PST_E_FILE_WRONG_KIND}, {ENAMETOOLONG, PST_E_FILE_NAME_TOO_LONG},
    {EEXIST, PST_E_FILE_EXISTS},      {ENOTEMPTY, PST_E_FILE_EXISTS},
    {EIO, PST_E_FILE_DEVICE},         {ESTALE, PST_E_FILE_DEVICE},
    {EMFILE, PST_E_HOST_OPEN_FILES},  {ENFILE, PST_E_HOST_OPEN_FILES},
    {EAGAIN, PST_E_HOST_TRY_AGAIN},   {ENOMEM, PST_E_MEMORY_HOST},
};

static const struct row *find_row(enum pst_error error)
{
    return &rows[(unsigned)error < PST_COUNT(rows) ? (unsigned)error : 0];
}

const char *pst_error_id(enum pst_error error)
{
    return find_row(error)->id;
}

const char *pst_error_tag(enum pst_error error)
{
    return find_row(error)->tag;
}

enum pst_status pst_error_status(enum pst_error error)
{
    /* An unknown number is an internal error, not success. */
    return (unsigned)error < PST_COUNT(rows) ? find_row(error)->status
                                             : PST_ERR_INTERNAL;
}

const char *pst_error_cause(enum pst_error error)
{
    return find_row(error)->cause;
}

const char *pst_error_remedy(enum pst_error error)
{
    return find_row(error)->remedy;
}

enum pst_error pst_error_find(const char *id)
{
    for (unsigned i = 1; id != NULL && i < PST_COUNT(rows); i++)
        if (strcmp(rows[i].id, id) == 0)
            return (enum pst_error)i;
    return PST_E_NONE;
}

enum pst_error pst_error_of_line(const char *line, size_t *ret_len)
{
    const char *begin = strrchr(line, '[');
    const size_t n = strlen(line);

    *ret_len = n;
    if (begin == NULL || begin == line || begin[-1] != ' ')
        return PST_E_NONE;
    begin--;
    for (unsigned i = 1; i < PST_COUNT(rows); i++) {
        if (strcmp(rows[i].tag, begin) != 0)
            continue;
        *ret_len = (size_t)(begin - line);
        return (enum pst_error)i;
    }
    return PST_E_NONE;
}

enum pst_error pst_error_of_errno(int err)
{
    for (size_t i = 0; i < PST_COUNT(by_errno); i++)
        if (by_errno[i].err == err)
            return by_errno[i].error;
    return PST_E_FILE_SYSTEM;
}
