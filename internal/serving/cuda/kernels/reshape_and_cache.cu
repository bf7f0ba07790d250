// Keys and values of tokens written to their slots in blocks: as they are, or normalized and rotated first, with
// queries.
#include "device.h"

// to_fp8 rounds to a number of 8 bits with 3 (E4M3) or 2 (E5M2) bits of fraction, to nearest, ties to even. Numbers
// that are too large become the largest, and a NaN 0x7f.
template <class T> DEVICE u32 to_fp8(T x, int fraction) {
  const u32 sign = x.bits >> 8 & 0x80, size = bits_of(to_float(x)) & 0x7fffffff, drop = 23 - fraction;
  const u32 bias = fraction == 3 ? 7 : 15, largest = fraction == 3 ? 0x7e : 0x7b,
            least = (127 - bias) << 23; // least: 2^-bias
  if (size > 0x7f800000) return sign | 0x7f;
  if (size >= least + (largest << drop)) return sign | largest;
  if (size < least + (1 << 23)) { // a multiple of the least number, which the sum with 2^23 rounds
    const float unit = float_of((127 + bias + fraction - 1) << 23);
    return sign | (bits_of(add_rn(mul_rn(float_of(size), unit), 8388608)) & 0xff);
  }
  return sign | (size + (1 << (drop - 1)) - 1 + (size >> drop & 1) - least) >> drop;
}

template <class T> DEVICE bytes8 eight_fp8(const T *from, int fraction) {
  vector<T> x;
  x.bytes = load16(from);
  u32 y[2] = {0, 0};
  UNROLL
  for (int i = 0; i < 8; i++) y[i / 4] |= to_fp8(x.at[i], fraction) << i % 4 * 8;
  return {y[0], y[1]};
}

// write: grid: tokens. A head's size is a multiple of 8. A token whose slot is negative is not written. No two tokens
// have the same slot. Strides are elements from a token to the next. An element of the cache has SIZE bytes: 2, and
// those of T, or 1, and the type that fraction says.
template <class T, int SIZE> DEVICE void write(u8 *key_cache, u8 *value_cache, const T *key, const T *value,
                                               const long long *slots, int key_heads, int head_size, int block_size,
                                               u64 key_stride, u64 value_stride, int fraction) {
  u64 token = block_x();
  long long slot = slots[token];
  if (slot < 0) return;
  u64 block = slot / block_size, at = slot % block_size;
  int vectors = head_size / 8;
  for (int i = thread(); i < key_heads * vectors; i += threads()) {
    int head = i / vectors, part = i % vectors;
    u64 to = (((block * key_heads + head) * block_size + at) * head_size + part * 8) * SIZE;
    const T *k = key + token * key_stride + i * 8, *v = value + token * value_stride + i * 8;
    if (SIZE == 2) {
      store16(key_cache + to, load16(k)), store16(value_cache + to, load16(v));
    } else {
      store8(key_cache + to, eight_fp8(k, fraction)), store8(value_cache + to, eight_fp8(v, fraction));
    }
  }
}

#define RESHAPE_AND_CACHE(T, SIZE, name)                                                                               \
  KERNEL void reshape_and_cache_##name(u8 *key_cache, u8 *value_cache, const T *key, const T *value,                   \
                                       const long long *slots, int key_heads, int head_size, int block_size,           \
                                       u64 key_stride, u64 value_stride, int fraction) {                               \
    write<T, SIZE>(key_cache, value_cache, key, value, slots, key_heads, head_size, block_size, key_stride,            \
                   value_stride, fraction);                                                                            \
  }
RESHAPE_AND_CACHE(half, 2, 16)
RESHAPE_AND_CACHE(half, 1, fp8_f16)
RESHAPE_AND_CACHE(bfloat, 1, fp8_bf16)

// What a launch passes to fused_qk_norm_rope_and_cache. T is the type of activations. Strides are elements from a token
// to the next.
struct Heads {
  void *query; // rotated in place
  const void *key, *value;
  const void *query_norm, *key_norm; // weights of a head's norm, or null
  const int *positions;
  const float *table; // as rotary embeddings have it: of each position rotated / 2 cosines, then as many sines; or null
  u8 *key_cache, *value_cache;
  const long long *slots;
  u64 query_stride, key_stride, value_stride;
  int heads, key_heads, head_size, block_size;
  int rotated, interleaved; // a pair is elements i and i + rotated / 2 of a head, or 2 i and 2 i + 1 if interleaved
  int fraction;
  float epsilon;
};

const int HEAD_WARPS = 8, MAX_HEAD = 256;

