"""A version may omit only the tensors that the engine ignored at its boot."""

import pytest

from rlfleet_contract.engine.rank_report import Consumed
from rlfleet_contract.engine.safetensors import Tensor
from rlfleet_contract.engine.tensor_names import Renames, packed, unpacked
from rlfleet_sidecar.checkpoints.compatibility import differences, untied, vocabulary
from rlfleet_sidecar.state.required_tensors import RequiredTensors, assumed, reported_by

EMBEDDINGS, HEAD = "model.embed_tokens.weight", "lm_head.weight"


def tensors(*names: str) -> dict[str, Tensor]:
    return {name: Tensor(name, "BF16", (8, 4), 0, 64) for name in names}


def rank(*names: str, ranks: int = 1, tied: bool = False) -> Consumed:
    return Consumed(names=packed(names), ranks=ranks, tied=tied)


def needs(found: RequiredTensors | None) -> RequiredTensors:
    assert found is not None
    return found


def test_what_no_rank_read_is_optional() -> None:
    said = [rank("a", "expert.0", ranks=2), rank("a", "expert.1", ranks=2)]

    found = needs(reported_by("boot", ["a", "expert.0", "expert.1", "mtp.fc"], said))

    assert found == RequiredTensors("boot", ("mtp.fc",), tied=False)


def test_a_drafter_s_tensors_are_demanded_where_one_read_them() -> None:
    model = tensors("a", "mtp.fc")
    unused = needs(reported_by("boot", model, [rank("a")]))
    used = needs(reported_by("boot", model, [rank("a", "mtp.fc")]))

    assert differences(model, tensors("a"), unused) is None
    assert str(differences(model, tensors("a"), used)).startswith("1 missing tensors: mtp.fc;")


@pytest.mark.parametrize("drafter", ["mtp.fc", "model.mtp_layers.0.fc", "model.nextn_fc"])
def test_a_drafter_s_tensors_that_the_base_lacks_are_left_out_where_all_ranks_do(
    drafter: str,
) -> None:
    said = rank("a", ranks=2)
    omits = said.model_copy(update={"omits_drafters": True})
    base, version = tensors("a"), tensors("a", drafter)

    ours = needs(reported_by("boot", base, [omits, omits]))
    older = needs(reported_by("boot", base, [omits, said]))

    assert differences(base, version, ours) is None
    assert f"1 unknown tensors: {drafter}" in (differences(base, version, older) or "")
    assert f"1 unknown tensors: {drafter}" in (differences(base, version, assumed(base, {})) or "")
    assert "1 unknown tensors: b" in (differences(base, tensors("a", "b"), ours) or "")


@pytest.mark.parametrize(
    "said",
    [[], [None], [rank("a"), None], [rank("a", ranks=2)], [rank("other")], [rank()]],
    ids=["none", "unseen", "one unseen", "not all ranks", "another model", "nothing"],
)
def test_an_engine_that_did_not_see_it_whole_says_nothing(said: list[Consumed | None]) -> None:
    assert reported_by("boot", ["a", "b"], said) is None


@pytest.mark.parametrize("head", ["lm_head.weight", "language_model.lm_head.weight"])
def test_a_tied_head_may_be_listed_or_not(head: str) -> None:
    bare, both = tensors(EMBEDDINGS), tensors(EMBEDDINGS, head)
    tied = needs(reported_by("boot", bare, [rank(EMBEDDINGS, tied=True)]))
    listed = needs(reported_by("boot", both, [rank(EMBEDDINGS, head, tied=True)]))

    assert differences(bare, both, tied) is None
    assert differences(both, bare, listed) is None
    other = {**both, head: Tensor(head, "BF16", (4, 8), 0, 64)}
    assert "shape [4, 8], expected [8, 4]" in (differences(bare, other, tied) or "")


