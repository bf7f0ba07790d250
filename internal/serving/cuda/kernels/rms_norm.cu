// Root mean square normalization of rows, with the sum of a residual before it.
#include "device.h"

// sum_of_threads adds a value of each thread: first the lanes of a warp by exclusive or of their numbers, then
// the warps in order. All threads get the sum.
DEVICE float sum_of_threads(float x) {
  SHARED(sums, float[32]);
  UNROLL
  for (int mask = 16; mask > 0; mask >>= 1) x = add_rn(x, shfl_xor(x, mask));
  if (lane() == 0) sums[warp()] = x;
  barrier();
  float sum = 0;
  for (int i = 0; i < threads() / 32; i++) sum = add_rn(sum, sums[i]);
  return sum;
}

// norm: a block normalizes one row of n elements, n a multiple of 16 bytes. With a residual, residual += in is stored first,
// rounded to T, and that is normalized. A thread adds its elements in ascending order. weight_offset is added to weights
// (1 for Gemma).
template <class T> DEVICE void norm(T *out, const T *in, T *residual, const T *weight, int n, float epsilon, float weight_offset) {
  const int size = vector<T>::size;
  u64 row = (u64)block_x() * n;
  float sum = 0;
  for (int i = thread() * size; i < n; i += threads() * size) {
    vector<T> x;
    x.bytes = load16(in + row + i);
    if (residual) {
      vector<T> r;
      r.bytes = load16(residual + row + i);
      UNROLL
      for (int j = 0; j < size; j++) from_float(x.at[j], add_rn(to_float(x.at[j]), to_float(r.at[j])));
      store16(residual + row + i, x.bytes);
    }
    UNROLL
    for (int j = 0; j < size; j++) sum = fma_rn(to_float(x.at[j]), to_float(x.at[j]), sum);
  }
  float scale = div_rn(1, sqrt_rn(add_rn(div_rn(sum_of_threads(sum), (float)n), epsilon)));
  const T *from = residual ? residual : in; // a thread reads what it wrote itself
  for (int i = thread() * size; i < n; i += threads() * size) {
    vector<T> x, w;
    x.bytes = load16(from + row + i);
    w.bytes = load16(weight + i);
    UNROLL
    for (int j = 0; j < size; j++) from_float(x.at[j], mul_rn(mul_rn(to_float(x.at[j]), scale), add_rn(to_float(w.at[j]), weight_offset)));
    store16(out + row + i, x.bytes);
  }
}

// Grid: rows. out may be in.
#define RMS_NORM(T, name)                                                                                                                 \
  KERNEL LAUNCH_BOUNDS(1024) void rms_norm_##name(T *out, const T *in, const T *weight, int n, float epsilon, float weight_offset) {   \
    norm<T>(out, in, nullptr, weight, n, epsilon, weight_offset);                                                                   \
  }                                                                                                                                 \
  KERNEL LAUNCH_BOUNDS(1024) void fused_add_rms_norm_##name(T *out, const T *in, T *residual, const T *weight, int n, float epsilon,   \
                                                         float weight_offset) {                                                     \
    norm<T>(out, in, residual, weight, n, epsilon, weight_offset);                                                                  \
  }
RMS_NORM(half, f16)
RMS_NORM(bfloat, bf16)
