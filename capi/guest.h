/* The threads of the Go runtime, as the library's C side knows them. */
#ifndef LLM_GUEST_H
#define LLM_GUEST_H

/*
 * Waits until every thread that the Go runtime started is asleep and none ran
 * while it looked, at most for so many milliseconds.
 */
void llm_threads_settle(int most_ms);

/* Leaves the host's signals to the host's threads. */
void llm_threads_block_signals(void);

/* Stops the runtime's monitor thread in its sleep, and lets it go on. */
void llm_monitor_freeze(int most_ms);
void llm_monitor_release(void);

/* From now on, a thread's stack is made deep before its first call. */
void llm_stacks_deepen(void);

/* In a forked child: the threads are the parent's. */
void llm_threads_forget(void);

#endif
