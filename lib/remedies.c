// SPDX-License-Identifier: Apache-2.0
/* Remedies of errors for callers of the library. Those in the error catalogue
 * name options and commands of the command line. */
#include <ctype.h>
#include <string.h>

#include "lib/object.h"

/* Remedies in terms of the library, for errors of its calls whose catalogue row
 * names a command, or an option that no call has. */
static const struct {
    enum pst_error error;
    const char *remedy;
} own[] = {
    {PST_E_CHECKPOINT_NONE,
     "Give penstock_load a folder that penstock_save or `penstock run` has "
     "written."},
    {PST_E_CHECKPOINT_DAMAGED,
     "Give penstock_load another folder with checkpoints of the model, or "
     "remove this checkpoint from the folder, so that the one before it is "
     "loaded."},
    {PST_E_CHECKPOINT_ALL_BAD,
     "Give penstock_load another folder, or begin with a new session."},
    {PST_E_CHECKPOINT_VERSION,
     "Use the version of penstock that the message names; from a checkpoint of "
     "an older version make one step, and save it again with penstock_save."},
    {PST_E_CHECKPOINT_OTHER_MODEL,
     "In a new session open the model that the run of the checkpoint began "
     "with, without penstock_swap: penstock_load makes the changes of the run "
     "itself. Or give another folder."},
    {PST_E_CHECKPOINT_OTHER_RUN,
     "Call penstock_load with that folder first, to go on from its newest "
     "checkpoint, or save to another folder."},
    {PST_E_CHECKPOINT_IN_USE,
     "Free the session or end the job that writes there, or save to another "
     "folder."},
    {PST_E_CHECKPOINT_KEPT,
     "Save into another folder, or remove the pin or the link yourself."},
    {PST_E_CHECKPOINT_READ_BACK,
     "The disk is probably faulty: see `dmesg`, and call penstock_save with a "
     "folder on another one."},
    {PST_E_CHECKPOINT_PLAN_TOO_LARGE,
     "Give penstock_load a folder with another checkpoint."},
    {PST_E_CHECKPOINT_FOLDER,
     "Give penstock_save or penstock_load a folder of checkpoints that all "
     "ranks see, not a single checkpoint."},
    {PST_E_STATE_OTHER_STAGE,
     "Leave this pair out of the file of {\"state\", \"map:FILE\"}; the new "
     "parameter then starts with a fresh state."},
    {PST_E_FILE_MISSING,
     "Correct the path; a relative one is taken from the current folder of the "
     "program, on every host (`ls -l PATH` there)."},
    {PST_E_FILE_DISK_FULL,
     "Free space (`df -h PATH`, `quota`), or give penstock_save a folder on "
     "another disk; TMPDIR is for temporary files."},
    {PST_E_FILE_SYSTEM, "Act on the reason after the last colon."},
    {PST_E_HOST_OPEN_FILES,
     "Raise `ulimit -n` (LimitNOFILE= of a unit), or close files and sockets "
     "of the program."},
    {PST_E_MEMORY_HOST,
     "See `free -m`, `ulimit -v` and the limit of the control group; use fewer "
     "or smaller microbatches (\"microbatches\", \"microbatch-size\"), "
     "\"recompute\" or more ranks."},
    {PST_E_MEMORY_HEADROOM,
     "Use fewer or smaller microbatches, ranks on more hosts, {\"schedule\", "
     "\"auto\"} with \"memory-limit\", or {\"overcommit\", \"yes\"} to try it "
     "anyway."},
    {PST_E_MEMORY_TOO_LARGE,
     "Look for a wrong size: \"microbatch-size\", \"batch\" and "
     "\"size\"; penstock_describe has the shapes."},
    {PST_E_NET_MPI,
     "Find the rank that failed first, and test the network between the hosts; "
     "then free the session, make a new one, and penstock_load a checkpoint."},
    {PST_E_NET_MESSAGE,
     "Look at the rank that the message names: that rank or the network to it "
     "failed first; then make a new session and penstock_load a checkpoint."},
    {PST_E_NET_TRANSPORT,
     "Give mpi_comm the address of a communicator, or NULL for ranks in this "
     "process."},
    {PST_E_NET_NOT_BUILT,
     "Initialize MPI with MPI_THREAD_FUNNELED or more before "
     "penstock_session_new, and use a library that was built with MPI; or "
     "leave mpi_comm NULL, for ranks in this process."},
    {PST_E_RUN_VERIFY,
     "Report it with the model and the message; cut elsewhere meanwhile."},
    {PST_E_INTERNAL_BUG,
     "Report it with the message, the version (penstock_version) and the "
     "calls before it; go on in a new session with penstock_load."},
    {PST_E_OPTION_UNKNOWN,
     "Compare the name with docs/library.md, which lists the options of each "
     "call."},
    {PST_E_OPTION_VALUE,
     "Give a value of the form and in the range that the message says; "
     "docs/commands.md describes the options."},
    {PST_E_COMMAND_NO_SUCH_FILE,
     "Give penstock_open a .pt2 file, or the folder of a plan."},
    {PST_E_PT2_INCONSISTENT,
     "Try torch.export.load on the file: if that fails too, save it again; if "
     "it loads, report it with the message."},
    {PST_E_PT2_DATA_MISSING,
     "Save the model again with torch.export.save, or give penstock_open the "
     "values with {\"weights\", \"FILE\"}."},
    {PST_E_OP_NOT_SUPPORTED,
     "Use operators of docs/operators.md, replace the module with {\"swap\", "
     "\"FQN=MODULE.pt2\"}, or add the operators with penstock_op_register; if "
     "sizes depend on data, see docs/models.md."},
    {PST_E_OP_NO_KERNEL,
     "Convert the operands in the model (.float()), or leave out {\"dtype\", "
     "\"bf16\"}."},
    {PST_E_OP_SHAPE,
     "Compare with the call in the model that the message names; where sizes "
     "were set with \"size\" or \"batch\", set them to ones that the model was "
     "exported for."},
    {PST_E_OP_ARGUMENT,
     "Compare the call with the schema in PyTorch; save the model again with a "
     "torch version that has this schema."},
    {PST_E_OP_RESULT,
     "Export the model again with torch >= 2.9; if that does not help, report "
     "it with the message."},
    {PST_E_GRAPH_TEXT,
     "Correct the line and character that the message names."},
    {PST_E_MODULE_UNKNOWN, "Take a name that penstock_describe_module lists, "
                           "or \"\" for the whole model."},
    {PST_E_MODULE_CALL_NUMBER, "penstock_describe_module has the number of "
                               "calls of each module; they count from "
                               "0."},
    {PST_E_MODULE_NOT_CALLED, "Name a module that the forward function runs: "
                              "penstock_describe_module has the "
                              "calls of each."},
    {PST_E_SWAP_GRADIENT,
     "Remove detach() or no_grad from the new module, and export it again."},
    {PST_E_SWAP_ADAPTER,
     "Open the model with {\"weights\", \"FILE\"} that has the adapters "
     "merged, and replace the module then."},
    {PST_E_PARAMETER_UNKNOWN,
     "Take a name that penstock_describe returns; * stands for any "
     "characters."},
    {PST_E_CAST_NONE,
     "Name a module with floating-point parameters; penstock_describe has "
     "their dtypes."},
    {PST_E_ATTR_VALUE,
     "Give a number in the range of the dtype that penstock_describe returns."},
    {PST_E_PLAN_DAMAGED,
     "Copy the whole plan folder again, or open the .pt2 itself."},
    {PST_E_PLAN_VERSION,
     "Open the .pt2 itself, or cut it again with this version."},
    {PST_E_CUT_MODULE, "Cut at a module before or after it; "
                       "penstock_describe_module lists them in "
                       "order."},
    {PST_E_CUT_COST, "Measure the costs again in a job of `penstock run`."},
    {PST_E_RANDOM_KEEP, "Name a module with a dropout in it; "
                        "penstock_describe_module lists them."},
    {PST_E_LOSS_UNKNOWN,
     "Take a name from the list in the message; {\"loss-fn\", "
     "\"NAME:KEY=VALUE,KEY=VALUE\"} has the options of the loss."},
    {PST_E_LOSS_OUTPUT,
     "Name another one with {\"loss\", \"PATH\"} or {\"loss-fn\", "
     "\"NAME:output=PATH\"}; penstock_describe lists the outputs."},
    {PST_E_LOSS_MISSING,
     "Open the .pt2 with \"loss-fn\" (cross_entropy, mse ...), or with "
     "\"loss\" if an output is one."},
    {PST_E_LOSS_MISSING_MEAN, "Open the .pt2 with \"loss-fn\" or \"loss\"."},
    {PST_E_LOSS_TOKENS,
     "Use {\"microbatch-weights\", \"rows\"}, or open the .pt2 with "
     "{\"loss-fn\", \"cross_entropy\"}."},
    {PST_E_SIZE_OPTION,
     "Write {\"size\", \"NAME.DIMENSION=SIZE\"} and {\"chunk\", "
     "\"NAME=DIMENSION\"} or {\"chunk\", \"NAME=replicate\"}; "
     "penstock_describe lists the inputs."},
    {PST_E_PLUGIN_MISSING,
     "Add it with penstock_op_register, or give penstock_open its file with "
     "{\"plugin\", \"FILE.so\"}."},
    {PST_E_OPTIMIZER_OPTION,
     "Change the option that the message names; docs/optimizers.md describes "
     "the options."},
    {PST_E_RUN_OPTIONS,
     "Change the option that the message names; docs/library.md lists those of "
     "each call."},
    {PST_E_RUN_RANKS,
     "Make the number of ranks of the communicator a multiple of those that "
     "the session needs: \"ranks\", times the replicas."},
    {PST_E_RUN_UNEQUAL_RANKS,
     "Make the call on all ranks with the model, the options and the values "
     "that the message compares."},
    {PST_E_RUN_NOT_FINITE,
     "Lower \"lr\", set \"clip-norm\", or look at the inputs of that step: "
     "nothing has changed, and it can be made again with others."},
    {PST_E_RUN_SPIKE,
     "Look at the inputs of the step: nothing has changed, and it can be made "
     "again with others."},
    {PST_E_RUN_TOO_FEW_STAGES,
     "Make the session with as many ranks as the plan has stages, or fewer."},
    {PST_E_RUN_PLAN,
     "Give penstock_open a .pt2 file, or the folder of a plan."},
    {PST_E_RUN_KILLED,
     "See `dmesg` for the out-of-memory killer; make a new session, and "
     "penstock_load the newest checkpoint."},
    {PST_E_RUN_STUCK,
     "Look at the rank and the peer that the message names; raise \"watchdog\" "
     "if steps or the time between them are long."},
    {PST_E_RUN_MESSAGE_DAMAGED,
     "Test the memory and the network of the two hosts that the message names; "
     "make a new session without them, and penstock_load the newest "
     "checkpoint."},
    {PST_E_RUN_COPIES_DIFFER,
     "Test the memory of the host of the rank that the message names; make a "
     "new session without it, and penstock_load an earlier checkpoint."},
    {PST_E_RUN_STASH_DAMAGED,
     "Test the disk or memory that the message names; make a new session with "
     "{\"stash\", \"none\"}, and penstock_load the newest checkpoint."},
    {PST_E_RUN_STOPPED,
     "Nothing is wrong: make a new session, and penstock_load the newest "
     "checkpoint."},
    {PST_E_RUN_UNSAVED,
     "The message says why the ranks died: make a new session, and "
     "penstock_load the newest checkpoint."},
    {PST_E_RUN_TERMINATED,
     "Nothing is wrong: make a new session, and penstock_load the newest "
     "checkpoint."},
    {PST_E_SCHEDULE_CSV, "Correct the line and column that the message names."},
    {PST_E_SCHEDULE_MEMORY,
     "Raise \"memory-limit\", take {\"schedule\", \"auto\"}, more ranks, fewer "
     "or smaller microbatches, or \"recompute\"."},
    {PST_E_COSTS_FILE,
     "Measure the costs again in a job of `penstock run`; the message names "
     "the position."},
    {PST_E_COSTS_VERSION,
     "Measure the costs again in a job of `penstock run`."},
    {PST_E_COSTS_OTHER, "Leave \"costs\" out, or give those of this plan."},
    {PST_E_COSTS_STAGE, "Give other \"costs\", or leave them out."},
    {PST_E_RECOMPUTE_WORDS,
     "Use none, attention, block, full, marked, twice or names of modules "
     "(penstock_describe_module), per stage as STAGE=WORDS."},
    {PST_E_WEIGHTS_SHAPE,
     "Give the weights of this model, or convert the file first; \"partial\" "
     "ignores missing tensors, not wrong ones."},
    {PST_E_SIZE_OVERFLOW, "Look for a wrong \"size\" or \"batch\"."},
    {PST_E_RANDOM_OPERATORS,
     "Call model.eval() before the export, or train with penstock_train_step, "
     "which has them."},
    {PST_E_RUN_SET, "Give the option to a new session, and penstock_load a "
                    "checkpoint there."},
    {PST_E_PLAN_REPLACED,
     "Bring the old file back, or begin anew with the new one."},
    {PST_E_RUN_KEPT, "The message says why: correct that, make a new session, "
                     "and penstock_load the newest checkpoint."},
    {PST_E_RUN_EXIT, "Read the lines after the colon."},
    {PST_E_CHECKPOINT_NO_STEP,
     "Give penstock_load another folder; it takes the newest checkpoint."},
    {PST_E_CHECKPOINT_NOT_SAVED,
     "Call penstock_save again, or with a folder on another disk."},
    {PST_E_CHECKPOINT_GIVEN_UP,
     "The checkpoint before it is complete; penstock_load takes that one."},
    {PST_E_LORA_NONE, "Open the .pt2 with {\"lora\", \"PATTERN:rank=R\"}."},
    {PST_E_LORA_TIED,
     "Give \"lora\" a pattern that has both modules, or neither."},
    {PST_E_LORA_PATTERN, "Take a name that penstock_describe_module lists; a "
                         "pattern may have * and ?."},
    {PST_E_LORA_NOT_LINEAR,
     "Narrow the pattern to linear layers, for instance \"*.q_proj\"; "
     "penstock_describe_module has the types."},
};

