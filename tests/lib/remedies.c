// SPDX-License-Identifier: Apache-2.0
/* Checks that the library's remedy for each error of the catalogue names no
 * command and no flag of the command line, nor "the command", and only options
 * that its calls take. */
#include "tests/lib/drive.h"

#include "lib/object.h"

/* True if a call of the library takes an option. */
static bool is_taken(const char *name)
{
    static const enum pstl_call calls[] = {PSTL_OPEN, PSTL_SESSION,
                                           PSTL_PROGRAM, PSTL_SWAP};
    bool ret = false;

    for (size_t i = 0; i < PST_COUNT(calls); i++)
        ret = ret || pstl_option_is_of(calls[i], name);
    return ret;
}

/* Checks the name in quotes before `end`, if the remedy puts it there in place
 * of a flag. */
static bool has_known_options(const char *row, const char *text)
{
    for (const char *at = row; (at = strstr(at, "--")) != NULL; at += 2) {
        char name[64], quoted[80];
        size_t n = 0;

        while (n + 1 < sizeof(name) &&
               ((at[2 + n] >= 'a' && at[2 + n] <= 'z') || at[2 + n] == '-'))
            n++;
        memcpy(name, at + 2, n);
        name[n] = '\0';
        snprintf(quoted, sizeof(quoted), "\"%s\"", name);
        if (n > 0 && strstr(text, quoted) != NULL && !is_taken(name))
            return false;
    }
    return true;
}

static void check_words(const char *from, const char *want)
{
    char text[64];

    pstl_words_of_options(from, text, sizeof(text));
    if (strcmp(text, want) == 0)
        return;
    fprintf(stderr, "%s: %s, not %s\n", from, text, want);
    exit(1);
}

/* Errors of the client and of sockets, which no call has. */
static bool is_of_client(enum pst_error error)
{
    return error == PST_E_FILE_OUTPUT || error == PST_E_CHANGE_FAILED ||
           error == PST_E_SOCKET_OTHER_USER;
}

int main(void)
{
    int bad = 0;

    for (int i = 1; i < PST_N_ERRORS; i++) {
        const enum pst_error error = (enum pst_error)i;
        char text[512];

        pstl_remedy(error, text, sizeof(text));
        if (text[0] != '\0' && strlen(text) + 1 < sizeof(text) &&
            strstr(text, " --") == NULL && strstr(text, "(--") == NULL &&
            strncmp(text, "--", 2) != 0 && strstr(text, " -m,") == NULL &&
            strstr(text, " -n ") == NULL &&
            (is_of_client(error) || strstr(text, "the command") == NULL) &&
            (strstr(text, "`penstock") == NULL ||
             strstr(text, "`penstock run`") != NULL) &&
            has_known_options(pst_error_remedy(error), text))
            continue;
        fprintf(stderr, "%s: %s\n", pst_error_id(error), text);
        bad++;
    }
    check_words("--lr is 3", "\"lr\" is 3");
    check_words("give --resume=STEP, -m or -n",
                "give {\"resume\", "
                "\"STEP\"}, \"microbatches\" or \"ranks\"");
    check_words("as --loss-fn N:K=V. -m 3", "as {\"loss-fn\", \"N:K=V\"}. "
                                            "\"microbatches\" 3");
    check_words("a--b, `x --y`, 3-n, -- and -", "a--b, `x --y`, 3-n, -- and -");
    check_words("", "");
    return bad > 0;
}
