"""TCP ports of this machine."""

import socket


def free_ports(count: int) -> list[int]:
    """Return ports nobody listens on; all are held until all are chosen, so they differ."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