/* Short options of the command line, by letter. */
static const struct {
    char letter;
    const char *name;
} letters[] = {{'m', "microbatches"}, {'n', "ranks"}};

static bool is_word(char c)
{
    return isalnum((unsigned char)c) != 0 || c == '-' || c == '_' || c == '.';
}

/* An option found in a text. */
struct found {
    const char *name, *value; /* value_n 0: none */
    size_t name_n, value_n;
    size_t length; /* bytes of the option in the text; 0: no option */
};

/* Sets the value that follows a name, if it is a placeholder such as
 * STEP or NAME:KEY=VALUE. */
static void find_value(const char *at, struct found *f)
{
    const char *value = at + f->length + 1;
    size_t n = 0;

    if ((value[-1] != ' ' && value[-1] != '=') ||
        isupper((unsigned char)value[0]) == 0 ||
        (value[1] != '\0' && islower((unsigned char)value[1]) != 0))
        return;
    while (is_word(value[n]) ||
           (value[n] != '\0' && strchr(":=|/", value[n]) != NULL))
        n++;
    while (n > 0 && value[n - 1] == '.')
        n--;
    f->value = value;
    f->value_n = n;
    f->length += 1 + n;
}

/* Finds an option at `at`, "--name" or "-m". */
static struct found find_option(const char *at)
{
    struct found f = {0};
    size_t n = 0;

