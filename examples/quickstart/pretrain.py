"""Makes the quickstart's base checkpoint: `python -m examples.quickstart.pretrain --out DIR`.

A small Qwen3-MoE learns from worked examples that questions are mostly answered at once and now
and then worked out. It is good at working out and poor at answering at once, so reinforcement
learning has something to find.
"""

import argparse
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch
import torch.nn.functional as F
from transformers import PreTrainedTokenizerFast, Qwen3MoeConfig, Qwen3MoeForCausalLM

from examples.quickstart import corpus, tokenizer

VOCAB_SIZE = 768
ROWS, ROW_TOKENS = 16, 192
AUX_LOSS = 0.01


@dataclass(frozen=True)
class Stage:
    """A part of the training with its own share of worked replies and its own decay."""

    steps: int
    worked_share: float
    learning_rate: float


SKILL = Stage(steps=900, worked_share=0.85, learning_rate=3e-3)
"""Teaches working out."""
HABIT = Stage(steps=300, worked_share=0.2, learning_rate=3e-3)
"""Makes answering at once the usual reply, too briefly to become good at it."""


def config(tokens: PreTrainedTokenizerFast) -> Qwen3MoeConfig:
    """Return the model's configuration: 2.6 M parameters, 8 experts of which 2 see a token."""
    return Qwen3MoeConfig(
        vocab_size=len(tokens),
        hidden_size=128,
        intermediate_size=192,
        moe_intermediate_size=192,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_experts=8,
        num_experts_per_tok=2,
        norm_topk_prob=True,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.END_ID,
        pad_token_id=tokenizer.PAD_ID,
    )


def encode(tokens: PreTrainedTokenizerFast, example: corpus.Example) -> tuple[list[int], int]:
    """Return the token ids of a conversation and how many of them are its prompt."""
    messages = [{"role": "user", "content": example.question}]
    prompt = tokens.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    prompt_ids = tokens.encode(str(prompt), add_special_tokens=False)
    reply_ids = tokens.encode(example.reply + tokenizer.END, add_special_tokens=False)
    return prompt_ids + reply_ids, len(prompt_ids)


@dataclass(frozen=True)
class Batch:
    """Conversations packed end to end in rows of equal length, all int64 [B, T]."""

    input_ids: torch.Tensor
    position_ids: torch.Tensor
    """Restart at 0 with each conversation; attention never crosses a restart."""
    labels: torch.Tensor
    """The next token where it belongs to a reply, else -100."""


def batches(tokens: PreTrainedTokenizerFast, source: Iterator[corpus.Example]) -> Iterator[Batch]:
    """Yield batches without end; no conversation is split over two rows."""
    encoded = (encode(tokens, example) for example in source)
    ids, prompt = next(encoded)
    while True:
        # What fills a row's end has no label, so its id does not matter.
        input_ids = torch.zeros((ROWS, ROW_TOKENS), dtype=torch.long)
        position_ids = torch.zeros((ROWS, ROW_TOKENS), dtype=torch.long)
        labels = torch.full((ROWS, ROW_TOKENS), -100)
        for row in range(ROWS):
            start = 0
            while (end := start + len(ids)) <= ROW_TOKENS:
                input_ids[row, start:end] = torch.tensor(ids)
                position_ids[row, start:end] = torch.arange(len(ids))
                labels[row, start + prompt - 1 : end - 1] = torch.tensor(ids[prompt:])
                start = end
                ids, prompt = next(encoded)
        yield Batch(input_ids, position_ids, labels)


def train(model: Qwen3MoeForCausalLM, data: Iterator[Batch], stage: Stage) -> None:
    """Minimise the cross entropy of the replies' tokens."""
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=stage.learning_rate, betas=(0.9, 0.98), weight_decay=0.01
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(step, stage.steps))
    started = time.perf_counter()
    for step, batch in enumerate(islice(data, stage.steps)):
        output = model(
            input_ids=batch.input_ids,
            position_ids=batch.position_ids,
            output_router_logits=True,
            use_cache=False,
        )
        loss = F.cross_entropy(output.logits.flatten(0, 1), batch.labels.flatten())
        optimizer.zero_grad()
        (loss + AUX_LOSS * output.aux_loss).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 100 == 0 or step == stage.steps - 1:
            elapsed = time.perf_counter() - started
            print(f"step {step} loss {loss.item():.3f} {elapsed:.0f} s", flush=True)


def _rate(step: int, steps: int) -> float:
    warmup = min(1.0, (step + 1) / 50)
    return warmup * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * step / steps)))


def main() -> None:
    """Make the checkpoint folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.manual_seed(arguments.seed)
    torch.set_num_threads(arguments.threads)
    sample = islice(corpus.examples(arguments.seed, 0.5), 4000)
    texts = (f"user\n{e.question}\nassistant\n{e.reply}" for e in sample)
    tokens = tokenizer.build(texts, VOCAB_SIZE)
    model = Qwen3MoeForCausalLM(config(tokens))
    model.set_experts_implementation("grouped_mm")
    for seed, stage in enumerate((SKILL, HABIT), start=arguments.seed + 1):
        train(model, batches(tokens, corpus.examples(seed, stage.worked_share)), stage)
    model.save_pretrained(arguments.out)
    tokens.save_pretrained(arguments.out)


if __name__ == "__main__":
    main()
