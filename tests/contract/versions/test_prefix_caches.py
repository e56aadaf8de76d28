"""What an engine keeps of the weights before: nothing that the next ones would compute with."""

import pytest

from rlfleet_contract import paths
from rlfleet_contract.worker.commands import KVCache
from tests.contract.subject import Subject
from tests.fakes.worker import Worker


@pytest.mark.parametrize("kv_cache", KVCache)
async def test_no_image_counts_as_encoded_after_a_reload(
    fake: Worker, subject: Subject, kv_cache: KVCache
) -> None:
    await subject.ok(paths.PREPARE_PATH, subject.versions.first)
    fake.engine.encoded = {"image"}

    await subject.ok(paths.UPDATE_WEIGHTS_PATH, subject.versions.first, kv_cache=kv_cache)

    assert fake.engine.encoded == set()


async def test_no_image_counts_as_encoded_after_a_trainer_s_update_that_keeps_the_caches(
    fake: Worker, served: Subject
) -> None:
    flushes = fake.engine.flushes
    fake.engine.encoded = {"image"}
    await served.admin.post("/pause", params={"mode": "keep", "clear_cache": "false"})
    body = {"weight_dir": f"{served.weights}/{served.versions.second}"}
    reply = await served.admin.post("/update_weights", json=body)

    assert reply.status_code == 200, reply.text
    assert (fake.engine.encoded, fake.engine.flushes) == (set(), flushes)


async def test_a_flush_empties_what_lies_outside_the_engine_too(
    fake: Worker, subject: Subject
) -> None:
    await subject.serve(subject.versions.first)

    assert fake.engine.flushed_outside == fake.engine.flushes > 0
