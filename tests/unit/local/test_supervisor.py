import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from moera.local.supervisor import Command, Supervisor


def _python(name: str, code: str, **options) -> Command:
    return Command(name, (sys.executable, "-c", code), **options)


async def _until(condition, seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "condition not reached in time"
        await asyncio.sleep(0.02)


async def test_a_killed_child_is_restarted_under_a_new_pid(tmp_path: Path) -> None:
    supervisor = Supervisor(tmp_path, max_restarts=3)
    child = await supervisor.start(_python("sleeper", "import time; time.sleep(60)"))
    first = child.pid
    assert first
    os.kill(first, signal.SIGKILL)
    await _until(lambda: child.pid not in (None, first))
    assert child.restarts == 1
    listed = json.loads((tmp_path / "processes.json").read_text())["sleeper"]
    assert listed == {"pid": child.pid, "state": "running", "restarts": 1}
    await supervisor.stop(2.0)
    assert child.pid is None


async def test_a_child_that_keeps_dying_fails_the_run_with_its_last_line(tmp_path: Path) -> None:
    supervisor = Supervisor(tmp_path, max_restarts=1)
    await supervisor.start(_python("broken", "print('the reason'); raise SystemExit(1)"))
    await asyncio.wait_for(supervisor.finished.wait(), 15)
    assert supervisor.failure is not None
    assert str(supervisor.failure).endswith("the reason")
    assert "after 1 restarts" in str(supervisor.failure)
    await supervisor.stop(1.0)


async def test_a_configuration_error_is_not_retried(tmp_path: Path) -> None:
    supervisor = Supervisor(tmp_path, max_restarts=100)
    child = await supervisor.start(_python("misconfigured", "raise SystemExit(2)"))
    await asyncio.wait_for(supervisor.finished.wait(), 10)
    assert supervisor.failure is not None
    assert child.restarts == 0
    await supervisor.stop(1.0)


async def test_a_child_that_must_finish_ends_the_run_with_exit_code_0(tmp_path: Path) -> None:
    supervisor = Supervisor(tmp_path, max_restarts=0)
    await supervisor.start(_python("worker", "pass", must_finish=True))
    await asyncio.wait_for(supervisor.finished.wait(), 10)
    assert supervisor.failure is None
    await supervisor.stop(1.0)


async def test_a_service_that_exits_with_0_is_restarted(tmp_path: Path) -> None:
    supervisor = Supervisor(tmp_path, max_restarts=5)
    child = await supervisor.start(_python("server", "pass"))
    await _until(lambda: child.restarts >= 1)
    await supervisor.stop(1.0)


async def test_stop_goes_in_order_and_kills_what_ignores_sigterm(tmp_path: Path) -> None:
    order = tmp_path / "order"
    polite = (
        "import signal, sys, time\n"
        f"def stop(*_): open({str(order)!r}, 'a').write(sys.argv[1]); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, stop); print('up', flush=True); time.sleep(60)"
    )
    stubborn = (
        "import signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
    )
    supervisor = Supervisor(tmp_path, max_restarts=0)
    last = Command("last", (sys.executable, "-c", polite, "2"), stop_order=1)
    first = Command("first", (sys.executable, "-c", polite, "1"))
    commands = [last, first, _python("stubborn", stubborn)]
    children = [await supervisor.start(command) for command in commands]
    await _until(lambda: all(child.log.read_text() == "up\n" for child in children))
    began = time.monotonic()
    await supervisor.stop(2.0)
    assert time.monotonic() - began < 5
    assert order.read_text() == "12"
    assert all(child.pid is None for child in children)


def test_children_die_with_a_killed_supervisor(tmp_path: Path) -> None:
    code = f"""
import asyncio, sys
from pathlib import Path
from moera.local.supervisor import Command, Supervisor
async def main():
    supervisor = Supervisor(Path({str(tmp_path)!r}), 0)
    sleep = Command("child", (sys.executable, "-c", "import time; time.sleep(60)"))
    child = await supervisor.start(sleep)
    print(child.pid, flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout
    child = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    end = time.monotonic() + 5
    while time.monotonic() < end and _alive(child):
        time.sleep(0.05)
    assert not _alive(child)


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except FileNotFoundError:
        return False
