//go:build ignore

#define _DEFAULT_SOURCE
#include "check.h"

#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "heap.h"

/*
 * What a child process sends when its test has run to the end. The exit status is not
 * enough, because a submission can call exit(0).
 */
static const char token[] = "the test ran to its end";

static jmp_buf failed;
static char failure[2048];

void check_fail(const char *file, int line, const char *format, ...) {
    const char *slash = strrchr(file, '/');
    int n = snprintf(failure, sizeof failure, "%s:%d: ", slash == NULL ? file : slash + 1, line);
    va_list args;
    va_start(args, format);
    vsnprintf(failure + n, sizeof failure - (size_t)n, format, args);
    va_end(args);
    longjmp(failed, 1);
}

void check_int(const char *file, int line, const char *what, long actual, long expected) {
    if (actual != expected) {
        check_fail(file, line, "%s: expected %ld, got %ld", what, expected, actual);
    }
}

void check_ptr(const char *file, int line, const char *what, const void *actual, const void *expected) {
    if (actual == expected) {
        return;
    }
    if (expected == NULL) {
        check_fail(file, line, "%s: expected NULL, got %p", what, actual);
    }
    check_fail(file, line, "%s: expected %p, got %p", what, expected, actual);
}

void check_here(const struct test *test, struct outcome *outcome) {
    memset(outcome, 0, sizeof *outcome);
    if (heap_reset != NULL) {
        heap_reset();
    }
    if (setjmp(failed) == 0) {
        test->run();
        outcome->passed = true;
    } else {
        memcpy(outcome->text, failure, sizeof failure);
    }
    fflush(stdout); /* what the submission printed belongs to this test */
}

static void die(const char *what) {
    perror(what);
    exit(2);
}

static _Noreturn void child(const struct test *test, unsigned seconds, int to_parent) {
    static struct outcome outcome;
    struct itimerval most = {.it_value = {.tv_sec = (time_t)seconds}};
    setitimer(ITIMER_PROF, &most, NULL);
    check_here(test, &outcome);
    const char *text = outcome.passed ? token : outcome.text;
    ssize_t sent = write(to_parent, text, strlen(text) + 1);
    _exit(sent < 0);
}

/* What a child has used of a processor, in milliseconds. */
static long used_by(pid_t pid) {
    clockid_t clock;
    struct timespec used = {0};
    if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &used) != 0) {
        return 0;
    }
    return (long)used.tv_sec * 1000 + used.tv_nsec / 1000000;
}

/* Collects the text and the exit status of a child. A text fits into the pipe, which keeps
 * it until it is read. The limit is processor time, measured by the child's own timer. A
 * call that waits for something uses almost none; this is detected here. */
static void collect(int from_child, pid_t pid, unsigned seconds, int *status, char *text, size_t size) {
    struct pollfd ready = {.fd = from_child, .events = POLLIN};
    text[0] = '\0';
    long before = 0;
    int waits = 0, found = 0;
    while (waits < 20 && (found = poll(&ready, 1, (int)seconds * 1000)) == 0) {
        long used = used_by(pid);
        waits = used - before <= (long)seconds ? waits + 1 : 0; /* a thousandth */
        before = used;
    }
    if (found == 0) {
        kill(pid, SIGKILL);
    } else if (ready.revents & POLLIN) {
        ssize_t n = read(from_child, text, size - 1);
        text[n < 0 ? 0 : n] = '\0';
    }
    while (waitpid(pid, status, 0) < 0) {
        if (errno != EINTR) {
            die("waitpid");
        }
    }
}

static void say_how_it_died(int status, unsigned seconds, struct outcome *outcome) {
    int sig = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    if (sig == SIGPROF) {
        outcome->timed_out = true;
        snprintf(outcome->text, sizeof outcome->text,
                 "timed out: a call did not return within %u seconds of processor time (an endless loop?)", seconds);
    } else if (sig == SIGKILL) {
        outcome->timed_out = true;
        snprintf(outcome->text, sizeof outcome->text,
                 "timed out: a call did not return within %u seconds: it waits for something", 20 * seconds);
    } else if (sig != 0) {
        snprintf(outcome->text, sizeof outcome->text, "crashed: killed by signal %d (%s)", sig, strsignal(sig));
    } else {
        snprintf(outcome->text, sizeof outcome->text,
                 "exited by itself: an API call ended the program with status %d", WEXITSTATUS(status));
    }
}

void check_forked(const struct test *test, unsigned seconds, struct outcome *outcome) {
    int ends[2];
    memset(outcome, 0, sizeof *outcome);
    if (pipe(ends) != 0) {
        die("pipe");
    }
    fflush(NULL); /* or the child would print it once more */
    pid_t pid = fork();
    if (pid < 0) {
        die("fork");
    }
    if (pid == 0) {
        close(ends[0]);
        child(test, seconds, ends[1]);
    }
    close(ends[1]);
    int status = 0;
    collect(ends[0], pid, seconds, &status, outcome->text, sizeof outcome->text);
    close(ends[0]);
    if (strcmp(outcome->text, token) == 0) {
        outcome->passed = true;
    } else if (outcome->text[0] == '\0') {
        say_how_it_died(status, seconds, outcome);
    }
}
