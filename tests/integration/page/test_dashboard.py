"""`kubectl rlf dashboard` in a real browser, against a real API server."""

import asyncio
import json
import subprocess
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from dev.kubernetes.apiserver import ControlPlane
from rlfleet_operator.kube.client import Json, KubeClient, fleet_path
from tests.hollow import HollowNode
from tests.integration.conftest import Fleet, Operator, kubectl, until
from tests.integration.page.browser import Browser
from tests.integration.page.conftest import RunningDashboard
from tests.unit.rlfleet_view.recordings import fleet as recorded

pytestmark = pytest.mark.integration

Start = Callable[..., Awaitable[RunningDashboard]]
LEAST_CONTRAST = 4.5
"""WCAG's level AA, for text."""
HOSTILE = '<img src=x onerror="document.title=1"><script>alert(1)</script>'
LONG = "a-version-with-a-name-that-is-much-longer-than-a-phone-is-wide-" * 2


async def write_status(kube: KubeClient, fleet: Fleet, **changes: Any) -> None:
    """Write a recorded status: no operator is at work on this fleet."""
    status: Json = recorded("stalled").status | changes
    generation = (await fleet.get())["metadata"]["generation"]
    for condition in status["conditions"]:
        condition["observedGeneration"] = generation
    body = {"status": status | {"observedGeneration": generation}}
    await kube.patch(fleet_path(fleet.namespace, fleet.name) + "/status", body)


async def test_a_rollout_and_why_it_stalls_show_without_a_reload(
    page: Browser, dashboard: Start, operator: Operator, node: HollowNode, fleet: Fleet
) -> None:
    running = await dashboard()
    await page.open(running.url)
    await page.sees("No fleets here")
    await page.run("window.isKept = true")

    await fleet.create(weightVersion="step-1", replicas=2)
    await page.sees("Synced", "#part-head")
    assert "token" not in await page.run("return location.href")
    assert await page.text("#part-workers li strong") == "qwen-0"
    assert await page.count("#part-workers .pill.good") == 2

    await fleet.patch(weightVersion="step-2")
    await page.sees("step-1 → step-2", "#part-rollout")
    await page.sees("Completed", "#part-rollout")
    assert await page.count("#part-windows li") >= 1

    await fleet.patch(weightVersion="step-9", rollout={"timeouts": {"prepareSeconds": 1}})
    await page.sees("Stalled: VersionNotFound", "#part-alerts")
    assert "/weights/step-9 does not exist" in await page.text("#part-alerts")
    assert "mount or write the directory" in await page.text("#part-alerts li")

    assert await page.run("return window.isKept")
    assert await page.hosts() == {httpx.URL(running.url).netloc.decode()}
    assert await page.errors() == []


async def test_a_deleted_fleet_disappears(page: Browser, dashboard: Start, fleet: Fleet) -> None:
    await fleet.create()
    await page.open((await dashboard()).url)
    await page.sees("qwen", "#part-head")

    uid = (await fleet.get())["metadata"]["uid"]
    await fleet.kube.delete(fleet_path(fleet.namespace, fleet.name), uid)
    await page.sees("No fleets here")


async def test_a_click_changes_the_spec_once_it_is_confirmed(
    page: Browser, dashboard: Start, fleet: Fleet
) -> None:
    await fleet.create(weightVersion="step-1")
    await page.open((await dashboard()).url)
    await page.sees("Set version", "#part-actions")
    assert await page.count("[data-action=promote], [data-action=resume]") == 0

    await page.click("[data-action=set-version]")
    await page.type("dialog input[name=version]", "not a version")
    await page.click("dialog button.primary")
    await page.sees("spec.weightVersion", "dialog .refused")
    await page.run("document.querySelector('dialog input').select()")
    await page.type("dialog input[name=version]", "step-2")
    await page.click("dialog button.primary")
    await page.sees("spec.weightVersion: step-1 -> step-2", "dialog")
    assert (await fleet.get())["spec"]["weightVersion"] == "step-1"

    await page.click("dialog button.primary")

    async def is_changed() -> bool:
        return bool((await fleet.get())["spec"]["weightVersion"] == "step-2")

    await until(is_changed)
    await page.click("[data-action=pause]")
    await page.sees("spec.rollout.paused: false -> true", "dialog")
    await fleet.patch(weightVersion="step-3")
    await page.click("dialog button.primary")
    await page.sees("another client changed the spec", "dialog")
    assert not (await fleet.get())["spec"]["rollout"]["paused"]


async def test_only_what_was_shown_is_applied(
    page: Browser, dashboard: Start, fleet: Fleet
) -> None:
    await fleet.create(weightVersion="step-1")
    await page.open((await dashboard()).url)
    await page.sees("Set version", "#part-actions")
    await page.click("[data-action=set-version]")
    # The check's answer comes when the field was edited.
    await page.run("""const sent = window.fetch;
        window.fetch = (...words) => new Promise((go) => {
          window.answer = () => { window.fetch = sent; go(sent(...words)); };
        });""")
    await page.run("document.querySelector('dialog input').select()")
    await page.type("dialog input[name=version]", "step-2")
    await page.click("dialog button.primary")
    await page.type("dialog input[name=version]", "0")
    await page.run("window.answer()")

    async def is_answered() -> bool:
        return await page.count("dialog button.primary:enabled") == 1

    await until(is_answered)
    assert await page.text("dialog .shown") == ""
    assert await page.text("dialog button.primary") == "Check"
    await page.click("dialog button.primary")
    await page.sees("spec.weightVersion: step-1 -> step-20", "dialog")
    await page.click("dialog button.primary")

    async def is_changed() -> bool:
        return bool((await fleet.get())["spec"]["weightVersion"] == "step-20")

    await until(is_changed)


