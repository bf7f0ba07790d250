// Rotation of queries and keys by the angles of their positions.
#include "device.h"

// rotate: grid: tokens. table has for each position the cosines of the rotated / 2 pairs, then their sines. A pair is
// elements i and i + rotated / 2 of a head, or 2 i and 2 i + 1 if interleaved. The heads of queries and keys of a token
// are contiguous; strides are elements from a token to the next.
template <class T> DEVICE void rotate(T *query, T *key, const int *positions, const float *table, int heads,
                                      int key_heads, int head_size, int rotated, u64 query_stride, u64 key_stride,
                                      int interleaved) {
  u64 token = block_x();
  int pairs = rotated / 2;
  const float *angles = table + (u64)positions[token] * rotated;
  for (int i = thread(); i < (heads + key_heads) * pairs; i += threads()) {
    int head = i / pairs, pair = i % pairs;
    T *at = head < heads ? query + token * query_stride + (u64)head * head_size
                         : key + token * key_stride + (u64)(head - heads) * head_size;
    T *first = at + (interleaved ? 2 * pair : pair), *second = first + (interleaved ? 1 : pairs);
    float a = to_float(*first), b = to_float(*second), c = angles[pair], s = angles[pairs + pair];
    from_float(*first, add_rn(mul_rn(a, c), -mul_rn(b, s)));
    from_float(*second, add_rn(mul_rn(b, c), mul_rn(a, s)));
  }
}

#define ROTARY_EMBEDDING(T, name)                                                                                      \
  KERNEL void rotary_embedding_##name(T *query, T *key, const int *positions, const float *table, int heads,           \
                                      int key_heads, int head_size, int rotated, u64 query_stride, u64 key_stride,     \
                                      int interleaved) {                                                               \
    rotate<T>(query, key, positions, table, heads, key_heads, head_size, rotated, query_stride, key_stride,            \
              interleaved);                                                                                            \
  }
ROTARY_EMBEDDING(half, f16)
ROTARY_EMBEDDING(bfloat, bf16)
