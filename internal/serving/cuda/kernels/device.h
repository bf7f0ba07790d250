// What a kernel may use. Every .cu file includes this header, itself or through another one, and no header of a system.
//
// For the GPU, clang compiles a kernel without CUDA's toolkit: the names below are attributes, registers
// and PTX instructions. For tests, a C++ compiler of the host compiles the same source, and the names come
// from emulator.h (internal/testkit/cudatest), which has the same functions.
//
// Rounding. The compilers are called with -ffp-contract=off, so a * b + c is a product and a sum, each
// rounded to nearest. A kernel that needs a fused operation writes fma_rn. Divisions and square roots
// are rounded to nearest. exp2_approx differs between GPU and host (2 units in the last place).
//
// Sums of mma. NVIDIA does not document in which order, and with how many bits, mma.sync adds the 16 products
// of an output. The emulator adds them in float64, from k = 0 to 15, then adds c, and rounds once to
// float32. Tests therefore compare mma with float64 and a tolerance; equal bits are required
// only between runs that execute the same instructions in the same order.
//
// Layout of blocks. Keys and values of a layer are two arrays
//	[block][key head][token of the block][element of the head]
// so that the tokens of a head in a block are contiguous. A block has a multiple of 16 tokens. A slot is
// block * tokens of a block + token of the block.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

struct half { u16 bits; };   // IEEE 754 binary16
struct bfloat { u16 bits; }; // the upper half of a float32
struct alignas(16) bytes16 { u32 x, y, z, w; };
struct alignas(8) bytes8 { u32 x, y; };

#ifdef __CUDA_ARCH__

#define KERNEL extern "C" __attribute__((global))
#define LAUNCH_BOUNDS(...) __attribute__((launch_bounds(__VA_ARGS__))) // threads, then blocks a multiprocessor
#define DEVICE static inline __attribute__((device, always_inline))
#define LAMBDA __attribute__((device, always_inline)) // between the captures and the parameters of a lambda
#define UNROLL _Pragma("unroll")
#define NO_UNROLL _Pragma("clang loop unroll(disable)")

// SHARED(name, float[4][32]) declares an array of the block's threads.
template <class T> using shared_type = T;
#define SHARED(name, ...) static __attribute__((shared)) shared_type<__VA_ARGS__> name

extern __attribute__((shared)) bytes16 dynamic_shared_memory[];
// dynamic_shared is the memory whose size the launch states.
DEVICE char *dynamic_shared() { return (char *)dynamic_shared_memory; }
// shared_address is the address that ldmatrix and cp_async take.
DEVICE u32 shared_address(const void *p) {
  u32 r;
  asm("{ .reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t; }" : "=r"(r) : "l"(p));
  return r;
}

DEVICE int thread() { return __nvvm_read_ptx_sreg_tid_x(); }
DEVICE int threads() { return __nvvm_read_ptx_sreg_ntid_x(); }
DEVICE int lane() { return thread() & 31; }
DEVICE int warp() { return thread() >> 5; }
DEVICE int block_x() { return __nvvm_read_ptx_sreg_ctaid_x(); }
DEVICE int block_y() { return __nvvm_read_ptx_sreg_ctaid_y(); }
DEVICE int block_z() { return __nvvm_read_ptx_sreg_ctaid_z(); }
DEVICE int grid_x() { return __nvvm_read_ptx_sreg_nctaid_x(); }
DEVICE int grid_y() { return __nvvm_read_ptx_sreg_nctaid_y(); }
DEVICE int grid_z() { return __nvvm_read_ptx_sreg_nctaid_z(); }

// Every thread of the block, or lane of the warp, must reach the same barrier or shuffle, except those that have
// returned (barrier).
DEVICE void barrier() { asm volatile("bar.sync 0;" ::: "memory"); }
DEVICE void warp_barrier() { asm volatile("bar.warp.sync 0xffffffff;" ::: "memory"); }
DEVICE u32 shfl_xor(u32 v, int mask) {
  u32 r;
  asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 31, 0xffffffff;" : "=r"(r) : "r"(v), "r"(mask));
  return r;
}
DEVICE u32 shfl_down(u32 v, int by) { // a lane without a lane so far above keeps its value
  u32 r;
  asm volatile("shfl.sync.down.b32 %0, %1, %2, 31, 0xffffffff;" : "=r"(r) : "r"(v), "r"(by));
  return r;
}
DEVICE u32 shfl(u32 v, int from) {
  u32 r;
  asm volatile("shfl.sync.idx.b32 %0, %1, %2, 31, 0xffffffff;" : "=r"(r) : "r"(v), "r"(from));
  return r;
}

