// SPDX-License-Identifier: Apache-2.0
/* `penstock top`: shows the state of a job, updated once a second. */
#include "daemon/ctl/ctl.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "daemon/ctl/print.h"
#include "daemon/ctl/top/query.h"
#include "stages/base/alloc.h"
#include "stages/base/host/alive.h"

static volatile sig_atomic_t interrupted;

static void on_signal(int number)
{
    (void)number;
    interrupted = 1;
}

/* True if the locale's encoding is UTF-8, by the variables that setlocale
 * reads. */
static bool is_utf8(void)
{
    const char *name = pstctl_environment("LC_ALL");

    if (name == NULL)
        name = pstctl_environment("LC_CTYPE");
    if (name == NULL)
        name = pstctl_environment("LANG");
    return name != NULL && (strcasestr(name, "utf-8") != NULL ||
                            strcasestr(name, "utf8") != NULL);
}

static unsigned get_number(const char *name, unsigned otherwise)
{
    const char *text = pstctl_environment(name);
    const long n = text != NULL ? strtol(text, NULL, 10) : 0;

    return n >= 10 && n <= 10000 ? (unsigned)n : otherwise;
}

static struct pstctl_top_screen query_screen(bool live)
{
    struct winsize size = {0};
    const bool known = live && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 &&
                       size.ws_col >= 10 && size.ws_row >= 3;

    return (struct pstctl_top_screen){
        .columns = known ? size.ws_col : get_number("COLUMNS", 80),
        /* one row less: the cursor stays below the last line */
        .rows = known ? size.ws_row - 1u : get_number("LINES", 40),
        .utf8 = is_utf8(),
    };
}

static json_t *rank_json(const struct pstctl_top_rank *r, unsigned number)
{
    return json_pack(
        "{s:i s:b s:s s:o s:o s:o s:o s:o s:o s:o}", "rank", (int)number,
        "there", (int)r->answers, "stages", r->stages, "step_s",
        pstctl_json_real(r->step), "forward_s", pstctl_json_real(r->forward),
        "backward_s", pstctl_json_real(r->backward), "optim_s",
        pstctl_json_real(r->optim), "wait_recv_s", pstctl_json_real(r->recv),
        "wait_other_s", pstctl_json_real(r->other), "rss_bytes",
        pstctl_json_real(r->rss));
}

static enum pst_status print_json(const struct pstctl_top_view *v,
                                  struct pst_diag *diag)
{
    json_t *ranks = json_array();

    for (unsigned i = 0; i < v->ranks && i < PSTCTL_TOP_RANKS; i++)
        (void)json_array_append_new(ranks, rank_json(&v->rank[i], i));
    return pstctl_json_print(
        json_pack(
            "{s:o s:s s:I s:I s:o s:o s:o s:o s:o s:o}", "job",
            pstctl_json_text(v->job), "state", v->answers ? v->state : "gone",
            "step", (json_int_t)v->step, "steps", (json_int_t)v->steps, "loss",
            pstctl_json_real(v->loss), "step_s", pstctl_json_real(v->step_s),
            "tok_s", pstctl_json_real(v->tok_s), "bubble",
            pstctl_json_real(v->bubble), "eta_s", pstctl_json_real(v->eta),
            "ranks", ranks),
        diag);
}

static void print_line(enum pstctl_top_colour colour, const char *line)
{
    (void)colour;
    pstctl_printf(stdout, "%s\n", line);
}

static void print_cleared(enum pstctl_top_colour colour, const char *line)
{
    (void)colour;
    pstctl_printf(stdout, "%s\033[K\n", line);
}

static void print_coloured(enum pstctl_top_colour colour, const char *line)
{
    switch (colour) {
    case PSTCTL_TOP_HEAD:
        pstctl_printf(stdout, "\033[1m%s\033[0m\033[K\n", line);
        break;
    case PSTCTL_TOP_GOOD:
        pstctl_printf(stdout, "\033[32m%s\033[0m\033[K\n", line);
        break;
    case PSTCTL_TOP_WARN:
        pstctl_printf(stdout, "\033[33m%s\033[0m\033[K\n", line);
        break;
    case PSTCTL_TOP_BAD:
        pstctl_printf(stdout, "\033[31m%s\033[0m\033[K\n", line);
        break;
    case PSTCTL_TOP_PLAIN:
        print_cleared(colour, line);
        break;
    }
}

