// SPDX-License-Identifier: Apache-2.0
/* Tests output for the user: the live line of a terminal, and numbers. */
#include "daemon/ctl/print.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "daemon/ctl/top/view.h"
#include "tests/test.h"

#define MAX_FIELDS 8

/* A terminal, and the text that was written to it. */
struct screen {
    int fd;
    FILE *out;
    char text[4096];
};

static void open_screen(struct screen *s, unsigned short columns)
{
    const struct winsize size = {.ws_row = 24, .ws_col = columns};
    char name[64];

    memset(s, 0, sizeof(*s));
    s->fd = posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK);
    assert_true(s->fd >= 0 && grantpt(s->fd) == 0 && unlockpt(s->fd) == 0);
    assert_int_equal(ptsname_r(s->fd, name, sizeof(name)), 0);
    /* O_NOCTTY: a session leader would be killed when its terminal closes. */
    s->out = fdopen(open(name, O_RDWR | O_NOCTTY), "r+");
    assert_non_null(s->out);
    assert_int_equal(ioctl(fileno(s->out), TIOCSWINSZ, &size), 0);
    assert_int_equal(setenv("TERM", "xterm", 1), 0);
}

static const char *read_screen(struct screen *s)
{
    size_t n = strlen(s->text);

    for (;;) {
        const ssize_t more = read(s->fd, s->text + n, sizeof(s->text) - 1 - n);

        if (more <= 0)
            return s->text;
        n += (size_t)more;
    }
}

static void close_screen(struct screen *s)
{
    (void)fclose(s->out);
    (void)close(s->fd);
}

/* Passes an event to *p. Fields are pairs of a name and a value, terminated by
 * NULL; values of names that begin with "step", except "step_s", are integers.
 */
static void send_event(struct pstctl_progress *p, const char *name, ...)
{
    Pst__Control__Field fields[MAX_FIELDS], *at[MAX_FIELDS];
    pstctl_event event = PST__CONTROL__EVENT__INIT;
    const char *key;
    va_list ap;

    event.name = (char *)name;
    event.level = "info";
    event.fields = at;
    va_start(ap, name);
    while ((key = va_arg(ap, const char *)) != NULL) {
        Pst__Control__Field *f = at[event.n_fields] = &fields[event.n_fields];
        const double number = va_arg(ap, double);

        event.n_fields++;
        assert_true(event.n_fields < MAX_FIELDS);
        pst__control__field__init(f);
        f->key = (char *)key;
        f->value_case = PST__CONTROL__FIELD__VALUE_NUMBER;
        f->number = number;
        if (strstr(key, "step") == key && strcmp(key, "step_s") != 0) {
            f->value_case = PST__CONTROL__FIELD__VALUE_INTEGER;
            f->integer = (int64_t)number;
        }
    }
    va_end(ap);
    pstctl_progress_event(p, &event);
}

static void send_step(struct pstctl_progress *p, double step)
{
    send_event(p, "step", "step", step, "steps", 480.0, "loss", 1.5, "step_s",
               0.118, NULL);
}

/* A message is printed above the live line, which is then drawn again. */
static void messages_stand_above(void **state)
{
    struct pstctl_progress p = {0};
    struct screen s;

    (void)state;
    open_screen(&s, 80);
    p.out = s.out;
    send_step(&p, 1);
    send_event(&p, "paused", NULL);
    pstctl_progress_end(&p);
    pstctl_progress_fini(&p);
    assert_null(strstr(read_screen(&s), "\\x"));
    assert_non_null(strstr(s.text, "\r\033[Kpaused\r\nstep 1/480  loss 1.5"));
    assert_string_equal(s.text + strlen(s.text) - 2, "\r\n");
    close_screen(&s);
}

/* A client that attaches later knows only the duration of one step, and
 * estimates the remaining time from it. */
