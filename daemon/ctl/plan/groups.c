// SPDX-License-Identifier: Apache-2.0
#include "daemon/ctl/plan/groups.h"

#include <stdio.h>

#include "daemon/ctl/print.h"

/* maximum number of a group's parameters that are printed */
#define MAX_NAMES 3

static bool is_in_group(const struct pst_groups *groups,
                        const struct pst_plan *plan, size_t group, size_t param)
{
    return groups->group_of[param] == group &&
           plan->params.at[param].kind == PST_VALUE_PARAM &&
           plan->params.at[param].requires_grad;
}

static void print_group(const struct pst_groups *groups,
                        const struct pst_plan *plan, size_t k)
{
    const struct pst_group *g = &groups->all.at[k];
    struct pst_str names = {0};
    unsigned n = 0;

    for (size_t i = 0; i < plan->params.n; i++)
        if (is_in_group(groups, plan, k, i) && n++ < MAX_NAMES)
            pst_str_addf(&names, "%s%s", n > 1 ? ", " : "",
                         plan->params.at[i].fqn);
    if (n > MAX_NAMES)
        pst_str_addf(&names, " and %u more", n - MAX_NAMES);
    pstctl_printf(stdout, "%10u %12lld  %-9s %9g %12g  %s: %s\n", g->n_params,
                  (long long)g->n_elements, pst_optim_name(&g->options),
                  g->options.lr, g->options.weight_decay,
                  g->rules[0] != '\0' ? g->rules : "no rule",
                  pst_str_text(&names));
    pst_str_fini(&names);
}

void pstctl_groups_print(const struct pst_groups *groups,
                         const struct pst_plan *plan)
{
    pstctl_printf(stdout, "parameters     elements  optimizer        lr  "
                          "weight decay  rules: names\n");
    for (size_t k = 0; k < groups->all.n; k++)
        if (groups->all.at[k].n_params > 0)
            print_group(groups, plan, k);
}

json_t *pstctl_groups_json(const struct pst_groups *groups,
                           const struct pst_plan *plan)
{
    json_t *list = json_array();

    for (size_t k = 0; k < groups->all.n; k++) {
        const struct pst_group *g = &groups->all.at[k];
        json_t *names = json_array();

        for (size_t i = 0; i < plan->params.n; i++)
            if (is_in_group(groups, plan, k, i))
                (void)json_array_append_new(
                    names, pstctl_json_text(plan->params.at[i].fqn));
        (void)json_array_append_new(
            list,
            json_pack("{s:o s:s s:o s:o s:I s:o}", "rules",
                      pstctl_json_text(g->rules), "optimizer",
                      pst_optim_name(&g->options), "lr",
                      pstctl_json_real(g->options.lr), "weight_decay",
                      pstctl_json_real(g->options.weight_decay), "elements",
                      (json_int_t)g->n_elements, "names", names));
    }
    return list;
}
