// SPDX-License-Identifier: Apache-2.0
/*
 * `infer` with a prompt: continues a text with a token model. A model without
 * state reads its whole window again for each token. A model that takes a
 * single token and keeps earlier ones in buffers (a KV cache) reads each token
 * once, at its position.
 */
#include "daemon/ctl/infer/forward.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/ctl/print.h"
#include "stages/base/host/alive.h"
#include "stages/base/host/fs.h"
#include "stages/base/plural.h"
#include "stages/base/rng.h"

#define MAX_PROMPT (1u << 20)
#define BYTES      256 /* size of the vocabulary of a byte-level model */

/* A token model's inputs and outputs, and the tokens that the next step
 * reads. */
struct window {
    const struct pst_plan *plan;
    unsigned tokens; /* index of the input (B, T) */
    unsigned logits; /* index of the output (B, T, V) */
    int positions;   /* input (T) or (B, T) with their positions, or -1 */
    bool cached;     /* T is 1 and buffers cache earlier tokens */
    int64_t length;  /* T, the tokens that the model reads at once */
    int64_t vocab;   /* V, the size of the vocabulary */
    int64_t n;       /* number of tokens in the window */
    int64_t *at;     /* ids of the tokens; array of T entries */
    int64_t first;   /* position of at[0] in the text */
};

/* Numbers of steps and tokens, and times, for the final report. */
struct tally {
    uint64_t steps;
    size_t prompt; /* tokens of the prompt */
    /* Seconds for reading the prompt, and for the steps. Without a cache the
     * first step reads the prompt. */
    double read_s, made_s;
};

/* --- the model ----------------------------------------------------------- */

static bool is_integer(const struct pst_plan_input *in)
{
    return pst_dtype_kind(in->meta.dtype) == PST_KIND_INT;
}

static enum pst_status find_shapes(const struct pst_plan *plan,
                                   struct window *w, struct pst_diag *diag)
{
    unsigned best = 0;
    bool found = false;

    w->plan = plan;
    for (unsigned i = 0; i < plan->inputs.n && !found; i++) {
        const struct pst_meta *m = &plan->inputs.at[i].meta;

        if (m->rank == 2 && is_integer(&plan->inputs.at[i])) {
            found = true;
            w->tokens = i;
            w->length = m->size[1];
        }
    }
    if (!found || w->length < 1)
        return pst_diag_set(diag, PST_E_INFER_MODEL,
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
        return pst_diag_set(diag, PST_E_INFER_MODEL,
                            "infer needs logits: no output is floating (batch, "
                            "%lld, vocabulary)",
                            (long long)w->length);
    return PST_OK;
}

/* Finds the input of token positions, integers of shape (T) or (B, T): one with
 * "position" in its name, else the first of shape (T); -1: there is none. */
static int find_positions(const struct window *w)
{
    int ret = -1;

    for (unsigned i = 0; i < w->plan->inputs.n; i++) {
        const struct pst_plan_input *in = &w->plan->inputs.at[i];
        const unsigned rank = in->meta.rank;

        if (i == w->tokens || !is_integer(in) || rank < 1 || rank > 2 ||
            in->meta.size[rank - 1] != w->length)
            continue;
        if (strstr(in->name, "position") != NULL)
            return (int)i;
        if (rank == 1 && ret < 0)
            ret = (int)i;
    }
    return ret;
}

static bool changes_buffers(const struct pst_plan *plan)
{
    for (size_t s = 0; s < plan->stages.n; s++) {
        const struct pst_graph *graph = plan->stages.at[s].graph;

        for (size_t i = 0; i < graph->outputs.n; i++)
            if (graph->outputs.at[i].kind == PST_OUTPUT_BUFFER_UPDATE)
                return true;
    }
    return false;
}

/* Finds the inputs and outputs for text; prints notes about inputs that have no
 * role. */
static enum pst_status find_window(const struct pst_plan *plan,
                                   struct window *w, struct pst_diag *diag)
{
    const enum pst_status status = find_shapes(plan, w, diag);
    const bool changes = changes_buffers(plan);

