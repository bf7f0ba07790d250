"""Measures PyTorch on the cases that gpu -cases prints, read from standard input. Prints lines for each case that PyTorch has: its
name, the way in which PyTorch computes it, and the seconds, with tabs between."""
import itertools
import sys

try:
    import torch
    import torch.nn.functional as F
    if not torch.cuda.is_available():
        raise ImportError("PyTorch sees no GPU")
except ImportError as error:
    print("# nothing to compare with:", error)
    sys.exit(0)


filler = torch.empty(1 << 30, device="cuda", dtype=torch.uint8)


def timed(run, calls):
    """The time of a call, of calls in a row. The GPU is still busy when they begin, so that it does not wait for the host's first ones."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    filler.zero_()
    filler.zero_()
    start.record()
    for _ in range(calls):
        run()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3 / calls


def seconds(run):
    """The median time of a call, over rounds of as many calls as take some 3 ms, in 0.2 s or one round."""
    run()
    torch.cuda.synchronize()
    first = max(timed(run, 2), 1e-6)
    calls = max(1, min(50, int(3e-3 / first)))
    rounds = max(1, min(7, int(0.2 / (first * calls))))
    return sorted(timed(run, calls) for _ in range(rounds))[rounds // 2]


def normal(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.float16)


# Each function has the name of a kernel and its sizes as parameters. It returns a function without parameters, or several of them by their
# ways.


def rms_norm(rows, n):
    x, weight = normal(rows, n), normal(n)
    return lambda: F.rms_norm(x, (n,), weight, 1e-5)


def layer_norm(rows, n):
    x, weight, bias = normal(rows, n), normal(n), normal(n)
    return lambda: F.layer_norm(x, (n,), weight, bias, 1e-5)


def add(rows, n):
    x, bias = normal(rows, n), normal(n)
    return lambda: x + bias


def silu_and_mul(rows, n):
    x = normal(rows, 2 * n)
    return lambda: F.silu(x[:, :n]) * x[:, n:]


def gelu_tanh_and_mul(rows, n):
    x = normal(rows, 2 * n)
    return lambda: F.gelu(x[:, :n], approximate="tanh") * x[:, n:]


def swigluoai_and_mul(rows, n):
    x = normal(rows, 2 * n)

    def run():
        gate, up = x[:, :n].clamp(max=7), x[:, n:].clamp(-7, 7)
        return gate * torch.sigmoid(1.702 * gate) * (up + 1)
    return run


def gelu_new(rows, n):
    x = normal(rows, n)
    return lambda: F.gelu(x, approximate="tanh")


def relu(rows, n):
    x = normal(rows, n)
    return lambda: F.relu(x)


def embedding(rows, vocabulary, n):
    table, tokens = normal(vocabulary, n), torch.randint(vocabulary, (rows,), device="cuda")
    return lambda: F.embedding(tokens, table)


def product(outputs, columns, rows):
    x, weights = normal(rows, columns), normal(outputs, columns)
    # A step reads other weights in between, so these must not come from the L2 cache: copies take 2 GiB.
    copies = itertools.cycle([weights] + [weights.clone() for _ in range((1 << 31) // (2 * outputs * columns) - 1)])
    return {"cuBLAS": lambda: F.linear(x, next(copies))}


def sample(rows, n, top_k):
    x = torch.randn(rows, n, device="cuda")
    if top_k == 0:
        return lambda: x.argmax(-1)

    def choose():
        values, tokens = x.topk(top_k, -1)
        return tokens.gather(-1, values.softmax(-1).multinomial(1))

    return choose


def fused_qk_norm_rope_and_cache(tokens, heads):
    x, c, s = normal(tokens, heads, 128), normal(tokens, 1, 64), normal(tokens, 1, 64)

    def run():
        low, high = x[..., :64], x[..., 64:]
        return torch.cat([low * c - high * s, high * c + low * s], -1)
    return run


def reshape_and_cache(tokens, heads, size):
    x, slots = normal(tokens, heads * size), torch.randperm(tokens, device="cuda")
    keys, values = normal(tokens, heads * size), normal(tokens, heads * size)
    return lambda: (keys.index_copy_(0, slots, x), values.index_copy_(0, slots, x))


def swap_blocks_out(blocks, bytes):
    array, host = normal(2 * blocks, bytes // 2), torch.empty(blocks, bytes // 2, dtype=torch.float16, pin_memory=True)
    places = torch.randperm(2 * blocks, device="cuda")[:blocks]
    return lambda: host.copy_(array[places], non_blocking=True)


def swap_blocks_in(blocks, bytes):
    array, host = normal(2 * blocks, bytes // 2), torch.empty(blocks, bytes // 2, dtype=torch.float16, pin_memory=True)
    places = torch.randperm(2 * blocks, device="cuda")[:blocks]
    return lambda: array.index_copy_(0, places, host.to("cuda", non_blocking=True))


def copy_blocks(pairs, arrays, bytes):
    blocks = normal(arrays, 2 * pairs, bytes // 2)
    places = torch.randperm(2 * pairs, device="cuda")
    return lambda: blocks.index_copy_(1, places[pairs:], blocks[:, places[:pairs]])


def attention(group, heads, seqs, tokens, queries, causal):
    """Over contiguous memory, without a block table."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    q, k, v = normal(seqs, group * heads, queries, 128), normal(seqs, heads, tokens, 128), normal(seqs, heads, tokens, 128)

    def one(backend):
        def run():
            with sdpa_kernel(backend):
                F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=group > 1)
        return run
    return {"cuDNN": one(SDPBackend.CUDNN_ATTENTION), "flash": one(SDPBackend.FLASH_ATTENTION)}


def decode(group, heads, seqs, tokens):
    return attention(group, heads, seqs, tokens, 1, False)


def prefill(group, heads, seqs, tokens):
    return attention(group, heads, seqs, tokens, tokens, True)


def first_line(error):
    return f"{type(error).__name__}: {error}".split("\n")[0]


def measure(case):
    kernel, *sizes = case.split()
    if kernel not in globals():
        return
    ways = globals()[kernel](**{name: int(value) for name, value in (size.split("=") for size in sizes)})
    for way, run in (ways if isinstance(ways, dict) else {"PyTorch": ways}).items():
        try:
            print(f"{case}\t{way}\t{seconds(run)}", flush=True)
        except Exception as error:  # an older PyTorch, a GPU that this way does not support, too little memory
            print(f"# {case}, {way}: {first_line(error)}", flush=True)


for line in sys.stdin:
    try:
        measure(line.strip())
    except Exception as error:
        print(f"# {line.strip()}: {first_line(error)}", flush=True)
    torch.cuda.empty_cache()
