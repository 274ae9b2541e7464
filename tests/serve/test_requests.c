// SPDX-License-Identifier: Apache-2.0
/* Tests requests that share a step, and the queue that they wait in. Models are
 * random and return their inputs, so every request must get its own inputs
 * back. The expected positions are computed element by element. */
#include <stdlib.h>
#include <string.h>

#include "daemon/exec/serve/batch.h"
#include "daemon/exec/serve/signature.h"
#include "stages/base/alloc.h"
#include "tests/test.h"

#define MAX_INPUTS 4
#define MAX_ASKS   8
#define MAX_PLACES 64

static uint64_t state_of_draw;

/* Returns a random number from 0 to n - 1. */
static unsigned draw(unsigned n)
{
    state_of_draw = state_of_draw * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(state_of_draw >> 33) % n;
}

/* --- a model ---------------------------------------------------------------
 */

static void draw_input(struct pst_plan_input *in, const char *name,
                       int64_t rows)
{
    in->name = name;
    in->meta = (struct pst_meta){.dtype = draw(2) ? PST_F32 : PST_BOOL,
                                 .rank = draw(5)};
    for (unsigned d = 0; d < in->meta.rank; d++)
        in->meta.size[d] = 1 + draw(3);
    in->chunk =
        in->meta.rank > 0 && draw(6) > 0 ? (int)draw(in->meta.rank) : -1;
    if (in->chunk >= 0)
        in->meta.size[in->chunk] = rows;
    pst_meta_set_contiguous(&in->meta);
}

/* Draws a plan whose outputs are some of its inputs, always including the first
 * one. */
static void draw_plan(struct pst_plan *plan)
{
    static const char *const names[MAX_INPUTS] = {"a", "b", "c", "d"};
    const unsigned n = 1 + draw(MAX_INPUTS);
    const int64_t rows = 1 + draw(4);

    memset(plan, 0, sizeof(*plan));
    for (unsigned i = 0; i < n; i++) {
        struct pst_plan_input in = {0};

        /* If inputs have different numbers of rows, a sample is a whole
         * microbatch. */
        draw_input(&in, names[i], draw(8) ? rows : 2 * rows);
        if (i == 0 && in.chunk < 0) {
            in.meta = pst_meta_make(PST_F32, 1, &rows);
            in.chunk = 0;
        }
        assert_true(pst_vec_push(PST_TAG_TEST, &plan->inputs, in));
        if (i == 0 || (in.chunk >= 0 && draw(2))) {
            const struct pst_plan_output out = {.path = names[i],
                                                .is_tensor = true,
                                                .stage = -1,
                                                .output = i,
                                                .meta = in.meta};

            assert_true(pst_vec_push(PST_TAG_TEST, &plan->outputs, out));
        }
    }
}

static void fini_plan(struct pst_plan *plan)
{
    pst_vec_fini(&plan->inputs);
    pst_vec_fini(&plan->outputs);
}

/* --- requests --------------------------------------------------------------
 */

static struct pstd_ask *draw_ask(const struct pstd_signature *s,
                                 int64_t samples, bool leave_out)
{
    struct pstd_ask *ask = pst_calloc(PST_TAG_TEST, 1, sizeof(*ask));
    unsigned char *at;

    assert_non_null(ask);
    pst_diag_init(&ask->diag);
    ask->samples = samples;
    for (size_t i = 0; i < s->n_inputs; i++)
        ask->bytes += pstd_port_bytes(&s->inputs[i], samples);
    ask->data = at = pst_alloc(PST_TAG_TEST, ask->bytes + 1);
    ask->inputs = pst_calloc(PST_TAG_TEST, s->n_inputs, sizeof(at)); // NOLINT
    assert_non_null(at);
    assert_non_null(ask->inputs);
    for (size_t i = 0; i < ask->bytes; i++)
        at[i] = (unsigned char)draw(256);
    for (size_t i = 0; i < s->n_inputs; i++) {
        ask->inputs[i] = leave_out && s->inputs[i].optional ? NULL : at;
        at += pstd_port_bytes(&s->inputs[i], samples);
    }
    return ask;
}

/* The request at a position of the step, and the index of its sample there. */
struct place {
    const struct pstd_ask *ask;
    int64_t sample;
};

/* Computes the expected positions by their definition: requests in order; gaps
 * and the end repeat the last sample. */
