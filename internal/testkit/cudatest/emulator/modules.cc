// The driver's functions for modules and launches. The PTX of a module says which kernels it has and their limits; the
// code that runs is the host's.
#include "driver.h"
#include "registry.h"
#include <cstdio>
#include <cstring>
#include <memory>

emulator::Kernel *emulator::kernels;
emulator::Kernel::Kernel(const char *name, void (*copy)(Arguments &, void **), void (*call)(const Arguments &))
    : name(name), copy(copy), call(call), next(kernels) {
  kernels = this;
}

namespace {
struct Function {
  const emulator::Kernel *kernel;
  std::shared_ptr<const std::string> ptx;
  int most_threads = 1024;
  size_t declared = 0; // bytes of shared memory, beside the dynamic ones of a launch
  size_t most_dynamic = 0;
};
struct Module {
  std::shared_ptr<const std::string> ptx;
  std::vector<std::unique_ptr<Function>> functions;
};
std::map<void *, std::unique_ptr<Module>> modules;

// declared_shared returns the size of the shared variables that a kernel uses. Dynamic shared memory begins behind
// them, at a multiple of 16.
size_t declared_shared(const std::string &ptx, size_t entry) {
  const std::string body = ptx.substr(entry, ptx.find("\n}", entry) - entry), declaration = ".shared .align ";
  size_t bytes = 0;
  for (size_t at = ptx.find(declaration); at != std::string::npos; at = ptx.find(declaration, at + 1)) {
    if (at >= 8 && ptx.compare(at - 8, 8, ".extern ") == 0) continue;
    char name[200];
    int bits, elements = 1;
    if (sscanf(ptx.c_str() + at, ".shared .align %*d .%*c%d %199[^[;][%d]", &bits, name, &elements) < 2) continue;
    if (body.find(name) != std::string::npos) bytes += bits / 8 * elements;
  }
  return (bytes + 15) / 16 * 16;
}

Function *find(Module &m, const std::string &name) {
  size_t entry = m.ptx->find(".entry " + name + "(");
  if (entry == std::string::npos) return nullptr;
  for (const emulator::Kernel *k = emulator::kernels; k; k = k->next) {
    if (name != k->name) continue;
    auto f = std::make_unique<Function>();
    f->kernel = k, f->ptx = m.ptx;
    std::string head = m.ptx->substr(entry, m.ptx->find("\n{", entry) - entry);
    size_t most = head.find(".maxntid ");
    if (most != std::string::npos) sscanf(head.c_str() + most, ".maxntid %d", &f->most_threads);
    f->declared = declared_shared(*m.ptx, entry);
    f->most_dynamic = (48 << 10) - f->declared;
    m.functions.push_back(std::move(f));
    return m.functions.back().get();
  }
  emulator::record("%s is in the PTX, but the test library was not built with it", name.c_str());
  return nullptr;
}
} // namespace

static void watch(const std::string &ptx, const char *kernel, const emulator::Launch &l,
                  const emulator::Arguments &values, int ran) {
  if (!state.watch) return;
  const void *arguments[emulator::MOST_ARGUMENTS];
  for (int i = 0; i < emulator::MOST_ARGUMENTS; i++) arguments[i] = values.at[i];
  const int shape[] = {l.grid[0], l.grid[1], l.grid[2], l.threads, int(l.dynamic_shared), l.order};
  state.watch(ptx.c_str(), kernel, shape, arguments, ran);
}
API cudatest_watch(Watch watch) { return state.watch = watch, OK; }

// invalid_ptx writes why the PTX is refused to the buffer that CU_JIT_ERROR_LOG_BUFFER (5) and its size (6) give.
static int invalid_ptx(unsigned count, const int *options, void **values) {
  char *log = nullptr;
  size_t size = 0;
  for (unsigned i = 0; i < count; i++) {
    if (options[i] == 5) log = (char *)values[i];
    if (options[i] == 6) size = (size_t)values[i];
  }
  if (log) snprintf(log, size, "ptxas fatal   : Missing .version directive at start of file\n");
  return INVALID_PTX;
}

size_t module_count() { return modules.size(); }

