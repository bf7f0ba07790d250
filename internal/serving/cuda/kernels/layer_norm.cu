// Layer normalization of rows, with the sum of a residual before it.
#include "device.h"
#include "sum.h"

// Grid: rows of n elements, a multiple of 16 bytes. With a residual, residual += in is stored first, rounded to T, and
// that is normalized. The mean is subtracted before squares are added, so that a large mean costs no accuracy.
template <class T>
DEVICE void norm(T *out, const T *in, T *residual, const T *weight, const T *bias, int n, float epsilon) {
  const int size = vector<T>::size;
  u64 row = (u64)block_x() * n;
  float sum = 0;
  for (int i = thread() * size; i < n; i += threads() * size) {
    vector<T> x = sum_with_residual(in, residual, row + i);
    UNROLL
    for (int j = 0; j < size; j++) sum = add_rn(sum, to_float(x.at[j]));
  }
  float mean = div_rn(sum_of_threads(sum), (float)n);
  const T *from = residual ? residual : in; // a thread reads what it wrote itself
  float squares = 0;
  for (int i = thread() * size; i < n; i += threads() * size) {
    vector<T> x;
    x.bytes = load16(from + row + i);
    UNROLL
    for (int j = 0; j < size; j++) {
      float d = add_rn(to_float(x.at[j]), -mean);
      squares = fma_rn(d, d, squares);
    }
  }
  float scale = div_rn(1, sqrt_rn(add_rn(div_rn(sum_of_threads(squares), (float)n), epsilon)));
  for (int i = thread() * size; i < n; i += threads() * size) {
    vector<T> x, w, b;
    x.bytes = load16(from + row + i);
    w.bytes = load16(weight + i);
    b.bytes = load16(bias + i);
    UNROLL
    for (int j = 0; j < size; j++) {
      float normal = mul_rn(add_rn(to_float(x.at[j]), -mean), scale);
      from_float(x.at[j], fma_rn(normal, to_float(w.at[j]), to_float(b.at[j])));
    }
    store16(out + row + i, x.bytes);
  }
}

#define LAYER_NORM(T, name)                                                                                            \
  KERNEL LAUNCH_BOUNDS(1024) void layer_norm_##name(T *out, const T *in, T *residual, const T *weight, const T *bias,  \
                                                    int n, float epsilon) {                                            \
    norm<T>(out, in, residual, weight, bias, n, epsilon);                                                              \
  }
LAYER_NORM(half, f16)
LAYER_NORM(bfloat, bf16)