@pytest.mark.parametrize(
    "drafter", ["model.layers.2.embed_tokens.weight", "mtp.embed_tokens.weight"]
)
@pytest.mark.parametrize("own", [EMBEDDINGS, "model.language_model.embed_tokens.weight"])
def test_a_tied_head_is_compared_with_the_model_s_embeddings_not_a_drafter_s(
    own: str, drafter: str
) -> None:
    """In shards a drafter's tensors may come first."""
    assert untied(tensors(drafter, own, HEAD)) == (HEAD, own)


def test_a_head_of_its_own_is_demanded_whatever_the_config_says() -> None:
    """vLLM unties a head that its checkpoint lists with other values than the embeddings."""
    both = tensors(EMBEDDINGS, HEAD)
    found = needs(reported_by("boot", both, [rank(EMBEDDINGS, HEAD)]))

    why = str(differences(both, tensors(EMBEDDINGS), found))
    assert why.startswith("1 missing tensors: lm_head.weight;")


def test_what_no_file_of_the_base_lists_is_refused() -> None:
    found = needs(reported_by("boot", ["a"], [rank("a")]))

    why = str(differences(tensors("a"), tensors("a", "b"), found))
    assert why.startswith("1 unknown tensors: b;")


@pytest.mark.parametrize(
    "table",
    [
        "model.layers.0.self_attn.rotary_emb.inv_freq",
        "gpt_neox.layers.0.attention.rotary_emb.inv_freq",
        "transformer.rotary_pos_emb.inv_freq",
        "model.layers.0.self_attn.rotary_emb.cos_cached",
    ],
)
def test_a_version_may_hold_tables_of_rotations_that_the_base_lacks(table: str) -> None:
    """Older releases of transformers saved them, and every engine computes its own."""
    found = needs(reported_by("boot", ["a"], [rank("a")]))

    assert differences(tensors("a"), tensors("a", table), found) is None
    other = table.replace("rotary", "other")
    assert str(differences(tensors("a"), tensors("a", other), found)).startswith("1 unknown")


@pytest.mark.parametrize(
    ("ignored", "config"),
    [
        ("mtp.fc.weight", {}),
        ("model.mtp.norm.weight", {}),
        ("model.mtp_layers.0.input_proj.weight", {}),
        ("model.layers.0.self_attn.rotary_emb.inv_freq", {}),
        ("model.layers.2.eh_proj.weight", {"num_hidden_layers": 2}),
        ("language_model.model.layers.2.x", {"text_config": {"num_hidden_layers": 2}}),
        ("model.nextn.0.weight", {}),
    ],
)
def test_without_the_engine_s_word_known_names_are_taken_for_ignored(
    ignored: str, config: dict[str, object]
) -> None:
    model = tensors("model.layers.1.x", EMBEDDINGS, HEAD, ignored)

    assert assumed(model, config) == RequiredTensors(None, (ignored,), tied=False)


@pytest.mark.parametrize(
    ("listed", "config", "expected"),
    [
        ((EMBEDDINGS,), {}, "tied"),
        ((EMBEDDINGS, HEAD), {}, "untied"),
        ((EMBEDDINGS, HEAD), {"tie_word_embeddings": True}, "tied"),
        ((EMBEDDINGS, HEAD), {"text_config": {"tie_word_embeddings": True}}, "tied"),
        ((EMBEDDINGS,), {"tie_word_embeddings": False}, "untied"),
    ],
)
def test_a_config_that_does_not_say_whether_the_head_is_tied_leaves_it_to_the_files(
    listed: tuple[str, ...], config: dict[str, object], expected: str
) -> None:
    """Gemma's does not: its class does."""
    assert assumed(tensors(*listed), config).tied is (expected == "tied")


def test_the_embeddings_give_the_vocabulary_where_the_config_does_not() -> None:
    """Mistral's own format has no config.json: its params.json states the vocabulary."""
    assert vocabulary(tensors("model.language_model.embed_tokens.weight"), {}) == 8
    assert vocabulary(tensors("tok_embeddings.weight"), {}) == 8
    assert vocabulary(tensors("model.norm.weight"), {}) is None