static void find_places(const struct pstd_signature *s,
                        const struct pstd_ask *list, struct place *ret)
{
    const int64_t n = s->samples * s->microbatches;
    struct place last = {0};
    int64_t at = 0;

    memset(ret, 0, sizeof(*ret) * MAX_PLACES);
    for (const struct pstd_ask *a = list; a != NULL; a = a->next) {
        while (s->separate && at % s->samples != 0)
            ret[at++] = last;
        for (int64_t k = 0; k < a->samples; k++) {
            assert_true(at < n);
            ret[at++] = last = (struct place){a, k};
        }
    }
    while (at < n)
        ret[at++] = last;
}

/* --- number by number -------------------------------------------------------
 */

/* Returns the index along dim of element `flat`, in row-major order. */
static int64_t along(const struct pst_meta *meta, int dim, int64_t flat)
{
    for (int d = (int)meta->rank - 1; d > dim; d--)
        flat /= meta->size[d];
    return flat % meta->size[dim];
}

/* Returns the offset of element `flat` in a tensor with `size` along dim, with
 * its index along dim replaced by `at`. */
static int64_t moved(const struct pst_meta *meta, int dim, int64_t flat,
                     int64_t at, int64_t size)
{
    int64_t inner = 1, outer;

    for (int d = (int)meta->rank - 1; d > dim; d--)
        inner *= meta->size[d];
    outer = flat / (inner * meta->size[dim]);
    return (outer * size + at) * inner + flat % inner;
}

static void check_filled(const struct pstd_signature *s, size_t input,
                         const struct place *places, unsigned microbatch,
                         const unsigned char *got)
{
    const struct pstd_port *p = &s->inputs[input];
    const size_t bytes = pst_dtype_size(p->meta.dtype);

    for (int64_t i = 0; i < pst_meta_numel(&p->meta); i++) {
        const int64_t at = p->dim < 0 ? 0 : along(&p->meta, p->dim, i);
        const struct place *place =
            &places[microbatch * s->samples + at / p->each];
        const unsigned char *data = place->ask->inputs[input];
        static const unsigned char zeros[8];
        int64_t from = i;

        if (p->dim >= 0)
            from = moved(&p->meta, p->dim, i,
                         place->sample * p->each + at % p->each,
                         place->ask->samples * p->each);
        assert_memory_equal(got + (size_t)i * bytes,
                            data == NULL ? zeros : data + (size_t)from * bytes,
                            bytes);
    }
}

/* Copies a microbatch of an output that equals an input to its position in the
 * step's output. */
static void join(const struct pstd_port *p, unsigned microbatches,
                 unsigned microbatch, const unsigned char *from,
                 unsigned char *to)
{
    const size_t bytes = pst_dtype_size(p->meta.dtype);
    const int64_t size = p->meta.size[p->dim];

    for (int64_t i = 0; i < pst_meta_numel(&p->meta); i++) {
        const int64_t at = along(&p->meta, p->dim, i) + microbatch * size;

        memcpy(to +
                   (size_t)moved(&p->meta, p->dim, i, at, size * microbatches) *
                       bytes,
               from + (size_t)i * bytes, bytes);
    }
}

/* --- a step ------------------------------------------------------------------
 */

static struct pstd_ask *draw_list(const struct pstd_signature *s)
{
    struct pstd_ask *first = NULL, **end = &first;
    int64_t at = 0, begin;

    for (unsigned i = 0; i < MAX_ASKS; i++) {
        const int64_t n = 1 + draw((unsigned)PST_MIN(s->most, (int64_t)4));

        if (!pstd_signature_place(s, n, &at, &begin))
            break;
        *end = draw_ask(s, n, draw(3) == 0);
        end = &(*end)->next;
    }
    return first;
}

static void free_list(struct pstd_ask *list)
{
    while (list != NULL) {
        struct pstd_ask *next = list->next;

        pstd_ask_free(list);
        list = next;
    }
}

static void run_step(struct pstd_requests *r, const struct place *places)
{
    const struct pstd_signature *s = r->signature;
    struct pst_diag diag;

    for (size_t k = 0; k < s->n_outputs; k++) {
        const struct pstd_port *out = &s->outputs[k];
        unsigned char *whole = calloc(
            s->microbatches, pst_meta_bytes(&out->meta)); // NOLINT: small

        assert_non_null(whole);
        for (size_t i = 0; i < s->n_inputs; i++)
            for (unsigned m = 0; m < s->microbatches; m++) {
                const size_t bytes = pst_meta_bytes(&s->inputs[i].meta);
                unsigned char *one = malloc(bytes);

                assert_non_null(one);
                memset(one, 0xa5, bytes);
                assert_ok(pstd_requests_fill(r, 0, m, (unsigned)i, one, &diag),
                          &diag);
                check_filled(s, i, places, m, one);
                if (strcmp(s->inputs[i].name, out->name) == 0)
                    join(out, s->microbatches, m, one, whole);
                free(one);
            }
        pstd_requests_copy_output(r, k, whole);
        free(whole);
    }
}

