"""How a fake engine departs from an honest one."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Behaviour:
    """How an engine departs from an honest one; settable at any time."""

    token_s: float = 0
    """How long a token takes."""
    late: int = 0
    """How many requests more reach the core only after its next pause, as long prompts do."""
    ranks: int = 1
    engines: int = 1
    """Data-parallel ones, of which the reports are the first one's."""
    drafts_nothing: bool = False
    """Its load at boot passed over what a drafter would read."""
    boot_unseen: bool = False
    """Does not know what its load at boot read."""
    info_s: float = 0
    """How long its first look at its environment takes, for /server_info."""
    pause_s: float = 0
    pause_fails: bool = False
    """Answers 500 although it has paused."""
    runs_on: bool = False
    """Answers that it has paused, and runs, as after a resume that bypassed the sidecar."""
    flush_fails: bool = False
    """Answers 200 with success: false."""
    preload_unknown: bool = False
    """Knows no preload, as an older extension."""
    reads_at_once: bool = False
    """Reads memory within the reload, as an older extension."""
    preload_hangs: bool = False
    """Reports a preload that never ends."""
    preload_skipped: bool = False
    """Reports that nothing of a version needs a preload, and reads it in the reload."""
    reload_s: float = 0
    reload_fails: bool = False
    reload_errors: int = 0
    """To how many reloads more it answers 500, its weights half written."""
    reload_keeps_old: bool = False
    """Reports that all was loaded, and keeps the old weights."""
    reload_is_unfaithful: bool = False
    """A checkpoint that is reloaded answers otherwise than one that was booted."""
    stale_kinds: tuple[str, ...] = ()
    """Kinds of tensors that a reload leaves as they were, though it consumes them."""
    constant_kinds: tuple[str, ...] = ()
    """Kinds of tensors that are the same after a change, because their values are all one."""
    release: str = "0.32.0"
    """Which vLLM it is."""
    unreached_kinds: tuple[str, ...] = ()
    """Kinds of tensors that a prompt does not pass through."""
    reload_drops_tensor: bool = False
    """Consumes one tensor and reports that."""
    reload_spoils_bytes: bool = False
    """Consumes other bytes than the checkpoint's."""
    memory_unread: bool = False
    """Reports nothing of its memory, as with a quantised model."""
    memory_sizes: tuple[int, int] = (0, 0)
    """Bytes that its model was made with, and how many of them it cannot read."""
    noise: float = 0
    """By how much the log probabilities of two equal prompts lie apart at most."""
    crowd_noise: float = 0
    """The same in a batch of many, as on a GPU, where kernels are chosen by its size."""
    dies_in_reload: bool = False
    loses_rank_in_reload: bool = False
    """A rank dies: every later call of ranks fails, and the engine ends seconds later."""
    resume_hangs: bool = False
    resume_fails: bool = False
    resume_answers_s: float = 0
    """How long after it runs again it answers: vLLM's core may do so after its first pass."""
    nan_logprobs: bool = False
    routed_experts: bool = False
    """Has experts, and was started to return them."""
    wobbles: bool = False
    """Answers the same greedy prompt differently each time."""
    dies_in_probe: bool = False
    errors: int = 0
    """To how many requests more it answers 500."""
    core_hangs: bool = False
    """Its API server answers, but its core never does."""
    core_dies: bool = False
    """Its API server answers, but its core does not."""
    health: int = 200
    """What /health answers: 503 once vLLM knows that its core is dead."""
    adapter_s: float = 0
    """How long it takes to load an adapter."""
    adapters_off: bool = False
    """Runs without --enable-lora."""
    unsendable: str | None = None
    """Why it would keep old weights when a trainer sends new ones."""
    unreloadable: str | None = None
    """Why no reload of it can succeed."""
    group_s: float = 0
    """How long the forming of a group takes."""
    group_fails: bool = False
    """The group does not form; the engine continues."""
    receive_s: float = 0
    receive_fails: bool = False
    """A part that is sent arrives broken, in the midst of the load."""

    @property
    def logprob(self) -> float:
        """The log probability of every token that it generates."""
        return float("nan") if self.nan_logprobs else -0.5
