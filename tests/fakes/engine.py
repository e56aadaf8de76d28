"""A vLLM that is cheap and can lie: its routes, its pauses, real files, the real gate.

It imitates exactly the routes that the sidecar uses, under the real extension. Its
tokens follow from the installed weights' digest, so other weights answer otherwise.
Contract tests hold it to what real vLLM does.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from rlfleet_contract import paths
from rlfleet_contract.engine.rank_report import Consumed, Preloaded, ReadBack
from rlfleet_contract.engine.safetensors import FileStamp
from rlfleet_contract.engine.tensor_names import packed
from rlfleet_engine.asgi import Scope, Send
from rlfleet_engine.gate.gate import Gate
from rlfleet_engine.gate.held_request import Application, Receive
from rlfleet_engine.middleware import Extension
from rlfleet_engine.reload.preload import Preload, begun
from rlfleet_engine.reload.read_back import RankRecord, report_of
from tests.fakes import tokenizer
from tests.fakes.adapters import Batch, LoRARequest, ServingModels, cards
from tests.fakes.asgi import body_of, send_event, send_json, send_refusal
from tests.fakes.behaviour import Behaviour
from tests.fakes.generation import Generation
from tests.fakes.memory import SPOILT, Weights, consume, stamps_of
from tests.fakes.prefixes import Prefixes, late_refusal, refusal, salt_of
from tests.fakes.receiver import Receiver, transferred
from tests.fakes.replies import Asked, Chat, Completion, Generate, Route
from tests.fakes.server_info import SERVER_INFO

_BOOTS = count(1)
_NAMED: dict[type[Route], str] = {
    Completion: "cmpl-{}-0",
    Chat: "chatcmpl-{}",
    Generate: "generate-tokens-{}",
}
"""How the engine calls a request, after what its client called it."""
_CROWD = 12
_RPC_FAILED = {"error": {"message": "Call to collective_rpc failed"}}


class FakeEngine:
    """One start after another of an engine; ``application`` is the present one's."""

    def __init__(
        self, model: Path, gate_file: Path, on_death: Callable[[], None], vocabulary: int = 512
    ) -> None:
        self.behaviour = Behaviour()
        self.served: list[str] = []
        """The first characters of the weights' digest, once for each answer."""
        self.queued = 0
        """Requests that came while the engine was paused, over all boots."""
        self.reloads = 0
        """Reloads that were begun, over all boots."""
        self.changed: list[tuple[str, ...]] = []
        """The kinds that each of them was asked to change."""
        self._model, self._gate_file = model, gate_file
        self._on_death = on_death
        self._vocabulary = vocabulary
        self._turn = count()
        self._ahead: Preload | None = None
        self.preloads = 0
        """Calls that asked for a preload, over all boots."""
        self.tokens = 0
        """How many it has generated."""
        self.waiting = 0
        """How many requests its metrics say are waiting."""
        self._held: set[Generation] = set()
        self._rankless: Gate | None = None
        """That of the boot in which a rank has died."""
        self.boot()

    def boot(self) -> None:
        """Restart on the boot weights, behind a closed gate."""
        if self._ahead is not None:
            self._ahead.end()
        self._ahead = None
        self.weights = consume(str(self._model), stamps_of(self._model)).weights
        self._record = RankRecord(self.weights.memory)
        self._reloaded: ReadBack | None = None
        self._names = frozenset(self.weights.memory)
        self.paused: str | None = None
        self.pauses = 0
        self.flushes = 0
        self.flushed_outside = 0
        """Flushes that reached a connector's cache too."""
        self.encoded: set[str] = set()
        """Images that the scheduler takes for encoded."""
        self._prefixes = Prefixes()
        self._batch = Batch()
        self.transfer = Receiver(self)
        self.label = "default"
        self._running = asyncio.Event()
        self._running.set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._active: set[Generation] = set()
        self.gate = Gate(self._gate_file, f"boot-{next(_BOOTS)}")
        self.models = ServingModels(
            lambda: self.behaviour.adapter_s, lambda: not self.behaviour.adapters_off
        )
        serving = tokenizer.Serving(self._vocabulary).application
        serving.state.openai_serving_models = self.models
        extension = Extension(self._answer, self.gate, self._on_death)
        self.application = partial(_within, serving, extension)

    def _world_size(self, query: Mapping[str, Sequence[str]]) -> int:
        is_whole = query.get("include_dp", ["true"])[0] == "true"
        return self.behaviour.ranks * (self.behaviour.engines if is_whole else 1)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await body_of(receive)
        query = parse_qs(scope.get("query_string", b"").decode())
        asker = dict(scope["headers"]).get(b"x-request-id", b"fake").decode()
        answers: dict[tuple[str, str], Callable[[], Awaitable[None]]] = {
            ("GET", "/health"): lambda: send_json(send, self.behaviour.health, {}),
            ("GET", "/version"): lambda: send_json(send, 200, {"version": "0.32.0"}),
            ("GET", "/v1/models"): lambda: self._models(send),
            ("GET", "/is_paused"): lambda: self._is_paused(send),
            ("GET", "/get_world_size"): lambda: send_json(
                send, 200, {"world_size": self._world_size(query)}
            ),
            ("GET", "/metrics"): lambda: self._metrics(send),
            ("GET", "/server_info"): lambda: self._server_info(send),
            ("POST", "/tokenize"): lambda: send_json(send, *tokenizer.tokenize(body)),
            ("POST", "/detokenize"): lambda: send_json(send, *tokenizer.detokenize(body)),
            ("POST", "/v1/chat/completions/render"): lambda: send_json(
                send, *tokenizer.render(body)
            ),
            ("POST", "/v1/completions"): lambda: self._complete(Completion(), body, send, asker),
            ("POST", "/v1/chat/completions"): lambda: self._complete(Chat(), body, send, asker),
            ("POST", "/inference/v1/generate"): lambda: self._complete(
                Generate(), body, send, asker
            ),
            ("POST", "/update_weight_version"): lambda: self._relabel(body, send),
            ("POST", "/pause"): lambda: self._pause(query, send),
            ("POST", "/resume"): lambda: self._resume(send),
            ("POST", "/abort_requests"): lambda: self._abort(body, send),
            ("POST", "/reset_prefix_cache"): lambda: self._flush(query, send),
            ("POST", "/reset_encoder_cache"): lambda: self._forget_images(send),
            ("POST", "/collective_rpc"): lambda: self._call_ranks(body, send),
        }
        for name, act in self.transfer.routes.items():
            answers["POST", name] = partial(transferred, act, body, send)
        unknown = partial(send_json, send, 404, {"detail": "Not Found"})
        await answers.get((scope["method"], scope["path"]), unknown)()

    async def _server_info(self, send: Send) -> None:
        await asyncio.sleep(self.behaviour.info_s)
        await send_json(send, 200, SERVER_INFO)

    async def _is_paused(self, send: Send) -> None:
        await self._hang()
        is_gone = self.behaviour.core_dies
        await send_json(send, 500 if is_gone else 200, {"is_paused": self.paused is not None})

    async def _complete(self, route: Route, body: dict[str, Any], send: Send, asker: str) -> None:
        refused = (
            refusal(body, self._vocabulary) or route.refusal(body) or self.models.refusal(body)
        )
        told = refused or late_refusal(body)
        if told is not None:
            await send_refusal(send, told, in_stream=refused is None and bool(body.get("stream")))
            return
        sampling = route.sampling(body)
        tokens, choices = int(sampling.get("max_tokens", 16)), sampling.get("n", 1)
        adapter = self.models.lora_requests.get(body.get("model") or "")
        known_as = _NAMED[type(route)].format(asker)
        copies = len(_prompts(body.get("prompt") or ""))
        generations = [
            Generation(tokens, index, adapter, known_as=known_as, choices=choices)
            for index in range(choices * copies)
        ]
        await self._arrives()
        await self._unpaused(generations)
        if await self._fails(send):
            return
        asked = self._asked(route, body, adapter)
        self._active.update(generations)
        self._idle.clear()
        try:
            with self._batch.with_one(adapter):
                if body.get("stream"):
                    await self._stream(route, asked, generations, send)
                else:
                    await asyncio.gather(*(self._generate(asked, one) for one in generations))
                    said = [one.said(self.behaviour.logprob) for one in generations]
                    await send_json(send, 200, self._with_prompts(asked, route.whole(asked, said)))
        finally:
            self._active.difference_update(generations)
            if not self._active:
                self._idle.set()
        self.served.append(self.weights.exact[:12])

    async def _arrives(self) -> None:
        if not self.behaviour.late:
            return
        self.behaviour = replace(self.behaviour, late=self.behaviour.late - 1)
        pauses = self.pauses
        while self.pauses == pauses:  # noqa: ASYNC110 - another request pauses
            await asyncio.sleep(0.01)

    async def _unpaused(self, generations: list[Generation]) -> None:
        self.queued += self.paused is not None
        self._held.update(generations)
        try:
            while self.paused is not None and not any(one.aborted for one in generations):
                await self._running.wait()
        finally:
            self._held.difference_update(generations)

    async def _fails(self, send: Send) -> bool:
        if self.behaviour.dies_in_probe:
            self._on_death()
            return True
        if self.behaviour.errors:
            self.behaviour = replace(self.behaviour, errors=self.behaviour.errors - 1)
            await send_json(send, 500, {"error": "it failed"})
            return True
        return False

    def _asked(self, route: Route, body: dict[str, Any], adapter: LoRARequest | None) -> Asked:
        prompt = route.prompt(body)
        cached = 0
        if body.get("prompt_logprobs") is None:
            # All of their prompt is computed.
            cached = self._prefixes.take(_prompts(prompt)[0], salt_of(body, adapter))
        name, has_experts = self.models.model_name(adapter), self.behaviour.routed_experts
        return Asked(body, prompt, cached, has_experts, name)

    async def _generate(
        self, asked: Asked, generation: Generation, tokens: int | None = None
    ) -> None:
        wanted = generation.tokens if tokens is None else tokens
        prompt = _prompts(asked.prompt)[generation.index // generation.choices]
        while len(generation.made) < wanted and not generation.aborted:
            await asyncio.sleep(self.behaviour.token_s)
            while self.paused == "keep" and not generation.aborted:
                await self._running.wait()
            if not generation.aborted:
                if not generation.starts or generation.starts[-1][0] != self.label:
                    generation.starts.append((self.label, len(generation.made)))
                choice = generation.index % generation.choices
                place = len(generation.made) + choice * generation.tokens
                generation.made.append(self._token(prompt, place, generation.adapter))
                self.tokens += 1

    def _token(self, prompt: object, place: int, adapter: LoRARequest | None) -> int:
        turn: object = next(self._turn) if self.behaviour.wobbles else ""
        if adapter is not None:
            turn = adapter.content
        return self.weights.token(prompt, place, turn, self._vocabulary)

    async def _stream(
        self, route: Route, asked: Asked, generations: list[Generation], send: Send
    ) -> None:
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for event in route.first(asked, len(generations)):
            await send_event(send, event)
        for place in range(max(one.tokens for one in generations)):
            for generation in generations:
                if not generation.aborted:
                    await self._generate(asked, generation, place + 1)
                    said = generation.said(self.behaviour.logprob, place)
                    await send_event(send, route.event(asked, said, is_first=place == 0))
        await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})

    def _with_prompts(self, asked: Asked, reply: dict[str, Any]) -> dict[str, Any]:
        if asked.body.get("prompt_logprobs") is None:
            return reply
        # All prompts share a batch.
        prompts = _prompts(asked.prompt)
        is_crowd = len(prompts) + len(self._active) > _CROWD
        noise = self.behaviour.crowd_noise if is_crowd else self.behaviour.noise
        choices = [
            choice | {"prompt_logprobs": self._prompt_logprobs(prompt, noise)}
            for choice, prompt in zip(reply["choices"], prompts, strict=True)
        ]
        return reply | {"choices": choices}

    def _prompt_logprobs(self, prompt: list[int], spread: float) -> list[dict[str, Any] | None]:
        noise = spread * (next(self._turn) % 3 - 1) / 2
        made: list[dict[str, Any] | None] = [None]
        for place in range(1, len(prompt)):
            value = self.weights.logprob(prompt, place) + noise
            made.append({str(prompt[place]): {"logprob": value, "rank": 1}})
        return made

    async def _models(self, send: Send) -> None:
        await send_json(send, 200, {"object": "list", "data": await cards(self.models)})

    async def _metrics(self, send: Send) -> None:
        headers = [(b"content-type", b"text/plain; version=1.0.0; charset=utf-8")]
        labels = '{engine="0",model_name="fake"}'
        text = (
            f"vllm:num_requests_running{labels} {len(self._active)}\n"
            f"vllm:num_requests_waiting{labels} {self.waiting}\n"
            f"vllm:generation_tokens_total{labels} {self.tokens}\n"
        )
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": text.encode()})

    async def _pause(self, query: dict[str, list[str]], send: Send) -> None:
        mode = query.get("mode", ["abort"])[0]
        await self._hang()
        await asyncio.sleep(self.behaviour.pause_s)
        self.paused = mode
        self.pauses += 1
        if mode == "abort":
            for generation in self._active | self._held:
                generation.aborted = True
        # Frozen requests wake up, and wait again unless they have ended.
        self._running.set()
        self._running.clear()
        if mode != "keep":
            await self._idle.wait()
        if self.behaviour.runs_on:
            self.paused = None
            self._running.set()
        if self.behaviour.pause_fails:
            await send_json(send, 500, {"error": "Failed to pause generation: a lie"})
        else:
            await send_json(send, 200, {"status": "paused"})

    async def _resume(self, send: Send) -> None:
        if self.behaviour.resume_hangs:
            await asyncio.Event().wait()
        await self._hang()
        if self.behaviour.resume_fails:
            await send_json(send, 500, {"error": "Failed to resume generation: a lie"})
            return
        self.paused = None
        self._running.set()
        await asyncio.sleep(self.behaviour.resume_answers_s)
        await send_json(send, 200, {"status": "resumed"})

    async def _hang(self) -> None:
        if self.behaviour.core_hangs:
            await asyncio.Event().wait()

    async def _abort(self, body: dict[str, Any], send: Send) -> None:
        ended = [one for one in self._active if one.known_as in body["request_ids"]]
        for generation in ended:
            generation.aborted = True
        if self.paused is not None:
            self._running.set()
            self._running.clear()
        await send_json(send, 200, {"status": "aborted", "aborted": len(body["request_ids"])})

    async def _relabel(self, body: dict[str, Any], send: Send) -> None:
        self.label = body["new_version"]
        await send_json(send, 200, {"success": True, "new_version": self.label})

    async def _flush(self, query: dict[str, list[str]], send: Send) -> None:
        is_forced = query.get("reset_running_requests") == ["true"]
        success = (is_forced or not self._active) and not self.behaviour.flush_fails
        self.flushes += success
        self.flushed_outside += success and query.get("reset_external") == ["true"]
        if success:
            self._prefixes.clear()
        await send_json(send, 200, {"success": success})

    async def _forget_images(self, send: Send) -> None:
        self.encoded.clear()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    def _end_of(self, boot: Gate) -> None:
        if boot is self.gate:
            self._on_death()

    async def _call_ranks(self, body: dict[str, Any], send: Send) -> None:
        if self._rankless is self.gate:
            await send_json(send, 500, _RPC_FAILED)
        else:
            await self._rpc(body, send)

    async def _rpc(self, body: dict[str, Any], send: Send) -> None:
        match body.get("method"):
            case paths.RELOAD_RPC:
                await self._reload(body["kwargs"], send)
            case paths.PRELOAD_RPC if not self.behaviour.preload_unknown:
                self._begin_preload(**body["kwargs"])
                await self._send_preloaded(send)
            case paths.PRELOADED_RPC:
                await self._send_preloaded(send)
            case paths.DESCRIBE_RPC:
                await send_json(send, 200, {"results": [self._described()]})
            case paths.READ_BACK_RPC:
                read = None if self.behaviour.memory_unread else report_of(self.weights.memory)
                results = None if read is None else read.model_dump()
                await send_json(send, 200, {"results": [results] * self.behaviour.ranks})
            case paths.RELOADED_RPC if not self.behaviour.reads_at_once:
                results = None if self._reloaded is None else self._reloaded.model_dump()
                await send_json(send, 200, {"results": [results] * self.behaviour.ranks})
            case paths.CONSUMED_RPC:
                results = self._consumed()
                await send_json(send, 200, {"results": [results] * self.behaviour.ranks})
            case _:
                await send_json(send, 500, _RPC_FAILED)

    def _begin_preload(self, directory: str, files: list[dict[str, Any]]) -> None:
        self.preloads += 1
        if self.behaviour.preload_skipped:
            return
        stamps = [FileStamp.model_validate(one) for one in files]
        folder = self._gate_file.with_name("preload")
        self._ahead = begun(self._ahead, directory, stamps, folder, is_doubled=True)

    async def _send_preloaded(self, send: Send) -> None:
        told = Preloaded() if self._ahead is None else self._ahead.report
        if self.behaviour.preload_hangs:
            told = told.model_copy(update={"is_reading": True})
        await send_json(send, 200, {"results": [told.model_dump()] * self.behaviour.ranks})

    def _consumed(self) -> dict[str, Any] | None:
        if self.behaviour.boot_unseen:
            return None
        ignores = ("mtp.",) if self.behaviour.drafts_nothing else ()
        read = [name for name in self._names if not name.startswith(ignores)]
        found = Consumed(names=packed(read), ranks=self.behaviour.ranks, omits_drafters=True)
        return found.model_dump()

    def _installed(self, weights: Weights, changed: Sequence[str]) -> Weights:
        if self.behaviour.reload_is_unfaithful:
            weights = weights.mixed("reloaded")
        unchanged = {*self.behaviour.stale_kinds, *self.behaviour.constant_kinds}
        for kind in set(changed) - unchanged:
            weights = weights.mixed(kind)
        return weights

    def _described(self) -> dict[str, Any]:
        behaviour = self.behaviour
        return {
            "release": behaviour.release,
            "is_tested": behaviour.release.startswith("0.32."),
            "device": "cpu",
            "architectures": ["FakeForCausalLM"],
            "fingerprint": f"fake {behaviour.release}",
            "unreached": behaviour.unreached_kinds,
            "unsendable": behaviour.unsendable,
            "unreloadable": behaviour.unreloadable,
        }

    async def _reload(self, arguments: dict[str, Any], send: Send) -> None:
        behaviour = self.behaviour
        self.reloads += 1
        self.changed.append(tuple(arguments.get("changed", ())))
        await asyncio.sleep(behaviour.reload_s)
        if behaviour.dies_in_reload:
            self._on_death()
            return
        if behaviour.loses_rank_in_reload:
            self._rankless = self.gate
            asyncio.get_running_loop().call_later(2, self._end_of, self.gate)
            await send_json(send, 500, _RPC_FAILED)
            return
        if behaviour.reload_fails or behaviour.reload_errors:
            left = max(behaviour.reload_errors - 1, 0)
            self.behaviour = replace(behaviour, reload_errors=left)
            self.weights = SPOILT
            await send_json(send, 500, _RPC_FAILED)
            return
        consumed = consume(
            arguments["directory"],
            [FileStamp.model_validate(one) for one in arguments["files"]],
            drops=behaviour.reload_drops_tensor,
            spoils=behaviour.reload_spoils_bytes,
            ahead=self._ahead,
        )
        self._ahead = None
        if not behaviour.reload_keeps_old:
            self.weights = self._installed(consumed.weights, self.changed[-1])
        installed, self._reloaded, self._record = consumed.reported(
            self._record,
            self.weights,
            is_read=not behaviour.memory_unread,
            sizes=behaviour.memory_sizes,
        )
        others = len({*self.changed[-1]} - {*behaviour.constant_kinds})
        installed = installed.model_copy(update={"changed": others})
        if behaviour.reads_at_once:
            older = {"reads_memory": False, "parameters": self._reloaded}
            installed, self._reloaded = installed.model_copy(update=older), None
        await send_json(send, 200, {"results": [installed.model_dump()] * behaviour.ranks})


async def _within(
    serving: object, app: Application, scope: Scope, receive: Receive, send: Send
) -> None:
    """Have the scope name the whole application, as Starlette's does."""
    await app({**scope, "app": serving}, receive, send)


def _prompts(prompt: Any) -> list[Any]:
    return prompt if isinstance(prompt, list) and isinstance(prompt[0], list) else [prompt]
