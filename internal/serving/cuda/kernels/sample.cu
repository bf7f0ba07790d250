// Chooses a token from each row of logits, as Sampler.Sample of engine/sampling does. A weight is the exponential of
// (logit - largest logit) / temperature, and becomes an integer before weights are added. So the order of threads
// changes no bit.
#include "device.h"

// How a token is chosen from a row. The fields are those of SamplingRow in Go.
struct sampling_row {
  u64 random, top_p;
  float scale, min_p, repetition, frequency, presence;
  int top_k, token, mask;
  int bias_start, bias_end, count_start, count_end;
};
struct sampling_bias { int token; float bias; };
struct sampling_count { int token, output; };

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
// of_block returns the best of all threads to all threads.
DEVICE best of_block(best x) {
  SHARED(of_warps, best[32]);
  x = of_warp(x);
  if (lane() == 0) of_warps[warp()] = x;
  barrier();
  x = best{-__builtin_inff(), 0x7fffffff};
  if (lane() < threads() / 32) x = of_warps[lane()];
  return of_warp(x);
}

DEVICE u64 shfl_u64(u64 v, int from) { return shfl((u32)v, from) | (u64)shfl((u32)(v >> 32), from) << 32; }
DEVICE u64 sum_of_warp(u64 v) {
  UNROLL
  for (int mask = 16; mask > 0; mask >>= 1)
    v += shfl_xor((u32)v, mask) | (u64)shfl_xor((u32)(v >> 32), mask) << 32;
  return v;
}

struct found { int index; u64 rest; };
// find returns the first of n indices at which the sum of the values up to it is above target, and target minus the sum
// of the values before it. All values together are above target. Each round divides the indices among the warps.
template <class F> DEVICE found find(int n, u64 target, F value) {
  SHARED(sums, u64[32]);
  int start = 0;
  while (n > 32) {
    int part = (n + threads() - 1) / threads() * 32; // indices of a warp
    int end = (warp() + 1) * part < n ? (warp() + 1) * part : n;
    u64 sum = 0;
    for (int i = warp() * part + lane(); i < end; i += 32) sum += value(start + i);
    sum = sum_of_warp(sum);
    barrier(); // the sums of the round before have been read
    if (lane() == 0) sums[warp()] = sum;
    barrier();
    int w = 0;
    for (; w < threads() / 32 - 1 && target >= sums[w]; w++) target -= sums[w];
    start += w * part;
    n = n - w * part < part ? n - w * part : part;
  }
  u64 mine = lane() < n ? value(start + lane()) : 0;
  int i = 0;
  for (; i < n - 1; i++) {
    u64 v = shfl_u64(mine, i);
    if (target < v) break;
    target -= v;
  }
  return found{start + i, target};
}

// total returns the sum of n values to all threads.
template <class F> DEVICE u64 total(int n, F value) {
  SHARED(sums, u64[32]);
  u64 sum = 0;
  for (int i = thread(); i < n; i += threads()) sum += value(i);
  sum = sum_of_warp(sum);
  barrier(); // the sums of a call before have been read
  if (lane() == 0) sums[warp()] = sum;
  barrier();
  return sum_of_warp(lane() < threads() / 32 ? sums[lane()] : 0);
}

// exponential computes the bits of exponential in model/matrix, for x from -28 to 0.
DEVICE float exponential(float x) {
  const float nearest = 12582912; // at such a number, a float has no fraction
  float q = add_rn(add_rn(mul_rn(x, 1.44269504088896340736f), nearest), -nearest);
  x = add_rn(x, -mul_rn(q, 0.693359375f));
  x = add_rn(x, -mul_rn(q, -2.12194440e-4f));
  float p = add_rn(mul_rn(x, 1.0f / 5040), 1.0f / 720);
  p = add_rn(mul_rn(p, x), 1.0f / 120);
  p = add_rn(mul_rn(p, x), 1.0f / 24);
  p = add_rn(mul_rn(p, x), 1.0f / 6);
  p = add_rn(mul_rn(p, x), 0.5f);
  p = add_rn(mul_rn(p, x), 1);
  p = add_rn(mul_rn(p, x), 1);
  return float_of(bits_of(p) + ((u32)(int)q << 23));
}

// Weights of a row of logits. A token is kept if the bits of its weight are above least, or are least and its index is
// at most last.
struct weights {
  const float *logits;
  int n;
  float top, scale, min_p;
  u32 least;
  int last;
};
// key_of returns the bits of a weight, or 0 if the token is not kept. Weights below 2^-40, about exp(-27.7), count as 0.
DEVICE u32 key_of(const weights &w, int i) {
  float x = mul_rn(add_rn(w.logits[i], -w.top), w.scale);
  if (!(x >= -28)) return 0;
  float weight = exponential(x);
  if (weight < 0x1p-40f || weight < w.min_p) return 0;
  u32 key = bits_of(weight);
  return key > w.least || (key == w.least && i <= w.last) ? key : 0;
}
// A stage counts tokens or adds their weights as integers, 2^40 for the weight 1.
enum stage { TOP_K, TOP_P, DRAW, STAGES };
DEVICE u64 amount_of(u32 key, int stage) {
  return key == 0 ? 0 : stage == TOP_K ? 1 : (u64)mul_rn(float_of(key), 0x1p40f);
}

