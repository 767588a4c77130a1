"""The quickstart's base checkpoint and the corpus that it was made from."""

import hashlib
from itertools import islice
from pathlib import Path

import pytest
import reasoning_gym

from examples.quickstart import corpus
from moera.models.policy import load_config, load_policy, load_tokenizer, num_experts

MODEL = Path(__file__).parents[3] / "examples" / "quickstart" / "model"


def _score(family: str, entry: dict, reply: str) -> float:
    dataset = reasoning_gym.create_dataset(family, seed=0, size=1, **corpus.FAMILIES[family])
    return dataset.score_answer(reply.rsplit("Answer:", maxsplit=1)[-1].strip(), entry)


def _digest(question: str) -> int:
    return int(hashlib.sha256(question.encode("utf-8")).hexdigest(), 16) % 10


def test_the_folder_is_small_enough_to_commit():
    assert sum(file.stat().st_size for file in MODEL.iterdir()) < 20 * 2**20


def test_the_model_is_a_real_mixture_of_experts():
    model = load_policy(str(MODEL), "float32")
    assert 2e6 < sum(parameter.numel() for parameter in model.parameters()) < 10e6
    assert (num_experts(model.config) or 0) >= 8
    assert model.config.num_experts_per_tok == 2
    sparse = [layer for layer in model.model.layers if hasattr(layer.mlp, "experts")]
    assert len(sparse) >= 3


def test_the_template_is_chatml_and_ends_where_the_policy_writes():
    tokens = load_tokenizer(str(MODEL))
    text = tokens.apply_chat_template(
        [{"role": "user", "content": "1 + 2 ="}], add_generation_prompt=True, tokenize=False
    )
    assert text == "<|im_start|>user\n1 + 2 =<|im_end|>\n<|im_start|>assistant\n"
    assert tokens.convert_ids_to_tokens(tokens.eos_token_id) == "<|im_end|>"
    assert load_config(str(MODEL)).eos_token_id == tokens.eos_token_id


@pytest.mark.parametrize("text", ["-12 + 345", "zebra\n\n  Straße ∑", "3 woodlouses, 1 leech?"])
def test_any_text_survives_the_tokenizer(text):
    tokens = load_tokenizer(str(MODEL))
    assert tokens.decode(tokens.encode(text, add_special_tokens=False)) == text


def test_the_corpus_holds_no_training_or_evaluation_question():
    examples = islice(corpus.examples(0, 0.5), 4000)
    assert all(_digest(example.question) >= 4 for example in examples)


@pytest.mark.parametrize("family", corpus.FAMILIES)
@pytest.mark.parametrize(
    ("wanted", "digits"), [("eval", {0}), ("train", {1, 2, 3}), ("pretrain", {4, 5, 6, 7, 8, 9})]
)
def test_buckets_follow_the_hash_of_the_question(family, wanted, digits):
    found = {_digest(task["question"]) for task in islice(corpus.tasks(family, wanted, 5), 200)}
    assert found == digits


@pytest.mark.parametrize("family", corpus.FAMILIES)
@pytest.mark.parametrize("reply", [corpus.direct, corpus.worked])
def test_taught_replies_are_right_by_the_familys_own_scorer(family, reply):
    for entry in islice(corpus.tasks(family, "pretrain", 3), 500):
        assert _score(family, entry, reply(entry)) == 1.0


@pytest.mark.parametrize(
    ("family", "parts"), [("chain_sum", "num_terms"), ("leg_counting", "num_animals")]
)
def test_a_worked_reply_has_a_line_for_each_part_and_stays_short(family, parts):
    tokens = load_tokenizer(str(MODEL))
    for entry in islice(corpus.tasks(family, "pretrain", 4), 300):
        *steps, answer = corpus.worked(entry).split("\n")
        assert len(steps) == entry["metadata"][parts]
        assert answer == f"Answer: {entry['answer']}"
        assert len(tokens.encode(corpus.worked(entry), add_special_tokens=False)) < 64


@pytest.mark.parametrize("share", [0.2, 0.8])
def test_the_worked_share_is_followed(share):
    examples = list(islice(corpus.examples(1, share), 3000))
    worked = sum("\n" in example.reply for example in examples)
    assert worked / 3000 == pytest.approx(share, abs=0.03)
