// The driver's functions: devices, contexts, memory and copies; and cudatest's own.
#include "driver.h"
#include <cstdarg>
#include <cstdio>
#include <cstring>

State state;
thread_local bool has_context;
std::mutex one_call;

void emulator::record(const char *format, ...) {
  if (!state.failure.empty()) return;
  va_list list;
  va_start(list, format);
  char text[600];
  vsnprintf(text, sizeof text, format, list);
  va_end(list);
  state.failure = text;
}

int begin(const char *function, Needs needs) {
  state.calls[function]++;
  auto next = state.fail_next.find(function);
  if (next != state.fail_next.end()) {
    int status = next->second;
    state.fail_next.erase(next);
    while (status < 0) pause();
    return status;
  }
  if (needs >= initialized && !state.initialized) return NOT_INITIALIZED;
  if (needs >= context && !has_context) return INVALID_CONTEXT;
  return needs >= context ? state.broken : OK;
}

API cudatest_set(const char *name, long value) {
  const std::map<std::string, long *> fields = {{"devices", &state.config.devices},
                                                {"compute_capability", &state.config.compute_capability},
                                                {"driver_version", &state.config.driver_version},
                                                {"memory", &state.config.memory},
                                                {"order", &state.config.order},
                                                {"hang", &state.config.hang},
                                                {"module_memory", &state.config.module_memory}};
  auto field = fields.find(name);
  if (field == fields.end()) return INVALID_VALUE;
  *field->second = value;
  return OK;
}
API cudatest_fail(const char *function, int status) { return state.fail_next[function] = status, OK; }
API cudatest_calls(const char *function) { return state.calls[function]; }
extern "C" __attribute__((visibility("default"))) const char *cudatest_failure() { return state.failure.c_str(); }
// Frees everything and forgets what was configured.
API cudatest_reset() {
  emulator::free_all();
  state = State();
  return OK;
}
API cudatest_allocated() { return emulator::device_used() > 0x7fffffff ? 0x7fffffff : int(emulator::device_used()); }

extern "C" __attribute__((visibility("default"))) void *cudatest_allocation(int i, size_t *size) {
  return emulator::allocation(i, size);
}

API cuInit(unsigned flags) {
  BEGIN(nothing);
  if (flags) return INVALID_VALUE;
  if (!state.config.devices) return NO_DEVICE;
  state.initialized = true;
  return OK;
}
API cuDriverGetVersion(int *version) {
  BEGIN(nothing);
  *version = state.config.driver_version;
  return OK;
}
API cuDeviceGetCount(int *count) {
  BEGIN(initialized);
  *count = state.config.devices;
  return OK;
}
API cuDeviceGet(int *device, int ordinal) {
  BEGIN(initialized);
  if (ordinal < 0 || ordinal >= state.config.devices) return INVALID_DEVICE;
  *device = ordinal;
  return OK;
}
API cuDeviceGetName(char *name, int size, int device) {
  BEGIN(initialized);
  snprintf(name, size, "Emulated GPU %d", device);
  return OK;
}
API cuDeviceTotalMem_v2(size_t *bytes, int) {
  BEGIN(initialized);
  *bytes = state.config.memory;
  return OK;
}
// "Technical Specifications per Compute Capability" in the CUDA programming guide.
size_t most_shared() {
  switch (state.config.compute_capability) {
  case 80: case 87: return 163 << 10;
  case 86: case 89: case 120: return 99 << 10;
  }
  return 227 << 10;
}

API cuDeviceGetAttribute(int *value, int attribute, int) {
  BEGIN(initialized);
  switch (attribute) {
  case 16: return *value = 4, OK;                                      // multiprocessors
  case 75: return *value = state.config.compute_capability / 10, OK;
  case 76: return *value = state.config.compute_capability % 10, OK;
  case 97: return *value = most_shared(), OK;
  case 38: return *value = 32 << 20, OK; // L2
  }
  return INVALID_VALUE;
}

API cuDevicePrimaryCtxRetain(void **made, int device) {
  BEGIN(initialized);
  if (device >= state.config.devices) return INVALID_DEVICE;
  *made = &state;
  return OK;
}
API cuDevicePrimaryCtxRelease_v2(int) {
  BEGIN(initialized);
  return OK;
}
API cuCtxSetCurrent(void *made) {
  BEGIN(initialized);
  if (made && made != &state) return INVALID_CONTEXT;
  has_context = made;
  return OK;
}
API cuCtxGetDevice(int *device) {
  BEGIN(initialized);
  if (!has_context) return INVALID_CONTEXT;
  *device = 0;
  return OK;
}
API cuCtxSynchronize() {
  BEGIN(context);
  if (capturing()) return CAPTURE_UNSUPPORTED;
  return drain_all();
}

