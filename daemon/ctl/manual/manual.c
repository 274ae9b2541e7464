// SPDX-License-Identifier: Apache-2.0
/* `penstock manual` and `penstock completion`: man pages and completions,
 * generated from the tables of commands and options so that they always
 * agree. */
#include "daemon/ctl/ctl.h"
#include "daemon/ctl/out.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define OF_PENSTOCKD                                                           \
    (PSTD_OPT_TRAIN | PSTD_OPT_RANKS | PSTD_OPT_DAEMON | PSTD_OPT_CONNECT)

static void print_lines(const char *text)
{
    while (*text != '\0') {
        const size_t n = strcspn(text, "\n");

        pstctl_printf(stdout, "%.*s\n", (int)n, text);
        text += n + (text[n] == '\n');
    }
}

/* --- pages ---------------------------------------------------------------- */

/* Escapes text for roff. */
static void add_roff(struct pst_str *out, const char *text)
{
    bool begins = true;

    for (; *text != '\0'; text++) {
        if (begins && (*text == '.' || *text == '\''))
            pst_str_add(out, "\\&");
        if (*text == '\\')
            pst_str_add(out, "\\e");
        else if (*text == '-')
            pst_str_add(out, "\\-");
        else
            pst_str_addn(out, text, 1);
        begins = *text == '\n';
    }
}

static void add_head(struct pst_str *out, const char *name, const char *summary,
                     const char *words)
{
    pst_str_add(out, ".TH ");
    for (const char *at = name; *at != '\0'; at++) {
        const char upper = (char)toupper((unsigned char)*at);

        pst_str_addn(out, &upper, 1);
    }
    pst_str_add(out, " 1 \"\" \"penstock " PST_VERSION "\"\n.SH NAME\n");
    add_roff(out, name);
    pst_str_add(out, " \\- ");
    add_roff(out, summary);
    pst_str_add(out, "\n.SH SYNOPSIS\n.B ");
    add_roff(out, words);
    pst_str_add(out, "\n");
}

struct page {
    struct pst_str *out;
    const struct pstd_option_help *own;
};

static void add_option(void *ctx, const struct pstd_option *row,
                       const char *title)
{
    const struct page *page = ctx;
    const struct pstd_option_help h = pstd_option_help(row, page->own);
    struct pst_str *out = page->out;

    if (title != NULL)
        pst_str_addf(out, ".SS %s\n", title);
    pst_str_add(out, ".TP\n");
    if (row->letter != 0)
        pst_str_addf(out, "\\fB\\-%c\\fR, ", row->letter);
    pst_str_add(out, "\\fB\\-\\-");
    add_roff(out, row->name);
    pst_str_add(out, "\\fR");
    if (h.value != NULL) {
        pst_str_add(out, row->type == PSTD_FROM ? "[=\\fI" : " \\fI");
        add_roff(out, h.value);
        pst_str_add(out, row->type == PSTD_FROM ? "\\fR]" : "\\fR");
    }
    pst_str_add(out, "\n");
    add_roff(out, h.help);
    if (h.start != NULL) {
        pst_str_add(out, " [");
        add_roff(out, h.start);
        pst_str_add(out, "]");
    }
    pst_str_add(out, "\n");
}

static void add_options(struct pst_str *out, uint64_t groups,
                        const struct pstd_option_help *own)
{
    struct page page = {out, own};

    pst_str_add(out, ".SH OPTIONS\n");
    pstd_options_visit(groups, add_option, &page);
    pst_str_add(out, ".SH ENVIRONMENT\nEach option is also a variable: "
                     "\\-\\-log\\-dir is PENSTOCK_LOG_DIR, unless the command "
                     "line has it, too.\n");
}

static void add_end(struct pst_str *out, const char *also)
{
    pst_str_add(out,
                ".SH EXIT STATUS\n0 done, 1 failed, 2 there is a difference, "
                "64 usage, 65 bad input, 69 no daemon, 74 input or output, 75 "
                "try again, 77 not permitted, 78 configuration, 130 "
                "interrupted.\n.SH SEE ALSO\n");
    add_roff(out, also);
    pst_str_add(out, "\n");
}

