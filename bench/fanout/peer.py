"""A worker of the simulated fleet.

Where a piece comes from, from whom, and whether its bytes are right is decided by the sidecar's
own code, in simulated time. Only what moves bytes or waits is written here a second time: the
threads of SharedSource, the routes of http/pieces.py and the requests of PieceClient.
"""

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import NamedTuple

from bench.fanout.clock import Clock, Event, Process
from bench.fanout.links import Network, Node
from rlfleet_contract.worker.supply import Holding, Supply
from rlfleet_sidecar.http.pieces import WAIT_S
from rlfleet_sidecar.sharing.feed import Answer, Feed, FeedTurn, Question, Rest, Trial
from rlfleet_sidecar.sharing.offering import Offering
from rlfleet_sidecar.sharing.piece_client import PIECE_S, STALL_S, Fetched
from rlfleet_sidecar.sharing.pieces import Piece
from rlfleet_sidecar.sharing.route import WAIT_S as ROUTE_WAIT_S
from rlfleet_sidecar.sharing.route import PieceRoute, Sender, Way
from rlfleet_sidecar.sharing.shared_source import SAMPLE, THREADS
from rlfleet_sidecar.sharing.turns import PieceTurn, Turns


@dataclass(frozen=True, slots=True)
class Costs:
    """What a worker needs beside its link, in seconds: each by chance half as much more or less."""

    request_s: float = 0.002
    """From a request to the first byte of the answer."""
    piece_s: float = 0.01
    """To hash and write a piece."""


@dataclass(frozen=True, slots=True)
class World:
    """What all workers have in common."""

    clock: Clock
    network: Network
    store: Node
    pieces: Sequence[Piece]
    hashes: Sequence[bytes]
    """Of the bytes that are in the store."""
    costs: Costs
    random: Random
    peers: Mapping[str, "Peer"]

    def about(self, seconds: float) -> float:
        """Return a little more, or less: in step, workers would keep step for ever."""
        return seconds * (0.5 + self.random.random())


_CUT = False
"""What comes of a transfer whose connection ends."""


class _Request(NamedTuple):
    """A request for a piece, at the worker that was asked."""

    reply: Event
    turn: PieceTurn


