"""A multi-turn tool environment: arithmetic with a calculator."""

import ast
import json
import operator
import random
from collections.abc import Sequence

from moera.env import Environment, StepResult
from moera.v1 import common_pb2, envs_pb2
from moera.wire import text_message

_OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}
_MAX_EXPRESSION = 200
_SIZE = 1_000


def evaluate(expression: str) -> int:
    """Evaluate integers with + - * and brackets.

    Raises:
        ValueError: anything else is in the expression.
    """
    if len(expression) > _MAX_EXPRESSION:
        raise ValueError(f"an expression has at most {_MAX_EXPRESSION} characters")
    try:
        return _value(ast.parse(expression.strip(), mode="eval").body)
    except SyntaxError:
        raise ValueError(f"{expression!r} is not arithmetic") from None


def _value(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_value(node.left), _value(node.right))
    raise ValueError("only integers, + - * and brackets")


class Calculator(Environment):
    """Compute (a + b) * c; the calculator may be called before the final answer."""

    max_turns = 6
    tools = (
        common_pb2.ToolSpec(
            name="calculator",
            description="Evaluates an arithmetic expression.",
            parameters_json=json.dumps(
                {
                    "type": "object",
                    "properties": {"expression": {"type": "string"}},
                    "required": ["expression"],
                }
            ),
        ),
    )

    def __init__(self, digits: int = 2) -> None:
        self._digits = digits
        self._answer = 0
        self._calls = 0
        self._turns = 0

    def tasks(self, split: str) -> Sequence[str]:
        """Return even numbers for training and odd ones for evaluation."""
        return [str(n) for n in range(_SIZE) if n % 2 == (split == "eval")]

    def reset(self, task: common_pb2.Task) -> str:
        """Pose the problem of the task's number."""
        noise = random.Random(int(task.task_id))
        a, b, c = (noise.randrange(10**self._digits) for _ in range(3))
        self._answer = (a + b) * c
        return f"What is ({a} + {b}) * {c}? Reply with the number."

    def step(self, text: str, action: envs_pb2.Action) -> StepResult:
        """Answer tool calls, or score the final answer."""
        calls = action.message.tool_calls
        self._turns += 1
        # The last turn must be the answer: a call in it is a wrong one.
        if calls and not action.length_limited and self._turns < self.max_turns:
            self._calls += len(calls)
            return StepResult(
                messages=[_tool_result(call) for call in calls],
                metrics={"tool_calls": float(self._calls)},
            )
        return StepResult(
            reward=float(text.strip() == str(self._answer)),
            terminated=True,
            metrics={"tool_calls": float(self._calls)},
        )


def _tool_result(call: common_pb2.ToolCall) -> common_pb2.Message:
    try:
        if call.name != "calculator":
            raise ValueError(f"there is no tool {call.name!r}")
        arguments = json.loads(call.arguments_json)
        if not isinstance(arguments, dict) or not isinstance(arguments.get("expression"), str):
            raise ValueError('arguments look like {"expression": "1 + 2"}')
        text = str(evaluate(arguments["expression"]))
    except ValueError as error:
        text = f"error: {error}"
    message = text_message(common_pb2.ROLE_TOOL, text)
    message.tool_call_id = call.id
    return message
