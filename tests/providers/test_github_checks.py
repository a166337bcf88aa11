import json
from typing import Any

import pytest

from compass_forged.errors import BadAnswer
from compass_forged.providers.forge_answer import ForgeAnswer
from compass_forged.providers.github_checks import (
    FAILED_SHOWN,
    NAME_SHOWN_CHARS,
    Check,
    read_check_runs,
    read_statuses,
    roll_up,
)
from compass_forged.wire.schema import Checks


def told(body: Any) -> ForgeAnswer:
    return ForgeAnswer(200, {}, json.dumps(body).encode())


def runs(*given: dict[str, Any]) -> list[Check]:
    made = [
        {"id": index + 1, "name": f"run {index}", "status": "completed", **each} for index, each in enumerate(given)
    ]
    return read_check_runs(told({"total_count": len(made), "check_runs": made})).good


def statuses(*states: str) -> list[Check]:
    made = [{"id": index + 1, "context": f"status {index}", "state": state} for index, state in enumerate(states)]
    return read_statuses(told({"state": "pending", "total_count": len(made), "statuses": made})).good


def ended(*conclusions: str | None) -> list[Check]:
    return runs(*({"conclusion": each} for each in conclusions))


@pytest.mark.parametrize(
    ("checks", "state"),
    [
        ([], "none"),
        (ended("success"), "success"),
        (ended("success", "neutral", "skipped"), "success"),
        (ended("neutral", "skipped"), "neutral"),
        (ended("success", "failure"), "failure"),
        (ended("cancelled"), "failure"),
        (ended("timed_out"), "failure"),
        (ended("action_required"), "failure"),
        (ended("startup_failure"), "failure"),
        (ended("stale"), "pending"),
        (ended("success", None), "pending"),
        (ended("what is this"), "pending"),
        (runs({"status": "in_progress", "conclusion": None}, {"conclusion": "success"}), "pending"),
        (runs({"status": "queued", "conclusion": "success"}), "pending"),  # a run that is run again
        (runs({"status": "queued", "conclusion": None}, {"conclusion": "failure"}), "failure"),
        (statuses("success"), "success"),
        (statuses("success", "pending"), "pending"),
        (statuses("pending", "error"), "failure"),
        (statuses("failure"), "failure"),
        (ended("success") + statuses("failure"), "failure"),
        (ended("success") + statuses("pending"), "pending"),
    ],
)
def test_what_checks_come_to(checks: list[Check], state: str) -> None:
    found = roll_up(checks, complete=True)
    assert found is not None
    assert (found.state, found.total) == (state, len(checks))


def test_of_one_check_the_newest_run_counts() -> None:
    suite = {"name": "build", "check_suite": {"id": 1}, "app": {"id": 1}}
    old = {**suite, "conclusion": "failure", "started_at": "2026-01-02T03:04:05Z"}
    new = {**suite, "conclusion": "success", "started_at": "2026-01-02T03:04:06+00:00"}
    for given in ((old, new), (new, old)):
        assert roll_up(runs(*given), complete=True) == Checks(state="success", total=1)
    undated = {**suite, "conclusion": "failure", "started_at": None}
    assert roll_up(runs(undated, {**undated, "conclusion": "success"}), complete=True) == Checks(
        state="success", total=1
    )


@pytest.mark.parametrize("other", [{"check_suite": {"id": 2}}, {"app": {"id": 2}}, {"name": "Build"}])
def test_checks_that_only_share_a_name_both_count(other: dict[str, Any]) -> None:
    one = {"name": "build", "check_suite": {"id": 1}, "app": {"id": 1}, "conclusion": "failure"}
    found = roll_up(runs(one, {**one, "conclusion": "success", **other}), complete=True)
    assert found == Checks(state="failure", total=2, failed=["build"])


def test_a_status_and_a_run_of_one_name_both_count() -> None:
    run = runs({"name": "status 0", "conclusion": "success"})
    assert roll_up(run + statuses("failure"), complete=True) == Checks(state="failure", total=2, failed=["status 0"])


def test_without_the_rest_only_a_failure_is_certain() -> None:
    assert roll_up(ended("success"), complete=False) is None
    assert roll_up([], complete=False) is None
    found = roll_up(ended("success", "failure"), complete=False)
    assert found == Checks(state="failure", total=2, failed=["run 1"])


def test_failed_names_are_sorted_and_few_and_short() -> None:
    many = runs(*({"name": f"{index:03}" + "x" * 300, "conclusion": "failure"} for index in range(80, 0, -1)))
    found = roll_up(many, complete=True)
    assert found is not None
    assert found.total == 80
    assert len(found.failed) == FAILED_SHOWN
    assert found.failed == sorted(found.failed)
    assert {len(name) for name in found.failed} == {NAME_SHOWN_CHARS}


def test_a_run_that_cannot_be_read_is_left_out_and_counted() -> None:
    body = {"check_runs": [{"name": "a", "status": "completed"}, {"name": 7}, {"name": "b", "status": "queued"}]}
    found = read_check_runs(told(body))
    assert ([each.name for each in found.good], found.broken) == (["a", "b"], (1,))


@pytest.mark.parametrize("body", [{}, [], {"check_runs": None}, {"check_runs": [{}]}, {"statuses": [1]}])
def test_what_is_no_list_of_checks_is_bad(body: Any) -> None:
    for read in (read_check_runs, read_statuses):
        with pytest.raises(BadAnswer):
            read(told(body))