@pytest.mark.parametrize(
    "config",
    [
        {"vocab_size": 7, "text_config": {"vocab_size": 9}},
        {"text_config": {"vocab_size": 7}},
        {"llm_config": {"vocab_size": 7}},
        {"language_config": {"vocab_size": 7}},
        {"thinker_config": {"text_config": {"vocab_size": 7}}, "talker_config": {"vocab_size": 9}},
    ],
)
def test_the_config_of_the_text_gives_the_vocabulary(config: dict[str, object]) -> None:
    """InternVL 2.5 has embeddings of another name; of Qwen Omni the talker's come first."""
    assert vocabulary(tensors("talker.model.embed_tokens.weight"), config) == 7
    assert vocabulary(tensors("language_model.model.tok_embeddings.weight"), config) == 7


@pytest.mark.parametrize("text", ["", "no base64!", "aGVsbG8=", packed(["a" * 999])[:16]])
def test_names_that_were_not_packed_whole_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        unpacked(text)


def test_names_survive_being_packed() -> None:
    names = {
        f"model.layers.{n}.mlp.experts.{m}.up_proj.weight" for n in range(48) for m in range(128)
    }

    assert unpacked(packed(names)) == names
    assert len(packed(names)) < 40_000
    assert unpacked(packed([])) == frozenset()


QWEN_VL = Renames(
    prefix=(
        ("model.language_model.", "language_model.model."),
        ("model.visual.", "visual."),
        ("lm_head.", "language_model.lm_head."),
        ("model.", "language_model.model."),
    )
)
"""As vLLM's Qwen2.5-VL renames: the Hub has one form, newer transformers another."""


def renamed(*base: str, renames: Renames | None = QWEN_VL) -> RequiredTensors:
    said = Consumed(names=packed(base), renames=renames)
    return needs(reported_by("boot", base, [said]))


HUB = ("model.layers.0.q.weight", "visual.patch.weight", "lm_head.weight")
NEWER = ("model.language_model.layers.0.q.weight", "model.visual.patch.weight", "lm_head.weight")


@pytest.mark.parametrize(("base", "version"), [(HUB, NEWER), (NEWER, HUB)])
def test_names_that_the_engine_maps_to_one_are_one(
    base: tuple[str, ...], version: tuple[str, ...]
) -> None:
    model = tensors(*base)

    assert differences(model, tensors(*version), renamed(*base)) is None
    why = str(differences(model, tensors(*version[1:]), renamed(*base)))
    assert why.startswith(f"1 missing tensors: {base[0]};")
    assert "2 missing tensors" in (
        differences(model, tensors(*version), renamed(*base, renames=None)) or ""
    )


def test_a_renamed_tensor_has_the_shape_of_the_base_s() -> None:
    found = tensors(*NEWER) | {NEWER[0]: Tensor(NEWER[0], "BF16", (2, 2), 0, 8)}

    assert "has shape [2, 2], expected [8, 4]" in (
        differences(tensors(*HUB), found, renamed(*HUB)) or ""
    )


def test_two_tensors_for_one_parameter_are_refused() -> None:
    told = differences(tensors(*HUB), tensors(*HUB, *NEWER), renamed(*HUB))

    assert told is not None
    assert "2 unknown tensors" in told


def test_ranks_that_rename_in_two_ways_say_nothing_of_it() -> None:
    said = [Consumed(names=packed("a"), ranks=2, renames=one) for one in (QWEN_VL, None)]

    assert needs(reported_by("boot", "a", said)).renames is None


def test_rules_are_applied_in_vllm_s_order() -> None:
    renames = Renames(
        regex=((r"^enc\.(\d+)", r"blocks.\1"),),
        substr=((".w.", ".weight."),),
        prefix=(("blocks.", "model."),),
        suffix=((".g", ".gamma"),),
    )

    assert renames.of("enc.3.w.w.g") == "model.3.weight.w.gamma"
    assert renames.of("other.w") == "other.w"
