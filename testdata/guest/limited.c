/* limited PROGRAM - runs a program with 840 MiB of address space: a course's test machine may give 1 GiB, and some
 * has to be left. */
#define _GNU_SOURCE
#include <sys/resource.h>
#include <unistd.h>

#include "check.h"

int main(int argc, char **argv) {
    CHECK(argc == 2);
    struct rlimit limit = {840UL << 20, 840UL << 20};
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
    execv(argv[1], argv + 1);
    CHECK(!"execv returns");
}
