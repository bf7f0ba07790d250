// Sums of rows: biases, and what attention and the MLP add to the residual stream.
#include "device.h"

// add: out = in * scale + other, rounded once. Grid: rows of n elements, parts of a row. stride is the number of
// elements from a row of other to the next: 0 for a bias. out may be in or other.
template <class T> DEVICE void add(T *out, const T *in, const T *other, u64 stride, int n, float scale) {
  const int size = vector<T>::size;
  int i = (block_y() * threads() + thread()) * size;
  if (i >= n) return;
  u64 row = block_x();
  vector<T> x, y;
  x.bytes = load16(in + row * n + i);
  y.bytes = load16(other + row * stride + i);
  UNROLL
  for (int j = 0; j < size; j++) from_float(x.at[j], fma_rn(to_float(x.at[j]), scale, to_float(y.at[j])));
  store16(out + row * n + i, x.bytes);
}

KERNEL void add_f16(half *out, const half *in, const half *other, u64 stride, int n, float scale) {
  add<half>(out, in, other, stride, n, scale);
}
KERNEL void add_bf16(bfloat *out, const bfloat *in, const bfloat *other, u64 stride, int n, float scale) {
  add<bfloat>(out, in, other, stride, n, scale);
}
