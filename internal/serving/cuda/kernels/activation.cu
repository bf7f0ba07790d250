// The functions between the products of an MLP.
#include "device.h"

// sigmoid is 1 / (1 + e^-x).
DEVICE float sigmoid(float x) { return div_rn(1, add_rn(1, exp2_approx(mul_rn(x, -1.44269504f)))); }

struct silu { // x sigmoid(x) up
  DEVICE float of(float x, float up) { return mul_rn(mul_rn(x, sigmoid(x)), up); }
};
struct gelu_tanh { // x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) up, where (1 + tanh(y)) / 2 is sigmoid(2 y)
  DEVICE float of(float x, float up) {
    float y = mul_rn(1.5957691f, mul_rn(x, fma_rn(0.044715f, mul_rn(x, x), 1)));
    return mul_rn(mul_rn(x, sigmoid(y)), up);
  }
};
struct swigluoai { // as in GPT-OSS
  DEVICE float of(float x, float up) {
    x = min_of(x, 7);
    up = max_of(min_of(up, 7), -7);
    return mul_rn(mul_rn(x, sigmoid(mul_rn(1.702f, x))), add_rn(up, 1));
  }
};
struct relu {
  DEVICE float of(float x, float up) { return mul_rn(max_of(x, 0), up); }
};

// A row of in is n gates and, if gated, n factors up. Grid: rows, parts of a row.
template <class F, class T, bool gated> DEVICE void activate(T *out, const T *in, int n) {
  const int size = vector<T>::size;
  int i = (block_y() * threads() + thread()) * size;
  if (i >= n) return;
  u64 row = block_x();
  const T *from = in + row * n * (gated ? 2 : 1) + i;
  vector<T> gate, up;
  gate.bytes = load16(from);
  if (gated) up.bytes = load16(from + n);
  UNROLL
  for (int j = 0; j < size; j++) from_float(gate.at[j], F::of(to_float(gate.at[j]), gated ? to_float(up.at[j]) : 1));
  store16(out + row * n + i, gate.bytes);
}

#define ACTIVATION(kernel, function, gated)                                                                            \
  KERNEL void kernel##_f16(half *out, const half *in, int n) { activate<function, half, gated>(out, in, n); }          \
  KERNEL void kernel##_bf16(bfloat *out, const bfloat *in, int n) { activate<function, bfloat, gated>(out, in, n); }
ACTIVATION(silu_and_mul, silu, true)
ACTIVATION(gelu_tanh_and_mul, gelu_tanh, true)
ACTIVATION(swigluoai_and_mul, swigluoai, true)
ACTIVATION(gelu_new, gelu_tanh, false)
ACTIVATION(relu, relu, false)
