// SPDX-License-Identifier: Apache-2.0
#include "daemon/common/control/frame.h"

#include <string.h>

#include "stages/base/alloc.h"
#include "stages/base/rng.h"
#include "stages/base/untrusted/wire.h"
#include "tests/test.h"

/* Packs a Train request with three options, with its length in front. */
static size_t make_request(unsigned char **ret)
{
    Pst__Control__Option options[3], *at[3];
    Pst__Control__Train train = PST__CONTROL__TRAIN__INIT;
    Pst__Control__Request request = PST__CONTROL__REQUEST__INIT;
    pstd_frame frame = PST__CONTROL__FRAME__INIT;
    struct pst_diag diag;
    size_t size = 0;

    for (unsigned i = 0; i < 3; i++) {
        pst__control__option__init(&options[i]);
        options[i].name = "steps";
        options[i].value = "1000000";
        at[i] = &options[i];
    }
    train.options = at;
    train.n_options = 3;
    request.id = UINT64_MAX;
    request.key = "key";
    request.body_case = PST__CONTROL__REQUEST__BODY_TRAIN;
    request.train = &train;
    frame.body_case = PST__CONTROL__FRAME__BODY_REQUEST;
    frame.request = &request;
    assert_ok(pstd_frame_pack(&frame, PSTD_REQUEST_MAX, ret, &size, &diag),
              &diag);
    return size;
}

static void check_request(const pstd_frame *frame)
{
    assert_int_equal(frame->body_case, PST__CONTROL__FRAME__BODY_REQUEST);
    assert_true(frame->request->id == UINT64_MAX);
    assert_int_equal(frame->request->train->n_options, 3);
    assert_string_equal(frame->request->train->options[2]->value, "1000000");
}

static void survives_every_split(void **state)
{
    unsigned char *data = NULL;
    const size_t size = make_request(&data);
    struct pst_diag diag;

    (void)state;
    for (size_t cut = 0; cut <= size; cut++) {
        struct pstd_frames frames;
        pstd_frame *frame = NULL;

        pstd_frames_init(&frames, PSTD_REQUEST_MAX, PSTD_REQUEST_FIELD);
        assert_ok(pstd_frames_push(&frames, data, cut, &diag), &diag);
        if (cut < size)
            assert_int_equal(pstd_frames_pop(&frames, &frame, &diag),
                             PST_AGAIN);
        assert_ok(pstd_frames_push(&frames, data + cut, size - cut, &diag),
                  &diag);
        assert_ok(pstd_frames_push(&frames, data, size, &diag), &diag);
        for (unsigned i = 0; i < 2; i++) {
            assert_ok(pstd_frames_pop(&frames, &frame, &diag), &diag);
            check_request(frame);
            pstd_frame_free(frame);
        }
        assert_int_equal(pstd_frames_pop(&frames, &frame, &diag), PST_AGAIN);
        assert_int_equal(frames.n, 0);
        pstd_frames_fini(&frames);
    }
    pst_free(data);
}

