// SPDX-License-Identifier: Apache-2.0
/* Reads graphs: a list of the nodes in execution order, and maps from the name
 * of a value to its tensor or number. */
#include "stages/base/str.h"
#include "stages/files/pt2/reader.h"

#include <stdio.h>
#include <string.h>

static enum pst_status read_inputs(struct pst_reader *r,
                                   const struct pst_json *list,
                                   struct pst_doc_node *node)
{
    const size_t n = pst_json_length(list);
    enum pst_status status =
        pst_reader_alloc(r, n, sizeof(*node->inputs), &node->inputs);

    if (n > UINT32_MAX)
        return pst_diag_set(r->diag, PST_E_PT2_INCONSISTENT,
                            "it has too many inputs");
    for (size_t i = 0; i < n && status == PST_OK; i++) {
        const struct pst_json *json = pst_json_at(list, i);
        struct pst_doc_input *input = &node->inputs[i];
        char what[160];

        status = pst_read_member(r, json, "name", node->target, &input->name);
        if (status != PST_OK)
            return status;
        (void)pst_format(what, sizeof(what), "argument \"%.100s\"",
                         input->name);
        status = pst_read_arg(r, pst_json_get(json, "arg"), node->target, what,
                              &input->arg);
    }
    node->n_inputs = (unsigned)n;
    return status;
}

static enum pst_status read_lists(struct pst_reader *r,
                                  const struct pst_json *json,
                                  struct pst_doc_node *node)
{
    const struct pst_json *inputs =
        pst_json_member(json, "inputs", PST_JSON_ARRAY, node->target, r->diag);
    const struct pst_json *outputs = NULL;
    enum pst_status status = PST_ERR_INPUT;

    if (inputs != NULL)
        outputs = pst_json_member(json, "outputs", PST_JSON_ARRAY, node->target,
                                  r->diag);
    if (outputs != NULL)
        status = read_inputs(r, inputs, node);
    if (status == PST_OK)
        status = pst_read_args(r, outputs, node->target, &node->n_outputs,
                               &node->outputs);
    return status;
}

static enum pst_status read_node(struct pst_reader *r,
                                 const struct pst_json *json,
                                 struct pst_doc_node *node)
{
    static const char prefix[] = "torch.ops.";
    const char *target = pst_json_string(pst_json_get(json, "target"));
    const char *name = pst_json_string(pst_json_get(json, "name"));
    enum pst_status status;

    if (target != NULL && pst_has_prefix(target, prefix))
        target += strlen(prefix);
    status = pst_read_text(r, target != NULL ? target : "?", &node->target);
    if (status == PST_OK)
        status = pst_read_text(r, name != NULL ? name : "?", &node->name);
    if (status == PST_OK)
        status = pst_read_place(r, pst_json_get(json, "metadata"));
    node->place = r->place;
    if (status == PST_OK)
        status = read_lists(r, json, node);
    if (status != PST_OK && status != PST_ERR_NOMEM)
        pst_doc_prefix_node(node, r->diag);
    return status;
}

static enum pst_status read_nodes(struct pst_reader *r,
                                  const struct pst_json *graph,
                                  struct pst_doc_graph *ret)
{
    const struct pst_json *list =
        pst_json_member(graph, "nodes", PST_JSON_ARRAY, "a graph", r->diag);
    enum pst_status status;

    if (list == NULL)
        return PST_ERR_INPUT;
    ret->n_nodes = pst_json_length(list);
    status =
        pst_reader_alloc(r, ret->n_nodes, sizeof(*ret->nodes), &ret->nodes);
    for (size_t i = 0; i < ret->n_nodes && status == PST_OK; i++)
        status = read_node(r, pst_json_at(list, i), &ret->nodes[i]);
    return status;
}

static enum pst_status read_tensors(struct pst_reader *r,
                                    const struct pst_json *metas,
                                    struct pst_doc_graph *ret)
{
    struct pst_doc_tensor *tensors;
    enum pst_status status;

    status = pst_reader_alloc(r, pst_json_members(metas), sizeof(*tensors),
                              &tensors);
    for (const struct pst_json *json = NULL;
         (json = pst_json_next(metas, json)) != NULL;) {
        if (status != PST_OK)
            return status;
        status = pst_read_tensor(r, json, json->key, tensors);
        if (status == PST_OK && !pst_map_put(&ret->tensors, json->key, tensors))
            status = pst_diag_nomem(r->diag, sizeof(*tensors));
        tensors++;
    }
    return status;
}

static enum pst_status read_numbers(struct pst_reader *r,
                                    const struct pst_json *list,
                                    struct pst_doc_graph *ret)
{
    struct pst_doc_number *numbers;
    enum pst_status status;

    status =
        pst_reader_alloc(r, pst_json_members(list), sizeof(*numbers), &numbers);
    for (const struct pst_json *json = NULL;
         (json = pst_json_next(list, json)) != NULL;) {
        if (status != PST_OK)
            return status;
        status = pst_read_number(r, json, json->key, numbers);
        if (status == PST_OK && !pst_map_has(&ret->numbers, json->key) &&
            !pst_map_put(&ret->numbers, json->key, numbers))
            status = pst_diag_nomem(r->diag, sizeof(*numbers));
        numbers++;
    }
    return status;
}

enum pst_status pst_read_graph(struct pst_reader *r,
                               const struct pst_json *json,
                               struct pst_doc_graph **ret)
{
    static const char *const lists[] = {"sym_int_values", "sym_bool_values",
                                        "sym_float_values"};
    struct pst_doc_arg *inputs, *outputs;
    struct pst_doc_graph *graph;
    enum pst_status status = pst_reader_alloc(r, 1, sizeof(*graph), &graph);

    if (status != PST_OK)
        return status;
    pst_map_init(&graph->tensors, PST_TAG_ARCHIVE);
    pst_map_init(&graph->numbers, PST_TAG_ARCHIVE);
    graph->next = r->doc->graphs; /* freed with the document */
    r->doc->graphs = graph;
    status = pst_read_args(r, pst_json_get(json, "inputs"),
                           "an input of a graph", &graph->n_inputs, &inputs);
    if (status == PST_OK)
        status =
            pst_read_args(r, pst_json_get(json, "outputs"),
                          "an output of a graph", &graph->n_outputs, &outputs);
    if (status == PST_OK)
        status = read_tensors(r, pst_json_get(json, "tensor_values"), graph);
    for (size_t i = 0; i < PST_COUNT(lists) && status == PST_OK; i++)
        status = read_numbers(r, pst_json_get(json, lists[i]), graph);
    if (status == PST_OK)
        status = read_nodes(r, json, graph);
    if (status != PST_OK)
        return status;
    graph->inputs = inputs;
    graph->outputs = outputs;
    *ret = graph;
    return PST_OK;
}
