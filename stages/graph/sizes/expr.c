// SPDX-License-Identifier: Apache-2.0
/* Parses and prints expressions. */
#include "stages/base/macros.h"
#include "stages/base/str.h"
#include "stages/graph/sizes/symbol.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Limit of the nesting of operands. Signs and parentheses do not count: the
 * parsed expression is printed with other ones, and must parse again. */
#define MAX_LEVELS 64
/* Recursion limit of the parser: at most two calls per printed level. */
#define MAX_DEPTH 256
#define MAX_TEXT  65536
#define MAX_NODES 4096

/* Precedence of infix signs; names and calls have the highest. */
enum { BIND_ADD = 1, BIND_MUL, BIND_POW, BIND_ALL };

struct parser {
    const char *text, *at;
    unsigned depth, nodes;
    struct pst_arena *arena;
    struct pst_diag *diag;
};

typedef const struct pst_expr *expr;

static enum pst_status parse_sum(struct parser *p, expr *ret);

static enum pst_status fail(const struct parser *p, const char *why)
{
    return pst_diag_set(p->diag, PST_E_SIZE_EXPRESSION,
                        "the expression \"%.100s\" cannot be read: %s at "
                        "character %zu",
                        p->text, why, (size_t)(p->at - p->text) + 1);
}

static void skip_blanks(struct parser *p)
{
    while (*p->at == ' ')
        p->at++;
}

static bool accept_sign(struct parser *p, const char *sign)
{
    skip_blanks(p);
    if (!pst_has_prefix(p->at, sign))
        return false;
    p->at += strlen(sign);
    return true;
}

/* --- making ------------------------------------------------------------- */

static enum pst_status make_expr(struct parser *p, const struct pst_expr *from,
                                 expr *ret)
{
    struct pst_expr *made;

    if (++p->nodes > MAX_NODES) /* also bounds the depth of the tree */
        return fail(p, "too many terms");
    made = pst_arena_memdup(p->arena, from, sizeof(*from));
    if (made == NULL)
        return pst_diag_nomem(p->diag, sizeof(*from));
    *ret = made;
    return PST_OK;
}

static enum pst_status make_int(struct parser *p, int64_t n, expr *ret)
{
    const struct pst_expr e = {
        .value = {.kind = PST_NUMBER_EXACT, .n = n, .d = 1}};

    return make_expr(p, &e, ret);
}

static unsigned precedence_of(expr e)
{
    return e->row != NULL && e->row->infix != NULL ? e->row->precedence
                                                   : BIND_ALL;
}

/* Counts nesting levels. The first operand of a sum or product adds none. */
static unsigned count_levels(const struct pst_expr_row *row, const expr *args,
                             unsigned n)
{
    unsigned ret = 0;

    for (unsigned i = 0; i < n; i++) {
        const bool same_level = i == 0 && row->infix != NULL &&
                                row->precedence != BIND_POW &&
                                precedence_of(args[i]) >= row->precedence;

        ret = PST_MAX(ret, args[i]->levels + !same_level);
    }
    return ret;
}

static enum pst_status make_call(struct parser *p,
                                 const struct pst_expr_row *row,
                                 const expr *args, unsigned n, expr *ret)
{
    struct pst_expr e = {
        .row = row, .n = n, .levels = count_levels(row, args, n)};

    if (n < row->min || n > row->max)
        return fail(p, "a wrong number of operands");
    if (e.levels > MAX_LEVELS)
        return fail(p, "too many levels");
    e.args = pst_arena_memdup(p->arena, args, n * sizeof(*args));
    if (e.args == NULL)
        return pst_diag_nomem(p->diag, n * sizeof(*args));
    return make_expr(p, &e, ret);
}

static enum pst_status make_infix(struct parser *p, const char *name, expr a,
                                  expr b, expr *ret)
{
    return make_call(p, pst_expr_find(name, strlen(name)), (expr[]){a, b}, 2,
                     ret);
}

static bool is_int(expr e)
{
    return e->row == NULL && e->symbol == NULL &&
           e->value.kind == PST_NUMBER_EXACT;
}

