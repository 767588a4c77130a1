import pytest

from moera.errors import InvalidArgumentError
from moera.v1 import common_pb2
from moera.wire import message_text, text_message
from services.rollout.chat import Chat
from tests import tiny

USER, ASSISTANT, TOOL = common_pb2.ROLE_USER, common_pb2.ROLE_ASSISTANT, common_pb2.ROLE_TOOL
END = 2

# Drops the reasoning of every turn but the last one, as Qwen3's template does.
FORGETFUL = """\
{% for message in messages %}<|im_start|>{{ message.role }}
{% if message.reasoning_content and loop.last %}<think>{{ message.reasoning_content }}</think>\
{% endif %}{{ message.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def chat(template: str = "") -> Chat:
    tokenizer = tiny.tokenizer()
    if template:
        tokenizer.chat_template = template
    return Chat(tokenizer, frozenset([END]))


def text(made: Chat, tokens: list[int] | None) -> str:
    assert tokens is not None
    return made._tokenizer.decode(tokens)


def test_only_what_follows_the_policys_turn_is_appended() -> None:
    made = chat()
    messages = [text_message(USER, "hi"), text_message(ASSISTANT, "yes"), text_message(USER, "go")]
    stopped = made.continuation(messages, [], 1, last_token=END)
    cut = made.continuation(messages, [], 1, last_token=made.encode("s")[0])
    assert text(made, stopped) == "\n<|im_start|>user\ngo<|im_end|>\n<|im_start|>assistant\n"
    # A turn that ran out of budget is closed by the template's own end.
    assert text(made, cut) == "<|im_end|>" + text(made, stopped)
    prompt = made.prompt(messages[:1], [])
    assert prompt + made.encode("yes") + cut == made.prompt(messages, [])


def test_a_template_that_rewrites_what_was_said_starts_a_new_sequence() -> None:
    made = chat(FORGETFUL)
    said = text_message(ASSISTANT, "yes")
    messages = [text_message(USER, "hi"), said, text_message(USER, "go")]
    assert made.continuation(messages, [], 1, last_token=END) is not None
    said.reasoning = "let me see"
    assert made.continuation(messages, [], 1, last_token=END) is None


@pytest.mark.parametrize(
    ("said", "content", "reasoning", "calls"),
    [
        ("plain words", "plain words", "", []),
        ("<think>hm</think>\n\nfour", "four", "hm", []),
        ("hm</think>four", "four", "hm", []),
        (
            'now <tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>',
            "now ",
            "",
            [("add", '{"a": 1}')],
        ),
        ('<tool_call>{"name": "add", "arguments": "{bad"}</tool_call>', "", "", [("add", "{bad")]),
        ('<tool_call>{"name": 3}</tool_call>', '<tool_call>{"name": 3}</tool_call>', "", []),
        ("<tool_call>{broken</tool_call>", "<tool_call>{broken</tool_call>", "", []),
        ('<tool_call>{"name": "add"', '<tool_call>{"name": "add"', "", []),
    ],
)
def test_what_the_policy_said_is_parsed_and_nothing_is_lost(
    said: str, content: str, reasoning: str, calls: list[tuple[str, str]]
) -> None:
    made = chat()
    message = made.parse([*made.encode(said), END])
    assert message_text(message) == content
    assert message.reasoning == reasoning
    assert [(call.name, call.arguments_json) for call in message.tool_calls] == calls


def test_messages_that_cannot_be_shown_are_refused_with_their_reason() -> None:
    made = chat()
    image = common_pb2.Message(role=USER)
    image.content.add().image.data = b"png"
    with pytest.raises(InvalidArgumentError, match="has no vision"):
        made.prompt([image], [])
    with pytest.raises(InvalidArgumentError, match="unknown role number 0"):
        made.prompt([common_pb2.Message()], [])
    strict = chat("{{ raise_exception('no system messages') }}")
    with pytest.raises(InvalidArgumentError, match="template refuses the messages: no system"):
        strict.prompt([text_message(USER, "hi")], [])
    tool = common_pb2.ToolSpec(name="add", parameters_json="{nonsense")
    with pytest.raises(InvalidArgumentError, match="parameters_json is not JSON"):
        made.prompt([text_message(USER, "hi")], [tool])
