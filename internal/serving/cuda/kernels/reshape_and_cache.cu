// Keys and values of tokens written to their slots in blocks.
#include "device.h"

// Grid: tokens. Elements have 16 bits. A head's size is a multiple of 8. A token whose slot is negative is not written. No two tokens have
// the same slot. Strides are elements from a token to the next.
KERNEL void reshape_and_cache_16(u16 *key_cache, u16 *value_cache, const u16 *key, const u16 *value, const long long *slots, int key_heads,
                                 int head_size, int block_size, u64 key_stride, u64 value_stride) {
  u64 token = block_x();
  long long slot = slots[token];
  if (slot < 0) return;
  u64 block = slot / block_size, at = slot % block_size;
  int vectors = head_size / 8;
  for (int i = thread(); i < key_heads * vectors; i += threads()) {
    int head = i / vectors, part = i % vectors;
    u64 to = ((block * key_heads + head) * block_size + at) * head_size + part * 8;
    store16(key_cache + to, load16(key + token * key_stride + i * 8));
    store16(value_cache + to, load16(value + token * value_stride + i * 8));
  }
}