static bool is_float(expr e)
{
    return e->row == NULL && e->symbol == NULL &&
           e->value.kind == PST_NUMBER_FLOAT;
}

static enum pst_status make_negative(struct parser *p, expr e, expr *ret)
{
    enum pst_status status;
    expr minus = NULL;

    if (is_int(e) && e->value.n > INT64_MIN)
        return make_int(p, -e->value.n, ret);
    if (is_float(e)) {
        struct pst_expr number = *e;

        number.value.f = -number.value.f;
        return make_expr(p, &number, ret);
    }
    status = make_int(p, -1, &minus);
    return status == PST_OK ? make_infix(p, "Mul", minus, e, ret) : status;
}

/* --- atoms -------------------------------------------------------------- */

/* Parses a number. Digits alone are an integer unless is_real, as in the Float
 * of SymPy's srepr. */
static enum pst_status parse_number(struct parser *p, const char *text,
                                    size_t n, bool is_real, expr *ret)
{
    struct pst_expr e = {.value = {.kind = PST_NUMBER_FLOAT, .d = 1}};
    char buf[64];

    if (n == 0 || n >= sizeof(buf))
        return fail(p, "no number");
    memcpy(buf, text, n);
    buf[n] = '\0';
    if (!is_real && pst_parse_i64(buf, &e.value.n))
        e.value.kind = PST_NUMBER_EXACT;
    else if (!pst_parse_f64(buf, &e.value.f) || !isfinite(e.value.f))
        return fail(p, "no number of 64 bits");
    return make_expr(p, &e, ret);
}

static size_t word_length(const char *at)
{
    size_t n = 0;

    if (!isalpha((unsigned char)at[0]) && at[0] != '_')
        return 0;
    while (isalnum((unsigned char)at[n]) || at[n] == '_')
        n++;
    return n;
}

static size_t number_length(const char *at)
{
    size_t n = strspn(at, "0123456789.");

    if (n > 0 && (at[n] == 'e' || at[n] == 'E')) {
        const size_t sign = at[n + 1] == '-' || at[n + 1] == '+';
        const size_t digits = strspn(at + n + 1 + sign, "0123456789");

        n += digits > 0 ? 1 + sign + digits : 0;
    }
    return n;
}

/* Reads the quoted first operand. Keywords after it ("positive=True") are
 * skipped, since they do not affect values. */
static enum pst_status parse_quoted(struct parser *p, const char **ret,
                                    size_t *ret_n)
{
    if (!accept_sign(p, "'"))
        return fail(p, "a quoted text is missing");
    *ret = p->at;
    *ret_n = strcspn(p->at, "'");
    p->at += *ret_n;
    if (!accept_sign(p, "'"))
        return fail(p, "a quoted text has no end");
    while (accept_sign(p, ",")) {
        skip_blanks(p);
        p->at += word_length(p->at);
        if (!accept_sign(p, "="))
            return fail(p, "a keyword is missing");
        skip_blanks(p);
        p->at += strcspn(p->at, ",)");
    }
    return accept_sign(p, ")") ? PST_OK : fail(p, "\")\" is missing");
}

static bool is_word(const char *word, size_t n, const char *text)
{
    return strlen(text) == n && memcmp(word, text, n) == 0;
}

/* Reads True or False; returns false for any other word. */
static bool read_truth(const char *word, size_t n, bool *ret)
{
    *ret = is_word(word, n, "true") || is_word(word, n, "True");
    return *ret || is_word(word, n, "false") || is_word(word, n, "False");
}

static enum pst_status make_symbol(struct parser *p, const char *name, size_t n,
                                   expr *ret)
{
    struct pst_expr e = {.symbol = pst_arena_strndup(p->arena, name, n)};
    bool truth;

    if (e.symbol == NULL)
        return pst_diag_nomem(p->diag, n);
    if (n == 0 || n > 64 || word_length(e.symbol) != n ||
        read_truth(name, n, &truth)) /* its text would parse as a truth value */
        return fail(p, "no name of a symbol");
    return make_expr(p, &e, ret);
}

