"""A vLLM that is cheap and can lie: its routes, its pauses, real files, the real gate.

It imitates exactly the routes that the sidecar uses, under the real extension. Its
tokens follow from the installed weights' digest, so other weights answer otherwise.
Contract tests hold it to what real vLLM does.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from rlfleet_contract import api
from rlfleet_contract.tensors import FileStamp
from rlfleet_engine.answers import Scope, Send
from rlfleet_engine.gate import Gate
from rlfleet_engine.held import Application, Receive
from rlfleet_engine.memory import Record, told
from rlfleet_engine.middleware import Extension
from tests.fakes import tokenizer
from tests.fakes.adapters import BASE, Batch, LoRARequest, ServingModels, cards
from tests.fakes.memory import SPOILT, consume, stamps_of
from tests.fakes.prefixes import Prefixes, refusal
from tests.fakes.receiver import Receiver, WorkerError
from tests.fakes.replies import Asked, Chat, Completion, Generate, Route, Said

_BOOTS = count(1)
_RPC_FAILED = {"error": {"message": "Call to collective_rpc failed"}}


@dataclass(frozen=True, slots=True)
class Behaviour:
    """How an engine departs from an honest one; settable at any time."""

    token_s: float = 0
    """How long a token takes."""
    ranks: int = 1
    pause_s: float = 0
    pause_fails: bool = False
    """Answers 500 although it has paused."""
    flush_fails: bool = False
    """Answers 200 with success: false."""
    reload_s: float = 0
    reload_fails: bool = False
    reload_keeps_old: bool = False
    """Tells that all was installed and keeps the old weights."""
    reload_drops_tensor: bool = False
    """Consumes one tensor and tells so."""
    reload_spoils_bytes: bool = False
    """Consumes other bytes than the checkpoint's."""
    memory_unread: bool = False
    """Tells nothing of what stands in memory, as with a quantised model."""
    noise: float = 0
    """By how much the log probabilities of two equal prompts lie apart at most."""
    dies_in_reload: bool = False
    resume_hangs: bool = False
    nan_logprobs: bool = False
    routed_experts: bool = False
    """Has experts, and was started to tell of them."""
    wobbles: bool = False
    """Answers the same greedy prompt differently each time."""
    dies_in_probe: bool = False
    core_dies: bool = False
    """Its API server answers, and its core no more."""
    adapter_s: float = 0
    """How long it takes to load an adapter."""
    adapters_off: bool = False
    """Runs without --enable-lora."""
    group_s: float = 0
    """How long the forming of a group takes."""
    group_fails: bool = False
    """The group does not form; the engine goes on."""
    receive_s: float = 0
    receive_fails: bool = False
    """A part that is sent arrives broken, in the midst of the load."""


@dataclass(slots=True, eq=False)
class _Generation:
    tokens: int
    index: int = 0
    adapter: LoRARequest | None = None
    aborted: bool = False
    made: list[int] = field(default_factory=list)
    starts: list[tuple[str, int]] = field(default_factory=list)
    """From which token on the engine's weights had which label."""

    @property
    def spans(self) -> list[dict[str, Any]]:
        """Which tokens were made under which label."""
        ends = [start for _, start in self.starts[1:]] + [len(self.made)]
        return [
            {"version": version, "start": start, "end": end}
            for (version, start), end in zip(self.starts, ends, strict=True)
        ]


