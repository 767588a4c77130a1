"""How small and how fast are weight deltas? `python -m bench.weights`.

Deltas of real AdamW steps (fp32 master weights, published as bfloat16) of two policies: the
quickstart's, and a randomly initialised Qwen3-MoE of over 300 million parameters at three learning
rates. Every codec sees the same arrays on one core, tensor by tensor, and must give them back bit
by bit. Rates are in GB of published weights each second, sizes in percent of those weights;
medians of three rounds.
"""

import argparse
import statistics
import time
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
import zstandard
from transformers import PreTrainedModel, Qwen3MoeConfig, Qwen3MoeForCausalLM

from bench import machine
from moera.models.policy import load_policy
from moera.weights import codec

Pairs = list[tuple[np.ndarray, np.ndarray]]
"""Old and new bits of each tensor."""

_ROWS, _TOKENS, _WARM_UP = 2, 64, 3
_ROUNDS = 3


@dataclass(frozen=True)
class Codec:
    """A way to encode `new`, given `old`, and to get it back."""

    name: str
    encode: Callable[[np.ndarray, np.ndarray], bytes]
    decode: Callable[[bytes, np.ndarray], np.ndarray]


def _moera_encode(old: np.ndarray, new: np.ndarray) -> bytes:
    return codec.encode_delta(codec.changes(old, new))


def _xor_encode(old: np.ndarray, new: np.ndarray) -> bytes:
    return zstandard.ZstdCompressor(level=1).compress((old ^ new).tobytes())


def _xor_decode(data: bytes, old: np.ndarray) -> np.ndarray:
    return old ^ np.frombuffer(zstandard.ZstdDecompressor().decompress(data), old.dtype)


def _pairs_encode(old: np.ndarray, new: np.ndarray) -> bytes:
    index = np.flatnonzero(old != new).astype("<i4")
    raw = len(index).to_bytes(8, "little") + index.tobytes() + new[index].tobytes()
    return zstandard.ZstdCompressor(level=1).compress(raw)


def _pairs_decode(data: bytes, old: np.ndarray) -> np.ndarray:
    raw = zstandard.ZstdDecompressor().decompress(data)
    count = int.from_bytes(raw[:8], "little")
    new = old.copy()
    index = np.frombuffer(raw[8 : 8 + 4 * count], "<i4")
    new[index] = np.frombuffer(raw[8 + 4 * count :], old.dtype)
    return new


CODECS = [
    Codec("gaps and differences (moera)", _moera_encode, codec.decode_delta),
    Codec("dense XOR, zstd 1", _xor_encode, _xor_decode),
    Codec("int32 index and value, zstd 1", _pairs_encode, _pairs_decode),
    Codec(
        "full, byte planes, zstd 1",
        lambda _old, new: codec.encode_full(new),
        lambda data, old: codec.decode_full(data, len(old), old.dtype.itemsize),
    ),
]


def large_model() -> PreTrainedModel:
    """Return a random Qwen3-MoE of over 300 million parameters."""
    torch.manual_seed(0)
    config = Qwen3MoeConfig(
        vocab_size=16_384,
        hidden_size=768,
        moe_intermediate_size=384,
        num_hidden_layers=10,
        num_attention_heads=12,
        num_key_value_heads=4,
        num_experts=32,
        num_experts_per_tok=4,
        tie_word_embeddings=True,
    )
    return Qwen3MoeForCausalLM(config)


def updates(model: PreTrainedModel, lr: float) -> Iterator[Pairs]:
    """Yield the published bits around one AdamW step, after a few others."""
    model.set_experts_implementation("grouped_mm")
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.0)
    noise = torch.Generator().manual_seed(1)
    before: list[np.ndarray] = []
    for step in range(_WARM_UP + 1):
        tokens = torch.randint(0, model.config.vocab_size, (_ROWS, _TOKENS), generator=noise)
        model(input_ids=tokens, labels=tokens, use_cache=False).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if step == _WARM_UP:
            before = _published(model)
        optimizer.step()
        optimizer.zero_grad()
    yield list(zip(before, _published(model), strict=True))


def _published(model: PreTrainedModel) -> list[np.ndarray]:
    return [
        parameter.detach().to(torch.bfloat16).view(torch.uint16).numpy().reshape(-1).copy()
        for parameter in model.parameters()
    ]


def measure(made: Codec, pairs: Pairs) -> tuple[int, float, float, int]:
    """Return bytes, encoding and decoding seconds, and the peak of extra memory in bytes."""
    began = time.perf_counter()
    encoded = [made.encode(old, new) for old, new in pairs]
    middle = time.perf_counter()
    decoded = [made.decode(data, old) for data, (old, _) in zip(encoded, pairs, strict=True)]
    end = time.perf_counter()
    for array, (_, new) in zip(decoded, pairs, strict=True):
        np.testing.assert_array_equal(array, new)
    largest = max(pairs, key=lambda pair: len(pair[0]))
    tracemalloc.start()
    made.decode(made.encode(*largest), largest[0])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return sum(map(len, encoded)), middle - began, end - middle, peak


def report(name: str, pairs: Pairs) -> None:
    """Print a table for one update."""
    total = sum(new.nbytes for _, new in pairs)
    changed = sum(int((old != new).sum()) for old, new in pairs) / sum(len(n) for _, n in pairs)
    print(f"\n{name}: {total / 2e6:.0f} M parameters, {changed:.2%} changed\n")
    print("| codec | % of bytes | times moera's | encode GB/s | decode GB/s | peak MB, largest |")
    print("|---|---|---|---|---|---|")
    # All codecs in each round, so that a slow moment of the machine strikes them all.
    rounds = [[measure(made, pairs) for made in CODECS] for _ in range(_ROUNDS)]
    sizes = [size for size, *_ in rounds[0]]
    medians = [
        [statistics.median(each[number][column] for each in rounds) for column in (1, 2, 3)]
        for number in range(len(CODECS))
    ]
    for made, size, (encode_s, decode_s, peak) in zip(CODECS, sizes, medians, strict=True):
        print(
            f"| {made.name} | {100 * size / total:.2f} | {size / sizes[0]:.2f} | "
            f"{total / encode_s / 1e9:.2f} | {total / decode_s / 1e9:.2f} | {peak / 1e6:.0f} |",
            flush=True,
        )
    ours, xor = medians[0], medians[1]
    print(
        f"\nagainst XOR: {sizes[0] / sizes[1]:.2f} of the bytes, encodes "
        f"{xor[0] / ours[0]:.2f} and decodes {xor[1] / ours[1]:.2f} times as fast",
        flush=True,
    )


def main() -> None:
    """Measure all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only-small", action="store_true", help="leave out the large model")
    arguments = parser.parse_args()
    print(f"Machine: {machine.describe()}; one core for the codecs")
    for lr in (1e-6, 3e-6, 1e-5, 1e-4):
        small = load_policy("examples/quickstart/model", "float32")
        for pairs in updates(small, lr):
            report(f"quickstart, lr {lr:g}", pairs)
    for lr in () if arguments.only_small else (1e-6, 3e-6, 1e-5):
        for pairs in updates(large_model(), lr):
            report(f"random Qwen3-MoE, lr {lr:g}", pairs)


if __name__ == "__main__":
    main()
