// The host's side of device.h: the same functions, for the threads of a block that run one at a time.
// Each thread is a fiber with its own stack. It runs until a barrier, shuffle, mma or ldmatrix, which
// wait for the other threads of the block or lanes of the warp. Each kernel includes it, so it leaves out C++'s <math.h>,
// which takes longer to compile than most kernels.
#pragma once
#include <stdint.h>
#include <string.h>

#define KERNEL extern "C"
#define LAUNCH_BOUNDS(...)
#define DEVICE static inline __attribute__((unused))
#define UNROLL
#define NO_UNROLL
#define LAMBDA
#define SHARED(name, ...)                                                                                              \
  static char name##_key;                                                                                              \
  auto &name = *(emulator::shared_type<__VA_ARGS__> *)emulator::shared(&name##_key, #name,                             \
                                                                       sizeof(emulator::shared_type<__VA_ARGS__>))

namespace emulator {
template <class T> using shared_type = T;

const int WARP = 32;

// A Warp exchanges the operands of its lanes.
struct Warp {
  const char *waiting = nullptr; // for what the lanes that have come wait
  unsigned arrived = 0, turn = 0; // turn counts what all lanes have done together
  alignas(16) char in[WARP][64], out[WARP][64];
};

struct Thread {
  int thread, lane, warp;
  void *stack_pointer;
  const unsigned *wait_for = nullptr; // runs on when it no longer has the value waited
  unsigned waited = 0;
  bool done = false;
};

struct Block {
  int x, y, z, grid_x, grid_y, grid_z, threads;
  unsigned at_barrier = 0, left = 0, barriers = 0;
  const char *waiting = nullptr;
  Warp *warps;
};

extern Thread *current;
extern Block block;

[[noreturn]] void fail(const char *format, ...) __attribute__((format(printf, 1, 2))); // ends the launch
void wait(const unsigned *counter); // runs other threads until *counter changes
void *shared(const void *key, const char *name, size_t size);
char *dynamic_shared();
uint32_t shared_address(const void *p);
char *shared_at(uint32_t address, size_t size, size_t align, const char *what);
void barrier();
// arrive reports whether the calling lane is the last one of its warp; the others wait with finish.
bool arrive(Warp &w, const char *what);
float exp2_approx(float x);
float half_to_float(uint16_t h);
uint16_t float_to_half(float x);
uint16_t float_to_bfloat(float x);

// together passes an operand of each lane to compute, once, and returns the lane's result.
template <class Out, class In, class F> Out together(const char *what, const In &operand, F compute) {
  static_assert(sizeof(In) <= 64 && sizeof(Out) <= 64);
  Warp &w = block.warps[current->warp];
  int lane = current->lane;
  memcpy(w.in[lane], &operand, sizeof(In));
  unsigned turn = w.turn;
  if (arrive(w, what)) {
    In in[WARP];
    Out out[WARP];
    for (int i = 0; i < WARP; i++) memcpy(&in[i], w.in[i], sizeof(In));
    compute(in, out);
    for (int i = 0; i < WARP; i++) memcpy(w.out[i], &out[i], sizeof(Out));
    w.turn++;
  }
  while (w.turn == turn) wait(&w.turn);
  Out result;
  memcpy(&result, w.out[lane], sizeof(Out));
  return result;
}

struct A { uint32_t a[4], b[2]; float c[4]; };
struct D { float d[4]; };
struct Rows { uint32_t r[4]; };
void multiply(const A *in, D *out, float (*convert)(uint16_t));
Rows load_matrices(uint32_t address, bool transposed);
} // namespace emulator

static inline char *dynamic_shared() { return emulator::dynamic_shared(); }
static inline u32 shared_address(const void *p) { return emulator::shared_address(p); }

static inline int thread() { return emulator::current->thread; }
static inline int threads() { return emulator::block.threads; }
static inline int lane() { return emulator::current->lane; }
static inline int warp() { return emulator::current->warp; }
static inline int block_x() { return emulator::block.x; }
static inline int block_y() { return emulator::block.y; }
static inline int block_z() { return emulator::block.z; }
static inline int grid_x() { return emulator::block.grid_x; }
static inline int grid_y() { return emulator::block.grid_y; }
static inline int grid_z() { return emulator::block.grid_z; }

static inline void barrier() { emulator::barrier(); }
static inline void warp_barrier() {
  emulator::together<char>("warp_barrier", char(0), [](char *, char *out) { memset(out, 0, emulator::WARP); });
}

struct emulated_shuffle { u32 value; int lane; }; // the value that the lane offers, and whose it wants
static inline u32 emulated_shfl(const char *what, u32 v, int from) {
  return emulator::together<u32>(what, emulated_shuffle{v, from}, [](emulated_shuffle *in, u32 *out) {
    for (int i = 0; i < emulator::WARP; i++) out[i] = in[in[i].lane < emulator::WARP ? in[i].lane : i].value;
  });
}
static inline u32 shfl_xor(u32 v, int mask) { return emulated_shfl("shfl_xor", v, (lane() ^ mask) & 31); }
static inline u32 shfl_down(u32 v, int by) { return emulated_shfl("shfl_down", v, lane() + by); }
static inline u32 shfl(u32 v, int from) { return emulated_shfl("shfl", v, from & 31); }

static inline bool warp_any(bool x) {
  return emulator::together<char>("warp_any", char(x), [](char *in, char *out) {
    char any = 0;
    for (int i = 0; i < emulator::WARP; i++) any |= in[i];
    memset(out, any, emulator::WARP);
  });
}

