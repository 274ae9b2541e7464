// SPDX-License-Identifier: Apache-2.0
/* Runs programs for `penstock prove`, and reads what they wrote. */
#include "daemon/ctl/prove/prove.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stages/base/str.h"
#include "stages/files/safetensors.h"

#define MAX_WORDS 64
#define TEXT      4200

extern char **environ;

/* --- programs ------------------------------------------------------------- */

static bool add_redirect(posix_spawn_file_actions_t *files, int fd,
                         const char *path)
{
    return posix_spawn_file_actions_addopen(
               files, fd, path != NULL ? path : "/dev/null",
               O_WRONLY | O_CREAT | O_TRUNC, 0600) == 0;
}

int pstctl_prove_call(char *const words[], const char *out, const char *err)
{
    posix_spawn_file_actions_t files;
    int code = -1;
    pid_t pid;

    if (posix_spawn_file_actions_init(&files) != 0)
        return -1;
    if (posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0) ==
            0 &&
        add_redirect(&files, 1, out) && add_redirect(&files, 2, err) &&
        posix_spawnp(&pid, words[0], &files, NULL, words, environ) == 0) {
        while (waitpid(pid, &code, 0) < 0 && errno == EINTR)
            ;
        code = WIFEXITED(code) ? WEXITSTATUS(code) : 128;
    }
    (void)posix_spawn_file_actions_destroy(&files);
    return code;
}

void pstctl_prove_last_line(const char *path, char line[160])
{
    FILE *file = fopen(path, "r");
    char text[1024];

    (void)snprintf(line, 160, "it printed nothing");
    if (file == NULL)
        return;
    while (fgets(text, sizeof(text), file) != NULL) {
        const size_t n = strcspn(text, "\n");

        if (n > 0)
            (void)snprintf(line, 160, "%.*s", (int)PST_MIN(n, 159), text);
    }
    (void)fclose(file);
}

/* --- runs ----------------------------------------------------------------- */

/* Words of a command of penstock. `texts` owns those that are not constant. */
struct words {
    char *at[MAX_WORDS + 1];
    size_t n;
    struct pst_str texts[MAX_WORDS];
    bool failed;
};

static void add_word(struct words *w, const char *fmt, ...) PST_PRINTF(2, 3);

static void add_word(struct words *w, const char *fmt, ...)
{
    char text[TEXT];
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    if (w->n == MAX_WORDS || n < 0 || (size_t)n >= sizeof(text)) {
        w->failed = true;
        return;
    }
    pst_str_add(&w->texts[w->n], text);
    w->failed = w->failed || w->texts[w->n].failed;
    w->at[w->n] = w->texts[w->n].text;
    w->n++;
}

static void words_fini(struct words *w)
{
    for (size_t i = 0; i < w->n; i++)
        pst_str_fini(&w->texts[i]);
}

/* Adds the options of these groups that were given: --NAME=VALUE. */
static void add_given(struct words *w, const struct pstd_config *config,
                      uint64_t groups)
{
    size_t n;
    const struct pstd_option *rows = pstd_options(&n);

    for (size_t i = 0; i < n; i++) {
        struct pst_str text = {0};

        if (!(rows[i].groups & groups) || !config->given[i])
            continue;
        if (rows[i].type == PSTD_LIST) {
            const struct pstd_list *list = pstd_config_member(config, &rows[i]);

            for (size_t k = 0; k < list->n; k++)
                add_word(w, "--%s=%s", rows[i].name, list->at[k]);
        } else if (pstd_config_text(config, &rows[i], &text)) {
            if (rows[i].type == PSTD_FLAG)
                add_word(w, "--%s", rows[i].name);
            else
                add_word(w, "--%s=%s", rows[i].name, pst_str_text(&text));
        }
        pst_str_fini(&text);
    }
}

/* Runs a command of this program. False: the command failed, and `why` has the
 * last line of its output. */
static bool run_words(const struct pstctl_prover *p, struct words *w,
                      char why[160])
{
    char log[TEXT];
    int code = -1;

    (void)snprintf(log, sizeof(log), "%s/log", p->folder);
    if (!w->failed)
        code = pstctl_prove_call(w->at, NULL, log);
    if (code != 0)
        pstctl_prove_last_line(log, why);
    words_fini(w);
    return code == 0;
}

bool pstctl_prove_cut(const struct pstctl_prover *p, unsigned stages,
                      char why[160])
{
    struct words w = {0};

    add_word(&w, "/proc/self/exe");
    add_word(&w, "split");
    add_word(&w, "%s", p->config->args[0]);
    add_word(&w, "--stages=%u", stages);
    add_word(&w, "--output=%s/%u.plan", p->folder, stages);
    add_given(&w, p->config, PSTD_OPT_SPLIT & ~PSTD_OPT_JSON);
    return run_words(p, &w, why);
}

