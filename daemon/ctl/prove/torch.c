// SPDX-License-Identifier: Apache-2.0
/* Runs the first step of `penstock prove` in PyTorch. */
#include "daemon/ctl/prove/prove.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/setup.h"
#include "daemon/ctl/model.h"
#include "stages/base/str.h"
#include "stages/files/safetensors.h"

#define TEXT 4200

/* Runs the microbatches in PyTorch. Arguments: model, inputs, dump, number of
 * microbatches, index of the loss. Prints PyTorch's version, the loss, the
 * largest relative difference between a gradient and that of the dump (NaN
 * counts as the largest), the number of gradients that are zero apart from
 * rounding, and the name of the gradient that differs most. A gradient is zero
 * apart from rounding if its elements in both results are below a millionth of
 * the model's largest gradient, as for a bias before a normalisation: their
 * relative difference would compare rounding errors. */
static const char script[] =
    "import json, struct, sys, warnings\n"
    "warnings.filterwarnings('ignore')\n"
    "import torch\n"
    "from torch.utils import _pytree as tree\n"
    "model, inputs, dump, count, loss = sys.argv[1:]\n"
    "types = dict(F64=torch.float64, F32=torch.float32, F16=torch.float16,\n"
    "             BF16=torch.bfloat16, I64=torch.int64, I32=torch.int32,\n"
    "             I16=torch.int16, I8=torch.int8, U8=torch.uint8,\n"
    "             BOOL=torch.bool)\n"
    "def read(path):\n"
    "    data = open(path, 'rb').read()\n"
    "    at = 8 + struct.unpack('<Q', data[:8])[0]\n"
    "    table = json.loads(data[8:at])\n"
    "    table.pop('__metadata__', None)\n"
    "    def tensor(t):\n"
    "        a, b = t['data_offsets']\n"
    "        if a == b:\n"
    "            return torch.zeros(t['shape'], dtype=types[t['dtype']])\n"
    "        return torch.frombuffer(bytearray(data[at + a:at + b]),\n"
    "            dtype=types[t['dtype']]).reshape(t['shape'])\n"
    "    return {k: tensor(t) for k, t in table.items()}\n"
    "torch.set_num_threads(1)\n"
    "program = torch.export.load(model)\n"
    "module = program.module()\n"
    "given, want = read(inputs), read(dump)\n"
    "count, total = int(count), 0.\n"
    "for m in range(count):\n"
    "    flat = [given[f'{m}.{k}'] for k in range(len(given) // count)]\n"
    "    args, words = tree.tree_unflatten(flat, program.call_spec.in_spec)\n"
    "    out = tree.tree_flatten(module(*args, **words))[0][int(loss)] / "
    "count\n"
    "    out.backward()\n"
    "    total += out.item()\n"
    "worst, name, zeros = 0., 'none', 0\n"
    "pairs = [(k, p.grad, want['grad.' + k])\n"
    "         for k, p in module.named_parameters()\n"
    "         if p.grad is not None and 'grad.' + k in want]\n"
    "if not pairs:\n"
    "    sys.exit('no gradient of a parameter could be compared')\n"
    "size = lambda x: float(x.abs().max())\n"
    "least = 1e-6 * max(size(p) for _, p, _ in pairs)\n"
    "for k, p, g in pairs:\n"
    "    if size(p) < least and size(g) < least:\n"
    "        zeros += 1\n"
    "        continue\n"
    "    d = size(p - g) / max(size(p), 1e-30)\n"
    "    if worst == worst and not d <= worst:\n"
    "        worst, name = d, k\n"
    "print(torch.__version__, repr(total), repr(worst), zeros, name)\n";

/* --- inputs --------------------------------------------------------------- */

/* Writes the inputs of all microbatches of the first step: "M.K" is input
 * number K of microbatch M. */
static enum pst_status write_inputs(const struct pst_batch *batch,
                                    struct pst_data *data, const char *path,
                                    struct pst_diag *diag)
{
    const size_t n_inputs = batch->plan->inputs.n;
    const size_t n = batch->microbatches * n_inputs;
    struct pst_safetensors_entry *entries =
        pst_calloc(PST_TAG_CLIENT, n + 1, sizeof(*entries));
    char(*names)[32] = pst_calloc(PST_TAG_CLIENT, n + 1, sizeof(*names));
    void **tensors = pst_calloc(PST_TAG_CLIENT, n + 1, sizeof(*tensors));
    enum pst_status status = PST_OK;

