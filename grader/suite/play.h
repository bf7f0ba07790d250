/* play.h - plays the calls that a file lists, and compares what comes of them. */
#ifndef PLAY_H
#define PLAY_H

/*
 * The file is what exhaustive_test.go writes: cases of internal/homework/course/exhaustive.
 * Returns 0, or 1 when a call went wrong, which it prints with the calls before it.
 * Needs heap.c.
 */
int play_file(const char *path, void (*say)(const char *format, ...));

#endif
