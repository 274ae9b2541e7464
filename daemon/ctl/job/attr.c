// SPDX-License-Identifier: Apache-2.0
/* `penstock attr`: reads and changes tensors of a running job's state. */
#include "daemon/ctl/ctl.h"
#include "daemon/ctl/job/follow.h"
#include "daemon/ctl/job/wait.h"
#include "daemon/ctl/print.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "stages/base/plural.h"
#include "stages/base/str.h"

struct attr_query {
    const struct pstd_config *config;
    struct pstctl_conn conn;
    json_t *tensors; /* the reported tensors, for --json; else NULL */
    struct pst_diag *diag;
};

/* --- events --------------------------------------------------------------- */

static void add_numbers(const pstctl_event *e, struct pst_str *out)
{
    const double mean = pstctl_number(e, "mean");
    const long long nans = (long long)pstctl_integer(e, "nans");

    if (!isnan(mean))
        pst_str_addf(out, "min %.6g, max %.6g, mean %.6g",
                     pstctl_number(e, "min"), pstctl_number(e, "max"), mean);
    if (nans > 0)
        pst_str_addf(out, "%s%lld NaN", isnan(mean) ? "" : ", ", nans);
}

static bool has_text(const char *text)
{
    return text != NULL && text[0] != '\0';
}

/* Prints "n.w: parameter f32[4], stages 0,1 on ranks 0,1, trained: 1 2 3 4". */
static void print_tensor(const pstctl_event *e)
{
    const char *names = pstctl_text(e, "names");
    const char *values = pstctl_text(e, "values");
    const char *stages = pstctl_text(e, "stages");
    const char *kept = pstctl_text(e, "kept");
    struct pst_str line = {0};

    pst_str_addf(&line, "%s", pstctl_text(e, "name"));
    if (has_text(names))
        pst_str_addf(&line, " (%s)", names);
    pst_str_addf(&line, ": %s %s%s, ", pstctl_text(e, "kind"),
                 pstctl_text(e, "dtype"), pstctl_text(e, "shape"));
    if (has_text(kept))
        pst_str_addf(&line, "kept as %s, ", kept);
    if (has_text(stages))
        pst_str_addf(&line, "stages %s on ranks %s, ", stages,
                     pstctl_text(e, "ranks"));
    else
        pst_str_add(&line, "not used, ");
    pst_str_add(&line, pstctl_integer(e, "requires_grad") ? "trained: "
                                                          : "not trained: ");
    if (has_text(values))
        pst_str_add(&line, values);
    else
        add_numbers(e, &line);
    pstctl_printf(stdout, "%s\n", pst_str_text(&line));
    pst_str_fini(&line);
}

static enum pst_status report_tensor(struct attr_query *a,
                                     const pstctl_event *e)
{
    if (!a->config->json)
        print_tensor(e);
    else if (json_array_append_new(a->tensors, pstctl_event_json(e)) != 0)
        return pst_diag_nomem(a->diag, 0);
    return PST_OK;
}

static enum pst_status print_json(struct attr_query *a, const pstctl_event *e)
{
    json_t *object = pstctl_event_json(e);

    if (object != NULL && strcmp(e->name, "attr_got") == 0)
        (void)json_object_set(object, "attrs", a->tensors);
    return pstctl_json_print(object, a->diag);
}

static void show_cast(const pstctl_event *e)
{
    const long long skipped = (long long)pstctl_integer(e, "skipped");
    const long long tensors = (long long)pstctl_integer(e, "tensors");
    struct pst_str text = {0};

    pst_str_addf(&text, "%lld tensor%s cast after step %lld", tensors,
                 pst_plural((uint64_t)tensors),
                 (long long)pstctl_integer(e, "step"));
    if (skipped > 0)
        pst_str_addf(&text,
                     ", %lld skipped (not floating-point, or written by "
                     "steps)",
                     skipped);
    pst_str_addf(&text, ", %lld operands converted back, %.2f s",
                 (long long)pstctl_integer(e, "converted"),
                 pstctl_number(e, "seconds"));
    pstctl_printf(stdout, "%s\n", pst_str_text(&text));
    pst_str_fini(&text);
}

