// SPDX-License-Identifier: Apache-2.0
/* modules TINY.pt2: the modules of golden/make/make_tiny.py, which has them in
 * PyTorch, cut at its marker; "spare" is never read. */
#include "tests/lib/drive.h"

#include <stddef.h>

static struct penstock_error error = PENSTOCK_INIT(error);

static const struct {
    const char *name, *type;
    int64_t own, all;
    unsigned calls;
    int32_t n_stages, stages[2];
} wanted[] = {
    {"", "__main__.Tiny", 0, 200, 1, 2, {0, 1}},
    {"emb", "torch.nn.modules.sparse.Embedding", 128, 128, 1, 1, {0}},
    {"fc", "torch.nn.modules.linear.Linear", 72, 72, 2, 1, {1}},
    {"head", "torch.nn.modules.linear.Linear", 128, 128, 1, 1, {1}},
};
enum { N = sizeof(wanted) / sizeof(wanted[0]) };

static void check(const penstock_model *model, size_t i)
{
    struct penstock_module m = PENSTOCK_INIT(m);

    good(penstock_describe_module(model, i, &m, &error));
    for (size_t k = 0; k < N; k++) {
        if (strcmp(m.name, wanted[k].name) != 0)
            continue;
        require(strcmp(m.type, wanted[k].type) == 0);
        require(m.own_parameters == wanted[k].own);
        require(m.parameters == wanted[k].all);
        require(m.calls == wanted[k].calls);
        require(m.n_stages == wanted[k].n_stages);
        require(memcmp(m.stages, wanted[k].stages,
                       (size_t)m.n_stages * sizeof(m.stages[0])) == 0);
        require(i > 0 || k == 0); /* the model comes first */
        return;
    }
    fprintf(stderr, "a module '%s'\n", m.name);
    exit(1);
}

int main(int argc, char **argv)
{
    const struct penstock_option two[] = {{"stages", "2"}};
    struct penstock_open_config open = PENSTOCK_INIT(open);
    struct penstock_module m = PENSTOCK_INIT(m);
    penstock_model *model;

    require(argc == 2 && penstock_module_count(NULL) == 0);
    open.options = two;
    open.n_options = 1;
    good(penstock_open(argv[1], &open, &model, &error));
    require(penstock_module_count(model) == N);
    for (size_t i = 0; i < N; i++)
        check(model, i);
    require(penstock_describe_module(model, N, &m, &error) ==
            PENSTOCK_ERR_USAGE);
    require(penstock_describe_module(NULL, 0, &m, &error) ==
            PENSTOCK_ERR_USAGE);
    require(penstock_describe_module(model, 0, NULL, &error) ==
            PENSTOCK_ERR_USAGE);
    memset(&m, 0x5a, sizeof(m)); /* an older program's struct */
    m.size = offsetof(struct penstock_module, parameters);
    good(penstock_describe_module(model, 0, &m, &error));
    require(m.name[0] == '\0' && m.calls == 0x5a5a5a5a);
    penstock_close(model);
    return 0;
}