// warp_any reports whether x is true in any lane.
DEVICE bool warp_any(bool x) {
  u32 r;
  asm volatile("{ .reg .pred p; setp.ne.u32 p, %1, 0; vote.sync.any.pred p, p, 0xffffffff; selp.u32 %0, 1, 0, p; }"
               : "=r"(r)
               : "r"((u32)x));
  return r;
}

DEVICE u32 bits_of(float x) { return __builtin_bit_cast(u32, x); }
DEVICE float float_of(u32 x) { return __builtin_bit_cast(float, x); }

// byte_perm takes bytes of x (0 to 3) and y (4 to 7): digit i of the selector, from the lowest on, is the number of
// byte i.
DEVICE u32 byte_perm(u32 x, u32 y, u32 selector) {
  u32 r;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(x), "r"(y), "r"(selector));
  return r;
}

DEVICE float fma_rn(float a, float b, float c) {
  float r;
  asm("fma.rn.f32 %0, %1, %2, %3;" : "=f"(r) : "f"(a), "f"(b), "f"(c));
  return r;
}
DEVICE float mul_rn(float a, float b) { float r; asm("mul.rn.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b)); return r; }
DEVICE float add_rn(float a, float b) { float r; asm("add.rn.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b)); return r; }
DEVICE float div_rn(float a, float b) { float r; asm("div.rn.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b)); return r; }
DEVICE float sqrt_rn(float a) { float r; asm("sqrt.rn.f32 %0, %1;" : "=f"(r) : "f"(a)); return r; }
// max_of returns the larger number. If one is NaN, it returns the other.
DEVICE float max_of(float a, float b) {
  float r;
  asm("max.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
DEVICE float min_of(float a, float b) { float r; asm("min.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b)); return r; }
DEVICE float exp2_approx(float x) { float r; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x)); return r; }

// To the nearest, ties to even; NaN becomes 0x7fff.
DEVICE half float_to_half(float x) { half r; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r.bits) : "f"(x)); return r; }
DEVICE float half_to_float(half x) { float r; asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x.bits)); return r; }
DEVICE bfloat float_to_bfloat(float x) { bfloat r; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r.bits) : "f"(x)); return r; }
DEVICE float bfloat_to_float(bfloat x) { return float_of((u32)x.bits << 16); }
// Two elements of 16 bits in a register, the first in the lower half.
DEVICE u32 pack_half(float low, float high) {
  u32 r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
DEVICE u32 pack_bfloat(float low, float high) {
  u32 r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}

// load16 and store16 move 16 aligned bytes. load16_once reads what no kernel writes meanwhile and what is not read
// again.
DEVICE bytes16 load16(const void *p) { return *(const bytes16 *)p; }
DEVICE void store16(void *p, bytes16 v) { *(bytes16 *)p = v; }
DEVICE bytes8 load8(const void *p) { return *(const bytes8 *)p; }
DEVICE void store8(void *p, bytes8 v) { *(bytes8 *)p = v; }
DEVICE bytes16 load16_once(const void *p) {
  bytes16 r;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w)
               : "l"(p));
  return r;
}

// Shared memory at an address plus a constant.
DEVICE bytes16 load16_shared(u32 address, int offset) {
  bytes16 r;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4 + %5];"
               : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w)
               : "r"(address), "i"(offset)
               : "memory");
  return r;
}
DEVICE bytes8 load8_shared(u32 address, int offset) {
  bytes8 r;
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2 + %3];" : "=r"(r.x), "=r"(r.y) : "r"(address), "i"(offset) : "memory");
  return r;
}
DEVICE u32 load4_shared(u32 address, int offset) {
  u32 r;
  asm volatile("ld.shared.u32 %0, [%1 + %2];" : "=r"(r) : "r"(address), "i"(offset) : "memory");
  return r;
}
DEVICE void store16_shared(u32 address, int offset, bytes16 v) {
  asm volatile("st.shared.v4.u32 [%0 + %1], {%2, %3, %4, %5};" ::"r"(address), "i"(offset), "r"(v.x), "r"(v.y),
               "r"(v.z), "r"(v.w)
               : "memory");
}
DEVICE void store4_shared(u32 address, int offset, u32 v) {
  asm volatile("st.shared.u32 [%0 + %1], %2;" ::"r"(address), "i"(offset), "r"(v) : "memory");
}
DEVICE void store8_shared(u32 address, int offset, bytes8 v) {
  asm volatile("st.shared.v2.u32 [%0 + %1], {%2, %3};" ::"r"(address), "i"(offset), "r"(v.x), "r"(v.y) : "memory");
}
// opaque returns x. The compiler does not know that it is the same number, so it keeps nothing that was computed from x
// in registers.
DEVICE int opaque(int x) { asm volatile("" : "+r"(x)); return x; }