static void expects_as_steps_take(void **state)
{
    struct pstctl_progress p = {0};
    struct screen s;

    (void)state;
    open_screen(&s, 80);
    p.out = s.out;
    send_step(&p, 80);
    pstctl_progress_end(&p);
    pstctl_progress_fini(&p);
    assert_non_null(strstr(read_screen(&s), "step 80/480  "));
    assert_non_null(strstr(s.text, "  118 ms/step  ETA 47.2 s"));
    close_screen(&s);
}

/* A value that rounds up to the next unit is printed in that unit. */
static void units_are_of_what_is_shown(void **state)
{
    static const struct {
        double seconds;
        const char *text;
    } times[] = {{812e-6, "812 us"}, {999.4e-6, "999 us"}, {999.6e-6, "1 ms"},
                 {0.9994, "999 ms"}, {0.9996, "1 s"},      {59.94, "59.9 s"},
                 {59.96, "1:00"},    {3599.4, "59:59"},    {3599.6, "1:00:00"}};
    static const struct {
        double x;
        const char *text;
    } counts[] = {{950, "950"},    {999.4, "999"},   {999.6, "1k"},
                  {-999.6, "-1k"}, {12345, "12.3k"}, {999400, "999k"},
                  {999600, "1M"},  {4.5e6, "4.5M"}};
    struct pst_str text = {0};

    (void)state;
    for (size_t i = 0; i < PST_COUNT(times); i++) {
        pstctl_duration(times[i].seconds, &text);
        assert_string_equal(pst_str_text(&text), times[i].text);
        pst_str_fini(&text);
    }
    for (size_t i = 0; i < PST_COUNT(counts); i++) {
        pstctl_count(counts[i].x, &text);
        assert_string_equal(pst_str_text(&text), counts[i].text);
        pst_str_fini(&text);
    }
}

/* Small losses are not printed as zero, and large ones not with all their
 * digits. */
static void losses_keep_their_digits(void **state)
{
    static const struct {
        double x;
        const char *text;
    } losses[] = {{1.79231, "1.7923"},          {0, "0.0000"},
                  {0.00123456, "0.0012"},       {1.9e-5, "1.9e-05"},
                  {-1.23456e-4, "-0.00012346"}, {99999.5, "99999.5000"},
                  {8.123456e28, "8.1235e+28"}};
    struct pst_str text = {0};

    (void)state;
    for (size_t i = 0; i < PST_COUNT(losses); i++) {
        pstctl_loss(losses[i].x, &text);
        assert_string_equal(pst_str_text(&text), losses[i].text);
        pst_str_fini(&text);
    }
}

/* The lines of a step, an evaluation and a result contain the loss. */
static void lines_tell_losses(void **state)
{
    Pst__Control__Result r = PST__CONTROL__RESULT__INIT;
    struct pstctl_progress p = {0};
    struct pst_str line = {0};
    struct screen s;
    double loss = 2e-6;

    (void)state;
    open_screen(&s, 80);
    p.out = s.out;
    send_event(&p, "step", "step", 1.0, "steps", 9.0, "loss", 1.9e-5, "step_s",
               1.0, NULL);
    send_event(&p, "evaluated", "step", 1.0, "loss", 3e-5, "best_loss", 4e-6,
               NULL);
    pstctl_progress_end(&p);
    pstctl_progress_fini(&p);
    assert_non_null(strstr(read_screen(&s), "step 1/9  loss 1.9e-05  "));
    assert_non_null(strstr(s.text, "step 1: evaluated, loss 3e-05"));
    close_screen(&s);
    r.n_losses = 1;
    r.losses = &loss;
    r.loss = loss;
    r.best_step = 1;
    r.best_loss = 4e-6;
    pstctl_result_line(&r, &line);
    assert_non_null(
        strstr(pst_str_text(&line), ", loss 2e-06, best evaluation 4e-06 at "));
    pst_str_fini(&line);
    /* An evaluation without a checkpoint does not count, which is said. */
    r.best_lost_step = 3;
    pstctl_result_line(&r, &line);
    assert_non_null(strstr(pst_str_text(&line),
                           "best evaluation 4e-06 at step 1 (that at step 3 is "
                           "better, but has no checkpoint), "));
    pst_str_fini(&line);
    r.best_step = 0;
    pstctl_result_line(&r, &line);
    assert_non_null(strstr(pst_str_text(&line),
                           ", loss 2e-06, no best evaluation: that at step 3 "
                           "has no checkpoint, "));
    pst_str_fini(&line);
    /* The line also has what could not be written. */
    r.history_lost = "cannot write h: why";
    r.log_lost = "l: why";
    pstctl_result_line(&r, &line);
    assert_true(pst_has_suffix(
        pst_str_text(&line), "; the history lacks steps: cannot write h: why; "
                             "the log lacks lines: l: why"));
    pst_str_fini(&line);
}

