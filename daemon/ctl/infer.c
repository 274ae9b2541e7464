// SPDX-License-Identifier: Apache-2.0
/* Commands that run a plan forward in this process: eval and infer. */
#include "daemon/ctl/ctl.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "daemon/common/setup.h"
#include "daemon/ctl/model.h"
#include "daemon/ctl/outputs.h"
#include "daemon/ctl/print.h"
#include "stages/base/host/fs.h"
#include "stages/base/rng.h"
#include "stages/run/state/carried.h"
#include "stages/split/evaluate.h"

#define MAX_PROMPT (1u << 20)

/* A plan ready to run forward. */
struct forward {
    struct pstctl_plan p;
    struct pst_carried *carried; /* the plan instead, or NULL */
    struct pst_plan *eval;  /* p's plan as one stage, as eval() would run it */
    struct pst_batch batch; /* of that */
    struct pst_plan *plan;  /* the batch's; borrowed */
    struct pst_transport *transport;
    struct pst_engine *engine;
    uint64_t step; /* of the checkpoint, 0: start values */
};

static void report_skipped(void *ctx, const char *dir, uint64_t step,
                           const char *text)
{
    (void)ctx;
    (void)dir;
    (void)step;
    pstctl_printf(stderr, "penstock: warning: checkpoint passed over: %s\n",
                  text);
}

static enum pst_status load(const struct pstd_config *config, struct forward *f,
                            struct pst_diag *diag)
{
    const struct pst_load_choice choice = {.dir = config->checkpoint,
                                           .step = PST_CHECKPOINT_LATEST,
                                           .any_model = config->other_model,
                                           .skipped = report_skipped};
    struct pst_checkpoint_info info;
    enum pst_status status =
        pst_engine_load(f->engine, &choice, &info, NULL, diag);

    if (status == PST_OK)
        f->step = info.step;
    return status;
}

/* The plan in the newest checkpoint, if the model was changed in its run. What
 * is wrong with a folder is told when it is loaded. */
static enum pst_status open_carried(const struct pstd_config *config,
                                    struct forward *f, struct pst_diag *diag)
{
    const struct pst_checkpoint_query query = {.dir = config->checkpoint,
                                               .step = PST_CHECKPOINT_LATEST};
    struct pst_checkpoint *ckpt;
    uint64_t step;
    bool any;

    if (pst_checkpoint_open(&query, &ckpt, NULL) != PST_OK)
        return PST_OK;
    step = ckpt->info.step;
    any = pst_carried_is_in(ckpt);
    pst_checkpoint_close(ckpt);
    return any ? pst_carried_open(f->p.plan, config->checkpoint, step, false,
                                  &f->carried, diag)
               : PST_OK;
}

static enum pst_status open_forward(const struct pstd_config *config,
                                    unsigned microbatches, struct forward *f,
                                    struct pst_diag *diag)
{
    const struct pst_eval_options eval = {.keep = config->keep_random.at,
                                          .n_keep = config->keep_random.n};
    struct pst_exec_options options;
    enum pst_status status =
        pstctl_plan_open(config->args[0], config, &f->p, diag);

    if (status == PST_OK)
        status = pstd_exec_options(config, 1, false, &options, diag);
    if (status == PST_OK)
        status = pst_transport_self.open("1", &f->transport, diag);
    if (status != PST_OK)
        return status;
    options.microbatches = microbatches;
    if (config->checkpoint != NULL && !config->other_model)
        status = open_carried(config, f, diag);
    /* Evaluation first: what training needs of the rows does not matter. */
    if (status == PST_OK)
        status =
            pst_plan_eval(f->carried != NULL ? f->carried->plan : f->p.plan,
                          &eval, &f->eval, diag);
    if (status == PST_OK) {
        for (size_t i = 0; i < f->eval->notes.n; i++)
            pstctl_printf(stderr, "note: %s\n", f->eval->notes.at[i]);
        status = pstd_open_batch(config, f->eval, &f->batch, diag);
    }
    f->plan = f->batch.plan;
    options.tail = f->batch.tail;
    options.n_tail = f->batch.n_tail;
    if (status == PST_OK)
        status =
            pst_engine_new(f->plan, f->transport, &options, &f->engine, diag);
    if (status == PST_OK && config->checkpoint != NULL)
        status = load(config, f, diag);
    return status;
}

