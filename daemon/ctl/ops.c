// SPDX-License-Identifier: Apache-2.0
/* `penstock ops`: lists the operators of the registry. */
#include "daemon/ctl/ctl.h"
#include "daemon/ctl/print.h"
#include "stages/frontend/missing.h"
#include "stages/ops/core/op.h"
#include "stages/ops/plugin/plugin.h"

#include <string.h>

static const char *form_of(const struct pst_op *op)
{
    if (op->rewrite != NULL)
        return "composition";
    if (op->flags & PST_OP_VIEW)
        return "view";
    if (!pst_op_runs(op))
        return "marker";
    return "kernel";
}

static struct pst_kernels kernels_of(const struct pst_op *op)
{
    return pst_op_kernels(&pst_device_cpu, op);
}

/* Returns whether the operator has a gradient: "yes", "no", or "parts" for a
 * composition, whose parts are differentiated. */
static const char *gradient_of(const struct pst_op *op)
{
    if (op->rewrite != NULL)
        return "parts";
    return op->vjp != pst_vjp_none && pst_plugin_has_gradient(op) ? "yes"
                                                                  : "no";
}

static unsigned dtypes_of(const struct pst_op *op)
{
    const struct pst_kernel *reference = pst_op_reference(op);

    return reference != NULL ? reference->dtypes : 0;
}

static void describe_dtypes(const struct pst_op *op, struct pst_str *out)
{
    const unsigned mask = dtypes_of(op);
    bool first = true;

    if (mask == 0 || mask == PST_D_ANY) {
        pst_str_add(out, mask == 0 ? "-" : "all");
        return;
    }
    for (unsigned d = 0; d < PST_N_DTYPES; d++)
        if (mask & 1u << d) {
            pst_str_addf(out, "%s%s", first ? "" : ",", pst_dtype_name(d));
            first = false;
        }
}

/* Appends the number of kernels per instruction set: "any:2 avx2:1". */
static void describe_kernels(const struct pst_op *op, struct pst_str *out)
{
    const struct pst_kernels kernels = kernels_of(op);
    bool any = false;

    for (unsigned isa = 0; isa < PST_N_ISAS; isa++) {
        unsigned n = 0;

        for (unsigned k = 0; k < kernels.n; k++)
            n += kernels.at[k].isa == isa;
        if (n == 0)
            continue;
        pst_str_addf(out, "%s%s:%u", any ? " " : "", pst_isa_name(isa), n);
        any = true;
    }
    if (!any)
        pst_str_add(out, "-");
}

static json_t *kernels_json(const struct pst_op *op)
{
    const struct pst_kernels kernels = kernels_of(op);
    json_t *array = json_array();

    for (unsigned k = 0; k < kernels.n; k++) {
        const struct pst_kernel *kernel = &kernels.at[k];
        json_t *names = json_array();

        for (unsigned d = 0; d < PST_N_DTYPES; d++)
            if (kernel->dtypes & 1u << d)
                (void)json_array_append_new(names,
                                            json_string(pst_dtype_name(d)));
        (void)json_array_append_new(
            array, json_pack("{s:s, s:s, s:o}", "name", kernel->name, "isa",
                             pst_isa_name(kernel->isa), "dtypes", names));
    }
    return array;
}

static enum pst_status print_json(const char *text, struct pst_diag *diag)
{
    json_t *rows = json_array(), *names = json_array();
    const char *alias, *row;

    for (unsigned i = 0; i < pst_registry_count(); i++) {
        const struct pst_op *op = pst_registry_at(i);
        const char *name = pst_op_schema(op)->name;

        if (strstr(name, text) == NULL)
            continue;
        (void)json_array_append_new(
            rows, json_pack("{s:s, s:s, s:s, s:s, s:s, s:o}", "name", name,
                            "schema", op->schema, "family", pst_op_family(op),
                            "form", form_of(op), "gradient", gradient_of(op),
                            "kernels", kernels_json(op)));
    }
    for (unsigned i = 0; pst_registry_alias(i, &alias, &row); i++)
        if (strstr(alias, text) != NULL)
            (void)json_array_append_new(
                names, json_pack("{s:s, s:s}", "name", alias, "same_as", row));
    return pstctl_json_print(
        json_pack("{s:o, s:o}", "operators", rows, "other_names", names), diag);
}