class Peer:
    """One worker."""

    def __init__(
        self, world: World, address: str, supply: Supply, node: Node, *, lies: bool
    ) -> None:
        self.address, self.node, self.lies = address, node, lies
        self.is_dead = False
        self.turns = Turns(world.clock)
        self.ended_at: float | None = None
        self.wrong: set[int] = set()
        """Pieces that it has, and offers, with wrong bytes."""
        self.from_store = 0
        self.has_begun = False
        self._world, self._supply = world, supply
        self.offering = Offering(
            "step-1", "0" * 32, world.pieces, Path(), reads=not supply.readers, clock=world.clock
        )
        self._numbers: Iterator[int] = iter(range(len(world.pieces)))
        self._requests: defaultdict[int, list[_Request]] = defaultdict(list)
        self._open: deque[tuple[float, _Request]] = deque()
        self._idle: list[Event] = []

    def begin(self, _: object = None) -> None:
        """Take up the prepare."""
        world = self._world
        self.has_begun = True
        route = PieceRoute(self._supply, self.offering, world.clock)
        if self._supply.readers:
            feed = Feed(self._supply, self.offering, route, world.clock)
            world.clock.start(self._feed(feed), self._is_gone)
        for _ in range(THREADS):
            world.clock.start(self._work(route), self._is_gone)

    def die(self, _: object = None) -> None:
        """Answer nothing any more: the node is gone, so no connection is closed either."""
        self.is_dead = True
        for event in self._world.network.cut(self.node):
            self._world.clock.after(STALL_S, event.fire, _CUT)

    def _is_gone(self) -> bool:
        return self.is_dead

    def _work(self, route: PieceRoute) -> Process[None]:
        """Do what one of the receiving threads does."""
        for number in self._numbers:
            while not (yield from self._obtain(route, number)):
                pass
            yield self._world.about(self._world.costs.piece_s)
            self.offering.keep(number)
            for request in self._requests.pop(number, ()):
                if not request.reply.is_over:
                    self.turns.ask(request.turn)
        if self.offering.held == len(self.offering.pieces):
            self.ended_at = self._world.clock.now

    def _obtain(self, route: PieceRoute, number: int) -> Process[bool]:
        match route.way(number):
            case Way.STORE:
                yield from self._read(number)
                self.offering.note(number, self._world.hashes[number])
                return True
            case Sender() as sender:
                return (yield from self._receive(route, sender, number))
            case Way.WAIT:
                news = Event()
                self._idle.append(news)
                self._world.clock.after(ROUTE_WAIT_S, news.fire)
                yield news
        return False

    def _receive(self, route: PieceRoute, sender: Sender, number: int) -> Process[bool]:
        peer = self._world.peers[sender.address]
        result, took_s = yield from self._fetch(peer, number)
        if result is Fetched.WHOLE:
            is_wrong = peer.lies or number in peer.wrong
            hashed = self._world.hashes[number]
            if not route.is_right(sender, number, _other(hashed) if is_wrong else hashed):
                return False
            if is_wrong:
                self.wrong.add(number)
        route.came(sender, result, took_s)
        if result is Fetched.WHOLE and self._supply.succeeds:
            yield from self._read(number, SAMPLE)
        return result is Fetched.WHOLE

    def _fetch(self, peer: "Peer", number: int) -> Process[tuple[Fetched, float]]:
        """Return what came of a request, and how long the bytes of a piece took."""
        world = self._world
        yield world.about(world.costs.request_s)
        request = peer.asked(self.address, number, forwards=self.offering.forwards)
        result = yield request.reply
        if result is not Fetched.WHOLE:
            return result, 0.0
        piece, begun = world.pieces[number], world.clock.now
        is_whole = yield world.network.send(peer.node, self.node, piece.end - piece.begin)
        peer.turns.end(request.turn)
        peer.offering.sent()
        # The sidecar leaves a piece that drips before its end: here the bytes flow on till then.
        took_s = world.clock.now - begun
        return Fetched.WHOLE if is_whole and took_s < PIECE_S else Fetched.BROKEN, took_s

    def asked(self, receiver: str, number: int, *, forwards: bool) -> _Request:
        """Take a request for a piece; its reply is WHOLE once the piece can be sent."""
        reply, after = Event(), self._world.clock.after
        request = _Request(reply, PieceTurn(receiver, forwards, partial(reply.fire, Fetched.WHOLE)))
        if self.is_dead:
            after(STALL_S, reply.fire, Fetched.BROKEN)
        elif not self.has_begun:
            reply.fire(Fetched.ABSENT)
        else:
            self._answer_by(self._world.clock.now + WAIT_S, request)
            if self.offering.has(number):
                self.turns.ask(request.turn)
            else:
                self._requests[number].append(request)
        return request

    def _answer_by(self, end: float, request: _Request) -> None:
        """Answer NOT_YET then; one call of the clock for many requests, as most are over."""
        self._open.append((end, request))
        if len(self._open) == 1:
            self._world.clock.after(WAIT_S, self._give_up)

    def _give_up(self, _: object) -> None:
        now, opened, left = self._world.clock.now, self._open, []
        while opened and (opened[0][1].reply.is_over or opened[0][0] <= now):
            left.append(opened.popleft()[1])
        if opened:
            self._world.clock.after(opened[0][0] - now, self._give_up)
        for request in left:
            self._not_yet(request)

    def _not_yet(self, request: _Request) -> None:
        reply, turn = request
        if reply.is_over:
            return
        self.turns.end(turn)
        if self.is_dead:
            self._world.clock.after(STALL_S - WAIT_S, reply.fire, Fetched.BROKEN)
        else:
            reply.fire(Fetched.NOT_YET)

    def _read(self, number: int, nbytes: int | None = None) -> Process[None]:
        world, piece = self._world, self._world.pieces[number]
        size = piece.end - piece.begin if nbytes is None else min(nbytes, piece.end - piece.begin)
        yield world.about(world.costs.request_s)
        yield world.network.send(world.store, self.node, size)
        self.from_store += size

    def _feed(self, feed: Feed) -> Process[None]:
        while self.offering.held < len(self.offering.pieces):
            turn = feed.turn()
            answer: Answer = None
            while (step := _next(turn, answer)) is not None:
                answer = None
                match step:
                    case Question(address, first):
                        answer = yield from self._ask(self._world.peers[address], first)
                    case Trial(number):
                        yield from self._read(number)
                    case Rest(seconds):
                        yield seconds
                self._wake()

    def _wake(self) -> None:
        idle, self._idle = self._idle, []
        for news in idle:
            news.fire()

    def _ask(self, peer: "Peer", first: int) -> Process[Holding | Fetched]:
        yield STALL_S if peer.is_dead else self._world.costs.request_s
        if peer.is_dead:
            return Fetched.BROKEN
        return peer.offering.holding(first) if peer.has_begun else Fetched.ABSENT


def _next(turn: FeedTurn[None], answer: Answer) -> Question | Trial | Rest | None:
    try:
        return turn.send(answer)
    except StopIteration:
        return None


def _other(hashed: bytes) -> bytes:
    return bytes(byte ^ 1 for byte in hashed)
