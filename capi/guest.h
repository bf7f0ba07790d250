/* What it takes to be a good guest: the runtime's threads, and the threads that call. */
#ifndef LLM_GUEST_H
#define LLM_GUEST_H

#include <signal.h>

/*
 * Waits until every thread that the Go runtime started is asleep and none ran
 * while it looked, for at most most_ms milliseconds.
 */
void llm_threads_settle(int most_ms);

/*
 * True if a thread of the process sleeps, and has not run since *runs, which was set
 * by the last look at it (0 before the first).
 */
int llm_thread_is_stuck(long tid, unsigned long *runs);

/* How many threads the process has without the runtime's; -1 if there is no /proc. */
int llm_threads_of_host(void);

/* Leaves the host's signals to the host's threads. will_end: llm_threads_end will be called. */
void llm_threads_block_signals(int will_end);

/*
 * Ends the runtime's threads, which sleep, and waits until the kernel has none of
 * them left. One thread may call after that, as in a forked child.
 */
void llm_threads_end(int most_ms);

/* Stops the runtime's monitor thread in its sleep, and lets it go on. */
void llm_monitor_stop(int most_ms);
void llm_monitor_release(void);

/* The library goes: no thread that ends later looks for a destructor of it. */
void llm_keys_delete(void);

/* From now on, a thread's stack is made deep before its first call. */
void llm_calls_deepen(void);

/* True if no other thread that has called is alive. */
int llm_calls_alone(void);

/*
 * Keeps the other threads out of the library, and waits until none is inside; 0
 * if one of them has slept for stuck_ms there, or all takes longer than most_ms, or
 * if this thread is inside itself. Signals are blocked until all is resumed, which it
 * must be in any case.
 */
int llm_calls_pause(int stuck_ms, int most_ms, sigset_t *before);
void llm_calls_resume(const sigset_t *before);

/* Instead of llm_calls_resume: the others stay out for good, only this thread may call. */
void llm_calls_stay_paused(const sigset_t *before);

/* Keeps the last error of this thread, a string that is never freed; llm_last_error returns it. */
void llm_calls_set_error(const char *error);

/* Reads LLM_MEMORY_DEBUG. */
void llm_refusals_start(void);

/* In a forked child: the threads, and the other callers, are the parent's. */
void llm_threads_forget(void);
void llm_calls_forget(void);

#endif