class FakeEngine:
    """One start after another of an engine; ``application`` is the present one's."""

    def __init__(
        self, model: Path, gate_file: Path, on_death: Callable[[], None], vocabulary: int = 512
    ) -> None:
        self.behaviour = Behaviour()
        self.served: list[str] = []
        """The first characters of the weights' digest, once for each answer."""
        self.reloads = 0
        """Reloads that were begun, over all boots."""
        self._model = model
        self._gate_file = gate_file
        self._on_death = on_death
        self._vocabulary = vocabulary
        self._turn = count()
        self.boot()

    def boot(self) -> None:
        """Start anew, on the boot weights, behind a closed gate."""
        self.weights = consume(str(self._model), stamps_of(self._model)).weights
        self._record = Record(self.weights.memory)
        self.paused: str | None = None
        self.pauses = 0
        self.flushes = 0
        self._prefixes = Prefixes()
        self._batch = Batch()
        self.transfer = Receiver(self)
        self.label = "default"
        self._running = asyncio.Event()
        self._running.set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._active: set[_Generation] = set()
        self.gate = Gate(self._gate_file, f"boot-{next(_BOOTS)}")
        self.models = ServingModels(
            lambda: self.behaviour.adapter_s, lambda: not self.behaviour.adapters_off
        )
        serving = tokenizer.Serving(self._vocabulary).application
        serving.state.openai_serving_models = self.models
        extension = Extension(self._answer, self.gate, self._on_death)
        self.application = partial(_within, serving, extension)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await _body(receive)
        query = parse_qs(scope.get("query_string", b"").decode())
        answers: dict[tuple[str, str], Callable[[], Awaitable[None]]] = {
            ("GET", "/health"): lambda: _json(send, 200, {}),
            ("GET", "/version"): lambda: _json(send, 200, {"version": "0.32.0"}),
            ("GET", "/v1/models"): lambda: self._models(send),
            ("GET", "/is_paused"): lambda: self._told_paused(send),
            ("GET", "/get_world_size"): lambda: _json(
                send, 200, {"world_size": self.behaviour.ranks}
            ),
            ("GET", "/metrics"): lambda: self._metrics(send),
            ("POST", "/tokenize"): lambda: _json(send, *tokenizer.tokenize(body)),
            ("POST", "/detokenize"): lambda: _json(send, *tokenizer.detokenize(body)),
            ("POST", "/v1/chat/completions/render"): lambda: _json(send, *tokenizer.render(body)),
            ("POST", "/v1/completions"): lambda: self._complete(Completion(), body, send),
            ("POST", "/v1/chat/completions"): lambda: self._complete(Chat(), body, send),
            ("POST", "/inference/v1/generate"): lambda: self._complete(Generate(), body, send),
            ("POST", "/update_weight_version"): lambda: self._relabel(body, send),
            ("POST", "/pause"): lambda: self._pause(query, send),
            ("POST", "/resume"): lambda: self._resume(send),
            ("POST", "/reset_prefix_cache"): lambda: self._flush(query, send),
            ("POST", "/collective_rpc"): lambda: self._rpc(body, send),
        }
        for name, act in self.transfer.routes.items():
            answers["POST", name] = partial(_transferred, act, body, send)
        unknown = partial(_json, send, 404, {"detail": "Not Found"})
        await answers.get((scope["method"], scope["path"]), unknown)()

    async def _told_paused(self, send: Send) -> None:
        is_gone = self.behaviour.core_dies
        await _json(send, 500 if is_gone else 200, {"is_paused": self.paused is not None})

    async def _complete(self, route: Route, body: dict[str, Any], send: Send) -> None:
        refused = (
            refusal(body, self._vocabulary) or route.refusal(body) or self.models.refusal(body)
        )
        if refused is not None:
            await _json(send, refused["error"]["code"], refused)
            return
        sampling = route.sampling(body)
        tokens, choices = int(sampling.get("max_tokens", 16)), sampling.get("n", 1)
        adapter = self.models.lora_requests.get(body.get("model") or BASE)
        generations = [_Generation(tokens, index, adapter) for index in range(choices)]
        while self.paused is not None:
            await self._running.wait()
        if self.behaviour.dies_in_probe:
            self._on_death()
            return
        asked = self._asked(route, body, adapter)
        self._active.update(generations)
        self._idle.clear()
        try:
            with self._batch.with_one(adapter):
                if body.get("stream"):
                    await self._stream(route, asked, generations, send)
                else:
                    for generation in generations:
                        await self._generate(asked, generation)
                    said = [self._said(one) for one in generations]
                    await _json(send, 200, self._with_prompts(asked, route.whole(asked, said)))
        finally:
            self._active.difference_update(generations)
            if not self._active:
                self._idle.set()
        self.served.append(self.weights.exact[:12])

    def _asked(self, route: Route, body: dict[str, Any], adapter: LoRARequest | None) -> Asked:
        prompt = route.prompt(body)
        cached = 0
        if body.get("prompt_logprobs") is None:
            # All of their prompt is computed.
            cached = self._prefixes.take(_prompts(prompt)[0], _salt(body, adapter))
        name = self.models.model_name(adapter)
        return Asked(body, prompt, cached, self.behaviour.routed_experts, name)

    async def _generate(
        self, asked: Asked, generation: _Generation, tokens: int | None = None
    ) -> None:
        wanted = generation.tokens if tokens is None else tokens
        prompt = _prompts(asked.prompt)[0]
        while len(generation.made) < wanted and not generation.aborted:
            await asyncio.sleep(self.behaviour.token_s)
            while self.paused == "keep":
                await self._running.wait()
            if not generation.aborted:
                if not generation.starts or generation.starts[-1][0] != self.label:
                    generation.starts.append((self.label, len(generation.made)))
                place = len(generation.made) + generation.index * generation.tokens
                generation.made.append(self._token(prompt, place, generation.adapter))

    def _token(self, prompt: object, place: int, adapter: LoRARequest | None) -> int:
        turn: object = next(self._turn) if self.behaviour.wobbles else ""
        if adapter is not None:
            turn = adapter.content
        return self.weights.token(prompt, place, turn, self._vocabulary)

    async def _stream(
        self, route: Route, asked: Asked, generations: list[_Generation], send: Send
    ) -> None:
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for event in route.first(asked, len(generations)):
            await _event(send, event)
        for place in range(max(one.tokens for one in generations)):
            for generation in generations:
                if not generation.aborted:
                    await self._generate(asked, generation, place + 1)
                    said = self._said(generation, place)
                    await _event(send, route.event(asked, said, is_first=place == 0))
        await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})

    def _said(self, generation: _Generation, since: int = 0) -> Said:
        is_over = generation.aborted or len(generation.made) == generation.tokens
        reason = "abort" if generation.aborted else "length"
        return Said(
            generation.index,
            generation.made[since:],
            reason if is_over else None,
            generation.spans if is_over else [],
            float("nan") if self.behaviour.nan_logprobs else -0.5,
        )

    def _with_prompts(self, asked: Asked, reply: dict[str, Any]) -> dict[str, Any]:
        if asked.body.get("prompt_logprobs") is None:
            return reply
        # All prompts share a batch; the tokens of the others are nobody's concern.
        (choice,) = reply["choices"]
        choices = [
            choice | {"index": index, "prompt_logprobs": self._prompt_logprobs(prompt)}
            for index, prompt in enumerate(_prompts(asked.prompt))
        ]
        return reply | {"choices": choices}

    def _prompt_logprobs(self, prompt: list[int]) -> list[dict[str, Any] | None]:
        noise = self.behaviour.noise * (next(self._turn) % 3 - 1) / 2
        made: list[dict[str, Any] | None] = [None]
        for place in range(1, len(prompt)):
            value = self.weights.logprob(prompt, place) + noise
            made.append({str(prompt[place]): {"logprob": value, "rank": 1}})
        return made

    async def _models(self, send: Send) -> None:
        await _json(send, 200, {"object": "list", "data": await cards(self.models)})

    async def _metrics(self, send: Send) -> None:
        headers = [(b"content-type", b"text/plain; version=1.0.0; charset=utf-8")]
        text = f'vllm:num_requests_running{{engine="0",model_name="fake"}} {len(self._active)}\n'
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": text.encode()})

    async def _pause(self, query: dict[str, list[str]], send: Send) -> None:
        mode = query.get("mode", ["abort"])[0]
        await asyncio.sleep(self.behaviour.pause_s)
        self.paused = mode
        self.pauses += 1
        self._running.clear()
        if mode == "abort":
            for generation in self._active:
                generation.aborted = True
        if mode != "keep":
            await self._idle.wait()
        if self.behaviour.pause_fails:
            await _json(send, 500, {"error": "Failed to pause generation: a lie"})
        else:
            await _json(send, 200, {"status": "paused"})

    async def _resume(self, send: Send) -> None:
        if self.behaviour.resume_hangs:
            await asyncio.Event().wait()
        self.paused = None
        self._running.set()
        await _json(send, 200, {"status": "resumed"})

    async def _relabel(self, body: dict[str, Any], send: Send) -> None:
        self.label = body["new_version"]
        await _json(send, 200, {"success": True, "new_version": self.label})

    async def _flush(self, query: dict[str, list[str]], send: Send) -> None:
        is_forced = query.get("reset_running_requests") == ["true"]
        success = (is_forced or not self._active) and not self.behaviour.flush_fails
        self.flushes += success
        if success:
            self._prefixes.clear()
        await _json(send, 200, {"success": success})

    async def _rpc(self, body: dict[str, Any], send: Send) -> None:
        ranks = self.behaviour.ranks
        match body.get("method"):
            case api.RELOAD_RPC:
                await self._reload(body["kwargs"], send)
            case api.READ_BACK_RPC:
                read = None if self.behaviour.memory_unread else told(self.weights.memory)
                results = None if read is None else read.model_dump()
                await _json(send, 200, {"results": [results] * ranks})
            case _:
                await _json(send, 500, _RPC_FAILED)

    async def _reload(self, arguments: dict[str, Any], send: Send) -> None:
        behaviour = self.behaviour
        self.reloads += 1
        await asyncio.sleep(behaviour.reload_s)
        if behaviour.dies_in_reload:
            self._on_death()
            return
        if behaviour.reload_fails:
            self.weights = SPOILT
            await _json(send, 500, _RPC_FAILED)
            return
        consumed = consume(
            arguments["directory"],
            [FileStamp.model_validate(one) for one in arguments["files"]],
            drops=behaviour.reload_drops_tensor,
            spoils=behaviour.reload_spoils_bytes,
        )
        if not behaviour.reload_keeps_old:
            self.weights = consumed.weights
        installed, self._record = consumed.told(
            self._record, self.weights, is_read=not behaviour.memory_unread
        )
        await _json(send, 200, {"results": [installed.model_dump()] * behaviour.ranks})