    if (status != PST_OK)
        return status;
    w->positions = find_positions(w);
    w->cached = changes && w->length == 1;
    w->at = pst_calloc(PST_TAG_CLIENT, (size_t)w->length, sizeof(*w->at));
    if (w->at == NULL)
        return pst_diag_nomem(diag, (size_t)w->length * sizeof(*w->at));
    if (changes && !w->cached)
        pstctl_printf(stderr,
                      "note: the model keeps state in buffers but reads "
                      "%lld tokens at once, so it reads all of them again "
                      "for each new token; export it for one token\n",
                      (long long)w->length);
    for (unsigned i = 0; i < plan->inputs.n; i++) {
        const struct pst_plan_input *in = &plan->inputs.at[i];

        if (i != w->tokens && (int)i != w->positions &&
            !(is_integer(in) &&
              pst_meta_same_shape(&in->meta, &plan->inputs.at[w->tokens].meta)))
            pstctl_printf(stderr,
                          "note: input \"%s\" is neither tokens nor "
                          "positions: it is all zeros\n",
                          in->name);
    }
    return PST_OK;
}

/* Fills row 0 with the window, other rows with zeros, and positions in all
 * rows; other inputs (targets) are zero. */
static enum pst_status fill_input(void *ctx, uint64_t step, unsigned microbatch,
                                  unsigned input, void *dst,
                                  struct pst_diag *diag)
{
    const struct window *w = ctx;
    const struct pst_meta *meta = &w->plan->inputs.at[input].meta;
    const int64_t all = pst_meta_numel(meta);

