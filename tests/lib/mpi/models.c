// SPDX-License-Identifier: Apache-2.0
/*
 * Ranks that opened other models: models TINY.pt2 CHAIN.pt2 FOLDER under
 * mpiexec -n 2. Rank 1 has another cut, other values, a frozen parameter ...:
 * both ranks refuse the session before a step, and say what differs. Names of
 * files may differ.
 */
#include "tests/lib/drive.h"

#include <mpi.h>
#include <unistd.h>

static struct penstock_error error = PENSTOCK_INIT(error);
static int rank;

/* Makes a session of the model with these options, or fails with error. */
static int try(const char *path, const struct penstock_option *options,
               size_t n)
{
    static MPI_Comm world;
    const struct penstock_option steps[] = {{"threads", "1"}};
    struct penstock_open_config open = PENSTOCK_INIT(open);
    struct penstock_session_config config = PENSTOCK_INIT(config);
    penstock_session *session = NULL;
    penstock_model *model;
    int status;

    world = MPI_COMM_WORLD;
    open.options = options;
    open.n_options = n;
    config.options = steps;
    config.n_options = 1;
    config.mpi_comm = &world;
    good(penstock_open(path, &open, &model, &error));
    status = penstock_session_new(model, &config, &session, &error);
    penstock_session_free(session);
    penstock_close(model);
    return status;
}

static void refuse(const char *path, const struct penstock_option *options,
                   size_t n, const char *what)
{
    const int status = try(path, options, n);

    if (status != PENSTOCK_ERR_MISMATCH || strstr(error.text, what) == NULL) {
        fprintf(stderr, "rank %d, %s: %d: %s\n", rank, what, status,
                error.text);
        (void)MPI_Abort(MPI_COMM_WORLD, 1);
    }
    require(strcmp(error.id, "run.unequal-ranks") == 0);
}

/* Writes fc.bias to a file of safetensors, with that value of all elements. */
static void write_bias(const char *path, float value)
{
    static const char header[] =
        "{\"fc.bias\":{\"dtype\":\"F32\",\"shape\":[8],"
        "\"data_offsets\":[0,32]}}";
    const uint64_t bytes = sizeof(header) - 1;
    FILE *file = fopen(path, "wb");
    float values[8];

    for (int i = 0; i < 8; i++)
        values[i] = value;
    require(file != NULL && fwrite(&bytes, 8, 1, file) == 1 &&
            fwrite(header, bytes, 1, file) == 1 &&
            fwrite(values, sizeof(values), 1, file) == 1 && fclose(file) == 0);
}

int main(int argc, char **argv)
{
    const struct penstock_option cuts[] = {{"at", "l.1"}, {"at", "l.2"}};
    struct penstock_option more[] = {{"stages", "2"}, {0}, {"partial", "true"}};
    char files[3][4200], link[4200];
    int level;

    (void)MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
    (void)MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    require(argc == 4 && level >= MPI_THREAD_FUNNELED);
    for (int i = 0; i < 3; i++) {
        (void)snprintf(files[i], sizeof(files[i]), "%s/%d-%d.safetensors",
                       argv[3], rank, i);
        write_bias(files[i], i == 2 ? 1.0f : 0.5f);
    }
    (void)snprintf(link, sizeof(link), "%s/model-%d.pt2", argv[3], rank);
    require(symlink(argv[1], link) == 0);

    refuse(argv[2], &cuts[rank], 1, "the plan");
    refuse(argv[1 + rank], more, 1, "the model");
    more[1] = (struct penstock_option){"freeze", "fc.*"};
    refuse(argv[1], more, 1 + (size_t)rank, "the model");
    more[1] = (struct penstock_option){"autocast", "bf16"};
    refuse(argv[1], more, 1 + (size_t)rank, "the model");
    more[1] = (struct penstock_option){"lora", "fc:rank=2"};
    refuse(argv[1], more, 1 + (size_t)rank, "the model");
    more[1] = (struct penstock_option){"weights", files[rank == 0 ? 0 : 2]};
    refuse(argv[1], more, rank == 0 ? 1 : 3, "the values of parameters");
    refuse(argv[1], more, 3, "the values of parameters");
    more[1].value = files[rank];
    good(try(link, more, 3));
    good(try(argv[2], cuts, 1));
    (void)MPI_Finalize();
    return 0;
}
