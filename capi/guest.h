/* Functions about the runtime's threads and about the threads that call (guest.c). */
#ifndef LLM_GUEST_H
#define LLM_GUEST_H

#include <signal.h>

/*
 * Waits until all threads of the Go runtime are asleep at the same time, at most
 * most_ms milliseconds.
 */
void llm_threads_settle(int most_ms);

/*
 * True if a thread of the process sleeps and has not run since the last call, which set
 * *runs (0 before the first call).
 */
int llm_thread_is_stuck(long tid, unsigned long *runs);

/* The number of threads of the process, without the runtime's; -1 if there is no /proc. */
int llm_threads_of_host(void);

/* Blocks signals in the runtime's threads, so that the host's threads get them. will_end: llm_threads_end will be
 * called. */
void llm_threads_block_signals(int will_end);

/*
 * Ends the runtime's threads, which must sleep, and waits until they are gone. Afterwards
 * one thread may call, as in a forked child.
 */
void llm_threads_end(int most_ms);

/* Stop the runtime's monitor thread while it sleeps, and release it again. */
void llm_monitor_stop(int most_ms);
void llm_monitor_release(void);

/* Deletes the keys, before the library is unloaded: a thread that ends later must not call a destructor of it. */
void llm_keys_delete(void);

/* From now on, a thread's Go stack is grown before its first call (course.Deepen). */
void llm_calls_deepen(void);

/* True if no other thread that has called is alive. */
int llm_calls_alone(void);

/*
 * Keeps the other threads out of the library and waits until none is inside. Returns 0 if
 * one of them has slept inside for stuck_ms or is inside for longer than most_ms, or if
 * this thread is inside. Signals are blocked until llm_calls_resume, which must be called in
 * any case.
 */
int llm_calls_pause(int stuck_ms, int most_ms, sigset_t *before);
void llm_calls_resume(const sigset_t *before);

/* Called in place of llm_calls_resume: the other threads stay out for good, only this thread may call. */
void llm_calls_stay_paused(const sigset_t *before);

/* Keeps the last error of this thread, a string that is never freed; llm_last_error returns it. */
void llm_calls_set_error(const char *error);

/* Reads LLM_MEMORY_DEBUG. */
void llm_refusals_start(void);

/* Called in a forked child, which has neither the threads nor the other callers of its parent. */
void llm_threads_forget(void);
void llm_calls_forget(void);

#endif