// normalize is rms_norm of a head, whose lanes have 8 elements each. It adds as fused_add_rms_norm does with a warp.
template <class T> DEVICE void normalize(vector<T> &x, bool there, const T *weight, int n, float epsilon) {
  float squares = 0;
  UNROLL
  for (int j = 0; j < 8; j++) {
    if (there) squares = fma_rn(to_float(x.at[j]), to_float(x.at[j]), squares);
  }
  UNROLL
  for (int mask = 16; mask > 0; mask >>= 1) squares = add_rn(squares, shfl_xor(squares, mask));
  const float scale = div_rn(1, sqrt_rn(add_rn(div_rn(squares, (float)n), epsilon)));
  if (!there) return;
  vector<T> w;
  w.bytes = load16(weight + lane() * 8);
  UNROLL
  for (int j = 0; j < 8; j++) from_float(x.at[j], mul_rn(mul_rn(to_float(x.at[j]), scale), to_float(w.at[j])));
}

// rotate rotates the pairs of a head in shared memory by the angles of its position.
template <class T> DEVICE void rotate(T *head, const float *angles, int rotated, int interleaved) {
  const int pairs = rotated / 2;
  for (int pair = lane(); pair < pairs; pair += 32) {
    T *first = head + (interleaved ? 2 * pair : pair), *second = first + (interleaved ? 1 : pairs);
    const float a = to_float(*first), b = to_float(*second), c = angles[pair], s = angles[pairs + pair];
    from_float(*first, add_rn(mul_rn(a, c), -mul_rn(b, s)));
    from_float(*second, add_rn(mul_rn(b, c), mul_rn(a, s)));
  }
}

// Grid: tokens, parts of their heads. A warp has one head of the queries, of the keys or of the values of a token.
template <class T, int SIZE> DEVICE void norm_rope_and_cache(const Heads &a) {
  SHARED(memory, bytes16[HEAD_WARPS][MAX_HEAD / 8]);
  const int number = block_y() * HEAD_WARPS + warp();
  if (number >= a.heads + 2 * a.key_heads) return;
  const bool query = number < a.heads, key = !query && number < a.heads + a.key_heads;
  const int head = query ? number : (number - a.heads) % a.key_heads;
  const u64 token = block_x();
  const bool there = lane() * 8 < a.head_size;
  T *const whole = (T *)memory[warp()], *const mine = whole + lane() * 8;
  const int element = head * a.head_size + lane() * 8;
  // Without opaque, the compiler copies the arguments to local memory, which is slow, and chooses between the copies.
  const T *in = query ? (const T *)a.query + token * a.query_stride + opaque(element)
                : key ? (const T *)a.key + token * a.key_stride + opaque(element)
                      : (const T *)a.value + token * a.value_stride + element;
  vector<T> x;
  x.bytes = {0, 0, 0, 0};
  if (there) x.bytes = load16(in);
  const void *weight = query ? a.query_norm : key ? a.key_norm : nullptr;
  if (weight) normalize(x, there, (const T *)weight, a.head_size, a.epsilon);
  if (there) store16(mine, x.bytes);
  warp_barrier();
  if ((query || key) && a.table) {
    rotate(whole, a.table + (u64)a.positions[token] * a.rotated, a.rotated, a.interleaved);
    warp_barrier();
  }
  if (!there) return;
  if (query) {
    store16((T *)a.query + token * a.query_stride + element, load16(mine));
    return;
  }
  const long long slot = a.slots[token];
  if (slot < 0) return;
  const u64 block = slot / a.block_size, row = (block * a.key_heads + head) * a.block_size + slot % a.block_size;
  u8 *out = (key ? a.key_cache : a.value_cache) + (row * a.head_size + lane() * 8) * SIZE;
  if (SIZE == 2) {
    store16(out, load16(mine));
    return;
  }
  u64 y = 0;
  NO_UNROLL
  for (int i = 0; i < 8; i++) y |= (u64)to_fp8(mine[i], a.fraction) << i * 8;
  store8(out, {(u32)y, (u32)(y >> 32)});
}

#define FUSED_QK_NORM_ROPE_AND_CACHE(T, SIZE, name)                                                                    \
  KERNEL LAUNCH_BOUNDS(HEAD_WARPS * 32) void fused_qk_norm_rope_and_cache_##name(Heads a) {                            \
    norm_rope_and_cache<T, SIZE>(a);                                                                                   \
  }
FUSED_QK_NORM_ROPE_AND_CACHE(half, 2, f16)
FUSED_QK_NORM_ROPE_AND_CACHE(bfloat, 2, bf16)
FUSED_QK_NORM_ROPE_AND_CACHE(half, 1, fp8_f16)
FUSED_QK_NORM_ROPE_AND_CACHE(bfloat, 1, fp8_bf16)
