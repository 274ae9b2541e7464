// SPDX-License-Identifier: Apache-2.0
/* Reads and writes tensors as text: JSON and CSV. */
#include "daemon/ctl/serve/tensors.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/ctl/out.h"
#include "stages/base/alloc.h"
#include "stages/base/host/fs.h"
#include "stages/base/str.h"
#include "stages/base/untrusted/json_file.h"

#define MAX_BYTES (64u << 20) /* maximum bytes of a text file */
/* Byte-order mark, which Excel writes before the first line of CSV. */
#define BYTE_ORDER_MARK "\xef\xbb\xbf"

/* --- numbers -------------------------------------------------------------- */

/* The store functions store x as element i. They return false if the dtype
 * cannot represent x. */
static bool store_float(enum pst_dtype dtype, void *data, int64_t i, double x)
{
    pst_store_f64(dtype, data, i, x);
    return isfinite(pst_load_f64(dtype, data, i)) || !isfinite(x);
}

static bool store_int(enum pst_dtype dtype, void *data, int64_t i, int64_t x)
{
    switch (pst_dtype_kind(dtype)) {
    case PST_KIND_BOOL:
        if (x != 0 && x != 1)
            return false;
        pst_store_i64(dtype, data, i, x);
        return true;
    case PST_KIND_INT:
        pst_store_i64(dtype, data, i, x);
        return pst_load_i64(dtype, data, i) == x;
    case PST_KIND_FLOAT:
        return store_float(dtype, data, i, (double)x);
    }
    return false;
}

static bool store_real(enum pst_dtype dtype, void *data, int64_t i, double x)
{
    if (pst_dtype_kind(dtype) != PST_KIND_FLOAT)
        return floor(x) == x && fabs(x) < 0x1p53 &&
               store_int(dtype, data, i, (int64_t)x);
    return store_float(dtype, data, i, x);
}

static const Pst__Control__Port *find_port(const pstctl_signature *s,
                                           const char *name, size_t len)
{
    for (size_t i = 0; i < s->n_inputs; i++)
        if (strlen(s->inputs[i]->name) == len &&
            strncmp(s->inputs[i]->name, name, len) == 0)
            return s->inputs[i];
    return NULL;
}

static enum pst_status refuse_name(const char *path, const char *name,
                                   size_t len, const pstctl_signature *s,
                                   struct pst_diag *diag)
{
    struct pst_str names = {0};

    for (size_t i = 0; i < s->n_inputs; i++)
        pst_str_addf(&names, "%s%s", i > 0 ? ", " : "", s->inputs[i]->name);
    (void)pst_diag_set(diag, PST_E_DATA_NO_TENSOR,
                       "%s: the model has no input '%.*s'; it has: %s", path,
                       (int)PST_MIN(len, (size_t)100), name,
                       pst_str_text(&names));
    pst_str_fini(&names);
    return PST_ERR_NOT_FOUND;
}

static enum pst_status port_dtype(const Pst__Control__Port *port,
                                  enum pst_dtype *ret, struct pst_diag *diag)
{
    if (pst_dtype_from_safetensors(port->dtype, ret))
        return PST_OK;
    return pst_diag_set(diag, PST_E_ASK_DTYPE,
                        "this client does not know the dtype %.20s",
                        port->dtype);
}

/* --- JSON: {"NAME": [[1, 2], [3, 4]], ...} -------------------------------- */

/* Sets rank and sizes of nested arrays, from the first element of each array.
 * False: there are too many dimensions. */
static bool find_sizes(const json_t *value, struct pst_meta *meta)
{
    while (json_is_array(value)) {
        if (meta->rank == PST_MAX_RANK)
            return false;
        meta->size[meta->rank++] = (int64_t)json_array_size(value);
        value = json_array_get(value, 0);
    }
    return true;
}

/* Numbers that JSON cannot represent, as torch.export writes them. */
static const struct {
    const char *name;
    double value;
} specials[] = {{"NaN", NAN}, {"Infinity", INFINITY}, {"-Infinity", -INFINITY}};

static bool store_special(const char *name, const struct pst_meta *meta,
                          void *data, int64_t i)
{
    if (pst_dtype_kind(meta->dtype) != PST_KIND_FLOAT)
        return false;
    for (size_t k = 0; k < PST_COUNT(specials); k++)
        if (strcmp(specials[k].name, name) == 0)
            return store_float(meta->dtype, data, i, specials[k].value);
    return false;
}

