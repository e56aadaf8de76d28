"""The rights that are asked about: those of the chart, in the API server's own words."""

import re
from pathlib import Path

import yaml

from rlfleet_kubectl.core.doctor import access

ROOT = Path(__file__).resolve().parents[5]


def chart_rules() -> set[tuple[str, str, str]]:
    """Return verb, group and resource of each rule that the chart grants where fleets are."""
    text = (ROOT / "charts/rlfleet/templates/_helpers.tpl").read_text()
    found = re.search(r'define "rlfleet.rules" -}}\n(.*?)\n{{- end', text, re.DOTALL)
    assert found is not None
    return {
        (verb, group, resource)
        for rule in yaml.safe_load(found[1])
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_the_operator_is_asked_for_what_the_chart_grants() -> None:
    asked = {(one.verb, one.group, one.resource) for one in access.OF_OPERATOR}

    assert asked == chart_rules()


def test_a_user_is_asked_about_herself_and_an_account_by_its_name_and_groups() -> None:
    rights = (access.Right("get", "", "pods/log"),)
    (mine,) = access.reviews(rights, "rl")
    (its,) = access.reviews(rights, "rl", "system:serviceaccount:sys:op")

    attributes = {"verb": "get", "resource": "pods", "subresource": "log", "namespace": "rl"}
    assert mine["spec"] == {"resourceAttributes": attributes}
    assert mine["kind"] == "SelfSubjectAccessReview"
    assert its["kind"] == "SubjectAccessReview"
    assert its["spec"]["user"] == "system:serviceaccount:sys:op"
    assert "system:serviceaccounts:sys" in its["spec"]["groups"]


def test_an_answer_belongs_to_its_right() -> None:
    rights = access.of_lease("rlfleet")
    replies = [{"status": {"allowed": one.verb == "get"}} for one in rights]

    found = access.answers(rights, "sys", replies)
    assert [one.right.verb for one in found if one.is_allowed] == ["get"]
