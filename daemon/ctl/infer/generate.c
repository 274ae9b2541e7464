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

#include "daemon/ctl/infer/window.h"
#include "daemon/ctl/print.h"
#include "stages/base/host/alive.h"
#include "stages/base/host/fs.h"
#include "stages/base/plural.h"
#include "stages/base/rng.h"

#define MAX_PROMPT (1u << 20)
#define BYTES      256 /* size of the vocabulary of a byte-level model */

/* Numbers of steps and tokens, and times, for the final report. */
struct tally {
    uint64_t steps;
    size_t prompt; /* tokens of the prompt */
    /* Seconds for reading the prompt, and for the steps. Without a cache the
     * first step reads the prompt. */
    double read_s, made_s;
};

/* --- making text ---------------------------------------------------------- */

/* Chooses a token: the most probable one at temperature 0, else a sample from
 * softmax(logits / temperature), drawn with random number 0 of the key. */
static int64_t choose_token(const double *logits, int64_t n, double temperature,
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
        sum += exp((logits[i] - logits[best]) / temperature);
    at = (double)pst_rng_f32(key, 0) * sum;
    for (int64_t i = 0; i < n; i++) {
        at -= exp((logits[i] - logits[best]) / temperature);
        if (at < 0)
            return i;
    }
    return best;
}

/* Appends a token: as a byte, or as a number if the vocabulary is larger. */
static void add_token_text(const struct pstctl_window *w, int64_t token,
                           struct pst_str *out)
{
    const char byte = (char)token;

    if (w->vocab <= BYTES)
        pst_str_addn(out, &byte, 1);
    else
        pst_str_addf(out, "%s%lld", out->len > 0 ? " " : "", (long long)token);
}

static enum pst_status run_step(struct pstctl_forward *f,
                                struct pstctl_window *w, struct tally *t,
                                struct pst_diag *diag)
{
    struct pst_step_result r;

    return pst_engine_step(f->engine, t->steps++, pstctl_window_fill, w, 0, &r,
                           diag);
}

/* logits: output of a step, as the model writes it; last: the logits of one
 * token as doubles. */
struct scores {
    void *logits;
    double *last;
};

/* Computes generated token i, the one that follows the tokens in the window. */
static enum pst_status generate_token(struct pstctl_forward *f,
                                      const struct pstd_config *config,
                                      const struct pstctl_window *w, uint64_t i,
                                      const struct scores *scores, int64_t *ret,
                                      struct pst_diag *diag)
{
    const enum pst_dtype dtype = f->plan->outputs.at[w->logits].meta.dtype;
    const struct pst_rng_key key = {.seed = config->seed, .step = i};
    const enum pst_status status =
        pst_engine_output(f->engine, w->logits, scores->logits, diag);

    if (status != PST_OK)
        return status;
    for (int64_t v = 0; v < w->vocab; v++) {
        scores->last[v] =
            pst_load_f64(dtype, scores->logits, (w->n - 1) * w->vocab + v);
        if (isnan(scores->last[v]))
            return pst_diag_set(
                diag, PST_E_INFER_PROMPT,
                "the model returns NaN for token %lld after %lld "
                "generated ones",
                (long long)v, (long long)i);
    }
    *ret = choose_token(scores->last, w->vocab, config->temperature, &key);
    return PST_OK;
}

static enum pst_status generate_tokens(struct pstctl_forward *f,
                                       const struct pstd_config *config,
                                       struct pstctl_window *w, struct tally *t,
                                       struct pstctl_half *half,
                                       struct pst_str *out,
                                       struct pst_diag *diag)
{
    const size_t bytes = pst_meta_bytes(&f->plan->outputs.at[w->logits].meta);
    struct scores scores = {
        pst_alloc(PST_TAG_CLIENT, bytes),
        pst_calloc(PST_TAG_CLIENT, (size_t)w->vocab, sizeof(double))};
    const double begin = pst_now();
    enum pst_status status = PST_OK;

