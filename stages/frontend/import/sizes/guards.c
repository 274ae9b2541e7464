// SPDX-License-Identifier: Apache-2.0
/* Turns the exporter's guards on sizes, which are Python text, into constraints
 * on symbols: "(L['x'].size()[1] % 2) == 0" becomes "Equality(((s27) % 2), 0)".
 * "!=" is ignored: the exporter writes it for every two sizes that it had to
 * distinguish, e.g. for broadcasting, and nodes detect that for other sizes
 * themselves. */
#include "stages/frontend/import/import.h"

#include "stages/base/str.h"

#include <ctype.h>
#include <string.h>

/* A sign comes before its prefixes ("<=" before "<"). */
static const struct {
    const char *sign, *name;
} comparisons[] = {
    {"==", "Equality"},      {"<=", "LessThan"},         {">=", "GreaterThan"},
    {"<", "StrictLessThan"}, {">", "StrictGreaterThan"},
};

static const struct pst_doc_tensor *input_of(const struct pst_document *doc,
                                             const char *name)
{
    for (size_t i = 0; i < doc->n_inputs; i++) {
        const struct pst_doc_spec *spec = &doc->inputs[i];

        if (spec->kind == PST_DOC_SPEC_USER_INPUT &&
            spec->arg.kind == PST_DOC_TENSOR &&
            strcmp(spec->arg.name, name) == 0)
            return pst_doc_tensor(doc->graph, name);
    }
    return NULL;
}

/* Parses a key such as "['batch']" or "[0]": appends "_" and the key to the
 * name, as the exporter names inputs, and returns the key's length; 0 if there
 * is none. */
static size_t read_key(const char *text, struct pst_str *name)
{
    const bool quoted = pst_has_prefix(text, "['");
    const char *key = text + 1 + quoted;
    const size_t n = quoted ? strcspn(key, "'") : strspn(key, "0123456789");

    if (text[0] != '[' || n == 0 ||
        !pst_has_prefix(key + n, quoted ? "']" : "]"))
        return 0;
    pst_str_addf(name, "%s%.*s", name->len > 0 ? "_" : "", (int)n, key);
    return n + (quoted ? 4 : 2);
}

/* Parses text such as "L['x'].size()[1]": appends that size to `out` and
 * returns the text's length; 0 if it is something else. */
static size_t read_size(const struct pst_document *doc, const char *text,
                        struct pst_str *out)
{
    static const char size[] = ".size()[";
    const struct pst_doc_tensor *input = NULL;
    struct pst_str name = {0};
    size_t at = 1, n = 1;
    unsigned d;

    while (n > 0) {
        n = read_key(text + at, &name);
        at += n;
    }
    if (pst_has_prefix(text + at, size))
        input = input_of(doc, pst_str_text(&name));
    pst_str_fini(&name);
    at += strlen(size);
    if (input == NULL || !isdigit((unsigned char)text[at]) ||
        text[at + 1] != ']')
        return 0;
    d = (unsigned)(text[at] - '0');
    if (d >= input->rank)
        return 0;
    if (input->sizes[d].expr != NULL)
        pst_str_addf(out, "(%s)", input->sizes[d].expr->text);
    else
        pst_str_addf(out, "%lld", (long long)input->sizes[d].value);
    return at + 2;
}

/* Translates one comparison outside all parentheses; false if it is something
 * else. */
static bool translate_comparison(const struct pst_document *doc,
                                 const char *text, struct pst_str *ret)
{
    struct pst_str side = {0};
    const char *name = NULL;
    int depth = 0;
    bool good = true;

    while (*text != '\0' && good) {
        size_t taken = 0, k = PST_COUNT(comparisons);

        if (pst_has_prefix(text, "L[")) {
            taken = read_size(doc, text, &side);
            good = taken > 0;
            text += taken;
            continue;
        }
        if (pst_has_prefix(text, "max(") || pst_has_prefix(text, "min("))
            pst_str_addf(&side, "%c", toupper((unsigned char)*text++));
        depth += (*text == '(') - (*text == ')');
        for (size_t i = 0; i < k && depth == 0; i++)
            if (pst_has_prefix(text, comparisons[i].sign))
                k = i;
        if (depth == 0 && k < PST_COUNT(comparisons)) {
            good = name == NULL;
            name = comparisons[k].name;
            pst_str_addf(ret, "%s(%s, ", name, pst_str_text(&side));
            pst_str_fini(&side);
            side = (struct pst_str){0};
            text += strlen(comparisons[k].sign);
            continue;
        }
        pst_str_addf(&side, "%c", *text++);
    }
    pst_str_addf(ret, "%s)", pst_str_text(&side));
    pst_str_fini(&side);
    return good && name != NULL;
}

enum pst_status pst_import_add_guard(struct pst_model *model,
                                     const struct pst_document *doc,
                                     const char *guard, bool *ret,
                                     struct pst_diag *diag)
{
    struct pst_symbols *symbols = &model->symbols;
    struct pst_number holds = {0};
    struct pst_str text = {0};
    enum pst_status status = PST_OK;
    bool known = false;

    *ret = false;
    if (translate_comparison(doc, guard, &text))
        status =
            pst_symbols_are_known(symbols, pst_str_text(&text), &known, diag);
    /* A constraint that does not hold for the exported sizes was misread:
     * ignores it. */
    if (status == PST_OK && known &&
        pst_symbols_eval(symbols, pst_str_text(&text), &holds, NULL) ==
            PST_OK &&
        holds.kind == PST_NUMBER_BOOL && holds.n == 1) {
        *ret = true;
        status = pst_symbols_limit(symbols, pst_str_text(&text), 1, 1, diag);
    }
    pst_str_fini(&text);
    return status;
}
