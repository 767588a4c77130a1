"""Which sequences run in a step: admission by free blocks, preemption by recompute. No torch.

    waiting --admit--> running --finish/abort--> gone
       ^------ preempt ---'

A preempted sequence keeps its tokens and is prefilled again; its sampling noise depends on
(sample, position) alone, so that the tokens which follow do not change.
"""

from collections import deque
from dataclasses import dataclass, field

from moera.errors import InvalidArgumentError
from moera.wire import Version
from services.rollout.engine import Request
from services.rollout.native.blocks import BlockPool, block_keys


@dataclass
class Sequence:
    """A request on its way through the engine."""

    request: Request
    token_ids: list[int]
    """Prompt and sampled tokens."""
    blocks: list[int] = field(default_factory=list)
    num_cached: int = 0
    """Positions whose keys and values are in the cache."""

    @property
    def num_sampled(self) -> int:
        """Tokens sampled so far."""
        return len(self.token_ids) - len(self.request.prompt)


class Scheduler:
    """Keeps as many sequences running as blocks and batch size allow."""

    def __init__(self, pool: BlockPool, max_running: int, max_prefill_tokens: int) -> None:
        self._pool = pool
        self._max_running = max_running
        self._max_prefill_tokens = max_prefill_tokens
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self.preemptions = 0
        self.prefix_hit_tokens = 0

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence, or refuse one that could never run."""
        request = sequence.request
        longest = len(request.prompt) + request.max_new_tokens
        capacity = self._pool.num_blocks * self._pool.block_size
        if not request.prompt or longest > capacity:
            raise InvalidArgumentError(
                f"{request.request_id}: needs 1 to {capacity} cached tokens, asks for {longest}; "
                "raise rollout.kv_cache_mib or lower the token budget"
            )
        self.waiting.append(sequence)

    def remove(self, sequence: Sequence) -> None:
        """Take a sequence out and free its blocks."""
        if sequence in self.running:
            self.running.remove(sequence)
        else:
            self.waiting.remove(sequence)
        self._pool.release(sequence.blocks)
        sequence.blocks = []

    def schedule(self, version: Version) -> tuple[list[Sequence], list[Sequence]]:
        """Return the sequences to prefill and those to decode in this step, blocks reserved.

        Members of a group are admitted one prefill after the first of them, so that they find
        its blocks in the cache instead of computing the same prompt again.
        """
        for sequence in list(self.running):
            if sequence in self.running:
                self._reserve(sequence)
        decode = list(self.running)
        return self._admit(version), decode

    def _admit(self, version: Version) -> list[Sequence]:
        admitted: list[Sequence] = []
        budget = self._max_prefill_tokens
        starting: set[bytes] = set()
        passed: list[Sequence] = []
        while self.waiting and len(self.running) < self._max_running and budget > 0:
            sequence = self.waiting.popleft()
            keys = block_keys(sequence.token_ids, self._pool.block_size, str(version).encode())
            # The last token is always fed, to have logits to sample from.
            keys = keys[: (len(sequence.token_ids) - 1) // self._pool.block_size]
            shared = self._pool.match(keys)
            if keys and len(shared) < len(keys) and keys[len(shared)] in starting:
                self._pool.release(shared)
                passed.append(sequence)
                continue
            new_blocks = self._blocks_for(len(sequence.token_ids)) - len(shared)
            if new_blocks + len(self.running) > self._pool.num_free:
                self._pool.release(shared)
                self.waiting.appendleft(sequence)
                break
            starting.update(keys[len(shared) :])
            sequence.blocks = shared + [self._pool.allocate() for _ in range(new_blocks)]
            sequence.num_cached = len(shared) * self._pool.block_size
            self.prefix_hit_tokens += sequence.num_cached
            budget -= len(sequence.token_ids) - sequence.num_cached
            self.running.append(sequence)
            admitted.append(sequence)
        self.waiting.extendleft(reversed(passed))
        return admitted

    def _reserve(self, sequence: Sequence) -> None:
        """Make room for the sequence's next position, preempting the newest ones if need be."""
        while self._blocks_for(len(sequence.token_ids)) > len(sequence.blocks):
            if self._pool.num_free:
                sequence.blocks.append(self._pool.allocate())
                continue
            victim = self.running[-1]
            self._preempt(victim)
            if victim is sequence:
                return

    def _preempt(self, sequence: Sequence) -> None:
        self.running.remove(sequence)
        self._pool.release(sequence.blocks)
        sequence.blocks = []
        sequence.num_cached = 0
        self.waiting.appendleft(sequence)
        self.preemptions += 1

    def seal(self, sequence: Sequence, version: Version) -> None:
        """Make the prompt's full blocks findable, once they are computed."""
        size = self._pool.block_size
        keys = block_keys(sequence.request.prompt, size, str(version).encode())
        for block, key in zip(sequence.blocks, keys, strict=False):
            self._pool.seal(block, key)

    def recompute_all(self) -> None:
        """Preempt every running sequence: none of its cached keys and values may be used."""
        for sequence in reversed(list(self.running)):
            self._preempt(sequence)

    def _blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self._pool.block_size)