/* Checks that every request gets its own inputs back. */
static void check_results(const struct pstd_signature *s,
                          const struct pstd_ask *list)
{
    for (const struct pstd_ask *a = list; a != NULL; a = a->next) {
        const unsigned char *at = a->result;

        for (size_t k = 0; k < s->n_outputs; k++) {
            const size_t bytes = pstd_port_bytes(&s->outputs[k], a->samples);
            size_t i = 0;

            while (strcmp(s->inputs[i].name, s->outputs[k].name) != 0)
                i++;
            assert_false(s->inputs[i].optional);
            assert_memory_equal(at, a->inputs[i], bytes);
            at += bytes;
        }
        assert_true(at == a->result + a->result_bytes);
    }
}

static void gives_each_its_own(void **state)
{
    unsigned apart = 0, whole = 0, several = 0;

    (void)state;
    for (unsigned seed = 0; seed < 3000; seed++) {
        struct pst_plan plan;
        struct pstd_signature s;
        struct pstd_requests r;
        struct place places[MAX_PLACES];
        struct pstd_ask *list;
        struct pst_diag diag;

        state_of_draw = seed;
        draw_plan(&plan);
        assert_ok(pstd_signature_make(&plan, 1 + draw(4), &s, &diag), &diag);
        list = draw_list(&s);
        assert_non_null(list);
        assert_ok(pstd_requests_init(&r, &s, &diag), &diag);
        pstd_requests_set(&r, list);
        assert_ok(pstd_requests_reserve(&r, &diag), &diag);
        find_places(&s, list, places);
        run_step(&r, places);
        check_results(&s, list);
        apart += s.separate;
        whole += s.samples == 1 && pst_plan_rows(&plan) > 1;
        several += list->next != NULL;
        free_list(list);
        pstd_requests_fini(&r);
        pstd_signature_fini(&s);
        fini_plan(&plan);
    }
    assert_true(apart > 100 && whole > 100 && several > 1000);
}

/* --- the queue
 * ---------------------------------------------------------------- */

struct queue {
    uv_loop_t loop;
    struct pst_plan plan;
    struct pstd_intake *in;
    unsigned reported;
};

static void on_answers(void *ctx)
{
    struct queue *q = ctx;

    q->reported++;
}

/* Opens a queue for steps of 2 microbatches of 2 rows. */
static void open_queue(struct queue *q, unsigned limit)
{
    const int64_t rows = 2;
    const struct pst_plan_input in = {
        .name = "a", .meta = pst_meta_make(PST_F32, 1, &rows), .chunk = 0};
    const struct pst_plan_output out = {
        .path = "a", .is_tensor = true, .stage = -1, .meta = in.meta};
    struct pstd_signature s;
    struct pst_diag diag;

    memset(q, 0, sizeof(*q));
    assert_int_equal(uv_loop_init(&q->loop), 0);
    assert_true(pst_vec_push(PST_TAG_TEST, &q->plan.inputs, in));
    assert_true(pst_vec_push(PST_TAG_TEST, &q->plan.outputs, out));
    assert_ok(pstd_intake_new(&q->loop, limit, on_answers, q, &q->in, &diag),
              &diag);
    assert_null(pstd_intake_signature(q->in));
    assert_ok(pstd_signature_make(&q->plan, 2, &s, &diag), &diag);
    pstd_intake_open(q->in, &s);
    assert_int_equal(pstd_intake_signature(q->in)->most, 4);
}

static void close_queue(struct queue *q)
{
    pstd_intake_close(q->in);
    (void)uv_run(&q->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&q->loop), 0);
    fini_plan(&q->plan);
}

static enum pst_status add_request(struct queue *q, uint64_t client,
                                   int64_t samples)
{
    struct pstd_ask *ask =
        draw_ask(pstd_intake_signature(q->in), samples, false);
    struct pst_diag diag;

    ask->client = client;
    return pstd_intake_put(q->in, ask, &diag);
}

/* Checks that the list has requests of these clients, in this order, as in "1
 * 2"; frees the list. */
static void expect(struct pstd_ask *list, const char *clients)
{
    struct pst_str got = {0};

    for (struct pstd_ask *a = list; a != NULL; a = a->next)
        pst_str_addf(&got, "%s%d", got.len > 0 ? " " : "", (int)a->client);
    assert_string_equal(pst_str_text(&got), clients);
    pst_str_fini(&got);
    free_list(list);
}