static void close_forward(struct forward *f)
{
    pst_engine_free(f->engine);
    if (f->transport != NULL)
        f->transport->ops->close(f->transport);
    pst_batch_fini(&f->batch);
    pst_plan_free(f->eval);
    pst_carried_close(f->carried);
    pstctl_plan_close(&f->p);
}

/* Mean loss over --batches steps of the data, from its beginning. */
static enum pst_status evaluate(struct forward *f, struct pst_data *data,
                                uint64_t batches, double *ret,
                                struct pst_diag *diag)
{
    double sum = 0;

    for (uint64_t step = 0; step < batches; step++) {
        struct pst_step_result r;
        enum pst_status status =
            pst_engine_step(f->engine, step, pst_data_fill, data, 0, &r, diag);

        if (status != PST_OK)
            return status;
        sum += r.loss;
    }
    *ret = sum / (double)batches;
    return PST_OK;
}

static enum pst_status run_eval(const struct pstd_config *config,
                                struct pst_diag *diag)
{
    struct forward f = {0};
    struct pst_data *data = NULL;
    double loss = NAN;
    enum pst_status status =
        open_forward(config, (unsigned)config->microbatches, &f, diag);

    if (status == PST_OK && f.plan->loss < 0)
        status = pst_diag_set(diag, PST_ERR_UNSUPPORTED,
                              "the plan has no loss to take the mean of: split "
                              "the .pt2 with --loss or --loss-fn");
    if (status == PST_OK)
        status = pstd_open_data(config, &f.batch, &data, diag);
    if (status == PST_OK)
        status = evaluate(&f, data, config->batches, &loss, diag);
    pst_data_close(data);
    if (status == PST_OK && config->json)
        status = pstctl_json_print(json_pack("{s:o s:I s:I}", "loss",
                                             pstctl_json_real(loss), "batches",
                                             (json_int_t)config->batches,
                                             "step", (json_int_t)f.step),
                                   diag);
    else if (status == PST_OK)
        pstctl_printf(stdout, "loss %.6f over %llu batches (perplexity %.4g)\n",
                      loss, (unsigned long long)config->batches, exp(loss));
    close_forward(&f);
    return status;
}

/* A token model as infer sees it, and the window of tokens it reads. */
struct window {
    const struct pst_plan *plan;
    unsigned tokens; /* index of the input (B, T) */
    unsigned logits; /* index of the output (B, T, V) */
    int64_t length;  /* T */
    int64_t vocab;   /* V */
    int64_t n;       /* tokens in the window */
    int64_t *at;     /* T of them */
};

static enum pst_status find_shapes(const struct pst_plan *plan,
                                   struct window *w, struct pst_diag *diag)
{
    unsigned best = 0;
    bool found = false;

    w->plan = plan;
    for (unsigned i = 0; i < plan->inputs.n && !found; i++) {
        const struct pst_meta *m = &plan->inputs.at[i].meta;

        if (m->rank == 2 && pst_dtype_kind(m->dtype) == PST_KIND_INT) {
            found = true;
            w->tokens = i;
            w->length = m->size[1];
        }
    }
    if (!found || w->length < 1)
        return pst_diag_set(diag, PST_ERR_UNSUPPORTED,
                            "infer needs a model of tokens: no input is an "
                            "integer (batch, length)");
    for (unsigned i = 0; i < plan->outputs.n; i++) {
        const struct pst_plan_output *o = &plan->outputs.at[i];

        if (!o->is_tensor || o->meta.dtype != PST_F32 || o->meta.rank < 3 ||
            o->meta.rank <= best || o->meta.size[o->meta.rank - 2] != w->length)
            continue;
        best = o->meta.rank;
        w->logits = i;
        w->vocab = o->meta.size[best - 1];
    }
    if (best == 0 || w->vocab < 1)
        return pst_diag_set(diag, PST_ERR_UNSUPPORTED,
                            "infer needs logits: no output is floating (batch, "
                            "%lld, vocabulary)",
                            (long long)w->length);
    return PST_OK;
}

/* The window in row 0, zeros elsewhere; other inputs (targets) are zero. */
static enum pst_status fill(void *ctx, uint64_t step, unsigned microbatch,
                            unsigned input, void *dst, struct pst_diag *diag)
{
    const struct window *w = ctx;
    const struct pst_meta *meta = &w->plan->inputs.at[input].meta;

    (void)step;
    (void)microbatch;
    (void)diag;
    memset(dst, 0, pst_meta_bytes(meta));
    for (int64_t i = 0; input == w->tokens && i < w->n; i++)
        pst_store_i64(meta->dtype, dst, i, w->at[i]);
    return PST_OK;
}