// cp_async16 begins to copy 16 aligned bytes to shared memory, the first so many (0 to 16) of them from global memory,
// the others zero.
DEVICE void cp_async16(u32 to, const void *from, int bytes) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
// cp_async4 and cp_async8 are like cp_async16, but for 4 and 8 bytes.
DEVICE void cp_async4(u32 to, const void *from, int bytes) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
DEVICE void cp_async8(u32 to, const void *from, int bytes) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
// cp_async_commit ends a group of copies. cp_async_wait waits until at most N groups of this thread are under way.
DEVICE void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> DEVICE void cp_async_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }

// ldmatrix_x4 loads four 8x8 matrices of 16-bit elements; lane i passes the address of row i % 8 of matrix i / 8.
DEVICE void ldmatrix_x4(u32 *r, u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
}
DEVICE void ldmatrix_x4_trans(u32 *r, u32 address, int offset = 0) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4 + %5];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address), "i"(offset) : "memory");
}

// mma is d = a b + c of a 16x16 (row), 16x8 (column) and 16x8 matrix, spread over the warp as PTX describes
// mma.m16n8k16.
#define MMA(type)                                                                                                      \
  asm volatile(                                                                                                        \
      "mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "     \
      "{%10, %11, %12, %13};"                                                                                          \
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])                                                                 \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]))
DEVICE void mma_f16(float *d, const u32 *a, const u32 *b, const float *c) { MMA("f16"); }
DEVICE void mma_bf16(float *d, const u32 *a, const u32 *b, const float *c) { MMA("bf16"); }
#undef MMA

// atomic_add returns the value before. After fence, what this thread wrote is seen by others that see what it writes
// next.
DEVICE u32 atomic_add(u32 *p, u32 v) {
  u32 r;
  asm volatile("atom.add.u32 %0, [%1], %2;" : "=r"(r) : "l"(p), "r"(v) : "memory");
  return r;
}
DEVICE void fence() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }

#else
#include <emulator.h>
#endif

DEVICE float shfl_xor(float v, int mask) { return float_of(shfl_xor(bits_of(v), mask)); }
DEVICE float shfl_down(float v, int by) { return float_of(shfl_down(bits_of(v), by)); }
DEVICE float shfl(float v, int from) { return float_of(shfl(bits_of(v), from)); }

// to_float and from_float convert a type that a template has as parameter.
DEVICE float to_float(half x) { return half_to_float(x); }
DEVICE float to_float(bfloat x) { return bfloat_to_float(x); }
DEVICE float to_float(float x) { return x; }
DEVICE void from_float(half &to, float x) { to = float_to_half(x); }
DEVICE void from_float(bfloat &to, float x) { to = float_to_bfloat(x); }
DEVICE void from_float(float &to, float x) { to = x; }

// vector is 16 bytes as elements.
template <class T> union vector {
  enum { size = 16 / sizeof(T) };
  bytes16 bytes;
  T at[16 / sizeof(T)];
};
