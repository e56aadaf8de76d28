"""One cluster, one fleet of two real vLLM workers; each test leaves it serving."""

import asyncio
from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path

import httpx
import pytest

from dev import target
from dev.demo import stage
from dev.shell import Shell
from rlfleet_contract import paths
from rlfleet_contract.worker.report import Stage
from tests.contract.subject import Subject, Versions, client_of
from tests.e2e.evidence import gathered
from tests.e2e.scenario import FLEET, NAMESPACE, POD_S, Fleet, Trainer, until

SOLO = "solo"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Look last at what the operator asked: every other test has it ask more."""
    last = Path(__file__).with_name("test_grants.py")
    items.sort(key=lambda item: item.path == last)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Put with a failure how the cluster was then: by the end of the run it is gone."""
    report = yield
    shell = getattr(item, "funcargs", {}).get("shell")
    if report.failed and shell is not None:
        report.sections.append(("the cluster", gathered(shell)))
    return report


@pytest.fixture(scope="session")
def shell() -> Iterator[Shell]:
    """A namespace in which everything but a fleet is there."""
    made = Shell(target.kubeconfig(), NAMESPACE, is_quiet=True)
    made.run("kubectl", "delete", "namespace", NAMESPACE, "--ignore-not-found")
    made.run("kubectl", "delete", "pv", f"checkpoints-{NAMESPACE}", "--ignore-not-found")
    stage.everything(made)
    yield made
    made.run("kubectl", "delete", "namespace", NAMESPACE, "--wait=false")


@pytest.fixture(scope="session")
def trainer(shell: Shell) -> Trainer:
    made = Trainer(shell)
    made.start()
    return made


@pytest.fixture(scope="session")
def made_fleet(shell: Shell) -> Fleet:
    shell.kubectl("apply", "-f", str(stage.DEMO / "fleet.yaml"))
    fleet = Fleet(shell)
    # Two engines start on two cores, and other work may share them.
    fleet.wait_synced(900)
    return fleet


@pytest.fixture
def fleet(made_fleet: Fleet) -> Fleet:
    """The fleet, two workers that serve step-0."""
    made_fleet.reset("step-0", replicas=2)
    made_fleet.wait_synced()
    # A worker of an earlier test may still be draining, and status have it for a second more.
    until(
        lambda: len(made_fleet.pods()) == len(made_fleet.status()["workers"]) == 2,
        POD_S,
        "two pods, and two workers in status",
    )
    return made_fleet


@pytest.fixture(scope="session")
def solo(shell: Shell, trainer: Trainer) -> Fleet:
    """A fleet of one worker that only a test drives: it names no version."""
    text = (stage.DEMO / "fleet.yaml").read_text()
    text = text.replace(f"name: {FLEET}\nspec", f"name: {SOLO}\nspec").replace(
        "replicas: 2", "replicas: 1"
    )
    # Replies say then how much of a prompt the cache had.
    text = text.replace("bfloat16]", "bfloat16, --enable-prompt-tokens-details]")
    text = text.replace("  sidecar:\n", "  sidecar:\n    experimentalTransfer: true\n")
    assert "details" in text
    assert "experimentalTransfer" in text
    shell.kubectl("apply", "-f", "-", stdin=text.replace("  weightVersion: step-0\n", ""))
    versions = Versions()
    trainer.write(versions.incomplete, "step-1", "(d / 'STABLE').unlink()")
    trainer.write(versions.broken, "step-1", "os.truncate(f, f.stat().st_size // 2)")
    fleet = Fleet(shell, SOLO)
    fleet.wait_synced()
    return fleet


@pytest.fixture(scope="session")
def ways(solo: Fleet) -> tuple[str, str]:
    """Where the worker's sidecar and its engine answer: kubectl takes longer than most tests."""
    address = solo.pods()[f"{SOLO}-0"]["status"]["podIP"]
    return f"http://{address}:8090", f"http://{address}:8000"


@pytest.fixture(scope="session")
def bearer(solo: Fleet) -> dict[str, str]:
    """What opens its sidecar."""
    return {"authorization": f"Bearer {solo.token()}"}


@pytest.fixture
async def subject(
    solo: Fleet, ways: tuple[str, str], bearer: dict[str, str]
) -> AsyncIterator[Subject]:
    """The worker, at rest."""
    async with client_of(ways[0], **bearer) as admin, client_of(ways[1]) as engine:
        # vLLM on two busy cores takes its time.
        admin.timeout = engine.timeout = httpx.Timeout(120)
        made = Subject(admin, engine, "qwen", Versions(), "/data/weights")
        if not await _is_at_rest(made):
            await asyncio.to_thread(solo.wait_synced)
        yield made
        await _let_go(made)


async def _is_at_rest(subject: Subject) -> bool:
    report = await subject.report()
    return report.stage is Stage.OPEN and report.running is None


async def _let_go(subject: Subject) -> None:
    """Open a worker that a test has left paused: a trainer's pause lasts for long."""
    report = await subject.report()
    if report.stage is Stage.PAUSED and report.proved is not None:
        await subject.ok(paths.RESUME_PATH, report.proved, operation="after-the-test")