    if (entries == NULL || names == NULL || tensors == NULL)
        status = pst_diag_nomem(diag, n * sizeof(*entries));
    for (size_t i = 0; i < n && status == PST_OK; i++) {
        const unsigned m = (unsigned)(i / n_inputs), k = i % n_inputs;
        struct pst_meta meta = batch->plan->inputs.at[k].meta;

        pst_meta_set_contiguous(&meta);
        tensors[i] = pst_alloc(PST_TAG_CLIENT, pst_meta_bytes(&meta) + 1);
        if (tensors[i] == NULL)
            status = pst_diag_nomem(diag, pst_meta_bytes(&meta));
        else
            status = pst_data_fill(data, 0, m, k, tensors[i], diag);
        (void)snprintf(names[i], sizeof(names[i]), "%u.%u", m, k);
        entries[i] =
            (struct pst_safetensors_entry){names[i], meta, tensors[i], 0};
    }
    if (status == PST_OK)
        status = pst_safetensors_save(path, entries, n, diag);
    for (size_t i = 0; i < n && tensors != NULL; i++)
        pst_free(tensors[i]);
    pst_free(tensors);
    pst_free(names);
    pst_free(entries);
    return status;
}

/* Opens model and data with the options of the runs, and writes the inputs. */
static enum pst_status prepare_inputs(const struct pstctl_prover *p,
                                      const char *path,
                                      unsigned *ret_microbatches, int *ret_loss,
                                      struct pst_diag *diag)
{
    struct pst_data *data = NULL;
    struct pst_batch batch = {0};
    struct pstd_plan plan = {0};
    enum pst_status status =
        pstd_plan_open(p->config->args[0], p->config, &plan, diag);

    if (status != PST_OK)
        return status;
    status = pstd_open_batch(p->config, plan.plan, &batch, diag);
    if (status == PST_OK && (batch.tail != NULL || plan.plan->loss_fn != NULL))
        status = pst_diag_set(
            diag, PST_E_RUN_OPTIONS, "the model in PyTorch has %s",
            batch.tail != NULL ? "microbatches of one size" : "no loss");
    if (status == PST_OK)
        status = pstd_open_data(p->config, &batch, true, &data, diag);
    if (status == PST_OK)
        status = write_inputs(&batch, data, path, diag);
    *ret_microbatches = batch.microbatches;
    *ret_loss = plan.plan->loss;
    pst_data_close(data);
    pst_batch_fini(&batch);
    pstd_plan_close(&plan);
    return status;
}

/* --- PyTorch -------------------------------------------------------------- */

/* Reads the line that the script printed. */
static bool read_answer(const char *path, struct pstctl_torch *ret)
{
    char line[160], loss[40], worst[40];

    pstctl_prove_last_line(path, line);
    return sscanf(line, "%39s %39s %39s %u %99s", ret->version, loss, worst,
                  &ret->zeros, ret->name) == 5 &&
           pst_parse_f64(loss, &ret->loss) && pst_parse_f64(worst, &ret->worst);
}

void pstctl_prove_torch(const struct pstctl_prover *p, const char *dump,
                        struct pstctl_torch *ret)
{
    // NOLINTNEXTLINE(concurrency-mt-unsafe): there is one thread
    const char *python = getenv("PENSTOCK_PYTHON");
    char inputs[TEXT], out[TEXT], err[TEXT], count[16], loss[16];
    unsigned microbatches = 0;
    struct pst_diag diag;
    int index = 0, code;

    *ret = (struct pstctl_torch){0};
    pst_diag_init(&diag);
    (void)snprintf(inputs, sizeof(inputs), "%s/inputs", p->folder);
    (void)snprintf(out, sizeof(out), "%s/torch", p->folder);
    (void)snprintf(err, sizeof(err), "%s/log", p->folder);
    if (prepare_inputs(p, inputs, &microbatches, &index, &diag) != PST_OK) {
        (void)snprintf(ret->why, sizeof(ret->why), "%.159s", diag.text);
        return;
    }
    (void)snprintf(count, sizeof(count), "%u", microbatches);
    (void)snprintf(loss, sizeof(loss), "%d", index);
    {
        char *const words[] = {(char *)(python != NULL ? python : "python3"),
                               "-c",
                               (char *)script,
                               (char *)p->config->args[0],
                               inputs,
                               (char *)dump,
                               count,
                               loss,
                               NULL};

        code = pstctl_prove_call(words, out, err);
    }
    ret->has_results = code == 0 && read_answer(out, ret);
    if (!ret->has_results && code < 0)
        (void)snprintf(ret->why, sizeof(ret->why), "there is no %.100s",
                       python != NULL ? python : "python3");
    else if (!ret->has_results)
        pstctl_prove_last_line(err, ret->why);
}
