// SPDX-License-Identifier: Apache-2.0
#include "daemon/ctl/hosts/probe.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/ctl/hosts/remote.h"

#define ASK_S 15

/* Appends a shell command that checks a host, and prints the version of
 * `daemon` there. If the host lacks something, the command prints what, and
 * exits with code 3. */
static void add_question(const char *daemon, const char *plan,
                         const char *interface, struct pst_str *out)
{
    struct pst_str program = {0}, folder = {0}, model = {0}, network = {0};
    char *here = getcwd(NULL, 0);

    pstctl_remote_quote(daemon, &program);
    pstctl_remote_quote(here != NULL ? here : "/", &folder);
    pstctl_remote_quote(plan != NULL ? plan : ".", &model);
    if (interface != NULL)
        pstctl_remote_quote(interface, &network);
    pst_str_addf(
        out,
        "cd %s 2>/dev/null || { echo there is no folder %s; exit 3; }; "
        "command -v %s >/dev/null || { echo there is no %s; exit 3; }; "
        "test -r %s || { echo there is no %s; exit 3; }; "
        "exec %s --version %s",
        pst_str_text(&folder), pst_str_text(&folder), pst_str_text(&program),
        pst_str_text(&program), pst_str_text(&model), pst_str_text(&model),
        pst_str_text(&program), pst_str_text(&network));
    free(here); /* allocated by getcwd */
    pst_str_fini(&program);
    pst_str_fini(&folder);
    pst_str_fini(&model);
    pst_str_fini(&network);
}

/* Appends the last line of a host's output. */
static void add_last_line(const struct pst_str *said, struct pst_str *out)
{
    const char *text = pst_str_text(said);
    size_t n = strlen(text), begin;

    while (n > 0 && isspace((unsigned char)text[n - 1]))
        n--;
    for (begin = n; begin > 0 && text[begin - 1] != '\n';)
        begin--;
    pst_str_addn(out, text + begin, PST_MIN(n - begin, (size_t)200));
}

/* Appends the reasons why a host cannot run ranks; appends nothing if it can.
 * own: the version of penstockd on this host. */
static void add_reasons(const struct pstctl_remote *r,
                        const struct pst_str *own, struct pst_str *out)
{
    struct pst_str said = {0};

    add_last_line(&r->out, &said);
    if (r->late)
        pst_str_addf(out, "no answer in %d s", ASK_S);
    else if (r->code == 3)
        pst_str_add(out, pst_str_text(&said));
    else if (r->code != 0)
        pst_str_addf(out, "cannot be reached%s%s%s", said.len > 0 ? " (" : "",
                     pst_str_text(&said), said.len > 0 ? ")" : "");
    else if (strcmp(pst_str_text(&said), pst_str_text(own)) != 0)
        pst_str_addf(out, "has %s, here is %s", pst_str_text(&said),
                     pst_str_text(own));
    pst_str_fini(&said);
}

enum pst_status pstctl_hosts_ask(struct pstctl_hosts *h, const char *daemon,
                                 const char *plan, const char *interface,
                                 struct pst_diag *diag)
{
    struct pstctl_remote *at = pstctl_remote_new(h);
    struct pst_str command = {0}, own = {0}, bad = {0};
    unsigned n = 0;
    enum pst_status status;

    if (at == NULL)
        return pst_diag_nomem(diag, h->list.n * sizeof(*at));
    add_question(daemon, plan, interface, &command);
    status = command.failed
                 ? pst_diag_nomem(diag, sizeof(command))
                 : pstctl_remote_run(at, h->list.n, pst_str_text(&command),
                                     ASK_S, diag);
    if (status == PST_OK)
        add_last_line(&at[0].out, &own);
    for (size_t i = 0; status == PST_OK && i < h->list.n; i++) {
        struct pst_str why = {0};

        add_reasons(&at[i], &own, &why);
        h->list.at[i].away = why.len > 0;
        if (why.len > 0)
            pst_str_addf(&bad, "%s%s: %s", n++ > 0 ? "; " : "",
                         h->list.at[i].name, why.text);
        pst_str_fini(&why);
    }
    if (status == PST_OK && n > 0)
        status = pst_diag_set(diag, PST_E_HOSTS_UNUSABLE,
                              "%u of %zu hosts cannot be used: %s", n,
                              h->list.n, pst_str_text(&bad));
    pst_str_fini(&command);
    pst_str_fini(&own);
    pst_str_fini(&bad);
    pstctl_remote_free(at, h->list.n);
    return status;
}