static enum pst_status report_outcome(struct attr_query *a,
                                      const pstctl_event *e)
{
    const char *nans = pstctl_text(e, "nans"), *path = pstctl_text(e, "path");
    const long long n = (long long)pstctl_integer(e, "tensors");
    const long long step = (long long)pstctl_integer(e, "step");
    const double seconds = pstctl_number(e, "seconds");

    if (pstctl_is_lost(e, a->diag))
        return a->diag->status;
    if (strcmp(e->name, "attr_refused") == 0)
        return pstctl_refused_status(e, a->diag);
    if (has_text(nans))
        pstctl_printf(stderr,
                      "warning: there is a NaN or an infinity in the values of "
                      "%s\n",
                      nans);
    pstctl_warn_changed(e);
    if (a->config->json)
        return print_json(a, e);
    if (strcmp(e->name, "attr_set") == 0)
        pstctl_printf(stdout, "%lld tensor%s set after step %lld, %.2f s\n", n,
                      pst_plural((uint64_t)n), step, seconds);
    else if (strcmp(e->name, "attr_cast") == 0)
        show_cast(e);
    else if (has_text(path))
        pstctl_printf(stdout, "%lld tensor%s of step %lld written to %s\n", n,
                      pst_plural((uint64_t)n), step, path);
    return PST_OK;
}

/* Prints or collects the event of a tensor; handles events that end the
 * request. *ret_done: this was the last event of the request. */
static enum pst_status handle_event(struct attr_query *a, const pstctl_event *e,
                                    bool *ret_done)
{
    static const char *const ends[] = {"attr_got",     "attr_set",  "attr_cast",
                                       "attr_refused", "train_end", "start"};

    if (strcmp(e->name, "attr") == 0)
        return report_tensor(a, e);
    for (size_t i = 0; i < PST_COUNT(ends); i++)
        *ret_done = *ret_done || strcmp(e->name, ends[i]) == 0;
    return *ret_done ? report_outcome(a, e) : PST_OK;
}

static enum pst_status follow_events(struct attr_query *a, uint64_t from)
{
    struct pstctl_follow f;
    enum pst_status status =
        pstctl_follow_init(&f, &a->conn, a->conn.path, from, a->diag);
    bool done = false;

    while (status == PST_OK && !done) {
        pstd_frame *frame = NULL;

        status = pstctl_follow_next(&f, -1, &frame, a->diag);
        if (status == PST_OK && f.missed > 0)
            status = pst_diag_set(
                a->diag, PST_E_JOB_MISSED,
                "this client missed the result; see `penstock log`");
        else if (status == PST_OK &&
                 frame->body_case == PST__CONTROL__FRAME__BODY_EVENT)
            status = handle_event(a, frame->event, &done);
        pstd_frame_free(frame);
    }
    a->conn = f.conn;
    f.conn = (struct pstctl_conn){.fd = -1};
    pstctl_follow_fini(&f);
    return status;
}

/* --- the request ---------------------------------------------------------- */

static enum pst_status send_attr(struct attr_query *a, Pst__Control__Attr *attr)
{
    pstctl_request request = PST__CONTROL__REQUEST__INIT;
    pstd_frame *reply = NULL;
    enum pst_status status;
    uint64_t from = 0;

    request.body_case = PST__CONTROL__REQUEST__BODY_ATTR;
    request.attr = attr;
    status = pstctl_call(&a->conn, &request, &reply, a->diag);
    if (status == PST_OK &&
        reply->reply->body_case != PST__CONTROL__REPLY__BODY_ACCEPTED)
        status = pstctl_refuse_answer(a->diag);
    if (status == PST_OK)
        from = reply->reply->accepted->seq + 1;
    pstd_frame_free(reply);
    return status == PST_OK ? follow_events(a, from) : status;
}

/* Makes the path absolute, since it is relative to the client's directory even
 * if a rank writes the file. */
static enum pst_status make_absolute(const char *path, struct pst_str *ret,
                                     struct pst_diag *diag)
{
    char *here = path[0] == '/' ? NULL : getcwd(NULL, 0);

    if (path[0] != '/' && here == NULL)
        return pst_diag_errno(diag, errno, "the folder of %s", path);
    pst_str_addf(ret, "%s%s%s", here != NULL ? here : "",
                 here != NULL ? "/" : "", path);
    free(here);
    return ret->failed ? pst_diag_nomem(diag, strlen(path)) : PST_OK;
}

/* True if the text is a number, even one that is too large for any dtype. */
static bool is_number(const char *text)
{
    char *end;
    double x;

    if (isdigit((unsigned char)text[*text == '-' || *text == '+'])) {
        (void)strtod(text, &end);
        return *end == '\0';
    }
    return strcmp(text, "true") == 0 || strcmp(text, "false") == 0 ||
           pst_parse_f64(text, &x);
}

/* Reads the argument VALUE: a number or a file. *ret_path: the file's absolute
 * path, allocated by malloc; unset for a number. */
static enum pst_status read_value(const char *text, Pst__Control__Attr *attr,
                                  char **ret_path, struct pst_diag *diag)
{
    if (is_number(text)) {
        attr->value = (char *)text;
        return PST_OK;
    }
    *ret_path = attr->path = realpath(text, NULL);
    if (attr->path != NULL)
        return PST_OK;
    return pst_diag_errno(diag, errno, "%s, which is not a number", text);
}