    (void)step;
    (void)microbatch;
    (void)diag;
    memset(dst, 0, pst_meta_bytes(meta));
    for (int64_t i = 0; input == w->tokens && i < w->n; i++)
        pst_store_i64(meta->dtype, dst, i, w->at[i]);
    for (int64_t i = 0; (int)input == w->positions && i < all; i++)
        pst_store_i64(meta->dtype, dst, i, w->first + i % w->length);
    return PST_OK;
}

/* --- making text ---------------------------------------------------------- */

/* Chooses a token: the most probable one at temperature 0, else a sample from
 * softmax(logits / temperature), drawn with random number 0 of the key. */
static int64_t choose_token(const float *logits, int64_t n, double temperature,
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

static void append_token(struct window *w, int64_t token)
{
    if (w->n == w->length) {
        for (int64_t i = 1; i < w->n; i++)
            w->at[i - 1] = w->at[i];
        w->n--;
        w->first += w->cached; /* without a cache, positions count from the
                                  window's start */
    }
    w->at[w->n++] = token;
}

/* Appends a token: as a byte, or as a number if the vocabulary is larger. */
static void add_token_text(const struct window *w, int64_t token,
                           struct pst_str *out)
{
    const char byte = (char)token;

    if (w->vocab <= BYTES)
        pst_str_addn(out, &byte, 1);
    else
        pst_str_addf(out, "%s%lld", out->len > 0 ? " " : "", (long long)token);
}

static enum pst_status run_step(struct pstctl_forward *f, struct window *w,
                                struct tally *t, struct pst_diag *diag)
{
    struct pst_step_result r;

    return pst_engine_step(f->engine, t->steps++, fill_input, w, 0, &r, diag);
}

/* Computes generated token i, the one that follows the tokens in the window. */
static enum pst_status generate_token(struct pstctl_forward *f,
                                      const struct pstd_config *config,
                                      struct window *w, uint64_t i,
                                      float *logits, int64_t *ret,
                                      struct pst_diag *diag)
{
    const struct pst_rng_key key = {.seed = config->seed, .step = i};
    const float *last = logits + (w->n - 1) * w->vocab;
    const enum pst_status status =
        pst_engine_output(f->engine, w->logits, logits, diag);

    if (status != PST_OK)
        return status;
    for (int64_t v = 0; v < w->vocab; v++)
        if (isnan(last[v]))
            return pst_diag_set(
                diag, PST_E_INFER_PROMPT,
                "the model returns NaN for token %lld after %lld "
                "generated ones",
                (long long)v, (long long)i);
    *ret = choose_token(last, w->vocab, config->temperature, &key);
    return PST_OK;
}

static enum pst_status generate_tokens(struct pstctl_forward *f,
                                       const struct pstd_config *config,
                                       struct window *w, struct tally *t,
                                       struct pstctl_half *half,
                                       struct pst_str *out,
                                       struct pst_diag *diag)
{
    const size_t bytes = pst_meta_bytes(&f->plan->outputs.at[w->logits].meta);
    float *logits = pst_alloc(PST_TAG_CLIENT, bytes);
    const double begin = pst_now();
    enum pst_status status = PST_OK;

    if (logits == NULL)
        return pst_diag_nomem(diag, bytes);
    for (uint64_t i = 0; i < config->n_tokens && status == PST_OK; i++) {
        const size_t before = out->len;
        int64_t token = 0;

        status = run_step(f, w, t, diag);
        if (status == PST_OK)
            status = generate_token(f, config, w, i, logits, &token, diag);
        if (status != PST_OK)
            break;
        append_token(w, token);
        add_token_text(w, token, out);
        if (!config->json && !out->failed) {
            pstctl_print_bytes(half, out->text + before, out->len - before);
            (void)fflush(stdout);
        }
    }
    t->made_s = pst_now() - begin;
    pst_free(logits);
    return status;
}

/* --- the prompt ----------------------------------------------------------- */

/* Converts a text to tokens: its bytes, or the numbers in it. */
static enum pst_status parse_tokens(const struct window *w, const char *text,
                                    size_t n, int64_t *to, size_t *ret_n,
                                    struct pst_diag *diag)
{
    static const char between[] = " ,\t\r\n";
    const char *at = text;
    size_t count = 0;

    for (; w->vocab <= BYTES && count < n; count++)
        to[count] = (unsigned char)text[count];
    at += strspn(at, between);
    while (w->vocab > BYTES && at < text + n) {
        char *end;

        errno = 0;
        to[count++] = strtoll(at, &end, 10);
        if (errno != 0 || end == at || (*end && !strchr(between, *end)))
            return pst_diag_set(
                diag, PST_E_INFER_PROMPT,
                "a model with %lld tokens needs a prompt of token "
                "numbers; \"%.20s\" is not one",
                (long long)w->vocab, at);
        at = end + strspn(end, between);
    }
    if (count == 0)
        to[count++] = w->vocab <= BYTES ? '\n' : 0;
    for (size_t i = 0; i < count; i++)
        if (to[i] < 0 || to[i] >= w->vocab)
            return pst_diag_set(diag, PST_E_INFER_PROMPT,
                                "the prompt has %s %lld, the model knows %lld"
                                " tokens",
                                w->vocab <= BYTES ? "byte" : "token",
                                (long long)to[i], (long long)w->vocab);
    *ret_n = count;
    return PST_OK;
}

static enum pst_status read_text(const struct pstd_config *config, char **ret,
                                 size_t *ret_n, struct pst_diag *diag)
{
    if (config->prompt_file != NULL && config->prompt != NULL)
        return pst_diag_set(diag, PST_E_COMMAND_ARGUMENTS,
                            "--prompt and --prompt-file exclude each other");
    if (config->prompt_file != NULL)
        return pst_file_read(config->prompt_file, MAX_PROMPT, ret, ret_n, diag);
    *ret = pst_strdup(PST_TAG_CLIENT,
                      config->prompt != NULL ? config->prompt : "");
    if (*ret == NULL)
        return pst_diag_nomem(diag, 1);
    *ret_n = strlen(*ret);
    return PST_OK;
}

/* Puts the prompt into the window, which keeps the newest tokens that fit. With
 * a cache, the model reads all tokens but the last one, which the first
 * generating step reads. */
static enum pst_status read_prompt(struct pstctl_forward *f, struct window *w,
                                   const int64_t *tokens, struct tally *t,
                                   struct pst_diag *diag)
{
    const double begin = pst_now();
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < t->prompt && status == PST_OK; i++) {
        append_token(w, tokens[i]);
        if (w->cached && i + 1 < t->prompt)
            status = run_step(f, w, t, diag);
    }
    t->read_s = pst_now() - begin;
    return status;
}

/* --- entry ---------------------------------------------------------------- */

static enum pst_status print_tally(const struct pstd_config *config,
                                   const struct pstctl_forward *f,
                                   const struct window *w,
                                   const struct tally *t, struct pst_str *text,
                                   struct pst_diag *diag)
{
    const double rate =
        t->made_s > 0 ? (double)config->n_tokens / t->made_s : 0;

