// Sums that the norms share.
#pragma once
#include "device.h"

// sum_of_threads adds a value of each thread: first the lanes of a warp by exclusive or of their numbers, then
// the warps in order. All threads get the sum.
DEVICE float sum_of_threads(float x) {
  SHARED(sums, float[32]);
  UNROLL
  for (int mask = 16; mask > 0; mask >>= 1) x = add_rn(x, shfl_xor(x, mask));
  barrier(); // the sums of a call before have been read
  if (lane() == 0) sums[warp()] = x;
  barrier();
  float sum = 0;
  for (int i = 0; i < threads() / 32; i++) sum = add_rn(sum, sums[i]);
  return sum;
}

// sum_with_residual returns 16 bytes of in at an index. With a residual, it adds these to the residual, rounded to T,
// and returns the sum.
template <class T> DEVICE vector<T> sum_with_residual(const T *in, T *residual, u64 at) {
  vector<T> x;
  x.bytes = load16(in + at);
  if (residual) {
    vector<T> r;
    r.bytes = load16(residual + at);
    UNROLL
    for (int j = 0; j < vector<T>::size; j++) from_float(x.at[j], add_rn(to_float(x.at[j]), to_float(r.at[j])));
    store16(residual + at, x.bytes);
  }
  return x;
}
