// SPDX-License-Identifier: Apache-2.0
/*
 * Analyses the Python traceback of a node: the user's line, and whether that
 * line was in the forward of a torch.autograd.Function. The export keeps the
 * operators of that forward, but not the Function's own backward:
 *
 * - strict export runs the forward below torch/_functorch/autograd_function.py;
 * - non-strict export keeps only the frames of functions called "forward": one
 *   that calls `.apply(`, followed by that of the Function; or one whose text
 *   contains `forward(ctx`, if the Function was written on one line. If a
 *   function of another name calls `.apply`, only a forward that belongs to no
 *   module remains.
 */
#include "stages/base/str.h"
#include "stages/files/pt2/reader.h"

#include <stdlib.h>
#include <string.h>

/* A text in the traceback, not NUL-terminated. */
struct piece {
    const char *at;
    size_t n;
};

struct line {
    struct piece path, number, name, code;
    const char *next;
};

static bool contains_text(const struct piece *text, const char *part)
{
    return text->n > 0 && memmem(text->at, text->n, part, strlen(part)) != NULL;
}

static bool equals_text(const struct piece *text, const char *whole)
{
    return text->n == strlen(whole) && memcmp(text->at, whole, text->n) == 0;
}

static struct piece rest_of_line(const char *p)
{
    return (struct piece){p, strcspn(p, "\n")};
}

/* Parses the next frame from p on: `File "PATH", line N, in NAME`, followed by
 * its source. */
static bool take_line(const char *p, struct line *ret)
{
    static const char begin[] = "File \"", middle[] = "\", line ";

    while ((p = strstr(p, begin)) != NULL) {
        const char *end;

        p += sizeof(begin) - 1;
        end = strchr(p, '"');
        if (end == NULL)
            return false;
        if (strncmp(end, middle, sizeof(middle) - 1) != 0)
            continue;
        *ret = (struct line){.path = {p, (size_t)(end - p)}};
        p = end + sizeof(middle) - 1;
        ret->number = (struct piece){p, strspn(p, "0123456789")};
        p += ret->number.n;
        if (strncmp(p, ", in ", 5) == 0) {
            ret->name = rest_of_line(p + 5);
            p = ret->name.at + ret->name.n;
            ret->code = rest_of_line(p + (*p == '\n'));
        }
        ret->next = p;
        return true;
    }
    return false;
}

/* Files of torch.nn.modules that have a forward. */
static const char *const module_files[] = {
    "activation.py", "adaptive.py",      "batchnorm.py",    "channelshuffle.py",
    "container.py",  "conv.py",          "distance.py",     "dropout.py",
    "flatten.py",    "fold.py",          "instancenorm.py", "linear.py",
    "loss.py",       "normalization.py", "padding.py",      "pixelshuffle.py",
    "pooling.py",    "rnn.py",           "sparse.py",       "transformer.py",
    "upsampling.py",
};

/* True for a frame of PyTorch itself, which does not help a user. If paths were
 * cut to file names, those of torch.nn's modules count as PyTorch's. */
static bool is_library(const struct line *line)
{
    for (size_t i = 0; i < PST_COUNT(module_files); i++)
        if (equals_text(&line->path, module_files[i]))
            return true;
    return (line->path.n > 6 && strncmp(line->path.at, "torch/", 6) == 0) ||
           contains_text(&line->path, "/torch/");
}

/* True if the source line calls a forward by name, instead of defining one. */
static bool calls_forward(const struct piece *code)
{
    const char *p = code->at, *end;

    if (code->n == 0)
        return false;
    if (contains_text(code, "super("))
        return true;
    end = code->at + code->n;
    while ((p = memmem(p, (size_t)(end - p), "forward(", 8)) != NULL) {
        if (p - code->at < 4 || strncmp(p - 4, "def ", 4) != 0)
            return true;
        p += 8;
    }
    return false;
}

/* State while the lines of a traceback are read. */
struct reading {
    struct line last; /* innermost line of the user */
    bool any;
    struct pst_doc_trace *trace;
};

static void read_line(struct reading *r, const struct line *line,
                      const struct line *outer)
{
    struct pst_doc_trace *t = r->trace;
    const bool forward = equals_text(&line->name, "forward");

    if (contains_text(&line->path, "torch/_functorch/autograd_function.py") ||
        (forward && outer != NULL && contains_text(&outer->code, ".apply(")) ||
        (forward && contains_text(&line->code, "forward(ctx")))
        t->lost = true;
    if (!forward || contains_text(&line->path, "torch/_dynamo/") ||
        contains_text(&line->path, "<eval_with_key>"))
        t->others = true;
    if (forward && !is_library(line))
        t->forwards++;
    if (forward && outer != NULL && calls_forward(&outer->code) &&
        !is_library(line) && t->forwards > 0)
        /* not counted: it belongs to the module of its caller, or to none */
        t->forwards--;
    /* Generated code ("<eval_with_key>.5") belongs neither to the user nor to
     * PyTorch. */
    if (line->path.at[0] != '<' && (!r->any || !is_library(line))) {
        r->last = *line;
        r->any = true;
    }
}

/* Returns "file.py:12" for a line. */
static enum pst_status read_source(struct pst_reader *r,
                                   const struct line *line, const char **ret)
{
    struct piece path = line->path;
    char text[512];

    for (size_t i = path.n; i-- > 0;)
        if (path.at[i] == '/' || path.at[i] == '\\') {
            path.at += i + 1;
            path.n -= i + 1;
            break;
        }
    (void)pst_format(text, sizeof(text), "%.*s:%.*s",
                     (int)PST_MIN(path.n, (size_t)480), path.at,
                     (int)PST_MIN(line->number.n, (size_t)9), line->number.at);
    return pst_read_text(r, text, ret);
}

static enum pst_status parse_trace(struct pst_reader *r, const char *text,
                                   struct pst_doc_trace *ret)
{
    struct reading reading = {.trace = ret};
    struct line line, outer;
    const char *p = text;
    bool first = true;

    ret->source = "";
    while (take_line(p, &line)) {
        read_line(&reading, &line, first ? NULL : &outer);
        outer = line;
        first = false;
        p = line.next;
    }
    return reading.any ? read_source(r, &reading.last, &ret->source) : PST_OK;
}

enum pst_status pst_read_trace(struct pst_reader *r, const char *text,
                               const struct pst_doc_trace **ret)
{
    struct pst_doc_trace *trace = pst_map_get(&r->traces, text);
    enum pst_status status = PST_OK;

    if (trace == NULL) {
        status = pst_reader_alloc(r, 1, sizeof(*trace), &trace);
        if (status == PST_OK)
            status = parse_trace(r, text, trace);
        if (status == PST_OK && !pst_map_put(&r->traces, text, trace))
            status = pst_diag_nomem(r->diag, strlen(text));
    }
    if (status == PST_OK)
        *ret = trace;
    return status;
}
