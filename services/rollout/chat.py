"""Between chat messages and tokens. Text that the policy sampled is never tokenised again.

    turn 1   render(messages) -> prompt tokens, then sampled tokens
    turn k   the tokens so far + only what the template puts after the policy's turn

If the template changes what it rendered before (it drops earlier reasoning, say), the tokens so
far are no beginning of the new conversation: a new sequence starts.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

from jinja2.exceptions import TemplateError

from moera.errors import InvalidArgumentError
from moera.v1 import common_pb2
from moera.wire import message_text, text_message

_ROLES = {
    common_pb2.ROLE_SYSTEM: "system",
    common_pb2.ROLE_USER: "user",
    common_pb2.ROLE_ASSISTANT: "assistant",
    common_pb2.ROLE_TOOL: "tool",
}
_SENTINEL = "\ue000moera\ue001"  # private-use characters: no template and no user writes them
_TOOL_CALL = re.compile(r"<tool_call>\s*(.*?)\s*</tool_call>", re.DOTALL)

Messages = Sequence[common_pb2.Message]
Tools = Sequence[common_pb2.ToolSpec]


class Chat:
    """Renders and parses with one model's tokenizer and template."""

    def __init__(self, tokenizer: Any, stop_token_ids: frozenset[int]) -> None:
        self._tokenizer = tokenizer
        self.stop_token_ids = stop_token_ids

    def prompt(self, messages: Messages, tools: Tools) -> list[int]:
        """Return the tokens of a conversation, ending where the policy speaks next.

        Raises:
            InvalidArgumentError: the template refuses the messages, or one has an image.
        """
        return self.encode(self._render([_as_dict(message) for message in messages], tools))

    def continuation(
        self, messages: Messages, tools: Tools, position: int, last_token: int
    ) -> list[int] | None:
        """Return the tokens between the policy's last turn and its next one.

        Args:
            messages: the whole conversation; `messages[position]` is the policy's last turn and
                what follows is new.
            last_token: last token of the policy's turn.

        Returns:
            Tokens to append, or None if the template changed what it rendered before.
        """
        dicts = [_as_dict(message) for message in messages]
        before = self._render(dicts[:position], tools)
        whole = self._render(dicts, tools)
        reasoning = messages[position].reasoning
        if not whole.startswith(before) or reasoning not in whole[len(before) :]:
            return None
        # With a mark instead of the turn's text, what follows the mark is what must be appended.
        dicts[position] = {"role": "assistant", "content": _SENTINEL}
        try:
            head, found, tail = self._render(dicts, tools).rpartition(_SENTINEL)
        except InvalidArgumentError:  # such as a tool's answer that needs its call before it
            return None
        if not found or not head.startswith(before):
            return None
        tokens = self.encode(tail)
        return tokens[1:] if tokens[:1] == [last_token] else tokens

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text as it is."""
        return self._tokenizer.encode(text, add_special_tokens=False)

    def text(self, token_ids: Sequence[int]) -> str:
        """Return the text of tokens, special ones left out."""
        return self._tokenizer.decode(list(token_ids), skip_special_tokens=True)

    def parse(self, token_ids: Sequence[int]) -> common_pb2.Message:
        """Return the message that the policy's tokens are.

        Reasoning ends at "</think>"; tool calls are JSON in <tool_call> tags (the form of Hermes
        and Qwen). A call that is no such JSON stays text, for the environment to answer.
        """
        ids = list(token_ids)
        if ids and ids[-1] in self.stop_token_ids:
            ids.pop()
        # Tags may be special tokens of the tokenizer, so none is left out here.
        text = self._tokenizer.decode(ids, skip_special_tokens=False)
        reasoning, thought, rest = text.partition("</think>")
        if thought:
            reasoning = reasoning.partition("<think>")[2] or reasoning
        content = rest if thought else text
        calls = [_call(index, match) for index, match in enumerate(_TOOL_CALL.finditer(content))]
        found = [call for call in calls if call is not None]
        if found:
            content = _TOOL_CALL.sub("", content)
        message = text_message(common_pb2.ROLE_ASSISTANT, content.strip() if thought else content)
        message.reasoning = reasoning.strip() if thought else ""
        message.tool_calls.extend(found)
        return message

    def _render(self, messages: list[dict[str, Any]], tools: Tools) -> str:
        try:
            return str(
                self._tokenizer.apply_chat_template(
                    messages,
                    tools=[_tool(tool) for tool in tools] or None,
                    add_generation_prompt=True,
                    tokenize=False,
                )
            )
        except TemplateError as error:
            raise InvalidArgumentError(f"the chat template refuses the messages: {error}") from None


def _call(index: int, match: re.Match[str]) -> common_pb2.ToolCall | None:
    try:
        written = json.loads(match[1])
    except json.JSONDecodeError:
        return None
    if not isinstance(written, dict) or not isinstance(written.get("name"), str):
        return None
    arguments = written.get("arguments", {})
    as_json = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return common_pb2.ToolCall(id=f"call-{index}", name=written["name"], arguments_json=as_json)


def _as_dict(message: common_pb2.Message) -> dict[str, Any]:
    if message.role not in _ROLES:
        raise InvalidArgumentError(f"a message has unknown role number {message.role}")
    if any(part.WhichOneof("part") == "image" for part in message.content):
        raise InvalidArgumentError("a message has an image, and this policy has no vision")
    shown: dict[str, Any] = {"role": _ROLES[message.role], "content": message_text(message)}
    if message.reasoning:
        shown["reasoning_content"] = message.reasoning
    if message.tool_calls:
        shown["tool_calls"] = [
            {
                "type": "function",
                "id": call.id,
                "function": {"name": call.name, "arguments": _arguments(call)},
            }
            for call in message.tool_calls
        ]
    if message.tool_call_id:
        shown["tool_call_id"] = message.tool_call_id
    if message.name:
        shown["name"] = message.name
    return shown


def _arguments(call: common_pb2.ToolCall) -> Any:
    try:
        return json.loads(call.arguments_json or "{}")
    except json.JSONDecodeError:
        return call.arguments_json


def _tool(tool: common_pb2.ToolSpec) -> dict[str, Any]:
    function: dict[str, Any] = {"name": tool.name, "description": tool.description}
    try:
        function["parameters"] = json.loads(tool.parameters_json or "{}")
    except json.JSONDecodeError:
        raise InvalidArgumentError(f"tool {tool.name!r}: parameters_json is not JSON") from None
    return {"type": "function", "function": function}
