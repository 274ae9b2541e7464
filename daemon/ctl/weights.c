// SPDX-License-Identifier: Apache-2.0
/* `penstock weights`: writes the state of a model as one file that PyTorch
 * loads. */
#include "daemon/ctl/ctl.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "daemon/ctl/out.h"
#include "stages/base/alloc.h"
#include "stages/files/checkpoint/checkpoint.h"
#include "stages/run/state/average.h"
#include "stages/split/plan.h"

/* Summary of the written file. */
struct written {
    const char *file;
    uint64_t tensors, bytes;
    uint64_t left_out; /* trained tensors left out by --adapter */
    bool has_step;     /* the weights are from a checkpoint */
    uint64_t step;
};

static enum pst_status find_in_plan(void *ctx, const char *tensor,
                                    const struct pst_safetensors_entry **ret,
                                    struct pst_diag *diag)
{
    const char *fqn = strchr(tensor, '.'); /* tensor is "param.FQN" */

    return pst_plan_entry(ctx, (unsigned)pst_plan_find_param(ctx, fqn + 1), ret,
                          diag);
}

/* --- writing -------------------------------------------------------------- */

#define LEFT_S                                                                 \
    600 /* seconds after which a temporary file counts as left over            \
         */

/* True if `name` is a temporary file of `base` whose process, whose pid is part
 * of the name, is not running. */
static bool is_left(const char *name, const char *base)
{
    const size_t n = strlen(base);
    long pid;

    if (strncmp(name, base, n) != 0 || strncmp(name + n, ".tmp-", 5) != 0)
        return false;
    name += n + 5;
    pid = strtol(name, NULL, 10);
    return pid > 0 && name[strspn(name, "0123456789-")] == '\0' &&
           kill((pid_t)pid, 0) != 0 && errno == ESRCH;
}

/* Removes temporary files that killed processes have left beside the file. A
 * process on another host may still be writing one, so only files that have not
 * changed for ten minutes are removed. Failures are ignored. */
static void sweep(const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *base = slash != NULL ? slash + 1 : path;
    char *folder = slash == NULL ? pst_strdup(PST_TAG_CLIENT, ".")
                                 : pst_strdup(PST_TAG_CLIENT, path);
    struct dirent *e;
    struct stat st;
    DIR *dir;

    if (folder == NULL)
        return;
    if (slash != NULL)
        folder[slash == path ? 1 : slash - path] = '\0';
    dir = opendir(folder);
    pst_free(folder);
    while (dir != NULL && (e = readdir(dir)) != NULL)
        if (is_left(e->d_name, base) &&
            fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISREG(st.st_mode) && st.st_mtime + LEFT_S < time(NULL))
            (void)unlinkat(dirfd(dir), e->d_name, 0);
    if (dir != NULL)
        (void)closedir(dir);
    errno = 0;
}

/* Names the files of an adapter: OUTPUT.safetensors and the configuration
 * beside it, or both files in the folder `output`, which is created. */
static enum pst_status name_file(const char *output, struct pst_str *ret_file,
                                 struct pst_str *ret_config,
                                 struct pst_diag *diag)
{
    const char *slash = strrchr(output, '/');
    enum pst_status status = PST_OK;

    if (pst_has_suffix(output, ".safetensors")) {
        pst_str_add(ret_file, output);
        if (slash != NULL)
            pst_str_addn(ret_config, output, (size_t)(slash - output) + 1);
    } else {
        status = pst_mkdirs(output, 0777, diag);
        pst_str_addf(ret_file, "%s/adapter_model.safetensors", output);
        pst_str_addf(ret_config, "%s/", output);
    }
    pst_str_add(ret_config, "adapter_config.json");
    if (status == PST_OK && (ret_file->failed || ret_config->failed))
        status = pst_diag_nomem(diag, strlen(output));
    return status;
}

/* Writes an adapter in peft's layout: the configuration beside the tensors. */
static enum pst_status write_adapter(struct pst_state_names *names,
                                     pst_state_find_fn find, void *ctx,
                                     struct written *ret, struct pst_diag *diag)
{
    struct pst_str file = {0}, path = {0}, config = {0}, left_out = {0};
    struct pst_str shared = {0};
    enum pst_status status;
    size_t n_shared;

    ret->left_out = pst_state_names_left_out(names, &left_out);
    n_shared = pst_state_names_shared_adapters(names, &shared);
    status = pst_state_names_peft(names, find, ctx, &config, diag);
    if (status == PST_OK)
        status = name_file(ret->file, &file, &path, diag);
    if (status == PST_OK)
        sweep(file.text);
    if (status == PST_OK)
        status =
            pst_state_write(file.text, names, find, ctx, &ret->bytes, diag);
    if (status == PST_OK)
        status = pst_file_write(path.text, config.text, config.len, diag);
    if (status == PST_OK && ret->left_out > 0)
        pstctl_printf(stderr,
                      "penstock: warning: %" PRIu64 " tensors besides the "
                      "adapters were trained or changed and are not in it: %s; "
                      "without --adapter all is written\n",
                      ret->left_out, pst_str_text(&left_out));
    if (status == PST_OK && n_shared > 0)
        pstctl_printf(stderr,
                      "penstock: warning: %s: if they are one module under "
                      "two names, peft gives the adapter to the first name "
                      "only, and the model computes something else with "
                      "the other; --merge writes weights that are right "
                      "for both\n",
                      pst_str_text(&shared));
    pst_str_fini(&shared);
    pst_str_fini(&left_out);
    pst_str_fini(&file);
    pst_str_fini(&path);
    pst_str_fini(&config);
    return status;
}