API cuMemGetInfo_v2(size_t *left, size_t *total) {
  BEGIN(context);
  *total = state.config.memory;
  *left = *total - emulator::device_used() - module_count() * state.config.module_memory;
  return OK;
}
static int alloc(void **p, size_t size, bool pinned) {
  if (!size) return INVALID_VALUE;
  if (capturing()) return CAPTURE_UNSUPPORTED;
  if (emulator::device_used() + module_count() * state.config.module_memory + (pinned ? 0 : size) >
      size_t(state.config.memory))
    return OUT_OF_MEMORY;
  *p = emulator::device_alloc(size, pinned);
  return *p ? OK : OUT_OF_MEMORY;
}
static int release(void *p, bool pinned) {
  if (capturing()) return CAPTURE_UNSUPPORTED;
  if (int status = drain_all()) return status;
  return emulator::device_free(p, pinned) ? OK : INVALID_VALUE;
}
API cuMemAlloc_v2(void **p, size_t size) {
  BEGIN(context);
  return alloc(p, size, false);
}
API cuMemFree_v2(void *p) {
  BEGIN(context);
  return release(p, false);
}
API cuMemHostAlloc(void **p, size_t size, unsigned) {
  BEGIN(context);
  return alloc(p, size, true);
}
API cuMemFreeHost(void *p) {
  BEGIN(context);
  return release(p, true);
}

static Work copying(void *to, const void *from, size_t size) {
  return [=] { return memmove(to, from, size), OK; };
}
// A copy from memory that is not pinned returns when the contents are staged. It is complete when something waits for
// the default stream ("API synchronization behavior" in the driver's manual).
API cuMemcpyHtoD_v2(void *to, const void *from, size_t size) {
  BEGIN(context);
  if (!emulator::in_device(to, size)) return INVALID_VALUE;
  if (capturing()) return CAPTURE_UNSUPPORTED;
  if (emulator::is_pinned(from, size)) return push(nullptr, copying(to, from, size));
  return push(nullptr, [=, staged = std::string((const char *)from, size)] {
    return state.under_way.push_back([=] { return memcpy(to, staged.data(), size), OK; }), OK;
  });
}
API cuMemcpyDtoH_v2(void *to, const void *from, size_t size) {
  BEGIN(context);
  if (!emulator::in_device(from, size)) return INVALID_VALUE;
  if (capturing()) return CAPTURE_UNSUPPORTED;
  return push(nullptr, copying(to, from, size));
}
API cuMemcpyHtoDAsync_v2(void *to, const void *from, size_t size, void *stream) {
  BEGIN(context);
  if (!emulator::in_device(to, size)) return INVALID_VALUE;
  if (emulator::is_pinned(from, size)) return push(stream, copying(to, from, size));
  std::string staged((const char *)from, size);
  return push(stream, [=] { return memcpy(to, staged.data(), size), OK; });
}
API cuMemcpyDtoHAsync_v2(void *to, const void *from, size_t size, void *stream) {
  BEGIN(context);
  if (!emulator::in_device(from, size)) return INVALID_VALUE;
  int status = push(stream, copying(to, from, size));
  if (status || emulator::is_pinned(to, size)) return status;
  return stream ? drain(*state.streams.at(stream), ~0ull) : OK;
}
API cuMemcpyDtoDAsync_v2(void *to, const void *from, size_t size, void *stream) {
  BEGIN(context);
  if (!emulator::in_device(to, size) || !emulator::in_device(from, size)) return INVALID_VALUE;
  return push(stream, copying(to, from, size));
}
API cuMemsetD8Async(void *to, unsigned char value, size_t count, void *stream) {
  BEGIN(context);
  if (!emulator::in_device(to, count)) return INVALID_VALUE;
  return push(stream, [=] { return memset(to, value, count), OK; });
}

static const std::map<int, std::pair<const char *, const char *>> names = {
    {INVALID_VALUE, {"CUDA_ERROR_INVALID_VALUE", "invalid argument"}},
    {OUT_OF_MEMORY, {"CUDA_ERROR_OUT_OF_MEMORY", "out of memory"}},
    {NOT_INITIALIZED, {"CUDA_ERROR_NOT_INITIALIZED", "initialization error"}},
    {NO_DEVICE, {"CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"}},
    {INVALID_DEVICE, {"CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"}},
    {INVALID_CONTEXT, {"CUDA_ERROR_INVALID_CONTEXT", "invalid device context"}},
    {NO_BINARY_FOR_GPU, {"CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"}},
    {INVALID_PTX, {"CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"}},
    {UNSUPPORTED_PTX_VERSION,
     {"CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "the provided PTX was compiled with an unsupported toolchain."}},
    {INVALID_HANDLE, {"CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"}},
    {NOT_FOUND, {"CUDA_ERROR_NOT_FOUND", "named symbol not found"}},
    {NOT_READY, {"CUDA_ERROR_NOT_READY", "device not ready"}},
    {ILLEGAL_ADDRESS, {"CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"}},
    {LAUNCH_OUT_OF_RESOURCES, {"CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"}},
    {LAUNCH_FAILED, {"CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"}},
    {CAPTURE_UNSUPPORTED,
     {"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"}},
    {CAPTURE_UNMATCHED,
     {"CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "capture was not ended in the same stream as it began"}},
    {803,
     {"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "system has unsupported display driver / cuda driver combination"}},
    {804,
     {"CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
      "forward compatibility was attempted on non supported HW"}},
};
API cuGetErrorName(int status, const char **text) {
  BEGIN(nothing);
  auto name = names.find(status);
  *text = name == names.end() ? nullptr : name->second.first;
  return *text ? OK : INVALID_VALUE;
}
API cuGetErrorString(int status, const char **text) {
  BEGIN(nothing);
  auto name = names.find(status);
  *text = name == names.end() ? nullptr : name->second.second;
  return *text ? OK : INVALID_VALUE;
}