static void takes_what_fits(void **state)
{
    struct queue q;

    (void)state;
    open_queue(&q, 8);
    assert_int_equal(add_request(&q, 1, 1), PST_OK);
    assert_int_equal(add_request(&q, 2, 2), PST_OK);
    /* does not fit into the same step */
    assert_int_equal(add_request(&q, 3, 2), PST_OK);
    assert_int_equal(add_request(&q, 4, 1),
                     PST_OK); /* request 3 is not overtaken */
    expect(pstd_intake_take(q.in, 0, 0), "1 2");
    expect(pstd_intake_take(q.in, 0, 0), "3 4");
    expect(pstd_intake_take(q.in, 0, 0), "");
    assert_int_equal(add_request(&q, 5, 4), PST_OK);
    /* The step is full, so there is no wait. */
    expect(pstd_intake_take(q.in, 0, 100), "5");
    assert_int_equal(add_request(&q, 6, 3), PST_OK);
    /* The time to wait has not passed. */
    expect(pstd_intake_take(q.in, 1, 100), "");
    expect(pstd_intake_take(q.in, 1000, 0.01), "6");
    assert_int_equal(add_request(&q, 7, 3), PST_OK);
    pstd_intake_shut(q.in, false); /* no more requests can fill the step */
    expect(pstd_intake_take(q.in, 0, 100), "7");
    close_queue(&q);
}

static void refuses_beyond_its_limit(void **state)
{
    struct queue q;

    (void)state;
    open_queue(&q, 2);
    assert_int_equal(add_request(&q, 1, 1), PST_OK);
    assert_int_equal(add_request(&q, 2, 1), PST_OK);
    assert_int_equal(add_request(&q, 3, 1), PST_ERR_BUSY);
    assert_int_equal(pstd_intake_counts(q.in, false).waiting, 2);
    assert_int_equal(pstd_intake_counts(q.in, false).refused, 1);
    expect(pstd_intake_take(q.in, 0, 0), "1 2");
    assert_int_equal(add_request(&q, 4, 1), PST_OK);
    close_queue(&q); /* one request is still waiting */
}

static void forgets_who_is_gone(void **state)
{
    struct queue q;

    (void)state;
    open_queue(&q, 3);
    assert_int_equal(add_request(&q, 1, 1), PST_OK);
    assert_int_equal(add_request(&q, 2, 1), PST_OK);
    assert_int_equal(add_request(&q, 1, 1), PST_OK);
    pstd_intake_drop_client(q.in, 1);
    assert_int_equal(pstd_intake_counts(q.in, false).gone, 2);
    assert_int_equal(add_request(&q, 3, 1),
                     PST_OK); /* the queue has space again */
    assert_int_equal(add_request(&q, 4, 1), PST_OK);
    expect(pstd_intake_take(q.in, 0, 0), "2 3 4");
    close_queue(&q);
}

static void drains_or_gives_up(void **state)
{
    struct queue q;
    struct pstd_ask *list, *answer;

    (void)state;
    open_queue(&q, 8);
    assert_int_equal(add_request(&q, 1, 4), PST_OK);
    assert_int_equal(add_request(&q, 2, 4), PST_OK);
    pstd_intake_shut(q.in, false);
    assert_int_equal(add_request(&q, 3, 1), PST_ERR_BUSY);
    /* earlier requests are still answered */
    list = pstd_intake_take(q.in, 0, 0);
    assert_non_null(list);
    pstd_intake_put_answers(q.in, list);
    (void)uv_run(&q.loop, UV_RUN_NOWAIT);
    assert_true(q.reported > 0);
    answer = pstd_intake_pop_answer(q.in);
    assert_non_null(answer);
    assert_int_equal(answer->client, 1);
    assert_int_equal(answer->diag.status, PST_OK);
    pstd_ask_free(answer);
    assert_null(pstd_intake_pop_answer(q.in));
    pstd_intake_shut(q.in, true);
    answer = pstd_intake_pop_answer(q.in);
    assert_non_null(answer);
    assert_int_equal(answer->client, 2);
    assert_int_equal(answer->diag.status, PST_ERR_BUSY);
    pstd_ask_free(answer);
    assert_null(pstd_intake_take(q.in, 0, 0));
    close_queue(&q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_each_its_own),
        cmocka_unit_test(takes_what_fits),
        cmocka_unit_test(refuses_beyond_its_limit),
        cmocka_unit_test(forgets_who_is_gone),
        cmocka_unit_test(drains_or_gives_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