static void add_command(struct pst_str *out, const struct pstctl_command *c)
{
    struct pst_str name = {0}, words = {0};

    pst_str_addf(&name, "penstock-%s", c->name);
    pst_str_addf(&words, "penstock %s %s%s[options]", c->name, c->args,
                 *c->args != '\0' ? " " : "");
    add_head(out, pst_str_text(&name), c->summary, pst_str_text(&words));
    if (c->help != NULL) {
        pst_str_add(out, ".SH DESCRIPTION\n");
        add_roff(out, c->help);
        pst_str_add(out, "\n");
    }
    add_options(out, c->groups, c->options);
    add_end(out, "penstock(1), penstockd(1)");
    pst_str_fini(&name);
    pst_str_fini(&words);
}

static void add_all(struct pst_str *out)
{
    size_t n;
    const struct pstctl_command *const *all = pstctl_commands(&n);

    add_head(out, "penstock", "trains and serves models as pipelines of stages",
             "penstock COMMAND [options]");
    pst_str_add(out, ".SH COMMANDS\n");
    for (size_t i = 0; i < n; i++) {
        pst_str_add(out, ".TP\n\\fB");
        add_roff(out, all[i]->name);
        pst_str_add(out, "\\fR\n");
        add_roff(out, all[i]->summary);
        pst_str_add(out, "\n");
    }
    add_end(out, "penstock-run(1) and a page of each other command, "
                 "penstockd(1)");
}

static void add_penstockd(struct pst_str *out)
{
    add_head(out, "penstockd", "one rank of a job, or all of them",
             "penstockd PLAN [options]");
    pst_str_add(out,
                ".SH DESCRIPTION\nStarted by `penstock run', or by hand with "
                "mpirun; runs come from the control socket.\n");
    add_options(out, OF_PENSTOCKD, NULL);
    add_end(out, "penstock(1), penstock-run(1), penstock-train(1)");
}

static enum pst_status run_manual(const struct pstd_config *config,
                                  struct pst_diag *diag)
{
    const char *name = config->n_args > 0 ? config->args[0] : NULL;
    const struct pstctl_command *command = NULL;
    struct pst_str page = {0};
    size_t n;
    const struct pstctl_command *const *all = pstctl_commands(&n);
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < n && name != NULL; i++)
        if (strcmp(all[i]->name, name) == 0)
            command = all[i];
    if (command != NULL)
        add_command(&page, command);
    else if (name == NULL)
        add_all(&page);
    else if (strcmp(name, "penstockd") == 0)
        add_penstockd(&page);
    else
        status = pst_diag_set(diag, PST_E_COMMAND_UNKNOWN,
                              "there is no command \"%s\"; see penstock --help",
                              name);
    if (status == PST_OK && page.failed)
        status = pst_diag_nomem(diag, page.len);
    if (status == PST_OK)
        print_lines(pst_str_text(&page));
    pst_str_fini(&page);
    return status;
}

/* --- words ---------------------------------------------------------------- */

static void add_names(struct pst_str *out, uint64_t groups)
{
    size_t n;
    const struct pstd_option *rows = pstd_options(&n);

    for (size_t i = 0; i < n; i++)
        if (rows[i].groups & (groups | PSTD_OPT_ALL))
            pst_str_addf(out, " --%s", rows[i].name);
}

/* Adds what completes the values of options of this type: words, files, or
 * nothing. An option has the same meaning in all commands. */
static void add_values(struct pst_str *out, enum pstd_option_type type)
{
    size_t n;
    const struct pstd_option *rows = pstd_options(&n);
    bool any = false;

    for (size_t i = 0; i < n; i++) {
        if (rows[i].type != type)
            continue;
        if (type == PSTD_CHOICE) {
            pst_str_addf(out, "    --%s) words=\"", rows[i].name);
            for (const char *at = rows[i].value; *at != '\0'; at++) {
                pst_str_addn(out, *at == '|' ? " " : at, 1);
                if (*at == ':') /* after a colon any text may follow */
                    at += strcspn(at, "|") - 1;
            }
            pst_str_add(out, "\" ;;\n");
            continue;
        }
        pst_str_addf(out, "%s--%s", any ? "|" : "    ", rows[i].name);
        any = true;
    }
    if (any)
        pst_str_add(out, type == PSTD_PATH || type == PSTD_PATHS ||
                                 type == PSTD_FILES || type == PSTD_SETS
                             ? ") files=1 ;;\n"
                             : ") return ;;\n");
}