static void print_text(const char *text)
{
    const char *alias, *row;
    unsigned n = 0;

    pstctl_printf(stdout, "%-44s %-10s %-11s %-8s %-12s %s\n", "operator",
                  "family", "form", "gradient", "dtypes", "kernels");
    for (unsigned i = 0; i < pst_registry_count(); i++) {
        const struct pst_op *op = pst_registry_at(i);
        const char *name = pst_op_schema(op)->name;
        struct pst_str types = {0}, kernels = {0};

        if (strstr(name, text) == NULL)
            continue;
        describe_dtypes(op, &types);
        describe_kernels(op, &kernels);
        pstctl_printf(stdout, "%-44s %-10s %-11s %-8s %-12s %s\n", name,
                      pst_op_family(op), form_of(op), gradient_of(op),
                      pst_str_text(&types), pst_str_text(&kernels));
        pst_str_fini(&types);
        pst_str_fini(&kernels);
        n++;
    }
    for (unsigned i = 0; pst_registry_alias(i, &alias, &row); i++)
        if (strstr(alias, text) != NULL)
            pstctl_printf(stdout, "%-44s as %s\n", alias, row);
    pstctl_printf(stdout, "%u operator%s; in-place forms follow them\n", n,
                  n == 1 ? "" : "s");
}

/* Prints source text for a plugin with the operators of one namespace that are
 * unknown in the model. space: the namespace; "": the first one. */
static enum pst_status print_missing(const char *model, const char *space,
                                     struct pst_diag *diag)
{
    struct pst_str text = {0}, more = {0}, shown = {.visible = true};
    enum pst_status status = pst_missing_open(model, space, &text, &more, diag);

    if (status == PST_OK && text.len == 0)
        pstctl_printf(stderr, "no operator%s%s of the model is unknown\n",
                      space[0] != '\0' ? " of " : "", space);
    if (status == PST_OK && text.len > 0) {
        pst_str_add_lines(&shown, pst_str_text(&text));
        pstctl_print(stdout, &shown);
    }
    if (status == PST_OK && more.len > 0)
        pstctl_printf(stderr,
                      "note: the model also has unknown operators of %s; give "
                      "one of them as TEXT\n",
                      pst_str_text(&more));
    pst_str_fini(&text);
    pst_str_fini(&more);
    pst_str_fini(&shown);
    return status;
}

static enum pst_status run_ops(const struct pstd_config *config,
                               struct pst_diag *diag)
{
    const char *text = config->n_args > 0 ? config->args[0] : "";
    enum pst_status status = pst_registry_init(diag);
    const char *reason;
    char region[128];

    if (status != PST_OK)
        return status;
    if (config->missing != NULL)
        return print_missing(config->missing, text, diag);
    if (config->json)
        return print_json(text, diag);
    print_text(text);
    (void)snprintf(region, sizeof(region), "higher_order.%s", text);
    reason = pst_op_refusal(text);
    if (reason == NULL)
        reason = pst_op_refusal(region);
    if (reason != NULL)
        pstctl_printf(stdout, "%s is refused (tier 3): %s\n", text, reason);
    return PST_OK;
}

const struct pstctl_command pstctl_ops = {
    "ops",
    "[TEXT]",
    0,
    1,
    PSTD_OPT_JSON | PSTD_OPT_OPS,
    "list operators: forms, gradients, dtypes, kernels",
    "TEXT: list only operators whose name contains it. The form of an operator "
    "is a\n"
    "kernel, a view that costs nothing, or a composition of other operators. "
    "Kernels\n"
    "are counted for each instruction set. With --missing, TEXT is the "
    "namespace of a\n"
    "plugin.",
    run_ops};
