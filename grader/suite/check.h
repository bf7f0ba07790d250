/*
 * check.h - the suite's harness. A test is a function without arguments that checks one
 * sentence of the homework handout. It contains the sentence, so that a failure says which
 * rule was broken.
 *
 * The C files begin with "//go:build ignore", because the go command would otherwise
 * compile them together with the Go tests in this folder.
 */
#ifndef CHECK_H
#define CHECK_H

#include <stdbool.h>
#include <stddef.h>

enum kind {
    PLAIN,
    HEAP,  /* needs heap.c; skipped where it is not linked */
    ADVICE /* the handout does not ask for it; needs heap.c, never a failure */
};

struct test {
    const char *name;
    const char *sentence;
    void (*run)(void);
    enum kind kind;
};

#define TEST(name, sentence)                                                   \
    static const char name##_sentence[] = sentence;                            \
    static void name(void)

#define LISTED(name) {#name, name##_sentence, name, PLAIN}
#define LISTED_HEAP(name) {#name, name##_sentence, name, HEAP}
#define LISTED_ADVICE(name) {#name, name##_sentence, name, ADVICE}
#define END_OF_LIST {NULL, NULL, NULL, PLAIN}

extern const struct test layout_tests[];
extern const struct test task1_tests[];
extern const struct test task2_tests[];
extern const struct test task3_tests[];
extern const struct test task4_tests[];
extern const struct test task5_tests[];
extern const struct test constraints_tests[];
extern const struct test outside_tests[];
extern const struct test sweep_tests[];
extern const struct test advice_tests[];

/* The first check that does not hold ends the test. */
#define CHECK(condition)                                                       \
    ((condition) ? (void)0 : check_fail(__FILE__, __LINE__, "this does not hold: %s", #condition))
#define CHECK_INT(actual, expected)                                            \
    check_int(__FILE__, __LINE__, #actual, (actual), (expected))
#define CHECK_PTR(actual, expected)                                            \
    check_ptr(__FILE__, __LINE__, #actual, (actual), (expected))
#define CHECK_NULL(actual) CHECK_PTR(actual, NULL)

_Noreturn void check_fail(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void check_int(const char *file, int line, const char *what, long actual, long expected);
void check_ptr(const char *file, int line, const char *what, const void *actual, const void *expected);

struct outcome {
    bool passed;
    bool timed_out;
    char text[2048]; /* what was seen, where it did not pass */
};

/* Runs a test in a child process with a limit of processor time in seconds. A child that dies has failed. */
void check_forked(const struct test *test, unsigned seconds, struct outcome *outcome);

/* Runs a test in this process, for tools that can watch only one process. */
void check_here(const struct test *test, struct outcome *outcome);

#endif