/* Forms of the command. args: number of arguments after the verb. */
static const struct verb {
    const char *name;
    Pst__Control__Attr__Verb verb;
    unsigned args;
} verbs[] = {
    {"get", PST__CONTROL__ATTR__VERB__GET, 2},
    {"set", PST__CONTROL__ATTR__VERB__SET, 3},
    {"cast", PST__CONTROL__ATTR__VERB__CAST, 3},
};

static enum pst_status read_verb(const struct pstd_config *config,
                                 const struct verb **ret, struct pst_diag *diag)
{
    const struct verb *v = NULL;

    for (size_t i = 0; i < PST_COUNT(verbs); i++)
        if (strcmp(verbs[i].name, config->args[0]) == 0)
            v = &verbs[i];
    if (v == NULL || config->n_args != v->args)
        return pst_diag_set(diag, PST_E_COMMAND_ARGUMENTS,
                            "expected attr get NAME, attr set NAME NUMBER|FILE "
                            "or attr cast NAME DTYPE");
    if (v->verb != PST__CONTROL__ATTR__VERB__GET && PSTD_GIVEN(config, output))
        return pst_diag_set(diag, PST_E_COMMAND_ARGUMENTS, "-o is of attr get");
    if (v->verb != PST__CONTROL__ATTR__VERB__SET && PSTD_GIVEN(config, state))
        return pst_diag_set(diag, PST_E_COMMAND_ARGUMENTS,
                            "--state is of attr set");
    if (strcmp(config->state, "reset") != 0 &&
        strcmp(config->state, "keep") != 0)
        return pst_diag_set(diag, PST_E_COMMAND_ARGUMENTS,
                            "--state: \"%.200s\" is none of reset|keep",
                            config->state);
    *ret = v;
    return PST_OK;
}

static enum pst_status ask_job(const struct pstd_config *config,
                               Pst__Control__Attr *attr, struct pst_diag *diag)
{
    struct attr_query a = {
        .config = config, .tensors = json_array(), .diag = diag};
    enum pst_status status = a.tensors != NULL
                                 ? pstctl_connect(config, &a.conn, diag)
                                 : pst_diag_nomem(diag, 0);

    if (status == PST_OK) {
        status = send_attr(&a, attr);
        pstctl_close(&a.conn);
    }
    json_decref(a.tensors);
    return status;
}

static enum pst_status run_attr(const struct pstd_config *config,
                                struct pst_diag *diag)
{
    Pst__Control__Attr attr = PST__CONTROL__ATTR__INIT;
    const struct verb *v = NULL;
    struct pst_str output = {0};
    char *path = NULL;
    enum pst_status status = read_verb(config, &v, diag);

    if (status != PST_OK)
        return status;
    attr.verb = v->verb;
    attr.name = (char *)config->args[1];
    attr.reset =
        PSTD_GIVEN(config, state) && strcmp(config->state, "reset") == 0;
    if (v->verb == PST__CONTROL__ATTR__VERB__CAST)
        attr.value = (char *)config->args[2];
    if (v->verb == PST__CONTROL__ATTR__VERB__SET)
        status = read_value(config->args[2], &attr, &path, diag);
    if (status == PST_OK && PSTD_GIVEN(config, output)) {
        status = pstctl_check_output(config->output, NULL, diag);
        if (status == PST_OK)
            status = make_absolute(config->output, &output, diag);
        attr.path = output.text;
    }
    if (status == PST_OK)
        status = ask_job(config, &attr, diag);
    pst_str_fini(&output);
    free(path);
    return status;
}

static const struct pstd_option_help attr_options[] = {
    {"output", "get: file to write the tensors to (.safetensors)", NULL, NULL},
    {"state", "set: optimizer state of the parameters, reset or keep", "WHAT",
     "keep"},
    {NULL, NULL, NULL, NULL},
};

const struct pstctl_command pstctl_attr = {
    "attr",
    "get|set|cast NAME [NUMBER|FILE.safetensors|DTYPE]",
    2,
    3,
    PSTD_OPT_CONNECT | PSTD_OPT_JSON | PSTD_OPT_ATTR,
    "read, set or cast parameters and buffers of a running job",
    "get describes the tensor NAME, or all tensors of the module NAME; with -o "
    "it\n"
    "writes them to a file. set gives them new values: one number for all "
    "elements,\n"
    "or those in a file under the same names. cast changes their dtype to f32, "
    "bf16,\n"
    "f16 or f64. NAME is any of a tensor's names. Either all ranks make the "
    "change\n"
    "after the same step, or none does.",
    run_attr,
    false,
    attr_options};
