/* Finds out whether Valgrind runs the process, by the name of the library that it preloads. */
#define _GNU_SOURCE
#include <link.h>
#include <string.h>

#include "translate.h"

static int is_valgrind(struct dl_phdr_info *info, size_t size, void *unused) {
    (void)size, (void)unused;
    return info->dlpi_name != NULL && strstr(info->dlpi_name, "/vgpreload_") != NULL;
}

int llm_watched(void) { return dl_iterate_phdr(is_valgrind, NULL); }
