#include "paged_attention.h"
PAGED_ATTENTION(half, f16, 64)