API cuModuleLoadDataEx(void **module, const char *ptx, unsigned count, int *options, void **values) {
  BEGIN(context);
  if (capturing()) return CAPTURE_UNSUPPORTED;
  const char *version = strstr(ptx, ".version "), *target = strstr(ptx, ".target sm_");
  int major, minor, sm;
  if (!version || !target || sscanf(version, ".version %d.%d", &major, &minor) != 2 ||
      sscanf(target, ".target sm_%d", &sm) != 1)
    return invalid_ptx(count, options, values);
  int cuda = state.config.driver_version; // CUDA 11.4 reads PTX 7.4, 12.0 reads 8.0
  if (major * 10 + minor > (cuda / 1000 - 4) * 10 + cuda % 1000 / 10) return UNSUPPORTED_PTX_VERSION;
  if (sm > state.config.compute_capability) return NO_BINARY_FOR_GPU;
  if (emulator::device_used() + (modules.size() + 1) * state.config.module_memory > size_t(state.config.memory))
    return OUT_OF_MEMORY;
  auto made = std::make_unique<Module>();
  made->ptx = std::make_shared<const std::string>(ptx);
  *module = made.get();
  modules[made.get()] = std::move(made);
  return OK;
}
API cuModuleUnload(void *module) {
  BEGIN(context);
  return modules.erase(module) ? OK : INVALID_HANDLE;
}
API cuModuleGetFunction(void **function, void *module, const char *name) {
  BEGIN(context);
  auto m = modules.find(module);
  if (m == modules.end()) return INVALID_HANDLE;
  *function = find(*m->second, name);
  return *function ? OK : NOT_FOUND;
}
API cuFuncGetAttribute(int *value, int attribute, void *function) {
  BEGIN(context);
  auto *f = (Function *)function;
  switch (attribute) {
  case 0: return *value = f->most_threads, OK;
  case 1: return *value = f->declared, OK;
  case 3: return *value = 0, OK;         // local memory: the host's code does not say
  case 4: return *value = 32, OK;        // registers
  case 8: return *value = f->most_dynamic, OK;
  }
  return INVALID_VALUE;
}
API cuFuncSetAttribute(void *function, int attribute, int value) {
  BEGIN(context);
  auto *f = (Function *)function;
  if (attribute == 9) return value >= -1 && value <= 100 ? OK : INVALID_VALUE; // the carve-out of shared memory
  if (attribute != 8 || value < 0 || f->declared + value > most_shared()) return INVALID_VALUE;
  f->most_dynamic = value;
  return OK;
}
API cuLaunchKernel(void *function, unsigned x, unsigned y, unsigned z, unsigned tx, unsigned ty, unsigned tz,
                   unsigned shared, void *stream, void **arguments, void **) {
  BEGIN(context);
  auto *f = (Function *)function;
  if (!x || !y || !z || y > 65535 || z > 65535 || !tx || ty != 1 || tz != 1) return INVALID_VALUE;
  if (shared > f->most_dynamic || tx > 1024) return INVALID_VALUE;
  if (tx > unsigned(f->most_threads)) return LAUNCH_OUT_OF_RESOURCES;
  if (tx % 32) {
    emulator::record("%s: %u threads are not a multiple of 32, which the emulator needs", f->kernel->name, tx);
    return INVALID_VALUE;
  }
  emulator::Launch l = {{int(x), int(y), int(z)}, int(tx), shared, 0};
  auto values = std::make_shared<emulator::Arguments>();
  f->kernel->copy(*values, arguments);
  const emulator::Kernel *k = f->kernel;
  return push(stream, [=, ptx = f->ptx]() mutable {
    l.order = state.config.order;
    watch(*ptx, k->name, l, *values, 0);
    std::string before = state.failure;
    bool right = false;
    {
      emulator::Guarded guarded;
      right = emulator::run(l, [&] { k->call(*values); }) && emulator::zones_intact();
    }
    watch(*ptx, k->name, l, *values, 1);
    if (!right && before.empty()) state.failure = std::string(k->name) + ": " + state.failure;
    return right ? int(OK) : int(ILLEGAL_ADDRESS);
  });
}
