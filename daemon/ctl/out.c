// SPDX-License-Identifier: Apache-2.0
#include "daemon/ctl/out.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "daemon/common/setup.h"
#include "daemon/ctl/out_queue.h"

static void write_text(FILE *out, const char *text, size_t n, bool keep)
{
    if (!pstctl_queue_put(out, text, n, keep))
        (void)fwrite(text, 1, n, out); /* main checks the stream for errors */
}

static void write_shown(FILE *out, const char *text, size_t n)
{
    write_text(out, text, n, false);
}

void pstctl_flush(FILE *out)
{
    if (!pstctl_queue_is_on()) /* its thread flushes */
        (void)fflush(out);
}

void pstctl_printf(FILE *out, const char *fmt, ...)
{
    struct pst_str text = {.visible = 1};
    va_list ap;

    va_start(ap, fmt);
    pst_str_vaddf_visible(&text, fmt, ap);
    va_end(ap);
    write_shown(out, pst_str_text(&text), text.len);
    pst_str_fini(&text);
}

void pstctl_print(FILE *out, const struct pst_str *text)
{
    struct pst_str shown = {0};

    if (text->visible) {
        write_shown(out, pst_str_text(text), text->len);
        return;
    }
    pst_str_add_visible(&shown, pst_str_text(text));
    write_shown(out, pst_str_text(&shown), shown.len);
    pst_str_fini(&shown);
}

void pstctl_print_json(const char *text)
{
    struct pst_str out = {0};

    pst_str_add_json_shown(&out, text);
    write_text(stdout, pst_str_text(&out), out.len, true);
    pst_str_fini(&out);
}

/* Returns the number of bytes of the UTF-8 character that begins with this
 * byte. */
static size_t utf8_length(unsigned char first)
{
    return first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc2 ? 2 : 1;
}

static void flush_partial(struct pstctl_half *half)
{
    struct pst_str shown = {0};
    char text[5] = {0};

    memcpy(text, half->bytes, half->n);
    if (half->n == 1 && *text == '\n')
        pst_str_add(&shown, text);
    else
        pst_str_add_visible(&shown, text);
    write_shown(stdout, pst_str_text(&shown), shown.len);
    pst_str_fini(&shown);
    half->n = 0;
}

void pstctl_print_bytes(struct pstctl_half *half, const char *bytes, size_t n)
{
    if (!isatty(STDOUT_FILENO)) {
        write_shown(stdout, bytes, n);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)bytes[i];

        if (half->n > 0 && (c & 0xc0) != 0x80)
            flush_partial(half);
        if (c == '\0')
            continue; /* a NUL has no visible output */
        half->bytes[half->n++] = (char)c;
        if (half->n == utf8_length((unsigned char)half->bytes[0]))
            flush_partial(half);
    }
    if (n == 0)
        flush_partial(half);
}

json_t *pstctl_json_real(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

json_t *pstctl_json_text(const char *text)
{
    struct pst_str valid = {0};
    json_t *value;

    pst_str_add_utf8(&valid, text != NULL ? text : "");
    value = json_string(pst_str_text(&valid));
    pst_str_fini(&valid);
    return value;
}

enum pst_status pstctl_json_print(json_t *object, struct pst_diag *diag)
{
    char *text =
        object != NULL
            ? json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(17))
            : NULL;

    json_decref(object);
    if (text == NULL)
        return pst_diag_nomem(diag, 0);
    pstctl_print_json(text);
    write_text(stdout, "\n", 1, true);
    free(text);
    return PST_OK;
}

enum pst_status pstctl_check_output(const char *path, const char *also,
                                    struct pst_diag *diag)
{
    static const char *const others[] = {".json", ".csv", ".pt",  ".pth",
                                         ".bin",  ".npz", ".npy", ".txt"};
    const char *dot = path != NULL ? strrchr(path, '.') : NULL;

    for (size_t i = 0; dot != NULL && i < PST_COUNT(others); i++)
        if (strcasecmp(dot, others[i]) == 0 &&
            (also == NULL || strcmp(dot, also) != 0))
            return pst_diag_set(diag, PST_E_OPTION_VALUE,
                                "-o %s: no %s file is written; end the name in "
                                ".safetensors%s%s",
                                path, dot, also != NULL ? " or " : "",
                                also != NULL ? also : "");
    return PST_OK;
}

void pstctl_note_unused(const struct pstd_config *config)
{
    if (pstd_replicas(config) == 1 && strcmp(config->shard, "none") != 0)
        pstctl_printf(stderr,
                      "note: --shard %s is for several replicas (-n RxP); "
                      "there is one\n",
                      config->shard);
}
