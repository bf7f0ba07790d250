/* What visit.c uses of threads.c. */
#ifndef LLM_THREADS_H
#define LLM_THREADS_H

#include <signal.h>

/*
 * The signal of a visit (visit.c): few programs use it, it is ignored by default, and
 * debuggers do not stop at it.
 */
enum { LLM_VISIT = SIGURG };

/* The kernel id of the i-th thread, in the order of creation: 0 if it does not run yet, -1 after the last. */
long llm_thread_id(int i);

/*
 * Ends the calling thread as if its first function had returned, so that glibc frees
 * the thread's memory. tid is the thread's id. Does nothing if the runtime has no such
 * thread.
 */
void llm_thread_leave(long tid);

#endif