static bool run_way(const struct pstctl_prover *p, const struct pstctl_way *way,
                    unsigned number, unsigned steps, char why[160])
{
    struct words w = {0};

    add_word(&w, "/proc/self/exe");
    add_word(&w, "run");
    add_word(&w, "%s/%u.plan", p->folder, way->stages);
    add_given(&w, p->config, PSTD_OPT_TRAIN);
    if (p->config->plugin != NULL)
        add_word(&w, "--plugin=%s", p->config->plugin);
    /* A fixed number of threads, since the bits of results depend on it. */
    if (!PSTD_GIVEN(p->config, threads))
        add_word(&w, "--threads=1");
    add_word(&w, "--ranks=%u", way->ranks);
    add_word(&w, "--schedule=%s", way->schedule);
    add_word(&w, "--transport=%s", way->mpi ? "mpi" : "self");
    add_word(&w, "--steps=%u", steps);
    add_word(&w, "--dump=%s/%u.safetensors", p->folder, number);
    add_word(&w, "--log-dir=%s/logs", p->folder);
    add_word(&w, "--quiet");
    if (way->extra != NULL)
        add_word(&w, "--%s", way->extra);
    if (way->resumed)
        add_word(&w, "--checkpoint=%s/%u.saved", p->folder, number);
    if (way->resumed && steps == PSTCTL_PROVE_STEPS)
        add_word(&w, "--resume");
    return run_words(p, &w, why);
}

/* --- digests -------------------------------------------------------------- */

static int compare_names(const void *a, const void *b)
{
    return strcmp((*(const struct pst_safetensors_entry *const *)a)->name,
                  (*(const struct pst_safetensors_entry *const *)b)->name);
}

/* Adds a tensor to the digest of losses, gradients or parameters, according to
 * its name. */
static enum pst_status add_digest(const struct pst_safetensors_entry *entry,
                                  struct pstctl_proof *ret,
                                  struct pst_diag *diag)
{
    const size_t bytes = pst_meta_bytes(&entry->meta);
    void *data = pst_alloc(PST_TAG_CLIENT, bytes + 1);
    uint64_t *to = pst_has_prefix(entry->name, "grad.")    ? &ret->grads
                   : pst_has_prefix(entry->name, "losses") ? &ret->losses
                   : pst_has_prefix(entry->name, "param.") ||
                           pst_has_prefix(entry->name, "buffer.")
                       ? &ret->params
                       : NULL;
    enum pst_status status;

    if (data == NULL)
        return pst_diag_nomem(diag, bytes);
    status = pst_safetensors_read(entry, 0, bytes, data, diag);
    if (status == PST_OK && strcmp(entry->name, "loss") == 0)
        ret->loss = pst_load_f64(entry->meta.dtype, data, 0);
    if (status == PST_OK && to != NULL)
        *to = pst_hash(data, bytes,
                       pst_hash(entry->name, strlen(entry->name), *to));
    pst_free(data);
    return status;
}

static enum pst_status read_dump(const char *path, struct pstctl_proof *ret,
                                 struct pst_diag *diag)
{
    const struct pst_safetensors_entry **all = NULL;
    struct pst_safetensors *st;
    enum pst_status status = pst_safetensors_open(path, &st, diag);
    size_t n;

    if (status != PST_OK)
        return status;
    n = pst_safetensors_count(st);
    all = pst_calloc(PST_TAG_CLIENT, n + 1, sizeof(const void *));
    if (all == NULL)
        status = pst_diag_nomem(diag, n * sizeof(const void *));
    for (size_t i = 0; i < n && all != NULL; i++)
        all[i] = pst_safetensors_at(st, i);
    if (all != NULL)
        qsort(all, n, sizeof(const void *), compare_names);
    for (size_t i = 0; i < n && status == PST_OK; i++)
        status = add_digest(all[i], ret, diag);
    pst_free(all);
    pst_safetensors_close(st);
    return status;
}

void pstctl_prove_run(const struct pstctl_prover *p,
                      const struct pstctl_way *way, unsigned number,
                      struct pstctl_proof *ret)
{
    char path[TEXT];
    struct pst_diag diag;

    pst_diag_init(&diag);
    *ret = (struct pstctl_proof){0};
    (void)snprintf(path, sizeof(path), "%s/%u.safetensors", p->folder, number);
    if (way->resumed && !run_way(p, way, number, 1, ret->why))
        return;
    if (!run_way(p, way, number, PSTCTL_PROVE_STEPS, ret->why))
        return;
    ret->ran = read_dump(path, ret, &diag) == PST_OK;
    if (!ret->ran)
        (void)snprintf(ret->why, sizeof(ret->why), "%.159s", diag.text);
}