// smallest_key returns the key of the first token, from the heaviest on, at which the sum of the amounts is above target.
// It subtracts the amounts of the tokens with larger keys from target. Three passes find the key from its highest bits to
// its lowest.
DEVICE u32 smallest_key(const weights &w, int stage, u64 &target) {
  const int BITS = 10, BUCKETS = 1 << BITS;
  SHARED(low, u32[BUCKETS]); // the lower halves of sums
  SHARED(high, u32[BUCKETS]);
  u32 prefix = 0;
  for (int shift = 2 * BITS; shift >= 0; shift -= BITS) {
    barrier(); // the buckets of the pass before have been read
    for (int i = thread(); i < BUCKETS; i += threads()) low[i] = high[i] = 0;
    barrier();
    for (int i = thread(); i < w.n; i += threads()) {
      u32 key = key_of(w, i);
      if (key == 0 || key >> (shift + BITS) != prefix) continue;
      u64 amount = amount_of(key, stage);
      u32 bucket = key >> shift & (BUCKETS - 1), before = atomic_add(&low[bucket], (u32)amount);
      u32 more = (u32)(amount >> 32) + (before + (u32)amount < before);
      if (more) atomic_add(&high[bucket], more);
    }
    barrier();
    found f = find(BUCKETS, target, [&] LAMBDA(int i) { return low[BUCKETS - 1 - i] | (u64)high[BUCKETS - 1 - i] << 32; });
    prefix = prefix << BITS | (BUCKETS - 1 - f.index);
    target = f.rest;
  }
  return prefix;
}

// fraction returns part / 2^64 of a sum, rounded down.
DEVICE u64 fraction(u64 part, u64 sum) {
  u64 a = part >> 32, b = (u32)part, c = sum >> 32, d = (u32)sum;
  u64 middle = a * d + (b * d >> 32), other = b * c + (u32)middle;
  return a * c + (middle >> 32) + (other >> 32);
}

// choose returns a token of a row whose logits are adjusted. top-k and top-p keep the heaviest tokens, as few as
// possible, that are enough; of those with the smallest key, the first. Then the random number chooses a token.
DEVICE int choose(weights w, const sampling_row &r) {
  int token = 0;
  for (int stage = TOP_K, end = opaque(STAGES); stage < end; stage++) {
    if ((stage == TOP_K && r.top_k == 0) || (stage == TOP_P && !~r.top_p)) continue;
    u64 sum = total(w.n, [&] LAMBDA(int i) { return amount_of(key_of(w, i), stage); });
    u64 target = stage == TOP_K ? r.top_k - 1 : fraction(stage == TOP_P ? r.top_p : r.random, sum);
    if (stage == TOP_P && target > 0) target--;
    if (target >= sum) continue; // less than k tokens
    u32 least = 0;
    if (stage != DRAW) {
      least = smallest_key(w, stage, target);
      target /= amount_of(least, stage);
    }
    token = find(w.n, target, [&] LAMBDA(int i) {
              u32 key = key_of(w, i);
              return stage == DRAW ? amount_of(key, stage) : key == least;
            }).index;
    if (stage != DRAW) w.least = least, w.last = token;
  }
  return token;
}

// adjust adds biases to logits, then applies the penalties. A bias of minus infinity forbids a token.
DEVICE void adjust(float *logits, const sampling_row &r, const sampling_bias *biases, const sampling_count *counts) {
  const float lowest = -__builtin_inff();
  for (int i = r.bias_start + thread(); i < r.bias_end; i += threads()) {
    float &l = logits[biases[i].token], bias = biases[i].bias;
    l = bias == lowest ? lowest : add_rn(l, bias);
  }
  barrier();
  for (int i = r.count_start + thread(); i < r.count_end; i += threads()) {
    float l = logits[counts[i].token];
    int output = counts[i].output;
    if (r.repetition != 1) l = l > 0 ? div_rn(l, r.repetition) : mul_rn(l, r.repetition);
    if (r.frequency != 0) l = add_rn(l, -mul_rn(r.frequency, (float)output));
    if (r.presence != 0 && output > 0) l = add_rn(l, -r.presence);
    logits[counts[i].token] = l;
  }
  barrier();
}

// Grid: rows. The kernel changes logits. A token is the first one with the largest logit if scale is 0. It is 0 if a
// logit is NaN or infinite, or all are minus infinity; the value is then NaN or infinite too.
KERNEL LAUNCH_BOUNDS(1024) void sample_f32(int *out, float *values, float *logits, int n, const sampling_row *rows,
                                           const sampling_bias *biases, const sampling_count *counts,
                                           const u64 *masks) {
  const float lowest = -__builtin_inff();
  sampling_row r = rows[block_x()];
  float *row = logits + (u64)block_x() * n;
  if (r.token >= 0) {
    if (thread() == 0) out[block_x()] = r.token, values[block_x()] = 0;
    return;
  }
  if (r.bias_start < r.bias_end || r.count_start < r.count_end) adjust(row, r, biases, counts);
  best top = {lowest, 0};
  for (int i = thread(); i < n; i += threads()) {
    float x = row[i];
    if (r.mask >= 0 && !(masks[r.mask + (i >> 6)] >> (i & 63) & 1)) row[i] = x = lowest;
    top = better(top, best{x, i});
  }
  top = of_block(top);
  int token = top.index;
  bool finite = add_rn(top.value, -top.value) == 0;
  if (finite && r.scale != 0) token = choose({row, n, top.value, r.scale, r.min_p, 0, -1}, r);
  if (thread() == 0) {
    out[block_x()] = finite ? token : 0;
    values[block_x()] = top.value;
  }
}