static bool store_json(const json_t *value, const struct pst_meta *meta,
                       void *data, int64_t i)
{
    if (json_is_string(value))
        return store_special(json_string_value(value), meta, data, i);
    if (json_is_integer(value))
        return store_int(meta->dtype, data, i, json_integer_value(value));
    if (json_is_boolean(value))
        return pst_dtype_kind(meta->dtype) == PST_KIND_BOOL &&
               store_int(meta->dtype, data, i, json_is_true(value));
    return json_is_real(value) &&
           store_real(meta->dtype, data, i, json_real_value(value));
}

/* Reads the elements of an array, which is nested at depth dim. *at: index of
 * the next element. */
// NOLINTNEXTLINE(misc-no-recursion): PST_MAX_RANK deep at most
static bool store_array(const json_t *value, const struct pst_meta *meta,
                        unsigned dim, void *data, int64_t *at)
{
    if (dim == meta->rank)
        return store_json(value, meta, data, (*at)++);
    if (!json_is_array(value) ||
        (int64_t)json_array_size(value) != meta->size[dim])
        return false;
    for (size_t i = 0; i < json_array_size(value); i++)
        if (!store_array(json_array_get(value, i), meta, dim + 1, data, at))
            return false;
    return true;
}

static enum pst_status read_json_tensor(const char *path, const char *name,
                                        const json_t *value,
                                        const pstctl_signature *s,
                                        struct pstctl_tensors *ret,
                                        struct pst_diag *diag)
{
    const Pst__Control__Port *port = find_port(s, name, strlen(name));
    struct pst_meta meta = {.rank = 0};
    struct pstctl_tensor *tensor;
    int64_t at = 0;
    enum pst_status status;

    if (port == NULL)
        return refuse_name(path, name, strlen(name), s, diag);
    status = port_dtype(port, &meta.dtype, diag);
    if (status != PST_OK)
        return status;
    if (!find_sizes(value, &meta))
        return pst_diag_set(diag, PST_E_ASK_SHAPE,
                            "%s: '%s' has more than %d dimensions", path, name,
                            PST_MAX_RANK);
    status = pstctl_tensors_add(ret, name, &meta, &tensor, diag);
    if (status == PST_OK && !store_array(value, &meta, 0, tensor->data, &at))
        status = pst_diag_set(
            diag, PST_E_ASK_TEXT,
            "%s: '%s' is not an array of numbers of %s: lists of "
            "one depth must have equal lengths, and element %lld "
            "(from 0) is wrong, out of range or missing",
            path, name, pst_dtype_name(meta.dtype), (long long)at - (at > 0));
    return status;
}

enum pst_status pstctl_tensors_read_json(const char *path,
                                         const pstctl_signature *s,
                                         struct pstctl_tensors *ret,
                                         struct pst_diag *diag)
{
    char *text = NULL;
    size_t size = 0;
    json_error_t error;
    json_t *root;
    const char *name;
    json_t *value;
    enum pst_status status =
        pst_json_file_read(path, MAX_BYTES, &text, &size, diag);

    if (status != PST_OK)
        return status;
    root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
    pst_free(text);
    if (root == NULL)
        return pst_diag_set(diag, PST_E_ASK_TEXT, "%s:%d: %s", path, error.line,
                            error.text);
    if (!json_is_object(root))
        status = pst_diag_set(diag, PST_E_ASK_TEXT,
                              "%s: no object of inputs by their names", path);
    else
        json_object_foreach(root, name, value)
        {
            if (status == PST_OK)
                status = read_json_tensor(path, name, value, s, ret, diag);
        }
    json_decref(root);
    return status;
}

static json_t *real_to_json(double x)
{
    if (isfinite(x))
        return json_real(x);
    return json_string(specials[isnan(x) ? 0 : x > 0 ? 1 : 2].name);
}

static json_t *number_to_json(const struct pst_meta *meta, const void *data,
                              int64_t i)
{
    switch (pst_dtype_kind(meta->dtype)) {
    case PST_KIND_BOOL:
        return json_boolean(pst_load_i64(meta->dtype, data, i) != 0);
    case PST_KIND_INT:
        return json_integer(pst_load_i64(meta->dtype, data, i));
    case PST_KIND_FLOAT:
        break;
    }
    return real_to_json(pst_load_f64(meta->dtype, data, i));
}