static enum pst_status write_names(const struct pstd_config *config,
                                   struct pst_state_names *names,
                                   pst_state_find_fn find, void *ctx,
                                   struct written *ret, struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    ret->file = config->output;
    if (config->adapter) {
        status = write_adapter(names, find, ctx, ret, diag);
    } else {
        if (config->merge)
            status = pst_state_names_merge(names, diag);
        sweep(config->output);
        if (status == PST_OK)
            status = pst_state_write(config->output, names, find, ctx,
                                     &ret->bytes, diag);
    }
    ret->tensors = names->all.n;
    return status;
}

static enum pst_status write_plan(const struct pstd_config *config,
                                  struct written *ret, struct pst_diag *diag)
{
    struct pst_plan *plan = NULL;
    struct pst_state_names names;
    enum pst_status status = pst_plan_load(config->args[0], &plan, diag);

    pst_state_names_init(&names);
    if (status == PST_OK)
        status = pst_plan_names(plan, &names, diag);
    if (status == PST_OK)
        status = write_names(config, &names, find_in_plan, plan, ret, diag);
    pst_state_names_fini(&names);
    pst_plan_free(plan);
    return status;
}

/* Finds a tensor. For a parameter whose optimizer keeps an average, finds the
 * average. */
static enum pst_status find_in_checkpoint(
    void *ctx, const char *tensor, const struct pst_safetensors_entry **ret,
    struct pst_diag *diag)
{
    *ret =
        pst_has_prefix(tensor, PST_CHECKPOINT_PARAM)
            ? pst_checkpoint_average(ctx, tensor + strlen(PST_CHECKPOINT_PARAM))
            : NULL;
    if (*ret == NULL)
        *ret = pst_checkpoint_find(ctx, tensor);
    return *ret != NULL
               ? PST_OK
               : pst_diag_set(diag, PST_E_CHECKPOINT_DAMAGED,
                              "the checkpoint has no \"%.200s\"", tensor);
}

/* Finds a tensor for --use-ema: the average of a trained parameter, else the
 * same tensor as find_in_checkpoint(). */
static enum pst_status find_average(void *ctx, const char *tensor,
                                    const struct pst_safetensors_entry **ret,
                                    struct pst_diag *diag)
{
    struct pst_str name = {0};

    *ret = NULL;
    if (pst_has_prefix(tensor, "param.")) {
        pst_str_addf(&name, "ema.%s", tensor + strlen("param."));
        if (name.failed)
            return pst_diag_nomem(diag, strlen(tensor));
        *ret = pst_checkpoint_find(ctx, name.text);
        pst_str_fini(&name);
    }
    return *ret != NULL ? PST_OK : find_in_checkpoint(ctx, tensor, ret, diag);
}

static bool has_averages(const struct pst_checkpoint *ckpt)
{
    for (size_t i = 0; i < ckpt->where.n; i++)
        if (pst_has_prefix(ckpt->where.entries[i].key, "ema."))
            return true;
    return pst_checkpoint_has_average(ckpt);
}

static void print_skipped(void *ctx, const char *dir, uint64_t step,
                          const char *text)
{
    (void)ctx;
    (void)dir;
    (void)step;
    pstctl_printf(stderr, "note: passed over: %s\n", text);
}

static enum pst_status write_checkpoint(const struct pstd_config *config,
                                        struct written *ret,
                                        struct pst_diag *diag)
{
    const char *path = config->args[0];
    struct pst_checkpoint_query query = {.dir = path,
                                         .step = PST_CHECKPOINT_LATEST,
                                         .verify = true,
                                         .skipped = print_skipped};
    struct pst_checkpoint *ckpt = NULL;
    char *dir = NULL;
    enum pst_status status =
        pst_checkpoint_step_of(path, &dir, &query.step, diag);