    if (config->json)
        return pstctl_json_print(
            json_pack("{s:I s:I s:o s:b s:I s:o s:o s:I}", "tokens",
                      (json_int_t)config->n_tokens, "step", (json_int_t)f->step,
                      "text", pstctl_json_text(pst_str_text(text)), "cached",
                      (int)w->cached, "prompt_tokens", (json_int_t)t->prompt,
                      "prompt_s", pstctl_json_real(t->read_s), "tokens_per_s",
                      pstctl_json_real(rate), "copied_bytes",
                      (json_int_t)pst_engine_memory(f->engine, 0).copied),
            diag);
    pstctl_printf(stdout, "\n");
    if (w->cached)
        pstctl_printf(stderr, "%zu token%s read in %.3g s, ", t->prompt - 1,
                      pst_plural(t->prompt - 1), t->read_s);
    pstctl_printf(stderr, "%llu made in %.3g s: %.4g tokens/s\n",
                  (unsigned long long)config->n_tokens, t->made_s, rate);
    return PST_OK;
}

/* Prints a note if a text of n tokens is longer than the window, and --size
 * could set a longer one. */
static void print_window_note(const struct window *w, uint64_t n)
{
    const struct pst_plan_input *in = &w->plan->inputs.at[w->tokens];

    if (!w->cached && n > (uint64_t)w->length && w->plan->fixed == NULL &&
        in->dims != NULL && in->dims[1] != NULL)
        pstctl_printf(stderr,
                      "note: the text becomes longer than the %lld tokens that "
                      "the plan has: each new token depends on the last %lld "
                      "alone; --size %s.1=SIZE sets another length\n",
                      (long long)w->length, (long long)w->length, in->name);
}

static enum pst_status run_prompt(const struct pstd_config *config,
                                  struct pstctl_forward *f, struct window *w,
                                  const char *prompt, size_t n,
                                  struct pst_str *text, struct pst_diag *diag)
{
    int64_t *tokens =
        /* at most one token per byte */
        pst_calloc(PST_TAG_CLIENT, n + 1, sizeof(*tokens));
    struct pstctl_half half = {0};
    struct tally t = {0};
    enum pst_status status;

    if (tokens == NULL)
        return pst_diag_nomem(diag, (n + 1) * sizeof(*tokens));
    status = parse_tokens(w, prompt, n, tokens, &t.prompt, diag);
    if (status == PST_OK)
        print_window_note(w, t.prompt + config->n_tokens - 1);
    if (status == PST_OK && !config->json)
        pstctl_print_bytes(&half, prompt, n);
    if (status == PST_OK && !config->json && w->vocab > BYTES && n > 0)
        pstctl_print_bytes(&half, " ", 1);
    if (status == PST_OK)
        status = read_prompt(f, w, tokens, &t, diag);
    if (status == PST_OK)
        status = generate_tokens(f, config, w, &t, &half, text, diag);
    if (status == PST_OK && !config->json)
        pstctl_print_bytes(&half, "", 0);
    if (status == PST_OK)
        status = print_tally(config, f, w, &t, text, diag);
    pst_free(tokens);
    return status;
}

enum pst_status pstctl_infer_text(const struct pstd_config *config,
                                  struct pst_diag *diag)
{
    struct pstctl_forward f = {0};
    struct window w = {0};
    struct pst_str text = {0};
    char *prompt = NULL;
    size_t n = 0;
    enum pst_status status;

    if (config->batch > 0)
        return pst_diag_set(diag, PST_E_COMMAND_ARGUMENTS,
                            "a text has no rows to divide: --batch is for "
                            "--data");
    status = pstctl_forward_open(config, 1, false, &f, diag);
    if (status == PST_OK)
        status = find_window(f.plan, &w, diag);
    if (status == PST_OK)
        status = read_text(config, &prompt, &n, diag);
    if (status == PST_OK)
        status = run_prompt(config, &f, &w, prompt, n, &text, diag);
    pst_str_fini(&text);
    pst_free(prompt);
    pst_free(w.at);
    pstctl_forward_close(&f);
    return status;
}
