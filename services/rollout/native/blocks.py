"""Blocks of the paged KV cache: who holds which, and which can be shared. No torch here.

- A block holds `block_size` consecutive positions of a sequence.
- A full block is known by (weight version, tokens from the start to its end): a sequence with
  the same beginning shares it. Only full blocks are shared, so nobody writes into a shared one.
- A block without holders keeps its content until it is needed: least recently freed goes first.
"""

from collections import OrderedDict
from collections.abc import Sequence

import xxhash

from moera.errors import ResourceExhaustedError


class BlockPool:
    """Reference-counted blocks with a cache of full ones."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self._holders = [0] * num_blocks
        self._free: OrderedDict[int, None] = OrderedDict(
            (block, None) for block in range(num_blocks)
        )
        self._by_key: dict[bytes, int] = {}
        self._key_of: dict[int, bytes] = {}

    @property
    def num_free(self) -> int:
        """Blocks that nobody holds."""
        return len(self._free)

    def allocate(self) -> int:
        """Take a block for writing.

        Raises:
            ResourceExhaustedError: every block is held.
        """
        if not self._free:
            raise ResourceExhaustedError("no free KV block")
        block, _ = self._free.popitem(last=False)
        self._forget(block)
        self._holders[block] = 1
        return block

    def release(self, blocks: Sequence[int]) -> None:
        """Give blocks back; their content stays reusable until they are taken."""
        # Reversed, so that the end of a sequence is taken before its more reusable beginning.
        for block in reversed(blocks):
            self._holders[block] -= 1
            if self._holders[block] == 0:
                self._free[block] = None

    def match(self, keys: Sequence[bytes]) -> list[int]:
        """Take hold of the longest run of cached blocks with these keys."""
        found = []
        for key in keys:
            block = self._by_key.get(key)
            if block is None:
                break
            if self._holders[block] == 0:
                del self._free[block]
            self._holders[block] += 1
            found.append(block)
        return found

    def seal(self, block: int, key: bytes) -> None:
        """Make a full block findable; the first one with a key wins."""
        if key not in self._by_key and block not in self._key_of:
            self._by_key[key] = block
            self._key_of[block] = key

    def forget_all(self) -> None:
        """Drop the cache: the weights changed and no block may be shared any more."""
        self._by_key.clear()
        self._key_of.clear()

    def _forget(self, block: int) -> None:
        key = self._key_of.pop(block, None)
        if key is not None:
            del self._by_key[key]


def block_keys(token_ids: Sequence[int], block_size: int, salt: bytes) -> list[bytes]:
    """Return a key for each full block of a sequence: a hash chain from its first token.

    Args:
        salt: the weight version, so that keys of different weights never meet.
    """
    keys = []
    key = salt
    for start in range(0, len(token_ids) - block_size + 1, block_size):
        chunk = b"".join(
            int(token).to_bytes(4, "little") for token in token_ids[start : start + block_size]
        )
        key = xxhash.xxh3_128_digest(key + chunk)
        keys.append(key)
    return keys
