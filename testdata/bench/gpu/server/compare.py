"""Measures transformers on the loads that server -work prints, read from standard input. Prints a line for each load: its name, the way
in which transformers computes it, and the seconds, with tabs between."""
import json
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
    sys.exit(0)


def prompts(load, vocabulary):
    return [[(7919 * i + 31 * j + 17) % vocabulary for j in range(length)] for i, length in enumerate(load["prompts"])]


def batched(model, inputs, new):
    """The tokens that continuous batching generates. The manager stays for the next call."""
    settings = GenerationConfig(max_new_tokens=new, do_sample=False, eos_token_id=-1, pad_token_id=0)
    try:
        answers = model.generate_batch(inputs=inputs, generation_config=settings, progress_bar=False, persistent_manager=True)
    except TypeError:  # an older version
        answers = model.generate_batch(inputs=inputs, generation_config=settings)
    return sum(len(answer.generated_tokens) for answer in answers.values())


def alone(model, inputs, new):
    """The tokens that generate generates for one request."""
    prompt = torch.tensor(inputs, device="cuda")
    out = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=new, do_sample=False, eos_token_id=-1, pad_token_id=0)
    return out.shape[1] - prompt.shape[1]


def measure(model, load, way):
    inputs, new = prompts(load, model.config.vocab_size), load["new"]
    way(model, inputs[:2], 4)
    torch.cuda.synchronize()
    begin = time.perf_counter()
    tokens = way(model, inputs, new)
    torch.cuda.synchronize()
    seconds = time.perf_counter() - begin
    if tokens != len(inputs) * new:
        raise ValueError(f"{tokens} tokens of {len(inputs) * new}")
    print(f"{load['name']}\ttransformers\t{seconds}", flush=True)


work = json.load(sys.stdin)
try:
    llama = with_random_weights(work["config"])
except Exception as error:
    print("#", first_line(error))
    sys.exit(0)
for load in work["loads"]:
    try:
        with torch.inference_mode():
            measure(llama, load, alone if len(load["prompts"]) == 1 else batched)
    except Exception as error:  # an older version, or too little memory
        print(f"# {load['name']}: {first_line(error)}", flush=True)
sys.stdout.flush()
sys.exit(0)