static enum pst_status parse_call(struct parser *p, const char *name, size_t n,
                                  expr *ret)
{
    const struct pst_expr_row *row = pst_expr_find(name, n);
    struct PST_VEC(expr) args = {0};
    enum pst_status status = PST_OK;

    if (row == NULL)
        return pst_diag_set(p->diag, PST_E_SIZE_UNKNOWN,
                            "the expression \"%.100s\" has \"%.*s\", which is "
                            "not supported",
                            p->text, (int)PST_MIN(n, (size_t)64), name);
    while (status == PST_OK && !accept_sign(p, ")")) {
        expr arg = NULL;

        if (args.n > 0 && !accept_sign(p, ","))
            status = fail(p, "\",\" is missing");
        if (status == PST_OK)
            status = parse_sum(p, &arg);
        if (status == PST_OK && !pst_vec_push(PST_TAG_GRAPH, &args, arg))
            status = pst_diag_nomem(p->diag, sizeof(arg));
    }
    if (status == PST_OK)
        status = make_call(p, row, args.at, (unsigned)args.n, ret);
    pst_vec_fini(&args);
    return status;
}

static enum pst_status parse_word(struct parser *p, size_t n, expr *ret)
{
    const char *word = p->at, *quoted = NULL;
    enum pst_status status;
    size_t len = 0;
    bool yes;

    p->at += n;
    if (read_truth(word, n, &yes)) {
        const struct pst_expr e = {
            .value = {.kind = PST_NUMBER_BOOL, .n = yes, .d = 1}};

        return make_expr(p, &e, ret);
    }
    if (!accept_sign(p, "("))
        return make_symbol(p, word, n, ret);
    if (is_word(word, n, "Symbol") || is_word(word, n, "Float")) {
        status = parse_quoted(p, &quoted, &len);
        if (status != PST_OK)
            return status;
        return n == 6 ? make_symbol(p, quoted, len, ret)
                      : parse_number(p, quoted, len, true, ret);
    }
    if (is_word(word, n, "Integer")) { /* Integer(x) is x */
        status = parse_sum(p, ret);
        if (status == PST_OK && (!is_int(*ret) || !accept_sign(p, ")")))
            status = fail(p, "no integer");
        return status;
    }
    return parse_call(p, word, n, ret);
}

static enum pst_status parse_atom(struct parser *p, expr *ret)
{
    enum pst_status status;
    size_t n;

    skip_blanks(p);
    n = word_length(p->at);
    if (n > 0)
        return parse_word(p, n, ret);
    n = number_length(p->at);
    if (n > 0) {
        status = parse_number(p, p->at, n, false, ret);
        p->at += n;
        return status;
    }
    if (!accept_sign(p, "("))
        return fail(p, "an operand is missing");
    status = parse_sum(p, ret);
    if (status == PST_OK && !accept_sign(p, ")"))
        status = fail(p, "\")\" is missing");
    return status;
}

/* --- infix -------------------------------------------------------------- */

static enum pst_status parse_unary(struct parser *p, expr *ret)
{
    enum pst_status status;
    expr e;

    if (++p->depth > MAX_DEPTH)
        return fail(p, "too many levels");
    if (accept_sign(p, "-")) {
        status = parse_unary(p, &e);
        if (status == PST_OK)
            status = make_negative(p, e, ret);
    } else {
        status = parse_atom(p, ret);
        if (status == PST_OK && accept_sign(p, "**")) { /* right-associative */
            status = parse_unary(p, &e);
            if (status == PST_OK)
                status = make_infix(p, "Pow", *ret, e, ret);
        }
    }
    p->depth--;
    return status;
}

static enum pst_status parse_product(struct parser *p, expr *ret)
{
    enum pst_status status = parse_unary(p, ret);

    while (status == PST_OK) {
        const char *name = accept_sign(p, "//")  ? "FloorDiv"
                           : accept_sign(p, "/") ? "Div"
                           : accept_sign(p, "*") ? "Mul"
                           : accept_sign(p, "%") ? "Mod"
                                                 : NULL;
        expr e;

        if (name == NULL)
            break;
        status = parse_unary(p, &e);
        if (status == PST_OK)
            status = make_infix(p, name, *ret, e, ret);
    }
    return status;
}

