// SPDX-License-Identifier: Apache-2.0
/*
 * Runs the corpus through its targets without a fuzzer: unchanged, and with
 * random changes.
 *
 *     PST_FUZZ=N                    number of changes per file
 *     PST_TEST_SEED=N               the changes of the run that printed N
 *     test-fuzz-corpus TARGET FILE  runs these files, unchanged, instead
 *
 * An input that is a finding is kept in /tmp/pst-finding-TARGET.
 */
#include "tests/test.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/files/repack.h"
#include "tests/fuzz/targets/target.h"
#include "tests/patience.h"

#define SOME     20
#define MAX_SIZE ((size_t)1 << 17)
#define SECONDS  20

static size_t change_bytes(uint8_t *data, size_t size, size_t most);

static struct fuzz_chance chance = {.bytes = change_bytes};
static const struct fuzz_target *now;
static unsigned char input[MAX_SIZE];
static size_t input_size;

/* Saves the current input when the process crashes. The calls are not
 * async-signal-safe, but the process ends anyway. */
static void save_input(int number)
{
    static char path[128] = "/tmp/pst-finding-";
    FILE *file;

    (void)signal(number, SIG_DFL);
    strncat(path, now->name, 64);
    file = fopen(path, "wb"); /* a finding: the process crashes anyway */
    if (file != NULL) {
        (void)fwrite(input, 1, input_size, file);
        (void)fclose(file);
        (void)fprintf(stderr, "%s: the input is %s\n", now->name, path);
    }
    (void)raise(number);
}

static bool run(const unsigned char *data, size_t size)
{
    /* A block of exactly that size: reads beyond it are detected. */
    unsigned char *copy = malloc(size > 0 ? size : 1);

    bool ret;

    assert_non_null(copy);
    memcpy(copy, data, size);
    test_limit_work(SECONDS);
    ret = now->run(copy, size);
    test_limit_work(0);
    free(copy);
    return ret;
}

/* Makes one change of the bytes, as fuzzers do. */
static size_t change_bytes(uint8_t *data, size_t size, size_t most)
{
    static const unsigned char odd[] = {0,    1,   0x7f, 0x80, 0xff, '"', '\\',
                                        '\n', '[', '{',  '(',  ',',  '-', '9'};
    const size_t at = fuzz_pick(&chance, size), from = fuzz_pick(&chance, size);
    const size_t n = 1 + fuzz_pick(&chance, 16);

    if (size == 0)
        return size;
    switch (fuzz_pick(&chance, 6)) {
    case 0:
        data[at] ^= (unsigned char)(1u << fuzz_pick(&chance, 8));
        return size;
    case 1:
        data[at] = odd[fuzz_pick(&chance, PST_COUNT(odd))];
        return size;
    case 2: /* removes the end */
        return at;
    case 3: /* removes a piece */
        return at + n <= size
                   ? fuzz_replace(data, size, most, at, at + n, "", 0)
                   : size;
    case 4: /* duplicates a piece */
        if (at + n <= size && size + n <= most) {
            memmove(data + at + n, data + at, size - at);
            size += n;
        }
        return size;
    default: /* copies a piece from another position */
        if (at + n <= size && from + n <= size)
            memmove(data + at, data + from, n);
        return size;
    }
}

/* Makes one change of the bytes, or one that keeps the format. */
static void change(void)
{
    const size_t most = PST_MIN(sizeof(input), 2 * input_size + 256);

    input_size = fuzz_pick(&chance, 2)
                     ? change_bytes(input, input_size, most)
                     : now->change(&chance, input, input_size, most);
    fuzz_check(input_size <= most, "a changed input is too large");
}

/* Runs the target on the file, and on `changes` randomly changed copies of it.
 * Returns true if the original is accepted. */
static bool try_file(const char *path, unsigned changes)
{
    bool ret = false;
    size_t size;
    unsigned char *data = slurp(path, &size);

    assert_true(size <= sizeof(input));
    for (unsigned i = 0; i <= changes; i++) {
        memcpy(input, data, size);
        input_size = size;
        for (unsigned k = i > 0 ? 1 + fuzz_pick(&chance, 4) : 0; k > 0; k--)
            change();
        if (run(input, input_size) && i == 0)
            ret = true;
    }
    free(data);
    return ret;
}

static void corpus_of_a_target(void **state)
{
    const char *folder = getenv("PST_CORPUS"), *count = getenv("PST_FUZZ");
    const unsigned changes =
        count != NULL ? (unsigned)strtoul(count, NULL, 10) : SOME;
    struct dirent **names = NULL;
    unsigned accepted = 0;
    char path[4096];
    int n;

    now = *state;
    assert_non_null(folder);
    (void)snprintf(path, sizeof(path), "%s/%s", folder, now->name);
    n = scandir(path, &names, NULL, alphasort);
    assert_true(n > 2); /* every target has files */
    for (int i = 0; i < n; i++) {
        (void)snprintf(path, sizeof(path), "%s/%s/%s", folder, now->name,
                       names[i]->d_name);
        if (names[i]->d_name[0] != '.')
            accepted += try_file(path, changes);
        free(names[i]);
    }
    free(names);
    (void)run(input, 0);
    assert_true(accepted > 0); /* else only refusals were tested */
}

static int try_files(int argc, char **argv)
{
    now = fuzz_find(argv[1]);
    if (now == NULL) {
        (void)fprintf(stderr, "there is no target %s\n", argv[1]);
        return 64;
    }
    for (int i = 2; i < argc; i++)
        print_message("%s: %s\n", argv[i],
                      try_file(argv[i], 0) ? "accepted" : "refused");
    return 0;
}

int main(int argc, char **argv)
{
    static const int fatal[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGPROF};
    const char *seed = getenv("PST_TEST_SEED");
    struct CMUnitTest tests[32] = {{0}};
    struct timespec time;
    unsigned long long s;
    size_t n = 0;

    for (size_t i = 0; i < PST_COUNT(fatal); i++)
        (void)signal(fatal[i], save_input);
    if (argc > 2)
        return try_files(argc, argv);
    (void)clock_gettime(CLOCK_REALTIME, &time);
    s = seed != NULL ? strtoull(seed, NULL, 10)
                     : (unsigned long long)time.tv_nsec / 1000 % 1000000;
    print_message("PST_TEST_SEED=%llu\n", s);
    chance.random.state = s * 0x9e3779b97f4a7c15u + 20261124;
    for (const struct fuzz_target *t = fuzz_targets; t->name != NULL; t++)
        tests[n++] = (struct CMUnitTest){
            .name = t->name,
            .test_func = corpus_of_a_target,
            .initial_state = (void *)t,
        };
    return _cmocka_run_group_tests("corpus", tests, n, NULL, NULL);
}
