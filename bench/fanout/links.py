"""The network: each node has a link in both directions, and the flows on a link share it.

The flows from one node to another have the same rate, so a stream of them keeps one sum: the
bytes that each flow has got. A flow is over when the sum has grown by its size, and a change of
rate touches the stream and not the flows.
"""

from collections.abc import Collection
from heapq import heappop, heappush
from operator import itemgetter

from bench.fanout.clock import Clock, Event


class Node:
    """What sends and receives, in bytes per second."""

    def __init__(self, up: float, down: float) -> None:
        self.up, self.down = up, down
        self.sent = 0.0
        self.outgoing: dict[Node, _Stream] = {}
        self.incoming: dict[Node, _Stream] = {}


class _Stream:
    """The flows from one node to another, while there are any."""

    __slots__ = ("at", "flows", "got", "planned", "rate", "source", "target")

    def __init__(self, source: Node, target: Node) -> None:
        self.source, self.target = source, target
        self.flows: list[tuple[float, int, float, Event]] = []
        """When each is over, in the sum that is counted; order; size; event."""
        self.got = self.rate = self.at = 0.0
        """The sum, bytes per second of each flow, and the time of the sum."""
        self.planned = 0
        """The call that ends the next flow; earlier ones are void."""

    @property
    def most(self) -> float:
        """Return what the target can receive of each flow."""
        target, count = self.target, len(self.flows)
        if len(target.incoming) == 1:
            return target.down / count
        others = [one for one in target.incoming.values() if one is not self]
        fair = target.down / (count + sum(len(one.flows) for one in others))
        return max(fair, (target.down - sum(one.rate * len(one.flows) for one in others)) / count)


class Network:
    """Moves bytes between nodes. TCP shares a link by flows: so does this."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._count = 0

    def send(self, source: Node, target: Node, size: float) -> Event:
        """Begin a flow; True once all has come, False when the connection was cut."""
        stream = source.outgoing.get(target)
        if stream is None:
            stream = _Stream(source, target)
            source.outgoing[target] = target.incoming[source] = stream
        self._advance(stream)
        self._count += 1
        event = Event()
        heappush(stream.flows, (stream.got + size, self._count, size, event))
        self._share(stream)
        return event

    def cut(self, node: Node) -> list[Event]:
        """End all flows of a node; returns those of others that wait for its bytes."""
        left = [flow[3] for stream in node.outgoing.values() for flow in stream.flows]
        for stream in (*node.outgoing.values(), *node.incoming.values()):
            stream.flows.clear()
            self._close(stream)
        return left

    def _over(self, planned: tuple[_Stream, int]) -> None:
        stream, number = planned
        if stream.planned != number or not stream.flows:
            return
        self._advance(stream)
        end, _, size, event = heappop(stream.flows)
        stream.got = max(stream.got, end)
        stream.source.sent += size
        if stream.flows:
            self._share(stream)
        else:
            self._close(stream)
        event.fire(True)  # noqa: FBT003 - the value of an event

    def _close(self, stream: _Stream) -> None:
        stream.planned = 0
        stream.source.outgoing.pop(stream.target, None)
        stream.target.incoming.pop(stream.source, None)
        self._share(stream)

    def _share(self, stream: _Stream) -> None:
        """Set the rates of all streams that share a link with this one."""
        source = stream.source
        if source.outgoing:
            self._fill(source.up, source.outgoing.values())
        for other in [one.source for one in stream.target.incoming.values()]:
            if other is not source:
                self._fill(other.up, other.outgoing.values())

    def _fill(self, left: float, streams: Collection[_Stream]) -> None:
        """Share a link: equally, but what one flow cannot use is left to the others."""
        if len(streams) == 1:
            (only,) = streams
            self._set(only, min(only.most, left / len(only.flows)))
            return
        wanted = sorted(((one.most, one) for one in streams), key=itemgetter(0))
        flows = sum(len(one.flows) for _, one in wanted)
        for most, stream in wanted:
            rate = min(most, left / flows)
            left -= rate * len(stream.flows)
            flows -= len(stream.flows)
            self._set(stream, rate)

    def _advance(self, stream: _Stream) -> None:
        stream.got += stream.rate * (self._clock.now - stream.at)
        stream.at = self._clock.now

    def _set(self, stream: _Stream, rate: float) -> None:
        """Give each flow this rate, and plan the end of the first that is over."""
        self._advance(stream)
        stream.rate = rate
        self._count += 1
        stream.planned = self._count
        left = max(0.0, stream.flows[0][0] - stream.got)
        self._clock.after(left / rate, self._over, (stream, stream.planned))
