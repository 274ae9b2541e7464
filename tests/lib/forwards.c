// SPDX-License-Identifier: Apache-2.0
/*
 * forwards MODEL.pt2 DTYPE OPTIMIZER FOLDER: each penstock_forward uses the
 * state of that moment, whatever has changed it since the last one, and leaves
 * it as it is. Compared with a session that has the state from a checkpoint and
 * makes its first pass.
 */
#include "tests/lib/drive.h"

static struct penstock_error error = PENSTOCK_INIT(error);
static const char *dtype, *optimizer;

enum { MAX_TENSORS = 8 };

struct run {
    penstock_model *model;
    penstock_session *session;
    size_t n;
    struct held held[MAX_TENSORS];
    const DLTensor *inputs[MAX_TENSORS];
};

static void run_init(struct run *r, const char *path, const char *ranks)
{
    const struct penstock_option stages[] = {{"stages", "2"}};
    const struct penstock_option options[] = {{"ranks", ranks},
                                              {"threads", "1"},
                                              {"lr", "0.1"},
                                              {"dtype", dtype},
                                              {"optimizer", optimizer}};
    struct penstock_open_config open = PENSTOCK_INIT(open);
    struct penstock_session_config config = PENSTOCK_INIT(config);

    open.options = stages;
    open.n_options = 1;
    config.options = options;
    config.n_options = 5;
    good(penstock_open(path, &open, &r->model, &error));
    good(penstock_session_new(r->model, &config, &r->session, &error));
    r->n = penstock_count(r->model, PENSTOCK_INPUT);
    require(r->n <= MAX_TENSORS);
    for (size_t i = 0; i < r->n; i++) {
        struct penstock_info info = PENSTOCK_INIT(info);

        good(penstock_session_describe(r->session, PENSTOCK_INPUT, i, &info,
                                       &error));
        held_init(&r->held[i], &info);
        for (size_t k = 0; k < count_of(&info); k++)
            if (info.dtype.code == kDLFloat)
                ((float *)r->held[i].memory)[k] = (float)(k % 5) / 4 + 1;
            else
                ((int64_t *)r->held[i].memory)[k] = (int64_t)(k % 3);
        r->inputs[i] = &r->held[i].tensor;
    }
}

static void run_fini(struct run *r)
{
    for (size_t i = 0; i < r->n; i++)
        held_fini(&r->held[i]);
    penstock_session_free(r->session);
    penstock_close(r->model);
}

/* Requires that a view of the tensor has these bytes. */
static void check_view(struct run *r, enum penstock_kind kind, size_t i,
                       const char *wanted, size_t bytes)
{
    struct penstock_info info = PENSTOCK_INIT(info);
    DLTensor view;

    good(penstock_session_describe(r->session, kind, i, &info, &error));
    good(penstock_view(r->session, kind, i, &view, &error));
    require(view.ndim == info.ndim && view.strides == NULL &&
            view.byte_offset == 0 && view.dtype.code == info.dtype.code &&
            view.dtype.bits == info.dtype.bits &&
            memcmp(view.shape, info.shape,
                   (size_t)info.ndim * sizeof(info.shape[0])) == 0);
    require(memcmp(view.data, wanted, bytes) == 0);
}

/* Makes a pass; outputs: its loss, then all outputs. Returns their bytes. */
static size_t forward(struct run *r, char *outputs, size_t size)
{
    size_t used = sizeof(double);
    double loss;

    good(penstock_forward(r->session, r->inputs, r->n, &loss, &error));
    memcpy(outputs, &loss, sizeof(loss));
    for (size_t i = 0; i < penstock_session_count(r->session, PENSTOCK_OUTPUT);
         i++) {
        struct penstock_info info = PENSTOCK_INIT(info);
        struct held h;
        size_t bytes;

        good(penstock_session_describe(r->session, PENSTOCK_OUTPUT, i, &info,
                                       &error));
        held_init(&h, &info);
        good(penstock_output(r->session, i, &h.tensor, &error));
        bytes = count_of(&info) * size_of(&info);
        require(used + bytes <= size);
        check_view(r, PENSTOCK_OUTPUT, i, h.memory, bytes);
        memcpy(outputs + used, h.memory, bytes);
        used += bytes;
        held_fini(&h);
    }
    return used;
}

/* Requires that a pass gives what a new session with the same state gives, and
 * another one gives it again. is_new: not what `last` has, which it replaces.
 */