/* Greedy at temperature 0, else from softmax(logits / temperature) by one
 * counted random number. */
static int64_t choose(const float *logits, int64_t n, double temperature,
                      const struct pst_rng_key *key)
{
    int64_t best = 0;
    double sum = 0, at;

    for (int64_t i = 1; i < n; i++)
        if (logits[i] > logits[best])
            best = i;
    if (temperature <= 0)
        return best;
    for (int64_t i = 0; i < n; i++)
        sum += exp(((double)logits[i] - (double)logits[best]) / temperature);
    at = (double)pst_rng_f32(key, 0) * sum;
    for (int64_t i = 0; i < n; i++) {
        at -= exp(((double)logits[i] - (double)logits[best]) / temperature);
        if (at < 0)
            return i;
    }
    return best;
}

static void append(struct window *w, int64_t token)
{
    if (w->n == w->length) {
        for (int64_t i = 1; i < w->n; i++)
            w->at[i - 1] = w->at[i];
        w->n--;
    }
    w->at[w->n++] = token;
}

/* Bytes as they are; a larger vocabulary has no text of ours. */
static void emit(const struct window *w, int64_t token, struct pst_str *out)
{
    const char byte = (char)token;

    if (w->vocab <= 256)
        pst_str_addn(out, &byte, 1);
    else
        pst_str_addf(out, "%s%lld", out->len > 0 ? " " : "", (long long)token);
}

static enum pst_status generate(struct forward *f,
                                const struct pstd_config *config,
                                struct window *w, struct pstctl_half *half,
                                struct pst_str *out, struct pst_diag *diag)
{
    const size_t bytes = pst_meta_bytes(&f->plan->outputs.at[w->logits].meta);
    float *logits = pst_alloc(PST_TAG_CLIENT, bytes);
    enum pst_status status = PST_OK;

    if (logits == NULL)
        return pst_diag_nomem(diag, bytes);
    for (uint64_t i = 0; i < config->n_tokens && status == PST_OK; i++) {
        const struct pst_rng_key key = {.seed = config->seed, .step = i};
        struct pst_step_result r;
        const size_t before = out->len;
        int64_t token;

        status = pst_engine_step(f->engine, i, fill, w, 0, &r, diag);
        if (status == PST_OK)
            status = pst_engine_output(f->engine, w->logits, logits, diag);
        if (status != PST_OK)
            break;
        token = choose(logits + (w->n - 1) * w->vocab, w->vocab,
                       config->temperature, &key);
        append(w, token);
        emit(w, token, out);
        if (!config->json && !out->failed) {
            pstctl_print_bytes(half, out->text + before, out->len - before);
            (void)fflush(stdout);
        }
    }
    pst_free(logits);
    return status;
}

/* The newest bytes that fit; an empty prompt is one newline. */
static enum pst_status read_prompt(const struct pstd_config *config,
                                   struct window *w, char **ret, size_t *ret_n,
                                   struct pst_diag *diag)
{
    size_t first;
    enum pst_status status;

    if (config->prompt_file != NULL && config->prompt != NULL)
        return pst_diag_set(diag, PST_ERR_USAGE,
                            "--prompt and --prompt-file exclude each other");
    if (config->prompt_file != NULL) {
        status =
            pst_file_read(config->prompt_file, MAX_PROMPT, ret, ret_n, diag);
        if (status != PST_OK)
            return status;
    } else {
        *ret = pst_strdup(PST_TAG_CLIENT,
                          config->prompt != NULL ? config->prompt : "");
        if (*ret == NULL)
            return pst_diag_nomem(diag, 1);
        *ret_n = strlen(*ret);
    }
    w->at = pst_calloc(PST_TAG_CLIENT, (size_t)w->length, sizeof(*w->at));
    if (w->at == NULL)
        return pst_diag_nomem(diag, (size_t)w->length * sizeof(*w->at));
    first = *ret_n > (size_t)w->length ? *ret_n - (size_t)w->length : 0;
    for (size_t i = first; i < *ret_n; i++)
        append(w, (unsigned char)(*ret)[i]);
    if (w->n == 0)
        append(w, '\n');
    for (int64_t i = 0; i < w->n; i++)
        if (w->at[i] >= w->vocab)
            return pst_diag_set(diag, PST_ERR_RANGE,
                                "the prompt has byte %lld, the model knows %lld"
                                " tokens",
                                (long long)w->at[i], (long long)w->vocab);
    return PST_OK;
}