static inline u32 bits_of(float x) { u32 r; memcpy(&r, &x, 4); return r; }
static inline float float_of(u32 x) { float r; memcpy(&r, &x, 4); return r; }

static inline u32 byte_perm(u32 x, u32 y, u32 selector) {
  u64 bytes = x | (u64)y << 32;
  u32 r = 0;
  for (int i = 0; i < 4; i++) r |= (u32)(bytes >> 8 * (selector >> 4 * i & 7) & 0xff) << 8 * i;
  return r;
}

// emulated_number returns the result of an operation as PTX has it: every NaN is 0x7fffffff.
static inline float emulated_number(float x) { return x == x ? x : float_of(0x7fffffff); }
static inline float fma_rn(float a, float b, float c) { return emulated_number(__builtin_fmaf(a, b, c)); }
static inline float mul_rn(float a, float b) { return emulated_number(a * b); }
static inline float add_rn(float a, float b) { return emulated_number(a + b); }
static inline float div_rn(float a, float b) { return emulated_number(a / b); }
static inline float sqrt_rn(float a) { return emulated_number(__builtin_sqrtf(a)); }
static inline float max_of(float a, float b) { return emulated_number(__builtin_fmaxf(a, b)); }
static inline float min_of(float a, float b) { return emulated_number(__builtin_fminf(a, b)); }
static inline float exp2_approx(float x) { return emulated_number(emulator::exp2_approx(x)); }

static inline half float_to_half(float x) { return {emulator::float_to_half(x)}; }
static inline float half_to_float(half x) { return emulated_number(emulator::half_to_float(x.bits)); }
static inline bfloat float_to_bfloat(float x) { return {emulator::float_to_bfloat(x)}; }
static inline float bfloat_to_float(bfloat x) { return float_of((u32)x.bits << 16); }

static inline u32 pack_half(float low, float high) {
  return float_to_half(low).bits | (u32)float_to_half(high).bits << 16;
}
static inline u32 pack_bfloat(float low, float high) {
  return float_to_bfloat(low).bits | (u32)float_to_bfloat(high).bits << 16;
}

static inline void emulated_aligned(const void *p, int size = 16) {
  if ((uintptr_t)p % size) emulator::fail("access of %d bytes at %p, which is not a multiple of %d", size, p, size);
}
static inline bytes16 load16(const void *p) { bytes16 r; emulated_aligned(p); memcpy(&r, p, 16); return r; }
static inline void store16(void *p, bytes16 v) { emulated_aligned(p); memcpy(p, &v, 16); }
static inline bytes8 load8(const void *p) { bytes8 r; emulated_aligned(p, 8); memcpy(&r, p, 8); return r; }
static inline void store8(void *p, bytes8 v) { emulated_aligned(p, 8); memcpy(p, &v, 8); }
static inline bytes16 load16_once(const void *p) { return load16(p); }
static inline bytes16 load16_shared(u32 address, int offset) {
  return load16(emulator::shared_at(address + offset, 16, 16, "load16_shared"));
}
static inline bytes8 load8_shared(u32 address, int offset) {
  return load8(emulator::shared_at(address + offset, 8, 8, "load8_shared"));
}
static inline u32 load4_shared(u32 address, int offset) {
  u32 r;
  memcpy(&r, emulator::shared_at(address + offset, 4, 4, "load4_shared"), 4);
  return r;
}
static inline void store16_shared(u32 address, int offset, bytes16 v) {
  store16(emulator::shared_at(address + offset, 16, 16, "store16_shared"), v);
}
static inline void store4_shared(u32 address, int offset, u32 v) {
  memcpy(emulator::shared_at(address + offset, 4, 4, "store4_shared"), &v, 4);
}
static inline void store8_shared(u32 address, int offset, bytes8 v) {
  store8(emulator::shared_at(address + offset, 8, 8, "store8_shared"), v);
}
static inline int opaque(int x) { return x; }

void cp_async16(u32 to, const void *from, int bytes);
void cp_async4(u32 to, const void *from, int bytes);
void cp_async8(u32 to, const void *from, int bytes);
void cp_async_commit();
void emulated_cp_async_wait(int groups);
template <int N> static inline void cp_async_wait() { emulated_cp_async_wait(N); }

static inline void ldmatrix_x4(u32 *r, u32 address) {
  emulator::Rows x = emulator::load_matrices(address, false);
  memcpy(r, x.r, 16);
}
static inline void ldmatrix_x4_trans(u32 *r, u32 address, int offset = 0) {
  emulator::Rows x = emulator::load_matrices(address + offset, true);
  memcpy(r, x.r, 16);
}

static inline void emulated_mma(const char *what, float *d, const u32 *a, const u32 *b, const float *c,
                                float (*convert)(uint16_t)) {
  emulator::A in;
  memcpy(in.a, a, 16), memcpy(in.b, b, 8), memcpy(in.c, c, 16);
  emulator::D out = emulator::together<emulator::D>(
      what, in, [=](emulator::A *in, emulator::D *out) { emulator::multiply(in, out, convert); });
  for (int i = 0; i < 4; i++) d[i] = emulated_number(out.d[i]);
}
static inline void mma_f16(float *d, const u32 *a, const u32 *b, const float *c) {
  emulated_mma("mma_f16", d, a, b, c, emulator::half_to_float);
}
static inline void mma_bf16(float *d, const u32 *a, const u32 *b, const float *c) {
  emulated_mma("mma_bf16", d, a, b, c, [](uint16_t x) { return float_of((u32)x << 16); });
}

static inline u32 atomic_add(u32 *p, u32 v) { u32 r = *p; *p = r + v; return r; }
static inline void fence() {}
