/* Texts of errors. They need no Go runtime. */
#include <pthread.h>
#include <string.h>

#include "translate.h"

static _Thread_local char detail[512];

/* Guards the hook and its argument, which change together. */
static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static llm_cache_log log_hook;
static void *log_user;

void llm_cache_set_log(llm_cache_log hook, void *user) {
    pthread_mutex_lock(&log_lock);
    log_hook = hook;
    log_user = user;
    pthread_mutex_unlock(&log_lock);
}

void llm_note(int error, const char *text, size_t n) {
    size_t most = sizeof detail - 1;
    n = n < most ? n : most;
    memcpy(detail, text, n);
    detail[n] = '\0';
    pthread_mutex_lock(&log_lock);
    llm_cache_log hook = log_hook;
    void *user = log_user;
    pthread_mutex_unlock(&log_lock);
    if (hook != NULL) {
        hook(user, error, detail);
    }
}

const char *llm_cache_error_detail(void) { return detail; }

const char *llm_cache_error_text(int error) {
    switch (error) {
    case LLM_CACHE_OK: return "success";
    case LLM_CACHE_E_HANDLE: return "no open cache has this handle";
    case LLM_CACHE_E_REQUEST: return "no live request of this cache has this id";
    case LLM_CACHE_E_NULL: return "a pointer is NULL";
    case LLM_CACHE_E_SIZE: return "the size of a struct is unknown to this library";
    case LLM_CACHE_E_RANGE: return "a number is out of range, or numbers do not fit together";
    case LLM_CACHE_E_SMALL: return "an output array is too small";
    case LLM_CACHE_E_OVERLAP: return "arrays or structs overlap";
    case LLM_CACHE_E_ALIGN: return "an array or struct is not aligned";
    case LLM_CACHE_E_ORDER: return "called out of order: a step is in flight, or none is, or the cache has no such role";
    case LLM_CACHE_E_BUSY: return "blocks, or attentions of a GPU, are in use";
    case LLM_CACHE_E_LIMIT: return "too many open caches or live requests";
    case LLM_CACHE_E_MEMORY: return "not enough memory for the pool";
    case LLM_CACHE_E_GPU: return "NVIDIA's driver is not there, or returned an error";
    case LLM_CACHE_E_INTERNAL: return "a mistake in the library; the cache can only be closed";
    default: return "not an error code of llm_cache";
    }
}
