// The index of the largest logit of a row: the first one of equal ones; 0 if one is NaN or none is above minus
// infinity.
#include "device.h"

struct best { float value; int index; };
// better of two. The first one of equal values, and any NaN before the others.
DEVICE best better(best a, best b) {
  bool nan_a = a.value != a.value, nan_b = b.value != b.value;
  bool second = nan_a || nan_b ? !nan_a : b.value > a.value || (b.value == a.value && b.index < a.index);
  return second ? b : a;
}
DEVICE best of_warp(best x) {
  UNROLL
  for (int mask = 16; mask > 0; mask >>= 1) {
    best other;
    other.value = shfl_xor(x.value, mask);
    other.index = shfl_xor((u32)x.index, mask);
    x = better(x, other);
  }
  return x;
}

// Grid: rows.
KERNEL LAUNCH_BOUNDS(1024) void argmax_f32(int *out, float *values, const float *logits, int n) {
  SHARED(of_warps, best[32]);
  const float *row = logits + (u64)block_x() * n;
  best x = {-__builtin_inff(), 0};
  for (int i = thread(); i < n; i += threads()) x = better(x, best{row[i], i});
  x = of_warp(x);
  if (lane() == 0) of_warps[warp()] = x;
  barrier();
  if (warp() > 0) return;
  x = best{-__builtin_inff(), 0};
  if (lane() < threads() / 32) x = of_warps[lane()];
  x = of_warp(x);
  if (lane() == 0) {
    out[block_x()] = x.value == x.value ? x.index : 0;
    values[block_x()] = x.value;
  }
}