static void check(struct run *r, const char *path, const char *folder,
                  const char *ranks, bool is_new, char *last)
{
    char mine[8192], its[8192];
    const size_t n = forward(r, mine, sizeof(mine));
    struct run other;

    require((memcmp(mine, last, n) != 0) == is_new);
    memcpy(last, mine, n);
    require(forward(r, its, sizeof(its)) == n && memcmp(mine, its, n) == 0);
    good(penstock_save(r->session, folder, &error));
    run_init(&other, path, ranks);
    good(penstock_load(other.session, folder, NULL, &error));
    require(forward(&other, its, sizeof(its)) == n);
    require(memcmp(mine, its, n) == 0);
    run_fini(&other);
}

/* Adds 1 to the elements of the first f32 or i64 tensor of a kind. False: there
 * is none. */
static bool add_one(struct run *r, enum penstock_kind kind)
{
    for (size_t i = 0; i < penstock_count(r->model, kind); i++) {
        struct penstock_info info = PENSTOCK_INIT(info);
        struct held h;

        good(penstock_describe(r->model, kind, i, &info, &error));
        if (info.dtype.bits != 32 && info.dtype.code != kDLInt)
            continue;
        held_init(&h, &info);
        good(penstock_get(r->session, info.name, &h.tensor, &error));
        for (size_t k = 0; k < count_of(&info); k++)
            if (info.dtype.code == kDLFloat)
                ((float *)h.memory)[k] += 1;
            else
                ((int64_t *)h.memory)[k] += 1;
        good(penstock_set(r->session, info.name, &h.tensor, &error));
        check_view(r, kind, i, h.memory, count_of(&info) * size_of(&info));
        held_fini(&h);
        return true;
    }
    return false;
}

/* A parameter that no stage reads is in no rank's memory; it can be copied. */
static void check_elsewhere(struct run *r)
{
    size_t at;
    DLTensor view = {.ndim = -1};

    if (penstock_find(r->model, PENSTOCK_PARAMETER, "spare.weight", &at,
                      &error) != 0)
        return;
    require(penstock_view(r->session, PENSTOCK_PARAMETER, at, &view, &error) ==
            PENSTOCK_ERR_USAGE);
    require(strcmp(error.id, "library.elsewhere") == 0 && view.ndim == -1 &&
            strstr(error.remedy, "penstock_get") != NULL);
}

static void check_forwards(const char *path, const char *folder,
                           const char *ranks)
{
    struct penstock_step step = PENSTOCK_INIT(step);
    char last[8192] = {0}, first[1024], now[1024];
    DLTensor view;
    struct run r;

    run_init(&r, path, ranks);
    require(penstock_view(r.session, PENSTOCK_OUTPUT, 0, &view, &error) ==
            PENSTOCK_ERR_USAGE); /* before the first pass */
    require(penstock_view(r.session, PENSTOCK_INPUT, 0, &view, &error) ==
            PENSTOCK_ERR_USAGE);
    require(penstock_view(r.session, PENSTOCK_BUFFER, 99, &view, &error) ==
            PENSTOCK_ERR_USAGE);
    snprintf(first, sizeof(first), "%s/first-%s", folder, ranks);
    snprintf(now, sizeof(now), "%s/now-%s", folder, ranks);
    check_elsewhere(&r);
    check(&r, path, first, ranks, true, last);
    check(&r, path, first, ranks, false, last);
    good(penstock_train_step(r.session, r.inputs, r.n, &step, &error));
    check(&r, path, now, ranks, true, last);
    require(add_one(&r, PENSTOCK_PARAMETER));
    check(&r, path, now, ranks, true, last);
    require(add_one(&r, PENSTOCK_BUFFER));
    check(&r, path, now, ranks, true, last);
    good(penstock_forward_backward(r.session, r.inputs, r.n, &step, &error));
    good(penstock_update(r.session, &step, &error));
    check(&r, path, now, ranks, true, last);
    good(penstock_load(r.session, first, NULL, &error));
    check(&r, path, now, ranks, true, last);
    run_fini(&r);
}

int main(int argc, char **argv)
{
    require(argc == 5);
    dtype = argv[2];
    optimizer = argv[3];
    check_forwards(argv[1], argv[4], "1");
    check_forwards(argv[1], argv[4], "2");
    return 0;
}