    if (at[0] == '-' && at[1] == '-' && islower((unsigned char)at[2]) != 0) {
        while (islower((unsigned char)at[2 + n]) != 0 ||
               isdigit((unsigned char)at[2 + n]) != 0 ||
               (at[2 + n] == '-' && islower((unsigned char)at[3 + n]) != 0))
            n++;
        f = (struct found){.name = at + 2, .name_n = n, .length = n + 2};
    }
    for (size_t i = 0; at[0] == '-' && i < PST_COUNT(letters); i++)
        if (at[1] == letters[i].letter && !is_word(at[2]))
            f = (struct found){.name = letters[i].name,
                               .name_n = strlen(letters[i].name),
                               .length = 2};
    if (f.length > 0)
        find_value(at, &f);
    return f;
}

/* Appends n characters of text, or as many as fit. */
static void append(char *ret, size_t size, size_t *at, const char *text,
                   size_t n)
{
    n = PST_MIN(n, size - 1 - *at);
    memcpy(ret + *at, text, n);
    *at += n;
}

void pstl_words_of_options(const char *text, char *ret, size_t size)
{
    bool in_command = false;
    size_t n = 0;

    for (const char *at = text; *at != '\0' && n + 1 < size;) {
        struct found f = {0};

        if (!in_command && (at == text || !is_word(at[-1])))
            f = find_option(at);
        in_command = in_command != (*at == '`');
        if (f.length == 0) {
            ret[n++] = *at++;
            continue;
        }
        append(ret, size, &n, f.value_n > 0 ? "{\"" : "\"",
               f.value_n > 0 ? 2 : 1);
        append(ret, size, &n, f.name, f.name_n);
        append(ret, size, &n, "\"", 1);
        if (f.value_n > 0) {
            append(ret, size, &n, ", \"", 3);
            append(ret, size, &n, f.value, f.value_n);
            append(ret, size, &n, "\"}", 2);
        }
        at += f.length;
    }
    ret[n] = '\0';
}

/* True for rows of the catalogue that only commands report. */
static bool is_of_commands(const char *id)
{
    static const char *const areas[] = {
        "command.", "control.", "doctor.",  "history.", "hosts.", "infer.",
        "job.",     "record.",  "request.", "serve.",   "ask.",   "socket.",
        "trace.",   "change.",  "data.",    "device."};

    for (size_t i = 0; i < PST_COUNT(areas); i++)
        if (strncmp(id, areas[i], strlen(areas[i])) == 0)
            return true;
    return false;
}

void pstl_remedy(enum pst_error error, char *ret, size_t size)
{
    const char *remedy = pst_error_remedy(error);

    for (size_t i = 0; i < PST_COUNT(own); i++)
        if (own[i].error == error) {
            pstl_words_of_options(own[i].remedy, ret, size);
            return;
        }
    if (is_of_commands(pst_error_id(error)) &&
        (strstr(remedy, "--") != NULL || strstr(remedy, "`penstock") != NULL))
        remedy = "Only commands of penstock fail in this way: report it with "
                 "the message and the version (penstock_version).";
    pstl_words_of_options(remedy, ret, size);
}
