/* limited PROGRAM - runs a program with 1 GiB of address space, as a course's test machine may. */
#define _GNU_SOURCE
#include <sys/resource.h>
#include <unistd.h>

#include "check.h"

int main(int argc, char **argv) {
    CHECK(argc == 2);
    struct rlimit limit = {1UL << 30, 1UL << 30};
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
    execv(argv[1], argv + 1);
    CHECK(!"execv returns");
}