static void expect_refusal(const void *data, size_t size, const char *wanted)
{
    struct pst_diag diag;
    pstd_frame *frame = NULL;

    assert_int_equal(
        pstd_frame_unpack(data, size, PSTD_REQUEST_FIELD, &frame, &diag),
        PST_ERR_INPUT);
    assert_null(frame);
    if (strstr(diag.text, wanted) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", diag.text, wanted);
}

static void refuses_sizes(void **state)
{
    static const unsigned char heads[][4] = {
        {0, 0, 0, 0}, {1, 0, 16, 0}, {0xff, 0xff, 0xff, 0xff}};
    struct pst_diag diag;

    (void)state;
    for (size_t i = 0; i < PST_COUNT(heads); i++) {
        struct pstd_frames frames;
        pstd_frame *frame = NULL;

        pstd_frames_init(&frames, PSTD_REQUEST_MAX, PSTD_REQUEST_FIELD);
        assert_ok(pstd_frames_push(&frames, heads[i], 4, &diag), &diag);
        assert_int_equal(pstd_frames_pop(&frames, &frame, &diag),
                         PST_ERR_INPUT);
        pstd_frames_fini(&frames);
    }
}

/* Refuses frames that protobuf-c would unpack until the stack or the memory
 * overflows. */
static void refuses_bombs(void **state)
{
    static unsigned char bomb[100000];
    const struct pst_wire_limits limits = {
        PSTD_REQUEST_FIELD, PSTD_UNKNOWN_FIELD, PSTD_UNKNOWN_FIELD,
        sizeof(bomb) * 2, 8};
    size_t n = 0;

    (void)state;
    /* A message in a message ...: the schema has no such nesting, so all but
     * the outermost are unknown bytes, which are not unpacked. */
    for (n = 0; n + 4 < sizeof(bomb); n += 4) {
        const size_t left = sizeof(bomb) - n - 4;

        bomb[n] = n == 0 ? 2 << 3 | 2 /* Frame.request */ : 9 << 3 | 2;
        bomb[n + 1] = (unsigned char)((left & 0x7f) | 0x80);
        bomb[n + 2] = (unsigned char)((left >> 7 & 0x7f) | 0x80);
        bomb[n + 3] = (unsigned char)(left >> 14);
    }
    assert_int_equal(pst_wire_scan(&pst__control__frame__descriptor, bomb,
                                   sizeof(bomb), &limits, NULL),
                     PST_OK);
    for (n = 0; n + 2 <= sizeof(bomb); n += 2) { /* empty unknown fields */
        bomb[n] = 15 << 3 | 2;
        bomb[n + 1] = 0;
    }
    expect_refusal(bomb, sizeof(bomb), "too many unknown fields");
    /* Fills the bomb with empty Hello messages. */
    for (n = 0; n + 2 <= sizeof(bomb); n += 2)
        bomb[n] = 1 << 3 | 2;
    expect_refusal(bomb, sizeof(bomb),
                   "a message stands twice where one belongs");
}

static void refuses_garbled(void **state)
{
    static const unsigned char long_varint[] = {
        9 << 3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1};
    static const unsigned char long_tag[] = {0xc8, 0x80, 0x80, 0x80,
                                             0x80, 0,    1};
    static const unsigned char of_other_kind[] = {2 << 3, 1};
    static const unsigned char too_long[] = {2 << 3 | 2, 5, 1, 1};
    static const unsigned char group[] = {2 << 3 | 3};
    static const unsigned char zero[] = {0, 0};
    static const unsigned char cut[] = {2 << 3 | 2, 0x80};
    static const unsigned char inner[] = {2 << 3 | 2, 2, 2 << 3 | 2, 9,
                                          1,          1, 1,          1};

    (void)state;
    expect_refusal(long_varint, sizeof(long_varint), "10 bytes");
    expect_refusal(long_tag, sizeof(long_tag), "5 bytes");
    expect_refusal(of_other_kind, sizeof(of_other_kind), "of another kind");
    expect_refusal(too_long, sizeof(too_long), "longer");
    expect_refusal(group, sizeof(group), "kind");
    expect_refusal(zero, sizeof(zero), "number out of range");
    expect_refusal(cut, sizeof(cut), "ends within");
    expect_refusal(inner, sizeof(inner), "longer");
}

/* protobuf-c would cut a text at a NUL byte: two keys would be equal. */
static void refuses_nul_in_texts(void **state)
{
    static const char texts[][8] = {"key", "steps", "1000000"};
    unsigned char *data = NULL;
    const size_t size = make_request(&data);

    (void)state;
    for (size_t i = 0; i < PST_COUNT(texts); i++) {
        const size_t n = strlen(texts[i]);
        unsigned char *at = memmem(data, size, texts[i], n);

        assert_non_null(at);
        for (size_t k = 0; k < n; k++) {
            const unsigned char was = at[k];

            at[k] = '\0';
            expect_refusal(data + 4, size - 4, "NUL");
            at[k] = was;
        }
    }
    pst_free(data);
}

/* Random bytes, and requests with some changed bytes, are unpacked or refused,
 * and no memory leaks. */
static void survives_random_bytes(void **state)
{
    const uint64_t live = pst_alloc_live(PST_TAG_CLIENT);
    unsigned char *good = NULL;
    const size_t size = make_request(&good) - 4;
    unsigned accepted = 0;

    (void)state;
    for (uint32_t i = 0; i < 200000; i++) {
        const struct pst_rng_key key = {.seed = 1, .step = i};
        unsigned char data[256];
        uint32_t words[4];
        pstd_frame *frame = NULL;
        size_t n = size;

        pst_rng_block(&key, 0, words);
        memcpy(data, good + 4, size);
        if (i % 2) {
            n = words[3] % 64;
            for (size_t k = 0; k < n; k += 4) {
                pst_rng_block(&key, 1 + k, words);
                memcpy(data + k, words, 4);
            }
        } else {
            data[words[0] % size] = (unsigned char)words[1];
            data[words[2] % size] ^= (unsigned char)(1u << words[3] % 8);
        }
        if (pstd_frame_unpack(data, n, PSTD_REQUEST_FIELD, &frame, NULL) ==
            PST_OK) {
            accepted++;
            pstd_frame_free(frame);
        }
    }
    assert_true(accepted > 0); /* some changes are harmless */
    pst_free(good);
    assert_true(pst_alloc_live(PST_TAG_CLIENT) == live);
}

static void refuses_to_pack_too_much(void **state)
{
    Pst__Control__Reply reply = PST__CONTROL__REPLY__INIT;
    pstd_frame frame = PST__CONTROL__FRAME__INIT;
    unsigned char *data = NULL;
    size_t size = 0;

    (void)state;
    reply.text = "0123456789";
    frame.body_case = PST__CONTROL__FRAME__BODY_REPLY;
    frame.reply = &reply;
    assert_int_equal(pstd_frame_pack(&frame, 10, &data, &size, NULL),
                     PST_ERR_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(survives_every_split),
        cmocka_unit_test(refuses_sizes),
        cmocka_unit_test(refuses_bombs),
        cmocka_unit_test(refuses_garbled),
        cmocka_unit_test(refuses_nul_in_texts),
        cmocka_unit_test(survives_random_bytes),
        cmocka_unit_test(refuses_to_pack_too_much),
    };

    return cmocka_run_group_tests_name("frame", tests, NULL, NULL);
}
