"""How fast does the native engine sample? `python -m bench.rollout`.

Groups of 8 on the quickstart's base, on one thread, against transformers' own `generate` over the
same prompts in the same process. Both sample the same number of tokens; the ratio is what counts.
"""

import argparse
import time

import torch

from bench import machine
from examples.quickstart import corpus
from moera.models.policy import load_policy, load_tokenizer
from moera.v1 import common_pb2
from services.rollout.config import RolloutSection
from services.rollout.engine import Request
from services.rollout.native.engine import NativeEngine

_MODEL = "examples/quickstart/model"
_NEW_TOKENS = 64


def _prompts(groups: int) -> list[list[int]]:
    tokenizer = load_tokenizer(_MODEL)
    prompts = []
    for example, _ in zip(corpus.examples(0, 0.5), range(groups), strict=False):
        messages = [{"role": "user", "content": example.question}]
        text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        prompts.append(tokenizer.encode(text, add_special_tokens=False))
    return prompts


def native(prompts: list[list[int]], group_size: int) -> float:
    """Return tokens each second of the native engine."""
    engine = NativeEngine(_MODEL, "float32", RolloutSection(threads=1, max_batch=4096))
    sampling = common_pb2.SamplingParams(temperature=1.0)
    began = time.perf_counter()
    for group, prompt in enumerate(prompts):
        for member in range(group_size):
            name = f"{group}/{member}"
            # No stop tokens: every sample has its full length, as below.
            engine.add(Request(name, prompt, sampling, _NEW_TOKENS, noise_key=name))
    while engine.busy:
        engine.step()
    return engine.stats().sampled_tokens / (time.perf_counter() - began)


@torch.inference_mode()
def reference(prompts: list[list[int]], group_size: int) -> float:
    """Return tokens each second of `generate`, all samples in one left-padded batch."""
    model = load_policy(_MODEL, "float32")
    model.set_experts_implementation("grouped_mm")
    rows = [prompt for prompt in prompts for _ in range(group_size)]
    width = max(len(row) for row in rows)
    ids = torch.tensor([[0] * (width - len(row)) + row for row in rows])
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
    began = time.perf_counter()
    model.generate(  # type: ignore[operator]
        ids,
        attention_mask=mask,
        do_sample=True,
        min_new_tokens=_NEW_TOKENS,
        max_new_tokens=_NEW_TOKENS,
        pad_token_id=0,
    )
    return len(rows) * _NEW_TOKENS / (time.perf_counter() - began)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, default=8)
    parser.add_argument("--group-size", type=int, default=8)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    prompts = _prompts(arguments.groups)
    print(f"Machine: {machine.describe()}; one thread")
    for warm_up in (native, reference):
        warm_up(prompts[:1], 2)
    ours = native(prompts, arguments.group_size)
    theirs = reference(prompts, arguments.group_size)
    print(
        f"native {ours:.0f} tokens/s, transformers generate {theirs:.0f} tokens/s, "
        f"ratio {ours / theirs:.2f}"
    )


if __name__ == "__main__":
    main()
