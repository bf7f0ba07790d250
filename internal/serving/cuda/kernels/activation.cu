// The functions between the products of an MLP.
#include "activation.h"

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
