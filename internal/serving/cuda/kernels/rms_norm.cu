// Root mean square normalization of rows, with the sum of a residual before it.
#include "device.h"
#include "sum.h"

// norm: a block normalizes one row of n elements, n a multiple of 16 bytes. stride is the number of
// elements from a row to the next. With a residual, residual += in is stored first, rounded
// to T, and that is normalized. A thread adds its squares in ascending order. weight_offset is added to weights (1 for
// Gemma).
template <class T> DEVICE void norm(T *out, const T *in, T *residual, const T *weight, u64 stride, int n,
                                    float epsilon, float weight_offset) {
  const int size = vector<T>::size;
  u64 row = block_x() * stride;
  float squares = 0;
  for (int i = thread() * size; i < n; i += threads() * size) {
    vector<T> x = sum_with_residual(in, residual, row + i);
    UNROLL
    for (int j = 0; j < size; j++) squares = fma_rn(to_float(x.at[j]), to_float(x.at[j]), squares);
  }
  float scale = div_rn(1, sqrt_rn(add_rn(div_rn(sum_of_threads(squares), (float)n), epsilon)));
  const T *from = residual ? residual : in; // a thread reads what it wrote itself
  for (int i = thread() * size; i < n; i += threads() * size) {
    vector<T> x, w;
    x.bytes = load16(from + row + i);
    w.bytes = load16(weight + i);
    UNROLL
    for (int j = 0; j < size; j++)
      from_float(x.at[j], mul_rn(mul_rn(to_float(x.at[j]), scale), add_rn(to_float(w.at[j]), weight_offset)));
    store16(out + row + i, x.bytes);
  }
}

// Grid: rows. out may be in. residual may be null.
#define RMS_NORM(T, name)                                                                                              \
  KERNEL LAUNCH_BOUNDS(1024) void fused_add_rms_norm_##name(T *out, const T *in, T *residual, const T *weight,         \
                                                            u64 stride, int n, float epsilon, float weight_offset) {   \
    norm<T>(out, in, residual, weight, stride, n, epsilon, weight_offset);                                      \
  }
RMS_NORM(half, f16)
RMS_NORM(bfloat, bf16)