/* Prints the page from the top of the screen, and clears the rest of the
 * previous page. */
static void print_page(const struct pstctl_top_view *view, bool live)
{
    const struct pstctl_top_screen screen = query_screen(live);

    if (live)
        pstctl_printf(stdout, "\033[H");
    pstctl_top_draw(view, &screen,
                    !live                                    ? print_line
                    : pstctl_environment("NO_COLOR") == NULL ? print_coloured
                                                             : print_cleared);
    if (live)
        pstctl_printf(stdout, "\033[J");
    (void)fflush(stdout);
}

/* Makes the terminal deliver each key at once, without echo. *ret: its former
 * settings. False: standard input is no terminal. */
static bool begin_keys(struct termios *ret)
{
    struct termios now;

    if (!isatty(STDIN_FILENO) || tcgetattr(STDIN_FILENO, ret) != 0)
        return false;
    now = *ret;
    now.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    return tcsetattr(STDIN_FILENO, TCSANOW, &now) == 0;
}

/* Waits until the time `until` or for a key. True: the user wants to quit. */
static bool wait_for_key(double until, bool keys)
{
    struct pollfd in = {.fd = keys ? STDIN_FILENO : -1, .events = POLLIN};
    const double left = until - pst_now();
    char key = 0;

    if (poll(&in, 1, left > 0 ? (int)(1e3 * left) + 1 : 0) > 0 &&
        read(STDIN_FILENO, &key, 1) <= 0)
        return true;
    return key == 'q' || key == 'Q';
}

static void update_until_quit(struct pstctl_ask *ask,
                              struct pstctl_top_view *view)
{
    const struct sigaction action = {.sa_handler = on_signal};
    struct termios before;
    const bool keys = begin_keys(&before);
    double next = pst_now();

    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
    pstctl_printf(stdout, "\033[?1049h\033[?25l\033[2J");
    do {
        pstctl_ask_all(ask, view);
        print_page(view, true);
        next = PST_MAX(next + 1, pst_now());
    } while (!interrupted && !ferror(stdout) && !wait_for_key(next, keys) &&
             !interrupted);
    pstctl_printf(stdout, "\033[?25h\033[?1049l");
    (void)fflush(stdout);
    if (keys)
        (void)tcsetattr(STDIN_FILENO, TCSANOW, &before);
}

static enum pst_status run_top(const struct pstd_config *config,
                               struct pst_diag *diag)
{
    struct pstctl_top_view *view = pst_calloc(PST_TAG_CLIENT, 1, sizeof(*view));
    struct pstctl_ask *ask = NULL;
    enum pst_status status = view == NULL ? pst_diag_nomem(diag, sizeof(*view))
                                          : pstctl_ask_new(config, &ask, diag);

    if (status == PST_OK) {
        pstctl_top_init(view);
        pstctl_ask_all(ask, view);
    }
    if (status == PST_OK && !view->answers)
        status = pst_diag_set(diag, PST_E_JOB_NONE, "%s", view->why);
    if (status == PST_OK && config->json)
        status = print_json(view, diag);
    else if (status == PST_OK && pstctl_is_live(stdout))
        update_until_quit(ask, view);
    else if (status == PST_OK)
        print_page(view, false);
    pstctl_ask_free(ask);
    pst_free(view);
    return status;
}

const struct pstctl_command pstctl_top = {
    "top",
    "",
    0,
    0,
    PSTD_OPT_CONNECT | PSTD_OPT_JSON,
    "show what a job is doing, once a second, until q is pressed",
    "Shows the ranks with their stages, how they spend a step (busy, waiting "
    "for a\n"
    "message, waiting for something else) and their memory, the loss, and the "
    "newest\n"
    "events. It continues when the job is started again. Without a terminal "
    "(also\n"
    "with TERM=dumb), or with --json, it prints once.",
    run_top};