    if (scores.logits == NULL || scores.last == NULL)
        status = pst_diag_nomem(diag, bytes);
    for (uint64_t i = 0; i < config->n_tokens && status == PST_OK; i++) {
        const size_t before = out->len;
        int64_t token = 0;

        status = run_step(f, w, t, diag);
        if (status == PST_OK)
            status = generate_token(f, config, w, i, &scores, &token, diag);
        if (status != PST_OK)
            break;
        pstctl_window_append(w, token);
        add_token_text(w, token, out);
        if (!config->json && !out->failed) {
            pstctl_print_bytes(half, out->text + before, out->len - before);
            (void)fflush(stdout);
        }
    }
    t->made_s = pst_now() - begin;
    pst_free(scores.logits);
    pst_free(scores.last);
    return status;
}

/* --- the prompt ----------------------------------------------------------- */

/* Converts a text to tokens: its bytes, or the numbers in it. */
static enum pst_status parse_tokens(const struct pstctl_window *w,
                                    const char *text, size_t n, int64_t *to,
                                    size_t *ret_n, struct pst_diag *diag)
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
static enum pst_status read_prompt(struct pstctl_forward *f,
                                   struct pstctl_window *w,
                                   const int64_t *tokens, struct tally *t,
                                   struct pst_diag *diag)
{
    const double begin = pst_now();
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < t->prompt && status == PST_OK; i++) {
        pstctl_window_append(w, tokens[i]);
        if (w->cached && i + 1 < t->prompt)
            status = run_step(f, w, t, diag);
    }
    t->read_s = pst_now() - begin;
    return status;
}

/* --- entry ---------------------------------------------------------------- */

static enum pst_status print_tally(const struct pstd_config *config,
                                   const struct pstctl_forward *f,
                                   const struct pstctl_window *w,
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
static void print_window_note(const struct pstctl_window *w, uint64_t n)
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
                                  struct pstctl_forward *f,
                                  struct pstctl_window *w, const char *prompt,
                                  size_t n, struct pst_str *text,
                                  struct pst_diag *diag)
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

/* Refuses options for --data that would have no effect on a prompt. */
static enum pst_status check_data_options(const struct pstd_config *config,
                                          struct pst_diag *diag)
{
    const struct {
        bool is_given;
        const char *name;
    } rows[] = {
        {PSTD_GIVEN(config, batch), "batch"},
        {PSTD_GIVEN(config, shuffle), "shuffle"},
        {PSTD_GIVEN(config, seq_len), "seq-len"},
        {PSTD_GIVEN(config, pack), "pack"},
        {PSTD_GIVEN(config, token_dtype), "token-dtype"},
    };

    for (size_t i = 0; i < PST_COUNT(rows); i++)
        if (rows[i].is_given)
            return pst_diag_set(diag, PST_E_COMMAND_ARGUMENTS,
                                "--%s has no effect on a prompt: it is for "
                                "--data",
                                rows[i].name);
    return PST_OK;
}

enum pst_status pstctl_infer_text(const struct pstd_config *config,
                                  struct pst_diag *diag)
{
    struct pstctl_forward f = {0};
    struct pstctl_window w = {0};
    struct pst_str text = {0};
    char *prompt = NULL;
    size_t n = 0;
    enum pst_status status;

    if (check_data_options(config, diag) != PST_OK)
        return diag->status;
    status = pstctl_forward_open(config, 1, false, &f, diag);
    if (status == PST_OK)
        status = pstctl_window_find(f.plan, config, &w, diag);
    if (status == PST_OK)
        status = read_text(config, &prompt, &n, diag);
    if (status == PST_OK)
        status = run_prompt(config, &f, &w, prompt, n, &text, diag);
    pst_str_fini(&text);
    pst_free(prompt);
    pstctl_window_fini(&w);
    pstctl_forward_close(&f);
    return status;
}