// NOLINTNEXTLINE(misc-no-recursion): PST_MAX_RANK deep at most
static json_t *to_json(const struct pst_meta *meta, unsigned dim,
                       const void *data, int64_t *at)
{
    json_t *array;

    if (dim == meta->rank)
        return number_to_json(meta, data, (*at)++);
    array = json_array();
    for (int64_t i = 0; i < meta->size[dim] && array != NULL; i++)
        if (json_array_append_new(array, to_json(meta, dim + 1, data, at)) !=
            0) {
            json_decref(array);
            array = NULL;
        }
    return array;
}

enum pst_status pstctl_tensors_write_json(const char *path,
                                          const struct pstctl_tensors *t,
                                          struct pst_diag *diag)
{
    json_t *root = json_object();
    enum pst_status status;
    bool failed = root == NULL;
    char *text;

    for (size_t i = 0; i < t->all.n && !failed; i++) {
        const struct pstctl_tensor *tensor = &t->all.at[i];
        int64_t at = 0;

        failed = json_object_set_new(
                     root, tensor->name,
                     to_json(&tensor->meta, 0, tensor->data, &at)) != 0;
    }
    if (failed) {
        json_decref(root);
        return pst_diag_nomem(diag, sizeof(*t));
    }
    if (path == NULL)
        return pstctl_json_print(root, diag);
    text = json_dumps(root, 0);
    json_decref(root);
    status = text == NULL ? pst_diag_nomem(diag, sizeof(*t))
                          : pst_file_write(path, text, strlen(text), diag);
    free(text); /* allocated by jansson: free(), not pst_free() */
    return status;
}

/* --- CSV: a line of names, then a line for each sample ---------------------
 */

/* Columns of one input, which are adjacent: one for each number of a sample. */
struct column {
    const Pst__Control__Port *port;
    struct pst_meta meta; /* meta of the tensor of all samples */
    int64_t first, n;     /* index of the first column, number of columns */
    size_t tensor;        /* index of the tensor */
};

struct csv {
    const char *path;
    const pstctl_signature *s;
    struct PST_VEC(struct column) columns;
    int64_t n; /* columns of a line */
    int64_t lines;
};

static enum pst_status add_column(struct csv *c, const char *name, size_t len,
                                  struct pst_diag *diag)
{
    const size_t n = c->columns.n;
    struct column column = {
        .port = find_port(c->s, name, len), .first = c->n, .n = 1};

    if (column.port == NULL)
        return refuse_name(c->path, name, len, c->s, diag);
    c->n++;
    if (n > 0 && c->columns.at[n - 1].port == column.port) {
        c->columns.at[n - 1].n++;
        return PST_OK;
    }
    for (size_t i = 0; i < n; i++)
        if (c->columns.at[i].port == column.port)
            return pst_diag_set(diag, PST_E_ASK_TEXT,
                                "%s: columns of '%s' are not adjacent", c->path,
                                column.port->name);
    if (column.port->dim != 0)
        return pst_diag_set(diag, PST_E_ASK_DTYPE,
                            "%s: samples of input '%s' are not along dimension "
                            "0: a .json or .safetensors can have them",
                            c->path, column.port->name);
    return pst_vec_push(PST_TAG_CLIENT, &c->columns, column)
               ? PST_OK
               : pst_diag_nomem(diag, sizeof(column));
}

static enum pst_status read_header(struct csv *c, const char *line, size_t len,
                                   struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    for (const char *end = line + len; status == PST_OK && line <= end;) {
        const char *comma = memchr(line, ',', (size_t)(end - line));
        const char *stop = comma != NULL ? comma : end;

        while (line < stop && *line == ' ')
            line++;
        len = (size_t)(stop - line);
        while (len > 0 && line[len - 1] == ' ')
            len--;
        status = add_column(c, line, len, diag);
        line = stop + 1;
    }
    return status;
}

static enum pst_status make_tensors(struct csv *c, struct pstctl_tensors *ret,
                                    struct pst_diag *diag)
{
    for (size_t i = 0; i < c->columns.n; i++) {
        struct column *column = &c->columns.at[i];
        const Pst__Control__Port *port = column->port;
        struct pstctl_tensor *tensor;
        int64_t each = 1;
        enum pst_status status = port_dtype(port, &column->meta.dtype, diag);

        if (status != PST_OK)
            return status;
        if (port->n_size == 0 || port->n_size > PST_MAX_RANK)
            return pst_diag_set(diag, PST_E_ASK_TEXT,
                                "the job says that input '%s' has %zu "
                                "dimensions",
                                port->name, port->n_size);
        column->meta.rank = (unsigned)port->n_size;
        for (unsigned d = 0; d < column->meta.rank; d++) {
            column->meta.size[d] = (int64_t)port->size[d];
            each *= (int64_t)port->size[d];
        }
        if (each != column->n)
            return pst_diag_set(diag, PST_E_ASK_SHAPE,
                                "%s: a sample of input '%s' has %lld numbers, "
                                "there are %lld columns",
                                c->path, port->name, (long long)each,
                                (long long)column->n);
        column->meta.size[0] *= c->lines;
        column->tensor = ret->all.n;
        status =
            pstctl_tensors_add(ret, port->name, &column->meta, &tensor, diag);
        if (status != PST_OK)
            return status;
    }
    return PST_OK;
}

