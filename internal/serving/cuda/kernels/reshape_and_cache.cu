// Keys and values of tokens written to their slots in blocks.
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