async def test_a_user_without_the_right_gets_no_buttons_and_no_change(
    page: Browser, dashboard: Start, fleet: Fleet, viewer: str
) -> None:
    await fleet.create(weightVersion="step-1")
    await page.open((await dashboard(f"--as={viewer}")).url)

    await page.sees("read-only: you may not patch qwen", "#part-actions")
    assert await page.count("button") == 0
    body = {
        "key": f"{fleet.namespace}/qwen",
        "action": "set-version",
        "fields": {"version": "step-2"},
        "dryRun": False,
        "generation": 1,
    }
    ask = """return (await fetch("change", {method: "POST", body: arguments[0],
        headers: {"Content-Type": "application/json"}})).text()"""
    said = await page.run(ask, json.dumps(body))
    assert "forbidden" in json.loads(said)["error"]
    assert (await fleet.get())["spec"]["weightVersion"] == "step-1"


async def test_a_trainer_gets_the_buttons_that_the_chart_s_policy_allows(
    page: Browser, dashboard: Start, fleet: Fleet, plane: ControlPlane, trainer: str
) -> None:
    await fleet.create(weightVersion="step-1")
    words = ["patch", "rlf", "qwen", f"--as={trainer}", f"--namespace={fleet.namespace}"]
    words += ["--type=merge", '--patch={"spec":{"replicas":7}}', "--dry-run=server"]

    async def answer() -> str:
        done = await asyncio.to_thread(kubectl, plane, *words, check=False)
        return done.stdout + done.stderr

    async def is_enforced() -> bool:
        return "denied request" in await answer()

    # The API server enforces a new policy after some seconds.
    await until(is_enforced, describe=answer)

    await page.open((await dashboard(f"--as={trainer}")).url)
    await page.sees("Set version", "#part-actions")

    assert await page.count("#part-actions button") == 1
    denied = await page.text("#part-actions .denied")
    assert denied.startswith("not yours: Pause (a trainer may change spec.weightVersion")


async def test_names_and_messages_are_text_whatever_stands_in_them(
    page: Browser, dashboard: Start, kube: KubeClient, fleet: Fleet
) -> None:
    await fleet.create(weightVersion="step-9")
    status = recorded("stalled").status
    workers = [row | {"message": HOSTILE, "version": HOSTILE} for row in status["workers"]]
    conditions = [row | {"message": HOSTILE} for row in status["conditions"]]
    rollout = status["rollout"] | {"message": HOSTILE, "to": HOSTILE}
    changes = {"workers": workers, "conditions": conditions, "rollout": rollout}
    await write_status(kube, fleet, **changes, target=HOSTILE, summary=HOSTILE)
    await page.open((await dashboard()).url)

    await page.sees(HOSTILE, "#part-alerts")
    assert HOSTILE in await page.text("#part-workers")
    assert HOSTILE in await page.text("#part-rollout")
    assert await page.count("main img, main script, nav img") == 0
    assert await page.run("return document.title") == "qwen · Stalled · rlfleet"
    assert await page.errors() == []
    # The policy holds even if a script would do what ours do not.
    refused = (
        """try { document.body.innerHTML = "<p>"; return "done" } catch (e) { return e.name }"""
    )
    assert await page.run(refused) == "TypeError"
    away = """return fetch("http://192.0.2.1/").then(() => "sent", () => "refused")"""
    assert await page.run(away) == "refused"
    assert any("Content Security Policy" in error for error in await page.errors())


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_every_text_can_be_read_on_a_phone_in_both_schemes(
    page: Browser, dashboard: Start, kube: KubeClient, fleet: Fleet, scheme: str
) -> None:
    await fleet.create(weightVersion="step-9")
    workers = [
        row | {"version": LONG, "message": LONG} for row in recorded("stalled").status["workers"]
    ]
    await write_status(kube, fleet, workers=workers, target=LONG, serving=LONG)
    await page.looks(width=360, height=740, scheme=scheme)
    await page.open((await dashboard()).url)
    await page.sees("Stalled: VersionNotFound", "#part-alerts")
    await page.sees("Set version", "#part-actions")

    width = await page.run("return [document.documentElement.scrollWidth, innerWidth]")
    assert width == [360, 360]
    shown = await page.contrasts()
    assert len(shown) > 60
    assert [(ratio, text) for ratio, text in shown if ratio < LEAST_CONTRAST] == []
    dark = await page.run("return getComputedStyle(document.body).backgroundColor")
    assert (dark == "rgb(15, 19, 24)") is (scheme == "dark")


async def test_nothing_that_it_started_outlives_it(
    page: Browser, dashboard: Start, fleet: Fleet, namespace: str
) -> None:
    await fleet.create(weightVersion="step-1", replicas=0)
    running = await dashboard()
    await page.open(running.url)
    # kubectl's proxy runs as soon as engines are asked, its watch from the beginning.
    await page.sees("since this page looks at them", "#part-load")

    async def are_two() -> bool:
        # The question whether the user may patch has ended.
        return len(children(running.process.pid)) == 2

    await until(are_two)
    known = children(running.process.pid)
    await asyncio.to_thread(running.end)

    assert [pid for pid in known if is_alive(pid)] == []
    await page.sees("reconnecting", "#link")


def children(pid: int) -> list[int]:
    found = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, check=False
    )
    return [int(word) for word in found.stdout.split()]


def is_alive(pid: int) -> bool:
    return subprocess.run(["ps", "-p", str(pid)], capture_output=True, check=False).returncode == 0
