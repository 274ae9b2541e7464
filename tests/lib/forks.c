// SPDX-License-Identifier: Apache-2.0
/*
 * Forked processes: forks TINY.pt2 FOLDER. A child of fork() can only free the
 * session of its parent, and the parent's folder stays the parent's.
 */
#include "tests/lib/drive.h"

#include <sys/wait.h>
#include <unistd.h>

static struct penstock_error error = PENSTOCK_INIT(error);

static penstock_session *make_session(penstock_model *model)
{
    const struct penstock_option options[] = {{"ranks", "2"}, {"threads", "2"}};
    struct penstock_session_config config = PENSTOCK_INIT(config);
    penstock_session *session;

    config.options = options;
    config.n_options = 2;
    good(penstock_session_new(model, &config, &session, &error));
    return session;
}

static double train(penstock_session *session)
{
    struct penstock_step result = PENSTOCK_INIT(result);

    good(penstock_train_step_fill(session, fill_zeros, NULL, &result, &error));
    return result.loss;
}

static void refused(int status)
{
    require(status == PENSTOCK_ERR_USAGE);
    require(strcmp(error.id, "library.forked") == 0);
    require(strstr(error.text, "belongs to process") != NULL);
    require(error.remedy[0] != '\0');
    error = (struct penstock_error)PENSTOCK_INIT(error);
}

/* Reads the record of the folder's owner. */
static size_t read_owner(const char *folder, char *ret, size_t size)
{
    char path[4096];
    FILE *file;
    size_t n;

    (void)snprintf(path, sizeof(path), "%s/owner.json", folder);
    file = fopen(path, "r");
    require(file != NULL);
    n = fread(ret, 1, size, file);
    require(n > 0 && n < size);
    (void)fclose(file);
    return n;
}

/* Plays the child with the session. first: the loss of a first step. */
static void be_child(penstock_model *model, penstock_session *session,
                     const char *folder, double first)
{
    struct penstock_step result = PENSTOCK_INIT(result);
    struct penstock_info info = PENSTOCK_INIT(info);
    struct penstock_copies copies = PENSTOCK_INIT(copies);

    refused(
        penstock_train_step_fill(session, fill_zeros, NULL, &result, &error));
    refused(
        penstock_session_describe(session, PENSTOCK_INPUT, 0, &info, &error));
    refused(penstock_session_copies(session, &copies, &error));
    refused(penstock_save(session, folder, &error));
    refused(penstock_load(session, folder, NULL, &error));
    penstock_session_free(session);
    session = make_session(model);
    require(train(session) == first);
    penstock_session_free(session);
    penstock_close(model);
}

int main(int argc, char **argv)
{
    const struct penstock_option stages[] = {{"stages", "2"}};
    struct penstock_open_config open = PENSTOCK_INIT(open);
    char before[8192], after[8192];
    penstock_session *session;
    penstock_model *model;
    double first;
    size_t n;
    int status;
    pid_t child;

    require(argc == 3);
    open.options = stages;
    open.n_options = 1;
    good(penstock_open(argv[1], &open, &model, &error));
    session = make_session(model);
    first = train(session);
    good(penstock_save(session, argv[2], &error));
    n = read_owner(argv[2], before, sizeof(before));
    child = fork();
    require(child >= 0);
    if (child == 0) {
        be_child(model, session, argv[2], first);
        _exit(0);
    }
    require(waitpid(child, &status, 0) == child && status == 0);
    require(read_owner(argv[2], after, sizeof(after)) == n);
    require(memcmp(before, after, n) == 0);
    (void)train(session);
    good(penstock_save(session, argv[2], &error));
    penstock_session_free(session);
    require(read_owner(argv[2], after, sizeof(after)) != n ||
            memcmp(before, after, n) != 0);
    penstock_close(model);
    puts("ok");
    return 0;
}