    if (status != PST_OK)
        return status;
    if (dir != NULL)
        query.dir = dir;
    status = pst_checkpoint_open(&query, &ckpt, diag);
    if (status == PST_OK && !ckpt->has_names)
        status =
            pst_diag_set(diag, PST_E_CHECKPOINT_VERSION,
                         "%s: the checkpoint of step %" PRIu64
                         " was saved by an older penstock, which did not keep "
                         "the names of the state_dict: run one step from it "
                         "(--resume) and take the new checkpoint",
                         query.dir, ckpt->info.step);
    if (status == PST_OK && config->use_ema && !has_averages(ckpt))
        status = pst_diag_set(diag, PST_E_CHECKPOINT_OTHER_OPTIONS,
                              "%s: the checkpoint of step %" PRIu64
                              " has no averaged parameters: its run had no "
                              "--ema, or trained no parameter then",
                              query.dir, ckpt->info.step);
    if (status == PST_OK && ckpt->info.bad)
        pstctl_printf(stderr, "note: the checkpoint is bad: %s\n",
                      ckpt->info.reason);
    if (status == PST_OK) {
        *ret = (struct written){.has_step = true, .step = ckpt->info.step};
        if (dir == NULL)
            pstctl_print_second_note(path, &ckpt->info);
        status =
            write_names(config, &ckpt->names,
                        config->use_ema ? find_average : find_in_checkpoint,
                        ckpt, ret, diag);
    }
    pst_checkpoint_close(ckpt);
    pst_free(dir);
    return status;
}

static enum pst_status check_args(const struct pstd_config *config,
                                  bool *ret_plan, struct pst_diag *diag)
{
    const char *path = config->args[0];
    struct pst_str plan = {0};
    struct stat st;

    if (config->output == NULL)
        return pst_diag_set(diag, PST_E_COMMAND_ARGUMENTS,
                            "-o FILE.safetensors is missing: the file to "
                            "write");
    if (pstctl_check_output(config->output, NULL, diag) != PST_OK)
        return diag->status;
    if (config->merge && config->adapter)
        return pst_diag_set(diag, PST_E_COMMAND_ARGUMENTS,
                            "--merge and --adapter: use one of them");
    if (stat(path, &st) != 0)
        return errno == ENOENT
                   ? pst_diag_set(diag, PST_E_COMMAND_NO_SUCH_FILE,
                                  "%s: there is no such plan or checkpoint",
                                  path)
                   : pst_diag_errno(diag, errno,
                                    "cannot open the plan or checkpoint %s",
                                    path);
    if (!S_ISDIR(st.st_mode))
        return pst_diag_set(diag, PST_E_COMMAND_ARGUMENTS,
                            "%s is a file; weights takes a plan, a folder of "
                            "checkpoints or one step in it",
                            path);
    pst_str_addf(&plan, "%s/plan.pb", path);
    if (plan.failed)
        return pst_diag_nomem(diag, strlen(path));
    *ret_plan = access(plan.text, F_OK) == 0;
    pst_str_fini(&plan);
    if (*ret_plan && config->use_ema)
        return pst_diag_set(diag, PST_E_COMMAND_ARGUMENTS,
                            "--use-ema is for checkpoints; %s is a plan", path);
    return PST_OK;
}

static enum pst_status print_report(const char *output, const struct written *w,
                                    bool json, struct pst_diag *diag)
{
    json_t *object;

    if (!json) {
        pstctl_printf(stdout, "%s: %" PRIu64 " tensors, %.3f MiB", output,
                      w->tensors, (double)w->bytes / (1 << 20));
        if (w->has_step)
            pstctl_printf(stdout, ", of step %" PRIu64, w->step);
        pstctl_printf(stdout, "\n");
        return PST_OK;
    }
    object =
        json_pack("{s:o s:I s:I}", "file", pstctl_json_text(output), "tensors",
                  (json_int_t)w->tensors, "bytes", (json_int_t)w->bytes);
    if (w->left_out > 0)
        (void)json_object_set_new(object, "left_out",
                                  json_integer((json_int_t)w->left_out));
    if (w->has_step)
        (void)json_object_set_new(object, "step",
                                  json_integer((json_int_t)w->step));
    return pstctl_json_print(object, diag);
}

static enum pst_status run_weights(const struct pstd_config *config,
                                   struct pst_diag *diag)
{
    struct written written = {0};
    bool is_plan = false;
    enum pst_status status = check_args(config, &is_plan, diag);

    if (status == PST_OK)
        status =
            (is_plan ? write_plan : write_checkpoint)(config, &written, diag);
    return status == PST_OK
               ? print_report(config->output, &written, config->json, diag)
               : status;
}

static const struct pstd_option_help weights_options[] = {
    {"output", "file to write (.safetensors); with --adapter also a folder",
     NULL, NULL},
    {NULL, NULL, NULL, NULL},
};

const struct pstctl_command pstctl_weights = {
    "weights",
    "CHECKPOINT|PLAN -o FILE.safetensors [--merge|--adapter]",
    1,
    1,
    PSTD_OPT_WEIGHTS | PSTD_OPT_OUTPUT | PSTD_OPT_JSON,
    "write the state of a model to a file that PyTorch loads",
    "CHECKPOINT is the --checkpoint folder (its newest good checkpoint is "
    "taken) or\n"
    "one step in it. The file has exactly the keys of the model's state_dict,\n"
    "including tied names, for load_state_dict or transformers.",
    run_weights,
    true,
    weights_options};
