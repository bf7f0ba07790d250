// The state of the driver that the test library plays.
#pragma once
#include "launch.h"
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

// Numbers of cuda.h (CUresult).
enum Status {
  OK = 0,
  INVALID_VALUE = 1,
  OUT_OF_MEMORY = 2,
  NOT_INITIALIZED = 3,
  NO_DEVICE = 100,
  INVALID_DEVICE = 101,
  INVALID_CONTEXT = 201,
  NO_BINARY_FOR_GPU = 209,
  INVALID_PTX = 218,
  UNSUPPORTED_PTX_VERSION = 222,
  INVALID_HANDLE = 400,
  NOT_FOUND = 500,
  NOT_READY = 600,
  ILLEGAL_ADDRESS = 700,
  LAUNCH_OUT_OF_RESOURCES = 701,
  LAUNCH_FAILED = 719,
  CAPTURE_UNSUPPORTED = 900,
  CAPTURE_UNMATCHED = 903,
};

typedef std::function<int()> Work; // returns a Status

struct Graph { std::vector<Work> work; };

// A Stream runs its work only when something waits for it, so that a missing wait is noticed.
struct Stream {
  std::deque<Work> queue;
  uint64_t appended = 0, executed = 0;
  bool blocking = true; // waits for the default stream and is waited for
  std::shared_ptr<Graph> capture;
  bool origin = false; // of the capture
};

struct Event {
  std::shared_ptr<Stream> stream; // where it was recorded last
  uint64_t mark = 0;              // complete when the stream has executed so many
  std::shared_ptr<Graph> capture;
  double time = 0; // in ms
};

struct Config { // cudatest_set
  long devices = 1, compute_capability = 90, driver_version = 13000, memory = 1L << 30, order = 0, hang = 0,
       module_memory = 0;
};

// A Watch is called before a launch runs, and after it. The shape is the blocks in each dimension, the threads, the bytes
// of dynamic shared memory, and the order of config.
typedef void (*Watch)(const char *ptx, const char *kernel, const int *shape, const void *const *arguments, int ran);

struct State {
  Config config;
  Watch watch = nullptr;
  bool initialized = false;
  int broken = OK; // what every call returns after a kernel failed
  std::string failure;
  std::map<std::string, int> fail_next, calls;
  std::deque<Work> under_way; // copies of the default stream
  std::map<void *, std::shared_ptr<Stream>> streams;
  std::map<void *, std::shared_ptr<Event>> events;
  std::map<void *, std::shared_ptr<Graph>> graphs, executables;
};
extern State state;
extern thread_local bool has_context;

enum Needs { nothing, initialized, context };
extern std::mutex one_call; // locked by calls of the driver, which threads make at the same time
int begin(const char *function, Needs needs); // counts the call; returns the Status with which it ends at once, or OK
size_t module_count();                        // modules that are loaded
bool capturing();                             // any stream
size_t most_shared();                         // bytes that a block may have, declared and dynamic
int push(void *stream, Work work);
int drain(Stream &s, uint64_t until);
int drain_default();
int drain_all();

#define API extern "C" __attribute__((visibility("default"))) int
#define BEGIN(needs)                        \
  std::unique_lock<std::mutex> locked_(one_call); \
  if (int status_ = begin(__func__, needs)) \
  return status_
