// SPDX-License-Identifier: Apache-2.0
/*
 * usage: newcomer MODEL.pt2
 *
 * What a user wrote who had penstock.h and nothing else: an optimizer of the
 * program's own. Gradients are asked for, w - lr * g is computed here, and the
 * parameters are set; another session takes the same steps with the library's
 * SGD. Prints for each step both losses and the largest difference of a
 * parameter, and fails if these are not the same float.
 */
#include <penstock.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEPS      5
#define MAX_INPUTS 16
#define RATE       0.125f /* a power of 2: w - RATE * g is rounded once */

static struct penstock_error error = PENSTOCK_INIT(error);

static void check(int status)
{
    if (status == 0)
        return;
    fprintf(stderr, "%s [%s]\n%s\n", error.text, error.id, error.remedy);
    exit(1);
}

static size_t count_elements(const struct penstock_info *info)
{
    size_t n = 1;

    for (int32_t d = 0; d < info->ndim; d++)
        n *= (size_t)info->shape[d];
    return n;
}

/* Describes memory of the program's as a tensor of that shape. */
static DLTensor tensor_of(const struct penstock_info *info, void *data)
{
    DLTensor t;

    memset(&t, 0, sizeof(t));
    t.data = data;
    t.device.device_type = kDLCPU;
    t.ndim = info->ndim;
    t.dtype = info->dtype;
    t.shape = (int64_t *)info->shape;
    return t;
}

struct trainer {
    penstock_model *model;
    penstock_session *session;
};

static struct trainer begin(const char *path, const char *optimizer)
{
    const struct penstock_option options[] = {
        {"threads", "1"}, {"optimizer", optimizer}, {"lr", "0.125"}};
    struct penstock_session_config config = PENSTOCK_INIT(config);
    struct trainer t;

    config.options = options;
    /* "none" refuses a learning rate. */
    config.n_options = strcmp(optimizer, "none") == 0 ? 2 : 3;
    check(penstock_open(path, NULL, &t.model, &error));
    check(penstock_session_new(t.model, &config, &t.session, &error));
    return t;
}

static void end(struct trainer *t)
{
    penstock_session_free(t->session);
    penstock_close(t->model);
}

/* Fills inputs with numbers that a step takes: small ones, and indices 0 and 1.
 */
static int fill(void *ctx, uint64_t step, uint32_t microbatch, uint32_t input,
                DLTensor *dst)
{
    size_t n = 1;

    (void)ctx;
    for (int32_t d = 0; d < dst->ndim; d++)
        n *= (size_t)dst->shape[d];
    for (size_t i = 0; i < n; i++) {
        const unsigned k = (unsigned)(i * 7 + step * 3 + microbatch + input);

        if (dst->dtype.code == kDLFloat && dst->dtype.bits == 32)
            ((float *)dst->data)[i] = (float)(k % 11) / 8 - 0.5f;
        else if (dst->dtype.code == kDLInt && dst->dtype.bits == 64)
            ((int64_t *)dst->data)[i] = k % 2;
        else
            return 1;
    }
    return 0;
}

/* Sets every trained parameter w to w - RATE * g. */
static void descend(struct trainer *t)
{
    const size_t n = penstock_count(t->model, PENSTOCK_PARAMETER);

    for (size_t i = 0; i < n; i++) {
        struct penstock_info info = PENSTOCK_INIT(info);
        float *w, *g;
        DLTensor of_w, of_g;
        size_t size;

        check(
            penstock_describe(t->model, PENSTOCK_PARAMETER, i, &info, &error));
        if (!info.trained)
            continue;
        size = count_elements(&info);
        w = calloc(size, sizeof(*w));
        g = calloc(size, sizeof(*g));
        if (w == NULL || g == NULL)
            exit(1);
        of_w = tensor_of(&info, w);
        of_g = tensor_of(&info, g);
        check(penstock_get(t->session, info.name, &of_w, &error));
        check(penstock_gradient(t->session, info.name, &of_g, &error));
        for (size_t k = 0; k < size; k++)
            w[k] -= RATE * g[k];
        check(penstock_set(t->session, info.name, &of_w, &error));
        free(w);
        free(g);
    }
}

static float largest_difference(struct trainer *a, struct trainer *b)
{
    const size_t n = penstock_count(a->model, PENSTOCK_PARAMETER);
    float worst = 0;

    for (size_t i = 0; i < n; i++) {
        struct penstock_info info = PENSTOCK_INIT(info);
        float *x, *y;
        DLTensor of_x, of_y;
        size_t size;

        check(
            penstock_describe(a->model, PENSTOCK_PARAMETER, i, &info, &error));
        size = count_elements(&info);
        x = calloc(size, sizeof(*x));
        y = calloc(size, sizeof(*y));
        if (x == NULL || y == NULL)
            exit(1);
        of_x = tensor_of(&info, x);
        of_y = tensor_of(&info, y);
        check(penstock_get(a->session, info.name, &of_x, &error));
        check(penstock_get(b->session, info.name, &of_y, &error));
        for (size_t k = 0; k < size; k++)
            worst = fmaxf(worst, fabsf(x[k] - y[k]));
        free(x);
        free(y);
    }
    return worst;
}

int main(int argc, char **argv)
{
    struct trainer mine, theirs;
    double first = 0, last = 0;

    if (argc != 2)
        return 64;
    mine = begin(argv[1], "none");
    theirs = begin(argv[1], "sgd");
    for (int k = 0; k < STEPS; k++) {
        struct penstock_step a = PENSTOCK_INIT(a), b = PENSTOCK_INIT(b);
        float worst;

        check(penstock_train_step_fill(mine.session, fill, NULL, &a, &error));
        descend(&mine);
        check(penstock_train_step_fill(theirs.session, fill, NULL, &b, &error));
        worst = largest_difference(&mine, &theirs);
        printf("step %d: loss %.9g and %.9g, parameters %g apart\n", k + 1,
               a.loss, b.loss, worst);
        if (a.loss != b.loss || worst != 0.0f || a.applied || !b.applied)
            return 1;
        first = k == 0 ? b.loss : first;
        last = b.loss;
    }
    end(&mine);
    end(&theirs);
    return last != first ? 0 : 1;
}
