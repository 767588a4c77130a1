"""The quickstart's tokenizer: byte-level, digits apart, the families' phrases as single tokens."""

from collections.abc import Iterable

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
PAD_ID, END_ID = 0, 2
"""Special tokens are numbered first, in the order above."""

CHAT_TEMPLATE = """\
{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def build(texts: Iterable[str], vocab_size: int) -> PreTrainedTokenizerFast:
    """Train the tokenizer on texts; every other text still encodes, byte by byte.

    Args:
        vocab_size: entries in all, the 256 bytes and 3 special tokens included.
    """
    inner = Tokenizer(models.BPE())
    # Phrases may become one token, which makes the questions short. Digits and signs never join,
    # so that equal numbers have equal tokens.
    split = pre_tokenizers.Split(Regex(r" ?\p{L}+( \p{L}+)*| ?[^\p{L}\s]|\s"), behavior="isolated")
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[PAD, START, END],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    inner.train_from_iterator(texts, trainer)
    made = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token=END, pad_token=PAD)
    made.chat_template = CHAT_TEMPLATE
    return made
