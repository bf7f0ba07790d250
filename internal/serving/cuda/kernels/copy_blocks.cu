// Blocks copied inside the GPU, and between the GPU and pinned memory of the host.
#include "device.h"

// copy moves bytes, a multiple of 16, by all threads of a block. Loads come before stores, so that four are under way
// at once.
DEVICE void copy(char *to, const char *from, u64 bytes) {
  u64 step = (u64)threads() * 16, i = (u64)thread() * 16;
  for (; i + 3 * step < bytes; i += 4 * step) {
    bytes16 v[4];
    UNROLL
    for (int j = 0; j < 4; j++) v[j] = load16_once(from + i + j * step);
    UNROLL
    for (int j = 0; j < 4; j++) store16(to + i + j * step, v[j]);
  }
  for (; i < bytes; i += step) store16(to + i, load16_once(from + i));
}

struct pair { int from, to; };

// Grid: pairs, arrays. No block is written twice, and none that is read is written. arrays are the keys and the values
// of each layer.
KERNEL LAUNCH_BOUNDS(256) void copy_blocks(char *const *arrays, const pair *pairs, u64 block_bytes) {
  char *array = arrays[block_y()];
  pair p = pairs[block_x()];
  copy(array + p.to * block_bytes, array + p.from * block_bytes, block_bytes);
}

// A block of the host is the block of each array, one behind the other.
// Grid: pairs of a block of the GPU and one of the host, arrays.
KERNEL LAUNCH_BOUNDS(256) void swap_blocks_out(char *const *arrays, char *host, const pair *pairs, u64 block_bytes) {
  pair p = pairs[block_x()];
  copy(host + ((u64)p.to * grid_y() + block_y()) * block_bytes, arrays[block_y()] + p.from * block_bytes, block_bytes);
}
// Grid: pairs of a block of the host and one of the GPU, arrays.
KERNEL LAUNCH_BOUNDS(256) void swap_blocks_in(char *const *arrays, const char *host, const pair *pairs,
                                              u64 block_bytes) {
  pair p = pairs[block_x()];
  copy(arrays[block_y()] + p.to * block_bytes, host + ((u64)p.from * grid_y() + block_y()) * block_bytes, block_bytes);
}
