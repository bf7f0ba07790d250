// What the driver and the memory use of the emulator.
#pragma once
#include <cstddef>
#include <functional>

namespace emulator {
struct Launch {
  int grid[3], threads;
  size_t dynamic_shared;
  int order; // of blocks, warps and lanes: 0 ascending, 1 descending, others shuffled
};

// run runs all threads of a kernel and reports whether nothing was wrong. Otherwise record was called.
bool run(const Launch &l, const std::function<void()> &call);

// record keeps the first thing that was wrong for cudatest_failure.
void record(const char *format, ...) __attribute__((format(printf, 1, 2)));
[[noreturn]] void abandon(); // ends the launch, called in a kernel's thread

void *device_alloc(size_t size, bool pinned); // nullptr if the memory that was configured is used up
bool device_free(void *p, bool pinned);
bool in_device(const void *p, size_t size); // in one allocation
bool is_pinned(const void *p, size_t size);
size_t device_used();
// allocation returns allocation i of device memory and pinned memory, in ascending order, and its size, or nullptr.
void *allocation(int i, size_t *size);
void free_all();
bool zones_intact(); // otherwise record was called

// While a Guarded exists, an access to the pages around device memory ends the launch.
struct Guarded {
  Guarded();
  ~Guarded();
};

struct Thread;
void forget_copies(const Thread *t);     // of cp_async16
bool all_copies_waited(const Thread *t); // for
} // namespace emulator