/* --data: outputs for given rows. */
static enum pst_status infer_data(const struct pstd_config *config,
                                  struct pst_diag *diag)
{
    struct forward f = {0};
    uint64_t samples = 0;
    enum pst_status status;

    if (config->output == NULL || config->prompt != NULL ||
        config->prompt_file != NULL)
        return pst_diag_set(diag, PST_ERR_USAGE,
                            "--data needs --output FILE.safetensors and "
                            "excludes a prompt");
    if (config->shuffle)
        return pst_diag_set(diag, PST_ERR_USAGE,
                            "outputs stand in the order of the data: "
                            "--shuffle is for training");
    status = open_forward(config, (unsigned)config->microbatches, &f, diag);
    if (status == PST_OK)
        status = pstctl_write_outputs(config, f.batch.plan, f.engine, &samples,
                                      diag);
    if (status == PST_OK && config->json)
        status = pstctl_json_print(
            json_pack("{s:I s:I s:s}", "samples", (json_int_t)samples, "step",
                      (json_int_t)f.step, "output", config->output),
            diag);
    else if (status == PST_OK)
        pstctl_printf(stdout, "outputs for %llu samples in %s\n",
                      (unsigned long long)samples, config->output);
    close_forward(&f);
    return status;
}

static enum pst_status infer_text(const struct pstd_config *config,
                                  struct pst_diag *diag)
{
    struct forward f = {0};
    struct window w = {0};
    struct pst_str text = {0};
    struct pstctl_half half = {0};
    char *prompt = NULL;
    size_t n = 0;
    enum pst_status status = open_forward(config, 1, &f, diag);

    if (status == PST_OK)
        status = find_shapes(f.plan, &w, diag);
    if (status == PST_OK)
        status = read_prompt(config, &w, &prompt, &n, diag);
    if (status == PST_OK && !config->json)
        pstctl_print_bytes(&half, prompt, n);
    if (status == PST_OK)
        status = generate(&f, config, &w, &half, &text, diag);
    if (status == PST_OK && config->json) {
        status = pstctl_json_print(
            json_pack("{s:I s:I s:o}", "tokens", (json_int_t)config->n_tokens,
                      "step", (json_int_t)f.step, "text",
                      pstctl_json_text(pst_str_text(&text))),
            diag);
    } else if (status == PST_OK) {
        pstctl_print_bytes(&half, "", 0);
        pstctl_printf(stdout, "\n");
    }
    pst_str_fini(&text);
    pst_free(prompt);
    pst_free(w.at);
    close_forward(&f);
    return status;
}

static enum pst_status run_infer(const struct pstd_config *config,
                                 struct pst_diag *diag)
{
    return config->data != NULL ? infer_data(config, diag)
                                : infer_text(config, diag);
}

const struct pstctl_command pstctl_eval = {
    "eval",
    "PLAN|MODEL.pt2 --data FILE",
    1,
    1,
    PSTD_OPT_SPLIT | PSTD_OPT_DATA | PSTD_OPT_LOAD | PSTD_OPT_EVAL |
        PSTD_OPT_JSON,
    "mean loss of a model on data",
    "Runs in this process, in the mode of model.eval(), with the newest "
    "checkpoint of\n--checkpoint or the start values of the plan.",
    run_eval};
const struct pstctl_command pstctl_infer = {
    "infer",
    "PLAN|MODEL.pt2",
    1,
    1,
    PSTD_OPT_SPLIT | PSTD_OPT_LOAD | PSTD_OPT_INFER | PSTD_OPT_DATA |
        PSTD_OPT_OUTPUT | PSTD_OPT_JSON,
    "outputs for rows of data, or text that goes on from a prompt",
    "Runs in this process, in the mode of model.eval(), with the newest "
    "checkpoint of\n--checkpoint or the start values of the plan. With --data "
    "and --output: the model's outputs "
    "for all samples,\nin order. Else a model of tokens goes on with a text: "
    "bytes are tokens; a model\nwith more than 256 tokens gets and prints "
    "numbers.",
    run_infer};
