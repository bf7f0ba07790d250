"""Measures transformers on the loads that server -work prints, read from standard input. Prints a line for each load: its name, the way
in which transformers computes it, and the seconds, with tabs between."""
import json
import os
import sys
import time

try:
    import torch
    import transformers
    from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig
    if not torch.cuda.is_available():
        raise ImportError("PyTorch sees no GPU")
except ImportError as error:
    print("# nothing to compare the server with:", error)
    sys.exit(0)


def first_line(error):
    return f"{type(error).__name__}: {error}".split("\n")[0]


def with_random_weights(settings):
    """The model with flash attention, or without it if there is none."""
    settings = dict(settings)
    config = AutoConfig.for_model(settings.pop("model_type"), **settings)
    for attention in "flash_attention_3", "flash_attention_2", "sdpa":
        try:
            with torch.device("cuda"):
                model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, attn_implementation=attention)
            print(f"# transformers {transformers.__version__}, PyTorch {torch.__version__}, {attention}", flush=True)
            return model.eval()
        except Exception as error:  # the library for it is not there
            print(f"# {attention}: {first_line(error)}", flush=True)
    raise ValueError("no attention is possible")


def prompts(load, vocabulary):
    return [[(7919 * i + 31 * j + 17) % vocabulary for j in range(length)] for i, length in enumerate(load["prompts"])]


SETTINGS = {"do_sample": False, "eos_token_id": -1, "pad_token_id": 0}


def started(model, new):
    """A manager of continuous batching, which has captured its graphs."""
    manager = model.init_continuous_batching(generation_config=GenerationConfig(max_new_tokens=new, **SETTINGS))
    if hasattr(manager, "warmup"):
        manager.warmup()
    manager.start()
    return manager


def batched(manager, inputs, new):
    """The number of tokens that continuous batching generates."""
    manager.add_requests(inputs=inputs, max_new_tokens=new)
    tokens, left = 0, len(inputs)
    while left > 0 and manager.is_running():
        answer = manager.get_result(timeout=1)
        if answer is not None and answer.is_finished():
            tokens, left = tokens + len(answer.generated_tokens), left - 1
    return tokens


def alone(model, inputs, new):
    """The number of tokens that generate generates for one request."""
    prompt = torch.tensor(inputs, device="cuda")
    out = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=new, **SETTINGS)
    return out.shape[1] - prompt.shape[1]


def measure(model, load, way):
    inputs, new = prompts(load, work["config"]["vocab_size"]), load["new"]
    way(model, inputs[:2], 4)
    torch.cuda.synchronize()
    begin = time.perf_counter()
    tokens = way(model, inputs, new)
    torch.cuda.synchronize()
    seconds = time.perf_counter() - begin
    if tokens != len(inputs) * new:
        raise ValueError(f"{tokens} tokens of {len(inputs) * new}")
    print(f"{load['name']}\ttransformers\t{seconds}", flush=True)


def measure_all(model, loads):
    manager = None
    for load in sorted(loads, key=lambda load: len(load["prompts"])):  # first without the manager, which changes the model
        try:
            if len(load["prompts"]) == 1:
                measure(model, load, alone)
                continue
            manager = manager or started(model, load["new"])
            measure(manager, load, batched)
        except Exception as error:  # an older version, or too little memory
            print(f"# {load['name']}: {first_line(error)}", flush=True)


work = json.load(sys.stdin)
try:
    with torch.inference_mode():
        measure_all(with_random_weights(work["config"]), work["loads"])
except Exception as error:
    print("#", first_line(error))
sys.stdout.flush()
os._exit(0)  # without waiting for the manager's threads
