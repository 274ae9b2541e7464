// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_TESTS_DAEMON_UNIT_DRIVE_H
#define PENSTOCK_TESTS_DAEMON_UNIT_DRIVE_H
/*
 * Runs the real programs $PST_BIN/penstock and $PST_BIN/penstockd in a folder
 * of the test's own. The folder is also $XDG_RUNTIME_DIR, and holds the plan
 * and the data of tests/golden/tiny.pt2.
 */
#include <stdbool.h>
#include <sys/types.h>

struct drive {
    char dir[64];   /* working folder of all programs */
    char *text;     /* output and errors of the newest program that has ended */
    double seconds; /* duration of that program */
};

extern struct drive drive;

/* cmocka fixtures: make dir, plan ("tiny.plan", 2 stages), data
 * ("data.safetensors", 2 microbatches; "bad.safetensors", label 99 in the
 * second one); remove dir. */
int drive_setup(void **state);
int drive_teardown(void **state);

/* Starts a command such as "penstock run x --steps 3", split at blanks; returns
 * its pid. */
pid_t drive_start(const char *command);
/* Waits for the end of a program, at most test_patience() seconds. Returns the
 * exit code, or 1000 + signal. Sets text. */
int drive_wait(pid_t pid);
/* Starts a command and waits for it. */
int drive_run(const char *command);
/* Runs the command, or waits if it is NULL; fails the test, with the output, if
 * the exit code differs. */
void drive_expect(const char *command, int code);
void drive_expect_end(pid_t pid, int code);
/* Fails the test unless the output of the newest program contains this text. */
void drive_expect_output(const char *text);
/* Waits until the file in dir contains the text, at most test_patience()
 * seconds. Copies what follows the text, up to a blank or the end of the line,
 * to after (64 bytes, may be NULL). */
void drive_await(const char *file, const char *text, char *after);
bool drive_exists(const char *file);

#endif
