"""The clients of `make follow-demo` record what is compared afterwards."""

from tests.contract.subject import Subject
from tests.e2e.following import ask, matching


async def test_a_reply_s_record_has_versions_and_log_probabilities(subject: Subject) -> None:
    await subject.serve(subject.versions.first)

    record = await ask.attempt(subject.engine, [11, 12, 13], tokens=4)

    assert matching.is_whole(record | {"prompt": 0, "wanted": 4}), record
    (span,) = matching.spans(record | {"prompt": 0})
    assert (span.version, span.start, span.end) == (subject.versions.first, 0, 4)


async def test_a_reply_of_an_error_is_lost(subject: Subject) -> None:
    record = await ask.attempt(subject.engine, [], tokens=4)

    assert "error" in record
    assert not matching.is_whole(record)
