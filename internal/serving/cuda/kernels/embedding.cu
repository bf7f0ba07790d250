// Rows of the embedding table for tokens.
#include "device.h"

// embed: grid: tokens. With a position table, its row of the token's position is added.
template <class T> DEVICE void embed(T *out, const T *table, const int *tokens, const T *position_table,
                                     const int *positions, int n, float scale) {
  const int size = vector<T>::size;
  u64 token = block_x();
  const T *from = table + (u64)tokens[token] * n,
          *add = position_table ? position_table + (u64)positions[token] * n : nullptr;
  for (int i = thread() * size; i < n; i += threads() * size) {
    vector<T> x, p;
    x.bytes = load16(from + i);
    if (add) p.bytes = load16(add + i);
    UNROLL
    for (int j = 0; j < size; j++) from_float(x.at[j], fma_rn(to_float(x.at[j]), scale, add ? to_float(p.at[j]) : 0));
    store16(out + token * n + i, x.bytes);
  }
}

#define EMBEDDING(T, name)                                                                                             \
  KERNEL void embedding_##name(T *out, const T *table, const int *tokens, const T *position_table,                     \
                               const int *positions, int n, float scale) {                                             \
    embed<T>(out, table, tokens, position_table, positions, n, scale);                                                 \
  }
EMBEDDING(half, f16)
EMBEDDING(bfloat, bf16)
