// Runs the threads of a block, one at a time, and what they do together.
#include "launch.h"
#include <device.h>
#include <cstdarg>
#include <cstdio>
#include <sys/mman.h>
#include <vector>

namespace emulator {
Thread *current;
Block block;

namespace {
const size_t STACK = 256 << 10, GUARD = 4096, ARENA = 256 << 10, ZONE = 128;
void *scheduler_stack; // where the scheduler waits while a fiber runs
char *stacks, *arena;  // arena is the shared memory of a block
const std::function<void()> *body;
bool failed;
std::vector<Thread> all;

struct Declared { const void *key; char *at; };
std::vector<Declared> declared; // what SHARED has declared in this block
size_t declared_end, dynamic_begin;

// The registers that a called function preserves are kept on the stack that is left.
extern "C" void emulator_switch(void **left, void *entered);
#if defined(__x86_64__)
asm(R"(.text
.hidden emulator_switch
.globl emulator_switch
emulator_switch:
  push %rbp
  push %rbx
  push %r12
  push %r13
  push %r14
  push %r15
  mov %rsp, (%rdi)
  mov %rsi, %rsp
  pop %r15
  pop %r14
  pop %r13
  pop %r12
  pop %rbx
  pop %rbp
  ret
)");
const int SAVED = 6, RETURN = 6;
#elif defined(__aarch64__)
asm(R"(.text
.hidden emulator_switch
.globl emulator_switch
emulator_switch:
  sub sp, sp, #160
  stp x19, x20, [sp]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
)");
const int SAVED = 20, RETURN = 11;
#endif

#if defined(__SANITIZE_ADDRESS__)
extern "C" void __sanitizer_start_switch_fiber(void **fake, const void *bottom, size_t size);
extern "C" void __sanitizer_finish_switch_fiber(void *fake, const void **bottom, size_t *size);
const void *scheduler_bottom;
size_t scheduler_size;
void leave(void **fake, const void *bottom, size_t size) { __sanitizer_start_switch_fiber(fake, bottom, size); }
void enter(void *fake, const void **bottom, size_t *size) { __sanitizer_finish_switch_fiber(fake, bottom, size); }
#else
const void *scheduler_bottom;
size_t scheduler_size;
void leave(void **, const void *, size_t) {}
void enter(void *, const void **, size_t *) {}
#endif

char *stack_of(const Thread &t) { return stacks + t.thread * (STACK + GUARD) + GUARD; }

void to_scheduler() {
  void *fake = nullptr;
  leave(current->done ? nullptr : &fake, scheduler_bottom, scheduler_size);
  emulator_switch(&current->stack_pointer, scheduler_stack);
  enter(fake, &scheduler_bottom, &scheduler_size);
}

void run_body() {
  enter(nullptr, &scheduler_bottom, &scheduler_size);
  (*body)();
  current->done = true;
  block.left++;
  if (block.waiting && block.at_barrier + block.left == unsigned(block.threads)) {
    block.at_barrier = 0, block.waiting = nullptr, block.barriers++;
  }
  to_scheduler();
  __builtin_trap();
}

void prepare(Thread &t) {
  void **top = (void **)(stack_of(t) + STACK) - 2;
  top -= SAVED + 2 - SAVED % 2;
  memset(top, 0, SAVED * sizeof(void *));
  top[RETURN] = (void *)run_body;
  t.stack_pointer = top;
}

void resume(Thread &t) {
  current = &t;
  t.wait_for = nullptr;
  void *fake;
  leave(&fake, stack_of(t), STACK);
  emulator_switch(&scheduler_stack, t.stack_pointer);
  enter(fake, nullptr, nullptr);
}

bool can_run(const Thread &t) { return !t.done && (!t.wait_for || *t.wait_for != t.waited); }

// run_warp runs the lanes of a warp for as long as one of them can, and reports whether one could.
bool run_warp(int warp, const std::vector<int> &lanes) {
  bool ran = false;
  for (bool again = true; again && !failed;) {
    again = false;
    for (int lane : lanes) {
      Thread &t = all[warp * WARP + lane];
      if (failed || !can_run(t)) continue;
      resume(t);
      ran = again = true;
    }
  }
  return ran;
}

void say_who_waits() {
  for (const Thread &t : all) {
    if (t.done) continue;
    const Warp &w = block.warps[t.warp];
    if (t.wait_for == &w.turn) {
      record("thread %d waits in %s: %u of 32 lanes have come, the others have returned or wait elsewhere", t.thread,
             w.waiting, w.arrived);
    } else {
      record("thread %d waits in barrier for threads that wait elsewhere", t.thread);
    }
    return;
  }
}

std::vector<int> shuffled(int n, int order, unsigned salt) {
  std::vector<int> result(n);
  for (int i = 0; i < n; i++) result[i] = order == 1 ? n - 1 - i : i;
  uint64_t random = order * 7919 + salt;
  for (int i = n - 1; i > 0 && order > 1; i--) {
    random = random * 6364136223846793005 + 1442695040888963407;
    int j = (random >> 33) % (i + 1), was = result[i];
    result[i] = result[j], result[j] = was;
  }
  return result;
}

void run_block(const Launch &l, Warp *warps) {
  int threads = l.threads;
  block.threads = threads, block.warps = warps;
  block.at_barrier = block.left = 0, block.waiting = nullptr;
  memset(arena, 0xff, ARENA); // NaN in every type
  declared.clear(), declared_end = ZONE;
  dynamic_begin = ARENA - (l.dynamic_shared + 15) / 16 * 16;
  for (int i = 0; i < threads / WARP; i++) warps[i].arrived = 0, warps[i].waiting = nullptr;
  for (int i = 0; i < threads; i++) {
    Thread &t = all[i];
    t.thread = i, t.lane = i % WARP, t.warp = i / WARP, t.done = false, t.wait_for = nullptr;
    forget_copies(&t);
    prepare(t);
  }
  unsigned salt = block.x + 31 * block.y + 1009 * block.z;
  std::vector<int> order = shuffled(threads / WARP, l.order, salt), lanes = shuffled(WARP, l.order, salt + 1);
  while (int(block.left) < threads && !failed) {
    bool ran = false;
    for (int w : order) ran = run_warp(w, lanes) || ran;
    if (!ran && !failed) say_who_waits(), failed = true;
  }
  for (int i = 0; i < threads && !failed; i++) {
    if (!all_copies_waited(&all[i])) record("thread %d returns without waiting for its cp_async16", i), failed = true;
  }
}
} // namespace

void fail(const char *format, ...) {
  va_list list;
  va_start(list, format);
  char text[400];
  vsnprintf(text, sizeof text, format, list);
  va_end(list);
  record("block %d %d %d, thread %d: %s", block.x, block.y, block.z, current->thread, text);
  abandon();
}

void abandon() {
  failed = true;
  to_scheduler();
  __builtin_trap();
}

void wait(const unsigned *counter) {
  current->wait_for = counter, current->waited = *counter;
  to_scheduler();
}

bool arrive(Warp &w, const char *what) {
  if (w.arrived && strcmp(w.waiting, what)) fail("%s, while lanes of the same warp wait in %s", what, w.waiting);
  w.waiting = what;
  if (++w.arrived < unsigned(WARP)) return false;
  w.arrived = 0, w.waiting = nullptr;
  return true;
}

void barrier() {
  unsigned turn = block.barriers;
  block.waiting = "barrier";
  if (++block.at_barrier + block.left == unsigned(block.threads)) {
    block.at_barrier = 0, block.waiting = nullptr, block.barriers++;
    return;
  }
  while (block.barriers == turn) wait(&block.barriers);
}

void *shared(const void *key, const char *name, size_t size) {
  for (const Declared &d : declared) {
    if (d.key == key) return d.at;
  }
  char *at = arena + declared_end;
  declared_end += (size + 15) / 16 * 16 + ZONE;
  if (declared_end > dynamic_begin) fail("no shared memory is left for %s", name);
  declared.push_back({key, at});
  return at;
}

char *dynamic_shared() { return arena + dynamic_begin; }
uint32_t shared_address(const void *p) {
  if ((char *)p < arena || (char *)p >= arena + ARENA) fail("%p is not in shared memory", p);
  return (char *)p - arena;
}

char *shared_at(uint32_t address, size_t size, size_t align, const char *what) {
  if (address % align) fail("%s: the shared address %u is not a multiple of %zu", what, address, align);
  if (address + size > ARENA) fail("%s: the shared address %u is outside", what, address);
  return arena + address;
}

bool run(const Launch &l, const std::function<void()> &call) {
  if (!stacks) {
    size_t size = 1024 * (STACK + GUARD);
    stacks = (char *)mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    arena = (char *)mmap(nullptr, ARENA + GUARD, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 1024; i++) mprotect(stacks + i * (STACK + GUARD), GUARD, PROT_NONE);
    mprotect(arena + ARENA, GUARD, PROT_NONE);
  }
  body = &call, failed = false;
  all.resize(l.threads);
  std::vector<Warp> warps(l.threads / WARP);
  size_t blocks = size_t(l.grid[0]) * l.grid[1] * l.grid[2];
  block.grid_x = l.grid[0], block.grid_y = l.grid[1], block.grid_z = l.grid[2];
  std::vector<int> order = shuffled(blocks, l.order, 0);
  for (size_t i = 0; i < blocks && !failed; i++) {
    unsigned at = order[i];
    block.x = at % l.grid[0], block.y = at / l.grid[0] % l.grid[1], block.z = at / l.grid[0] / l.grid[1];
    run_block(l, warps.data());
  }
  return !failed;
}
} // namespace emulator