static enum pst_status parse_sum(struct parser *p, expr *ret)
{
    enum pst_status status;

    if (++p->depth > MAX_DEPTH)
        return fail(p, "too many levels");
    status = parse_product(p, ret);
    while (status == PST_OK) {
        const bool plus = accept_sign(p, "+");
        expr e;

        if (!plus && !accept_sign(p, "-"))
            break;
        status = parse_product(p, &e);
        if (status == PST_OK && !plus)
            status = make_negative(p, e, &e);
        if (status == PST_OK)
            status = make_infix(p, "Add", *ret, e, ret);
    }
    p->depth--;
    return status;
}

enum pst_status pst_expr_parse(struct pst_arena *arena, const char *text,
                               const struct pst_expr **ret,
                               struct pst_diag *diag)
{
    struct parser p = {.text = text, .at = text, .arena = arena, .diag = diag};
    enum pst_status status;

    if (strlen(text) > MAX_TEXT)
        return pst_diag_set(diag, PST_E_SIZE_EXPRESSION,
                            "an expression is longer than %d characters",
                            MAX_TEXT);
    status = parse_sum(&p, ret);
    skip_blanks(&p);
    if (status == PST_OK && *p.at != '\0')
        status = fail(&p, "more than an expression");
    return status;
}

/* --- printing ----------------------------------------------------------- */

static void print_expr(expr e, struct pst_str *out);

static void print_operand(expr e, unsigned looser_than, struct pst_str *out)
{
    const bool negative =
        is_float(e) ? signbit(e->value.f) : is_int(e) && e->value.n < 0;
    const bool bare = precedence_of(e) >= looser_than &&
                      !(negative && looser_than == BIND_ALL);

    pst_str_add(out, bare ? "" : "(");
    print_expr(e, out);
    pst_str_add(out, bare ? "" : ")");
}

static void print_infix(expr e, struct pst_str *out)
{
    const unsigned own = e->row->precedence;

    for (unsigned i = 0; i < e->n; i++) {
        const expr arg = e->args[i];
        const bool minus = i > 0 && own == BIND_ADD && is_int(arg) &&
                           arg->value.n < 0 && arg->value.n > INT64_MIN;

        if (minus) {
            pst_str_addf(out, " - %" PRId64, -arg->value.n);
            continue;
        }
        pst_str_add(out, i > 0 ? e->row->infix : "");
        print_operand(arg,
                      own == BIND_POW ? BIND_ALL
                      : i == 0        ? own
                                      : own + 1,
                      out);
    }
}

static void print_number(const struct pst_number *x, struct pst_str *out)
{
    char text[32];

    if (x->kind == PST_NUMBER_BOOL) {
        pst_str_add(out, x->n != 0 ? "True" : "False");
    } else if (x->kind == PST_NUMBER_EXACT) {
        pst_str_addf(out, "%" PRId64, x->n);
    } else {
        pst_format_f64(x->f, text);
        pst_str_addf(out, "%s%s", text,
                     strpbrk(text, ".e") != NULL ? "" : ".0");
    }
}

static void print_expr(expr e, struct pst_str *out)
{
    if (e->symbol != NULL) {
        pst_str_add(out, e->symbol);
    } else if (e->row == NULL) {
        print_number(&e->value, out);
    } else if (e->row->infix != NULL && e->n > 1) {
        print_infix(e, out);
    } else {
        pst_str_addf(out, "%s(", e->row->name);
        for (unsigned i = 0; i < e->n; i++) {
            pst_str_add(out, i > 0 ? ", " : "");
            print_expr(e->args[i], out);
        }
        pst_str_add(out, ")");
    }
}

void pst_expr_add(const struct pst_expr *e, struct pst_str *out)
{
    print_expr(e, out);
}

enum pst_status pst_expr_print(struct pst_arena *arena,
                               const struct pst_expr *e, const char **ret,
                               struct pst_diag *diag)
{
    struct pst_str out = {0};

    print_expr(e, &out);
    *ret = out.failed ? NULL : pst_arena_strdup(arena, pst_str_text(&out));
    pst_str_fini(&out);
    return *ret == NULL ? pst_diag_nomem(diag, 0) : PST_OK;
}
