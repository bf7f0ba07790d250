// Memory of the device and pinned memory: each allocation ends at a page that cannot be accessed, and begins behind
// one. What lies between it and these pages, and fresh memory, is NaN in every type.
#include "launch.h"
#include <csignal>
#include <cstdint>
#include <cstring>
#include <map>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace emulator {
namespace {
const size_t PAGE = 65536, ALIGN = 256; // page sizes of arm64 are up to 64 KiB

struct Allocation {
  char *mapped;
  size_t size, mapped_size;
  bool pinned;
};
std::map<char *, Allocation> allocations;
size_t used;
struct sigaction before;
long launching; // the thread that runs a kernel

std::map<char *, Allocation>::iterator holding(const void *p) {
  auto next = allocations.upper_bound((char *)p);
  return next == allocations.begin() ? allocations.end() : --next;
}

void on_fault(int signal, siginfo_t *info, void *context) {
  char *at = (char *)info->si_addr;
  for (auto &[p, a] : allocations) {
    if (at < a.mapped || at >= a.mapped + a.mapped_size) continue;
    ptrdiff_t after = at - (p + a.size);
    record("a kernel accesses %td bytes %s an allocation of %zu bytes", after >= 0 ? after : p - at,
           after >= 0 ? "after the end of" : "before", a.size);
    abandon();
  }
  if (syscall(SYS_gettid) == launching) {
    record("a kernel accesses %p, where no memory is", at);
    abandon();
  }
  if (before.sa_flags & SA_SIGINFO) return before.sa_sigaction(signal, info, context);
  sigaction(SIGSEGV, &before, nullptr); // the access is repeated
}
} // namespace

Guarded::Guarded() {
  struct sigaction act = {};
  act.sa_sigaction = on_fault;
  act.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  sigaction(SIGSEGV, &act, &before);
  launching = syscall(SYS_gettid);
}
Guarded::~Guarded() { launching = 0, sigaction(SIGSEGV, &before, nullptr); }

void *device_alloc(size_t size, bool pinned) {
  size_t inside = (size + ALIGN - 1) / ALIGN * ALIGN, pages = (inside + PAGE - 1) / PAGE * PAGE;
  char *mapped = (char *)mmap(nullptr, pages + 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  mprotect(mapped, PAGE, PROT_NONE);
  mprotect(mapped + PAGE + pages, PAGE, PROT_NONE);
  memset(mapped + PAGE, 0xff, pages);
  char *p = mapped + PAGE + pages - inside;
  allocations[p] = {mapped, size, pages + 2 * PAGE, pinned};
  used += pinned ? 0 : size;
  return p;
}

bool device_free(void *p, bool pinned) {
  auto a = allocations.find((char *)p);
  if (a == allocations.end() || a->second.pinned != pinned) return false;
  used -= pinned ? 0 : a->second.size;
  munmap(a->second.mapped, a->second.mapped_size);
  allocations.erase(a);
  return true;
}

static bool holds(const void *p, size_t size, bool pinned) {
  auto a = holding(p);
  return a != allocations.end() && a->second.pinned == pinned && (char *)p + size <= a->first + a->second.size;
}
bool in_device(const void *p, size_t size) { return holds(p, size, false); }
bool is_pinned(const void *p, size_t size) { return holds(p, size, true); }
size_t device_used() { return used; }
void *allocation(int i, size_t *size) {
  if (size_t(i) >= allocations.size()) return nullptr;
  auto a = std::next(allocations.begin(), i);
  *size = a->second.size;
  return a->first;
}

void free_all() {
  for (auto &[p, a] : allocations) munmap(a.mapped, a.mapped_size);
  allocations.clear(), used = 0;
}

// untouched reports whether all bytes between two addresses are 0xff. It compares each with the next one, which memcmp
// does fast.
static bool untouched(const char *from, const char *end) {
  return from == end || (*from == char(0xff) && !memcmp(from, from + 1, end - from - 1));
}

bool zones_intact() {
  for (auto &[p, a] : allocations) {
    char *end = a.mapped + a.mapped_size - PAGE;
    if (untouched(a.mapped + PAGE, p) && untouched(p + a.size, end)) continue;
    for (char *zone = a.mapped + PAGE; zone < end; zone++) {
      if (zone == p) zone += a.size;
      if (zone < end && *zone != char(0xff)) {
        record("a kernel wrote %td bytes %s an allocation of %zu bytes", zone < p ? p - zone : zone - (p + a.size),
               zone < p ? "before" : "after the end of", a.size);
        *zone = char(0xff);
        return false;
      }
    }
  }
  return true;
}
} // namespace emulator
