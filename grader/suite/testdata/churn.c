#include "heap.h"
#include <stdlib.h>
enum { BLOCKS = 6000 };
static void *block[BLOCKS];
int main(void) {
    unsigned draw = 1;
    long live = 0;
    heap_reset();
    heap_watch(true);
    for (long step = 1; step <= 100000; step++) {
        size_t i = (draw = draw * 1664525u + 1013904223u) % BLOCKS;
        if (block[i] == NULL) {
            block[i] = malloc(i + 1);
            live++;
        } else {
            free(block[i]);
            block[i] = NULL;
            live--;
        }
        if (heap_live() != live || (block[i] != NULL && heap_size_of(block[i]) != i + 1)) {
            return 1;
        }
    }
    for (size_t i = 0; i < BLOCKS; i++) {
        if (heap_size_of(block[i]) != (block[i] == NULL ? 0 : i + 1)) {
            return 2;
        }
    }
    return 0;
}
