// Kernels that test the emulator: what device.h promises, and mistakes that it must notice.
#include "device.h"

// multiply_f16 is out = a b + c of a 16x16 matrix, an 8x16 one whose rows are the columns of b, and a 16x8 one: by cp.async,
// ldmatrix and mma.
template <class F> DEVICE void multiply(float *out, const u16 *a, const u16 *b, const float *c, F mma) {
  char *as = dynamic_shared(), *bs = as + 512;
  cp_async16(shared_address(as) + lane() * 16, a + lane() * 8, 16);
  if (lane() < 16) cp_async16(shared_address(bs) + lane() * 16, b + lane() * 8, 16);
  cp_async_commit();
  cp_async_wait<0>();
  warp_barrier();
  u32 af[4], bf[4];
  ldmatrix_x4(af, shared_address(as) + lane() % 16 * 32 + lane() / 16 * 16);
  ldmatrix_x4(bf, shared_address(bs) + lane() % 8 * 32 + lane() / 8 % 2 * 16);
  float cf[4], d[4];
  for (int i = 0; i < 4; i++) cf[i] = c[(lane() / 4 + i / 2 * 8) * 8 + lane() % 4 * 2 + i % 2];
  mma(d, af, bf, cf);
  for (int i = 0; i < 4; i++) out[(lane() / 4 + i / 2 * 8) * 8 + lane() % 4 * 2 + i % 2] = d[i];
}
KERNEL void multiply_f16(float *out, const u16 *a, const u16 *b, const float *c) { multiply(out, a, b, c, mma_f16); }
KERNEL void multiply_bf16(float *out, const u16 *a, const u16 *b, const float *c) { multiply(out, a, b, c, mma_bf16); }

// transpose reads four 8x8 matrices, which lie one below the other, transposed.
KERNEL void transpose(u32 *out, const u16 *m) {
  SHARED(tile, u16[4][8][8]);
  store16(&tile[lane() / 8][lane() % 8], load16(m + lane() * 8));
  warp_barrier();
  u32 r[4];
  ldmatrix_x4_trans(r, shared_address(&tile[lane() / 8][lane() % 8]));
  for (int i = 0; i < 4; i++) out[i * 32 + lane()] = r[i];
}

KERNEL void shuffles(u32 *out) {
  u32 own = 100 + lane();
  out[lane()] = shfl_xor(own, 5);
  out[32 + lane()] = shfl_down(own, 3);
  out[64 + lane()] = shfl(own, 7);
}

// numbers writes where each thread is: 2 x 3 x 2 blocks of 64 threads.
KERNEL void numbers(u32 *out) {
  int block = (block_z() * grid_y() + block_y()) * grid_x() + block_x();
  out[block * threads() + thread()] = block * 1000 + warp() * 100 + lane();
}

// last_block adds what all blocks write, in the block that comes last.
KERNEL void last_block(u32 *sum, u32 *parts, u32 *count) {
  SHARED(last, u32);
  parts[block_x() * 32 + lane()] = block_x() + lane();
  fence();
  barrier();
  if (thread() == 0) last = atomic_add(count, 1) == (u32)grid_x() - 1;
  barrier();
  if (last && thread() == 0) {
    fence();
    *sum = 0;
    for (int i = 0; i < grid_x() * 32; i++) *sum += parts[i];
  }
}

// Mistakes.
KERNEL void no_barrier(u32 *out) {
  SHARED(values, u32[64]);
  values[thread()] = thread();
  out[thread()] = values[(thread() + 32) % 64];
}
KERNEL void no_warp_barrier(u32 *out) {
  SHARED(values, u32[32]);
  values[lane()] = lane();
  out[lane()] = values[(lane() + 1) % 32];
}
KERNEL void read_at(u32 *out, const u32 *in, int at) { *out = in[at]; }
KERNEL void write_at(u32 *out, int at) { out[at] = 7; }
KERNEL void unlike_lanes(u32 *out) {
  if (lane() < 16) {
    warp_barrier();
  } else {
    out[lane()] = shfl_xor(7u, 1);
  }
}
KERNEL void missing_lanes(u32 *out) {
  if (lane() < 16) out[lane()] = shfl_xor(7u, 1);
}
KERNEL void barrier_and_shuffle(u32 *out) {
  if (thread() < 40) {
    barrier();
  } else {
    out[lane()] = shfl_xor(7u, 1);
  }
}
KERNEL void no_wait(u32 *out, const u32 *in) {
  cp_async16(shared_address(dynamic_shared()), in, 16);
  cp_async_commit();
  *out = *(u32 *)dynamic_shared();
}
KERNEL void read_before_wait(u32 *out, const u32 *in) {
  cp_async16(shared_address(dynamic_shared()), in, 12);
  cp_async_commit();
  out[0] = *(u32 *)dynamic_shared();
  cp_async_wait<0>();
  out[1] = ((u32 *)dynamic_shared())[2];
  out[2] = ((u32 *)dynamic_shared())[3];
}
KERNEL void uninitialized(float *out) {
  SHARED(values, float[4]);
  *out = values[1];
}
KERNEL void unaligned(u32 *out, const u32 *in) { out[0] = load16(in + 1).x; }
