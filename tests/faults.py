"""A TCP proxy in front of a Redis that loses, repeats and delays what passes."""

import asyncio
import threading
from collections import deque
from typing import Literal

Fault = Literal["cut", "drop", "duplicate", "delay"]
"""cut: the request never arrives. drop: it arrives, its reply does not. duplicate: it arrives
twice, the second time over another connection. delay: it arrives late."""

_DELAY_S = 0.02


class FaultProxy:
    """Forwards to a Redis on this machine, on a thread of its own.

    Faults are armed one by one; each strikes one request. `requests` counts all requests.
    """

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._faults: deque[Fault] = deque()
        self._at: dict[int, Fault] = {}
        self.requests = 0
        self.struck = 0
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._started.wait(5)

    @property
    def url(self) -> str:
        """URL that clients use."""
        return f"redis://127.0.0.1:{self.port}/0"

    def arm(self, fault: Fault) -> None:
        """Strike the next request that has no fault yet."""
        self._faults.append(fault)

    def arm_at(self, number: int, fault: Fault) -> None:
        """Strike a request by its number, counted from 1."""
        self._at[number] = fault

    def disarm(self) -> None:
        """Forget every fault that has not struck yet."""
        self._faults.clear()
        self._at.clear()

    def stop(self) -> None:
        """Close everything."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(
            asyncio.start_server(self._serve, "127.0.0.1", 0, limit=2**24)
        )
        self.port = server.sockets[0].getsockname()[1]
        self._started.set()
        self._loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream = await asyncio.open_connection("127.0.0.1", self._target_port)
        link = _Link(self, (reader, writer), upstream, self._target_port)
        pumps = [asyncio.create_task(each()) for each in (link.requests, link.replies)]
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
        upstream[1].close()
        writer.close()

    def next_fault(self) -> Fault | None:
        """Count a request and return what strikes it."""
        self.requests += 1
        fault = self._at.pop(self.requests, None) or (
            self._faults.popleft() if self._faults else None
        )
        self.struck += fault is not None
        return fault


Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Link:
    """One client's connection. A request begins when nothing is owed to the client."""

    def __init__(
        self, proxy: FaultProxy, client: Connection, upstream: Connection, target_port: int
    ) -> None:
        self._proxy = proxy
        self._client = client
        self._upstream = upstream
        self._target_port = target_port
        self._owed = False
        self._fault: Fault | None = None
        self._again: Connection | None = None

    async def requests(self) -> None:
        """Forward what the client asks; ends when the connection must be cut."""
        while data := await self._client[0].read(2**16):
            if not self._owed:
                self._owed = True
                self._fault = self._proxy.next_fault()
                if self._fault == "cut":
                    return
                if self._fault == "delay":
                    await asyncio.sleep(_DELAY_S)
                if self._fault == "duplicate":
                    self._again = await asyncio.open_connection("127.0.0.1", self._target_port)
            if self._again:
                self._again[1].write(data)
                await self._again[1].drain()
            self._upstream[1].write(data)
            await self._upstream[1].drain()

    async def replies(self) -> None:
        """Forward what Redis answers, unless it is lost on the way."""
        while data := await self._upstream[0].read(2**16):
            if self._again:
                await self._again[0].read(2**16)
                self._again[1].close()
                self._again = None
            if self._fault == "drop":
                return
            self._owed, self._fault = False, None
            self._client[1].write(data)
            await self._client[1].drain()