/* Reads a number and stores it as element i. False: it does not fit the dtype,
 * or neither a comma nor the line's end follows. */
static bool read_number(char *at, char **ret_end, enum pst_dtype dtype,
                        void *data, int64_t i)
{
    char *end;
    bool good;

    errno = 0;
    if (pst_dtype_kind(dtype) == PST_KIND_FLOAT) {
        const double x = strtod(at, &end);

        good = end != at && !(errno == ERANGE && isinf(x)) &&
               store_real(dtype, data, i, x);
    } else {
        const long long x = strtoll(at, &end, 10);

        good = end != at && errno == 0 && store_int(dtype, data, i, x);
    }
    *ret_end = end + strspn(end, " ");
    return good && (**ret_end == ',' || **ret_end == '\0');
}

static enum pst_status read_line(const struct csv *c, char *line, int64_t row,
                                 struct pstctl_tensors *ret,
                                 struct pst_diag *diag)
{
    char *at = line;

    for (size_t k = 0; k < c->columns.n; k++) {
        const struct column *column = &c->columns.at[k];
        void *data = ret->all.at[column->tensor].data;

        for (int64_t i = 0; i < column->n; i++) {
            const bool last = column->first + i + 1 == c->n;
            char *end = at;

            if (!read_number(at, &end, column->meta.dtype, data,
                             row * column->n + i) ||
                (*end == '\0') != last)
                return pst_diag_set(
                    diag, PST_E_ASK_TEXT,
                    "%s: sample %lld, column %lld (%s): not "
                    "one %s of %lld in the line",
                    c->path, (long long)row + 1,
                    (long long)(column->first + i + 1), column->port->name,
                    pst_dtype_name(column->meta.dtype), (long long)c->n);
            at = end + 1;
        }
    }
    return PST_OK;
}

/* Replaces the newline ("\n" or "\r\n") of the line at `at` by NUL; returns the
 * next line. */
static char *cut_line(char *at)
{
    char *end = at + strcspn(at, "\n");
    char *next = *end == '\n' ? end + 1 : end;

    *end = '\0';
    if (end > at && end[-1] == '\r')
        end[-1] = '\0';
    return next;
}

static enum pst_status read_csv(struct csv *c, char *text,
                                struct pstctl_tensors *ret,
                                struct pst_diag *diag)
{
    char *at = cut_line(text), *first = at;
    enum pst_status status;

    if (strncmp(text, BYTE_ORDER_MARK, strlen(BYTE_ORDER_MARK)) == 0)
        text += strlen(BYTE_ORDER_MARK);
    status = read_header(c, text, strlen(text), diag);

    for (char *p = first; *p != '\0'; p = strchr(p, '\n') + 1) {
        c->lines += *p != '\n' && *p != '\r';
        if (strchr(p, '\n') == NULL)
            break;
    }
    if (status == PST_OK && c->lines == 0)
        status = pst_diag_set(diag, PST_E_ASK_TEXT,
                              "%s: no sample after the line of names", c->path);
    if (status == PST_OK)
        status = make_tensors(c, ret, diag);
    for (int64_t row = 0; row < c->lines && status == PST_OK;) {
        char *line = at;

        at = cut_line(line);
        if (*line != '\0')
            status = read_line(c, line, row++, ret, diag);
    }
    return status;
}

enum pst_status pstctl_tensors_read_csv(const char *path,
                                        const pstctl_signature *s,
                                        struct pstctl_tensors *ret,
                                        struct pst_diag *diag)
{
    struct csv c = {.path = path, .s = s};
    char *text = NULL;
    size_t size = 0;
    enum pst_status status = pst_file_read(path, MAX_BYTES, &text, &size, diag);

    if (status != PST_OK)
        return status;
    status = strlen(text) == size
                 ? read_csv(&c, text, ret, diag)
                 : pst_diag_set(diag, PST_E_ASK_TEXT, "%s: a zero byte", path);
    pst_vec_fini(&c.columns);
    pst_free(text);
    return status;
}