/* An item that does not fit is left out completely. */
static void items_stay_whole(void **state)
{
    static const struct {
        unsigned short columns;
        const char *line;
    } screens[] = {{40, "step 80/480  loss 1.5000  ETA 47.2 s\r\n"},
                   {30, "step 80/480  ETA 47.2 s\r\n"},
                   {20, "step 80/480\r\n"}};

    (void)state;
    for (size_t i = 0; i < PST_COUNT(screens); i++) {
        struct pstctl_progress p = {0};
        struct screen s;

        open_screen(&s, screens[i].columns);
        p.out = s.out;
        send_step(&p, 80);
        pstctl_progress_end(&p);
        pstctl_progress_fini(&p);
        assert_string_equal(read_screen(&s), screens[i].line);
        close_screen(&s);
    }
}

static struct pst_str page;

static void add_line(enum pstctl_top_colour colour, const char *line)
{
    (void)colour;
    pst_str_addf(&page, "%s\n", line);
}

static void pages_keep_items_whole(void **state)
{
    static const struct {
        unsigned columns;
        const char *page;
    } screens[] = {{50, "night  training  step 80/480  ETA 47.2 s\n"
                        "loss 1.5000  lr 0.001  439 ms/step  4.67k tok/s\n"
                        "rank stages   busy  recv other     MiB\n"
                        "   0 0-1       75%   25%    0%       -\n"},
                   {40, "night  training  step 80/480  ETA 47.2 s\n"
                        "loss 1.5000  lr 0.001  439 ms/step\n"
                        "rank stages   busy  recv other     MiB\n"
                        "   0 0-1       75%   25%    0%       -\n"},
                   {26, "night  training\n"
                        "loss 1.5000  lr 0.001\n"
                        "rank stages   busy  recv\n"
                        "   0 0-1       75%   25%\n"}};
    struct pstctl_top_view *v = pst_calloc(PST_TAG_CLIENT, 1, sizeof(*v));

    (void)state;
    assert_non_null(v);
    pstctl_top_init(v);
    (void)snprintf(v->job, sizeof(v->job), "night");
    (void)snprintf(v->state, sizeof(v->state), "training");
    v->answers = v->rank[0].answers = true;
    v->ranks = 1;
    v->step = 80;
    v->steps = 480;
    v->eta = 47.2;
    v->loss = 1.5;
    v->lr = 1e-3;
    v->step_s = 0.439;
    v->tok_s = 4670;
    (void)snprintf(v->rank[0].stages, sizeof(v->rank[0].stages), "0-1");
    v->rank[0].step = 4;
    v->rank[0].forward = v->rank[0].backward = v->rank[0].optim = 1;
    v->rank[0].recv = 1;
    v->rank[0].other = 0;
    for (size_t i = 0; i < PST_COUNT(screens); i++) {
        const struct pstctl_top_screen screen = {screens[i].columns, 20, false};

        pstctl_top_draw(v, &screen, add_line);
        assert_string_equal(pst_str_text(&page), screens[i].page);
        pst_str_fini(&page);
    }
    pst_free(v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_stand_above),
        cmocka_unit_test(expects_as_steps_take),
        cmocka_unit_test(units_are_of_what_is_shown),
        cmocka_unit_test(losses_keep_their_digits),
        cmocka_unit_test(lines_tell_losses),
        cmocka_unit_test(items_stay_whole),
        cmocka_unit_test(pages_keep_items_whole),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
