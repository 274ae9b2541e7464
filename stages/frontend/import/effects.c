// SPDX-License-Identifier: Apache-2.0
/*
 * with_effects(token, operator, ...) -> (token, ...) keeps operators in order
 * that have effects and no results: assertions of factorisations, say. Nodes
 * run in the order of the document, so the operator alone is enough.
 */
#include "stages/frontend/import/import.h"
#include "stages/graph/oprow.h"

#include <string.h>

/* The operator's own arguments have names only where they are keywords. */
static bool name_inputs(json_t *inputs, const char *operator)
{
    const struct pst_op *op = pst_op_find(operator);
    const struct pst_schema *schema = op != NULL ? pst_op_schema(op) : NULL;
    json_t *input;
    size_t i;

    json_array_foreach(inputs, i, input)
    {
        const char *name = json_string_value(json_object_get(input, "name"));

        if (schema == NULL || i >= schema->n_args ||
            (name != NULL && name[0] != '\0'))
            continue;
        if (json_object_set_new(input, "name",
                                json_string(schema->args[i].name)) != 0)
            return false;
    }
    return true;
}

static bool unwrap(json_t *node)
{
    json_t *inputs = json_object_get(node, "inputs");
    json_t *outputs = json_object_get(node, "outputs");
    json_t *wrapped = json_object_get(
        json_object_get(json_array_get(inputs, 1), "arg"), "as_operator");
    const char *name = json_string_value(wrapped);
    bool ok;

    if (name == NULL)
        return true; /* refused as it is */
    if (pst_has_prefix(name, "torch.ops."))
        name += strlen("torch.ops.");
    ok = json_object_set(node, "target", wrapped) == 0;
    json_incref(wrapped); /* it lends the name */
    (void)json_array_remove(inputs, 0);
    (void)json_array_remove(inputs, 0);
    ok = ok && name_inputs(inputs, name);
    json_decref(wrapped);
    (void)json_array_remove(outputs, 0);
    for (size_t i = json_array_size(outputs); i-- > 0;)
        if (json_object_get(json_array_get(outputs, i), "as_none") != NULL)
            (void)json_array_remove(outputs, i);
    return ok;
}

enum pst_status pst_import_unwrap(json_t *nodes, struct pst_diag *diag)
{
    json_t *node;
    size_t i;

    json_array_foreach(nodes, i, node)
    {
        const char *target = json_string_value(json_object_get(node, "target"));

        if (target != NULL &&
            strcmp(target, "torch.ops.higher_order.with_effects") == 0 &&
            !unwrap(node))
            return pst_diag_nomem(diag, 0);
    }
    return PST_OK;
}
