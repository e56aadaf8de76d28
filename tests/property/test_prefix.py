"""Any conversation, cut into ids in any way, continues with the ids that it was made with."""

from dataclasses import dataclass

from hypothesis import assume, given
from hypothesis import strategies as st

from rlfleet_engine.rewrite.shapes.kept_ids import FIELD, KeptIds, prefix_of, so_far, without
from tests.fakes.tokenizer import END, TOKENIZER, VOCABULARY, rendered, spelled

TEXTS = st.text(alphabet="onetwhrfu <|", max_size=12)
ENDS = st.sampled_from([[], [END], [0]])
"""A model ends its turn by itself, or by another token, or is cut off."""


@dataclass(frozen=True)
class Talk:
    """A conversation; its assistant's last turn was made of ids of its own."""

    messages: list[dict[str, str]]
    made_at: int
    ids: list[int]

    @property
    def asked(self) -> dict[str, object]:
        return {"messages": self.messages, FIELD: self.ids}

    @property
    def prompt(self) -> list[int]:
        """What is rendered of it, as if it had no ids."""
        return rendered({"messages": self.messages})


@st.composite
def talks(draw: st.DrawFn) -> Talk:
    before = draw(st.lists(TEXTS, min_size=1, max_size=3))
    after = draw(st.lists(TEXTS, max_size=2))
    said = draw(TEXTS)
    roles = ["user", "assistant"]
    messages = [{"role": roles[n % 2], "content": text} for n, text in enumerate(before)]
    prompt = rendered({"messages": messages})
    made = draw(st.sampled_from([spelled(said), TOKENIZER.encode(said)]))
    messages.append({"role": "assistant", "content": said})
    made_at = len(messages)
    messages += [{"role": "user", "content": text} for text in after]
    return Talk(messages, made_at, [*prompt, *made, *draw(ENDS)])


def repaired(talk: Talk) -> list[int]:
    prefix = prefix_of(talk.asked)
    assert prefix is not None
    asked = without(talk.asked)
    return prefix.spliced(rendered(so_far(asked, prefix)), rendered(asked), VOCABULARY)


@given(talks())
def test_the_prompt_begins_with_the_very_ids_that_it_is_to_keep(talk: Talk) -> None:
    made = repaired(talk)

    assert made[: len(talk.ids)] == talk.ids


@given(talks())
def test_what_follows_them_is_the_template_s(talk: Talk) -> None:
    followed = rendered({"messages": talk.messages[talk.made_at :]})
    between = TOKENIZER.encode("\n")

    ends = [END] if talk.ids[-1] not in VOCABULARY.ends else []
    assert repaired(talk)[len(talk.ids) :] == [*ends, *between, *followed]


@given(talks())
def test_the_text_is_the_one_that_was_rendered(talk: Talk) -> None:
    assume(talk.ids[-1] != 0)

    assert TOKENIZER.decode(repaired(talk)) == TOKENIZER.decode(talk.prompt)


@given(talks())
def test_ids_that_were_kept_once_are_kept_again(talk: Talk) -> None:
    """What a next turn is made from has the ids of all turns before it."""
    first = repaired(talk)
    more = {"role": "assistant", "content": "four"}
    later = Talk([*talk.messages, more], 0, [*first, *spelled("four"), END])

    assert repaired(later)[: len(first)] == first


@given(talks())
def test_a_repair_with_what_was_rendered_changes_nothing(talk: Talk) -> None:
    prefix = KeptIds(FIELD, talk.prompt, talk.made_at)
    shown = so_far(without(talk.asked), prefix)
    own = KeptIds(FIELD, rendered(shown)[:-1], talk.made_at)

    assert own.spliced(rendered(shown), talk.prompt, VOCABULARY) == talk.prompt
