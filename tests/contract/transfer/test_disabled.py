"""A worker whose fleet did not switch the experimental transfer on."""

import pytest

from rlfleet_contract.worker.report import Stage
from tests.contract.subject import Subject
from tests.contract.transcripts import PAUSE, Call, send
from tests.contract.transfers import DYNAMO_INIT, GROUP, PART, posted
from tests.fakes.worker import Worker


@pytest.fixture
def identity() -> dict[str, str]:
    return {"experimental_transfer": "false"}


@pytest.mark.parametrize(
    "call",
    [
        posted("/init_weight_transfer_engine", 400, {"init_info": GROUP}),
        Call(DYNAMO_INIT.request, 400, {}, DYNAMO_INIT.body),
    ],
    ids=["vllm", "dynamo"],
)
async def test_a_transfer_that_is_off_is_refused_with_the_setting_and_pauses_nothing(
    served: Subject, fake: Worker, call: Call
) -> None:
    reply = await send(call, served)

    assert "spec.sidecar.experimentalTransfer" in reply.text
    assert fake.engine.transfer.calls == []
    assert (await served.report()).stage is Stage.OPEN


async def test_a_paused_worker_whose_transfer_is_off_is_in_no_group(
    served: Subject, fake: Worker
) -> None:
    await send(PAUSE, served)

    for path in ("/start_weight_update", "/update_weights"):
        await send(posted(path, 409, {"update_info": PART}), served)

    assert fake.engine.transfer.calls == []
