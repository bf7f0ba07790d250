#include "paged_attention.h"
PAGED_ATTENTION(bfloat, bf16, 96)
