"""Measures PyTorch on the cases that gpu -cases prints, read from standard input. Prints a line for each case that PyTorch has: its
name, a tab, and the seconds of the fastest way."""
import sys

try:
    import torch
    import torch.nn.functional as F
    if not torch.cuda.is_available():
        raise ImportError("PyTorch sees no GPU")
except ImportError as error:
    print("# nothing to compare with:", error)
    sys.exit(0)


def seconds(run):
    """The median time of a call, in rounds of calls in a row."""
    for _ in range(3):
        run()
    times = []
    for _ in range(7):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(5):
            run()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / 5e3)
    return sorted(times)[3]


def normal(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.float16)


def rms_norm(rows, n):
    x, weight = normal(rows, n), normal(n)
    return [lambda: F.rms_norm(x, (n,), weight, 1e-5)]


def silu_and_mul(rows, n):
    x = normal(rows, 2 * n)
    return [lambda: F.silu(x[:, :n]) * x[:, n:]]


def argmax(rows, n):
    x = torch.rand(rows, n, device="cuda")
    return [lambda: x.argmax(-1)]


def rotary_embedding(tokens, heads):
    x, c, s = normal(tokens, heads, 128), normal(tokens, 1, 64), normal(tokens, 1, 64)

    def run():
        low, high = x[..., :64], x[..., 64:]
        return torch.cat([low * c - high * s, high * c + low * s], -1)
    return [run]


def reshape_and_cache(tokens, heads, size):
    x, slots = normal(tokens, heads * size), torch.randperm(tokens, device="cuda")
    keys, values = normal(tokens, heads * size), normal(tokens, heads * size)
    return [lambda: (keys.index_copy_(0, slots, x), values.index_copy_(0, slots, x))]


def swap_blocks_out(blocks, bytes):
    array, host = normal(2 * blocks, bytes // 2), torch.empty(blocks, bytes // 2, dtype=torch.float16, pin_memory=True)
    places = torch.randperm(2 * blocks, device="cuda")[:blocks]
    return [lambda: host.copy_(array[places], non_blocking=True)]


def swap_blocks_in(blocks, bytes):
    array, host = normal(2 * blocks, bytes // 2), torch.empty(blocks, bytes // 2, dtype=torch.float16, pin_memory=True)
    places = torch.randperm(2 * blocks, device="cuda")[:blocks]
    return [lambda: array.index_copy_(0, places, host.to("cuda", non_blocking=True))]


def attention(group, heads, seqs, tokens, queries, causal):
    """Over contiguous memory, without a block table: the fastest of cuDNN and flash."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    q, k, v = normal(seqs, group * heads, queries, 128), normal(seqs, heads, tokens, 128), normal(seqs, heads, tokens, 128)

    def one(backend):
        def run():
            with sdpa_kernel(backend):
                F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=group > 1)
        return run
    return [one(SDPBackend.CUDNN_ATTENTION), one(SDPBackend.FLASH_ATTENTION)]


def decode(group, heads, seqs, tokens):
    return attention(group, heads, seqs, tokens, 1, False)


def prefill(group, heads, seqs, tokens):
    return attention(group, heads, seqs, tokens, tokens, True)


for line in sys.stdin:
    kernel, *sizes = line.split()
    if kernel not in globals():
        continue
    times = []
    try:
        for way in globals()[kernel](**{name: int(value) for name, value in (size.split("=") for size in sizes)}):
            try:
                times.append(seconds(way))
            except RuntimeError as error:
                print(f"# {line.strip()}: {str(error).splitlines()[0]}")
    except torch.cuda.OutOfMemoryError:
        print(f"# {line.strip()}: out of memory")
    if times:
        print(f"{line.strip()}\t{min(times)}", flush=True)
    torch.cuda.empty_cache()
