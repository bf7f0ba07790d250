/* Between threads.c, which knows the runtime's threads, and visit.c. */
#ifndef LLM_THREADS_H
#define LLM_THREADS_H

#include <signal.h>

/*
 * What visits a thread: a signal that few programs use, that is ignored by
 * default, and at which debuggers do not stop.
 */
enum { LLM_VISIT = SIGURG };

/* The kernel id of the i-th thread, in the order of creation: 0 if it does not run yet, -1 after the last. */
long llm_thread_id(int i);

/*
 * Ends the calling thread, which is that of the runtime with the id, as if its
 * first function had returned; glibc can free what it has for it then. Does
 * nothing for another thread.
 */
void llm_thread_leave(long tid);

#endif
