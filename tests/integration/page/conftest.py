"""A browser for each process of tests, and `kubectl rlf dashboard` as users run it."""

import asyncio
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from dev.kubernetes import apiserver
from tests.integration.chart.rendering import rendered
from tests.integration.conftest import kubectl
from tests.integration.page import browser
from tests.integration.page.browser import Browser

Dashboards = Callable[..., "RunningDashboard"]


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser.running(tmp_path_factory.mktemp("chromium")) as found:
        yield found


@pytest.fixture
async def page(chromium: Browser) -> AsyncIterator[Browser]:
    """The window, at a desktop's size; it holds no stream and no password afterwards."""
    await chromium.looks()
    await chromium.errors()
    yield chromium
    await chromium.open("about:blank")


class RunningDashboard:
    """The command, until it is ended."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.url = process.stdout.readline().strip() if process.stdout else ""
        """The address that it printed."""

    def end(self) -> None:
        """End it as a service does; what it has started must end too."""
        self.process.terminate()
        self.process.communicate(timeout=60)


@pytest.fixture
def dashboard(
    user: dict[str, str], namespace: str
) -> Iterator[Callable[..., "asyncio.Future[RunningDashboard]"]]:
    """Run `kubectl rlf dashboard WORDS` in the test's namespace."""
    running: list[RunningDashboard] = []

    def start(*words: str) -> RunningDashboard:
        flags = ["--no-browser", f"--namespace={namespace}", *words]
        argv = ["kubectl", "rlf", "dashboard", *flags]
        quiet = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        running.append(RunningDashboard(subprocess.Popen(argv, env=user, text=True, **quiet)))  # type: ignore[call-overload]
        assert running[-1].url.startswith("http://127.0.0.1:"), running[-1].url
        return running[-1]

    async def started(*words: str) -> RunningDashboard:
        return await asyncio.to_thread(start, *words)

    yield started  # type: ignore[misc]
    for one in running:
        one.end()


def grant(plane: apiserver.ControlPlane, namespace: str, role: str, name: str, verbs: str) -> None:
    """Let a user do this with the namespace's fleets."""
    about = f"--namespace={namespace}"
    resource = "--resource=rlinferencefleets.rlfleet.dev"
    kubectl(plane, "create", "role", role, f"--verb={verbs}", resource, about)
    kubectl(plane, "create", "rolebinding", role, f"--role={role}", f"--user={name}", about)


@pytest.fixture
def viewer(plane: apiserver.ControlPlane, namespace: str) -> str:
    """A user with read access to fleets."""
    grant(plane, namespace, "viewer", "sam", "get,list,watch")
    return "sam"


@pytest.fixture
def trainer(plane: apiserver.ControlPlane, namespace: str) -> Iterator[str]:
    """A user with the right to patch fleets, of which the chart's policy leaves the version."""
    policies = rendered("--show-only=templates/admission-policy.yaml")
    grant(plane, namespace, "trainer", "tim", "get,list,watch,patch")
    kubectl(plane, "apply", "--filename=-", stdin=policies)
    yield "tim"
    kubectl(plane, "delete", "--filename=-", stdin=policies)
