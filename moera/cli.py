"""The `moera` command.

Every subcommand imports what it needs when it runs, so that --help answers at once.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from moera.errors import MoeraError

_EXAMPLES = """\
examples:
  moera train examples/quickstart.toml --learner.num_steps 10
  moera train --resume quickstart-20260101-120000
  moera report quickstart-20260101-120000
  moera env serve my_package.my_env:MyEnv --listen 127.0.0.1:7200
  moera generate --server 127.0.0.1:7104 "Spell this word backward: moera"
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code (2 for wrong input or configuration)."""
    # Every fork of ours is followed by an exec: gRPC need not prepare, nor say so, for others.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    arguments, rest = _parser().parse_known_args(argv)
    if rest and not getattr(arguments, "takes_flags", False):
        print(f"moera: unknown argument {rest[0]}", file=sys.stderr)
        return 2
    try:
        return arguments.run(arguments, rest) or 0
    except MoeraError as error:
        print(f"moera: {error}", file=sys.stderr)
        return 2 if isinstance(error, ValueError) else 1
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="moera",
        description="Trains Mixture-of-Experts language models with reinforcement learning.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    train = _command(commands, "train", _train, "train a policy with all services as processes")
    train.add_argument("config", nargs="?", type=Path, help="run file (TOML)")
    train.add_argument("--resume", metavar="RUN", help="go on with an earlier run")
    train.add_argument("--attach", action="store_true", help="watch an existing deployment")
    train.add_argument("--runs", type=Path, default=Path("runs"), help="folder of the runs")
    train.add_argument("--dry-run", action="store_true", help="check the configuration only")
    train.set_defaults(takes_flags=True)

    _env_commands(commands)

    generate = _command(commands, "generate", _generate, "sample from a rollout server")
    generate.add_argument("prompt")
    generate.add_argument("--server", required=True, metavar="HOST:PORT")
    generate.add_argument("--temperature", type=float, default=1.0)
    generate.add_argument("--max-tokens", type=int, default=128)
    generate.add_argument("--seed", type=int, default=0)
    generate.add_argument("--raw", action="store_true", help="no chat template")

    status = _command(commands, "status", _status, "show the services of a run")
    status.add_argument("target", metavar="RUN", help="a run's id or folder, or a run file")

    for name, run, what in (
        ("report", _report, "write a page with the curves of a run"),
        ("trace", _trace, "write a page with one step as a waterfall"),
        ("samples", _samples, "print conversations of a run"),
    ):
        command = _command(commands, name, run, what)
        command.add_argument("target", metavar="RUN", help="a run's id or folder")
        if name != "samples":
            command.add_argument("--out", type=Path, help=f"default: {name}.html in the run")
        if name != "report":
            command.add_argument("--step", type=int, help="step to show; default: the last one")
        if name == "samples":
            command.add_argument("-n", type=int, default=4, help="conversations to print")
    return parser


def _env_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    env = commands.add_parser("env", help="serve or check environments")
    actions = env.add_subparsers(required=True, metavar="ACTION")
    for name, run, what in (
        ("serve", _env_serve, "serve package.module:Class over gRPC"),
        ("check", _env_check, "try the contract on a running server"),
    ):
        action = actions.add_parser(name, help=what, add_help=False)
        action.set_defaults(run=run, takes_flags=True)


def _command(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    run: Callable[[argparse.Namespace, list[str]], int | None],
    what: str,
) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=what, description=what)
    parser.set_defaults(run=run)
    return parser


def _train(arguments: argparse.Namespace, flags: list[str]) -> int | None:
    from rich.console import Console

    from moera import config
    from moera.local import train

    if bool(arguments.config) == bool(arguments.resume):
        print("moera train: give a run file or --resume RUN", file=sys.stderr)
        return 2
    console = Console()
    if arguments.attach:
        run = config.load_files(config.run_config_model(), [arguments.config], flags)
        asyncio.run(train.attach(run, console))
        return 0
    if arguments.resume:
        run = train.old_run(arguments.resume, arguments.runs, flags)
    else:
        run = train.new_run(arguments.config, flags)
    if arguments.dry_run:
        console.print_json(run.model_dump_json())
        return 0
    config.write(run, run.run.path / "config.toml")
    try:
        asyncio.run(train.run_locally(run, console))
    except KeyboardInterrupt:
        console.print(f"stopped; go on with: moera train --resume {run.run.id}", soft_wrap=True)
        return 130
    train.write_pages(run.run.path, console)
    return 0


def _env_serve(_arguments: argparse.Namespace, rest: list[str]) -> int:
    from moera.env.server import serve_command

    return serve_command(rest)


def _env_check(_arguments: argparse.Namespace, rest: list[str]) -> int:
    from moera.env.compliance import check_command

    return check_command(rest)


def _generate(arguments: argparse.Namespace, _rest: list[str]) -> None:
    from moera.local.operate import generate

    asyncio.run(generate(arguments))


def _status(arguments: argparse.Namespace, _rest: list[str]) -> None:
    from moera.local.operate import status

    asyncio.run(status(arguments.target))


def _report(arguments: argparse.Namespace, _rest: list[str]) -> None:
    from moera.local.operate import run_folder
    from moera.report.curves import write_report

    run = run_folder(arguments.target)
    out = arguments.out or run / "report.html"
    write_report(run, out)
    print(out)


def _trace(arguments: argparse.Namespace, _rest: list[str]) -> None:
    from moera.local.operate import run_folder
    from moera.report.waterfall import write_trace

    run = run_folder(arguments.target)
    out = arguments.out or run / "trace.html"
    write_trace(run, out, arguments.step)
    print(out)


def _samples(arguments: argparse.Namespace, _rest: list[str]) -> None:
    from rich.console import Console

    from moera.local.operate import run_folder
    from moera.report.samples import print_samples

    run = run_folder(arguments.target)
    print_samples(run, Console(), step=arguments.step, count=arguments.n)


if __name__ == "__main__":
    sys.exit(main())
