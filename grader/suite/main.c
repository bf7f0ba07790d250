//go:build ignore

/*
 * The suite: a test for each sentence of the handout that can be checked.
 *
 *   gcc -std=c11 -Wall -Wextra -Wpedantic -Werror -O2 -ggdb -I. llm_memory.c grader/suite/[a-z]*.c -o suite
 *
 * To test a library, use -L and -l instead of llm_memory.c. For Valgrind, which has its own
 * malloc, leave out heap.c: valgrind --leak-check=full ./suite --no-fork
 *
 * The last line of the output is the result. If it is missing, the submission has ended the
 * process, perhaps before main.
 */
#define _DEFAULT_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "heap.h"

enum { PATIENCE = 3 }; /* after this many time-outs the other tests are not run */

static const struct test *const files[] = {
    layout_tests, task1_tests, task2_tests,       task3_tests,   task4_tests,
    task5_tests,  constraints_tests, outside_tests, sweep_tests, advice_tests,
};

static struct {
    bool list, verbose, no_fork, advice, stop;
    const char *only;
    unsigned seconds;
} options = {.seconds = 10};

static int passed, failed, skipped, advised, tried, timeouts;
static int report = -1;

static const char help[] =
    "usage: suite [--list] [--only NAME] [-v] [--no-fork] [--advice] [--stop] [--seconds N]\n"
    "  --list       the tests and the sentences of the handout they check\n"
    "  --only NAME  the test of this name, or all that contain it\n"
    "  -v           name passed and skipped tests as well\n"
    "  --no-fork    all tests in this process (for Valgrind and debuggers)\n"
    "  --advice     also what the handout does not ask for; never a failure\n"
    "  --stop       end at the first failure\n"
    "  --seconds N  time limit of a test, 10 if not given\n";

/*
 * Prints without stdio, because a submission could flush, duplicate or close stdio's buffers.
 */
static void say(const char *format, ...) {
    va_list args;
    va_start(args, format);
    vdprintf(report, format, args);
    va_end(args);
}

static void usage(const char *program, const char *what) {
    fprintf(stderr, "%s: %s\n%s", program, what, help);
    exit(2);
}

static void parse(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--list") == 0) {
            options.list = true;
        } else if (strcmp(argv[i], "-v") == 0) {
            options.verbose = true;
        } else if (strcmp(argv[i], "--no-fork") == 0) {
            options.no_fork = true;
        } else if (strcmp(argv[i], "--advice") == 0) {
            options.advice = true;
        } else if (strcmp(argv[i], "--stop") == 0) {
            options.stop = true;
        } else if (strcmp(argv[i], "--only") == 0 && i + 1 < argc) {
            options.only = argv[++i];
        } else if (strcmp(argv[i], "--seconds") == 0 && i + 1 < argc && atoi(argv[i + 1]) > 0) {
            options.seconds = (unsigned)atoi(argv[++i]);
        } else if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            printf("%s", help);
            exit(0);
        } else {
            usage(argv[0], "what is this option?");
        }
    }
}

static bool is_exact_name(const char *name) {
    for (size_t f = 0; f < sizeof files / sizeof *files; f++) {
        for (const struct test *t = files[f]; t->name != NULL; t++) {
            if (strcmp(t->name, name) == 0) {
                return true;
            }
        }
    }
    return false;
}

static bool chosen(const struct test *test) {
    static int exact = -1;
    if (options.only == NULL) {
        return test->kind != ADVICE || options.advice || options.list;
    }
    if (exact < 0) {
        exact = is_exact_name(options.only);
    }
    return exact ? strcmp(test->name, options.only) == 0 : strstr(test->name, options.only) != NULL;
}

static void skip(const struct test *test, const char *why) {
    skipped++;
    if (options.verbose) {
        say("skip %s (%s)\n", test->name, why);
    }
}

static void record(const struct test *test, const struct outcome *outcome) {
    timeouts += outcome->timed_out;
    if (outcome->passed) {
        passed += test->kind != ADVICE;
        if (options.verbose) {
            say("ok   %s\n", test->name);
        }
        return;
    }
    *(test->kind == ADVICE ? &advised : &failed) += 1;
    say("%s %s\n  handout: %s\n  %s\n", test->kind == ADVICE ? "ADVICE" : "FAIL", test->name, test->sentence,
        outcome->text);
}

static void run(const struct test *test) {
    static struct outcome outcome;
    tried++;
    if (test->kind != PLAIN && heap_reset == NULL) {
        skip(test, "heap.c is not linked");
        return;
    }
    if (timeouts >= PATIENCE) {
        skip(test, "too many tests timed out");
        return;
    }
    if (options.no_fork) {
        check_here(test, &outcome);
    } else {
        check_forked(test, options.seconds, &outcome);
    }
    record(test, &outcome);
}

static void visit_all(void) {
    for (size_t f = 0; f < sizeof files / sizeof *files; f++) {
        for (const struct test *t = files[f]; t->name != NULL; t++) {
            if (options.stop && failed > 0) {
                return;
            }
            if (chosen(t) && options.list) {
                say("%s\n    %s\n", t->name, t->sentence);
            } else if (chosen(t)) {
                run(t);
            }
        }
    }
}

/*
 * Redirects what the code under test prints to stderr. The buffer is static, so that a
 * printf in a call does not count as an allocation by the call.
 */
static void redirect(void) {
    static char buffer[BUFSIZ];
    report = dup(STDOUT_FILENO);
    if (report < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) {
        perror("stdout");
        exit(2);
    }
    setvbuf(stdout, buffer, _IOLBF, sizeof buffer);
}

static int conclude(void) {
    if (tried == 0) {
        fprintf(stderr, "no test is called %s\n", options.only);
        return 2;
    }
    if (advised > 0) {
        say("%d tests not asked for by the handout did not pass\n", advised);
    }
    fflush(stdout);
    if (skipped > 0) {
        say("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
    } else {
        say("%d passed, %d failed\n", passed, failed);
    }
    return failed > 0;
}

int main(int argc, char **argv) {
    parse(argc, argv);
    redirect();
    visit_all();
    int status = options.list ? 0 : conclude();
    if (!options.no_fork) {
        _exit(status); /* past whatever a submission registered for the end */
    }
    close(report);
    return status;
}