/* Shell function that lists jobs whose rank 0 listens on a socket of this host:
 * a killed job leaves its folder, and often its socket. It prints only names
 * that a job can have: a folder in /tmp may be another user's, and compgen runs
 * commands that a word contains. */
static const char jobs[] =
    "_penstock_jobs() {\n"
    "  local dir=/tmp/penstock-$EUID path bound\n"
    "  [[ $XDG_RUNTIME_DIR == /* && -w $XDG_RUNTIME_DIR ]] &&\n"
    "    dir=$XDG_RUNTIME_DIR/penstock\n"
    "  [[ -O $dir ]] || return\n"
    "  bound=$(cat /proc/net/unix 2>/dev/null)\n"
    "  for path in \"$dir\"/*/rank0.sock; do\n"
    "    [[ -S $path && $bound == *\" $path\"* ]] || continue\n"
    "    path=${path%/*}\n"
    "    [[ ${path##*/} == *[^[:alnum:]._-]* ]] && continue\n"
    "    echo \"${path##*/}\"\n"
    "  done\n"
    "}\n";

static enum pst_status run_completion(const struct pstd_config *config,
                                      struct pst_diag *diag)
{
    struct pst_str out = {0};
    size_t n;
    const struct pstctl_command *const *all = pstctl_commands(&n);

    (void)config;
    pst_str_add(&out, "# bash completion of penstock, made by `penstock "
                      "completion`\n");
    pst_str_add(&out, jobs);
    pst_str_add(&out,
                "_penstock() {\n"
                "  local cur=${COMP_WORDS[COMP_CWORD]} words= files=\n"
                "  local prev=${COMP_WORDS[COMP_CWORD-1]}\n"
                "  COMPREPLY=()\n"
                "  [[ $cur == = ]] && cur=\n"
                "  [[ $prev == = ]] && prev=${COMP_WORDS[COMP_CWORD-2]}\n"
                "  if ((COMP_CWORD == 1)); then\n    words=\"--help --version");
    for (size_t i = 0; i < n; i++)
        pst_str_addf(&out, " %s", all[i]->name);
    pst_str_add(&out,
                "\"\n    COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
                "    return\n  fi\n  case $prev in\n"
                "    --job) words=$(_penstock_jobs) ;;\n");
    add_values(&out, PSTD_CHOICE);
    add_values(&out, PSTD_PATH);
    add_values(&out, PSTD_PATHS);
    add_values(&out, PSTD_FILES);
    add_values(&out, PSTD_SETS);
    add_values(&out, PSTD_UINT);
    add_values(&out, PSTD_REAL);
    add_values(&out, PSTD_MIB);
    add_values(&out, PSTD_TEXT);
    add_values(&out, PSTD_SOURCE);
    add_values(&out, PSTD_RULES);
    add_values(&out, PSTD_POINTS);
    add_values(&out, PSTD_LIST);
    add_values(&out, PSTD_GRID);
    add_values(&out, PSTD_RAMP);
    add_values(&out, PSTD_EVERY);
    pst_str_add(&out, "    *)\n      if [[ $cur != -* ]]; then files=1; else\n"
                      "        case ${COMP_WORDS[1]} in\n");
    for (size_t i = 0; i < n; i++) {
        pst_str_addf(&out, "          %s) words=\"", all[i]->name);
        add_names(&out, all[i]->groups);
        pst_str_add(&out, "\" ;;\n");
    }
    pst_str_add(&out,
                "        esac\n      fi ;;\n  esac\n"
                "  if [[ $files ]]; then\n"
                "    COMPREPLY=($(compgen -f -- \"$cur\"))\n  else\n"
                "    COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n  fi\n"
                "}\ncomplete -o filenames -F _penstock penstock\n");
    if (out.failed) {
        pst_str_fini(&out);
        return pst_diag_nomem(diag, 0);
    }
    print_lines(pst_str_text(&out));
    pst_str_fini(&out);
    return PST_OK;
}

const struct pstctl_command pstctl_manual = {
    "manual",
    "[COMMAND|penstockd]",
    0,
    1,
    0,
    "write a man page of a command, of penstockd, or of all commands",
    "`penstock manual run | man -l -` shows the page of `run`. Pages are made "
    "from\n"
    "the same tables as --help.",
    run_manual};
const struct pstctl_command pstctl_completion = {
    "completion",
    "",
    0,
    0,
    0,
    "write a bash script that completes commands and options",
    "Use it with: source <(penstock completion)",
    run_completion};