async def _transferred(
    act: Callable[[dict[str, Any]], Awaitable[str]], body: dict[str, Any], send: Send
) -> None:
    try:
        await _json(send, 200, {"message": await act(body)})
    except WorkerError as error:
        told = f"Call to collective_rpc method failed: Worker failed with error '{error}'"
        await _json(send, 500, {"error": {"message": told, "code": 500}})


async def _within(
    serving: object, app: Application, scope: Scope, receive: Receive, send: Send
) -> None:
    """Have the scope name the whole application, as Starlette's does."""
    await app({**scope, "app": serving}, receive, send)


def _salt(body: dict[str, Any], adapter: LoRARequest | None) -> str | None:
    """Make one of all that vLLM's prefix cache keeps apart."""
    salt: str | None = body.get("cache_salt")
    return salt if adapter is None else f"{salt}/{adapter.lora_name}/{adapter.lora_path}"


def _prompts(prompt: Any) -> list[Any]:
    return prompt if isinstance(prompt, list) and isinstance(prompt[0], list) else [prompt]


async def _body(receive: Receive) -> dict[str, Any]:
    data, more = b"", True
    while more:
        message = await receive()
        data += message.get("body", b"")
        more = message.get("more_body", False)
    parsed = json.loads(data) if data else {}
    assert isinstance(parsed, dict)
    return parsed


async def _json(send: Send, status: int, content: object) -> None:
    body = json.dumps(content, separators=(",", ":")).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _event(send: Send, content: object) -> None:
    event = f"data: {json.dumps(content, separators=(',', ':'))}\n\n"
    await send({"type": "http.response.body", "body": event.encode(), "more_body": True})
