"""That the benchmarks run and say what they promise; how fast anything is, is not tested."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.support.goals import Direction, measured, ratios
from bench.support.processes import ChildFailed, child

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.process


def run_quickly(name: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, str(ROOT / "bench" / name), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_roundtrip_prints_one_json_object_with_every_shape_and_its_ratios() -> None:
    done = run_quickly("bench_roundtrip.py", "--quick", "--json", "--repetitions", "1")
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["benchmark"] == "roundtrip"
    assert {"python", "trio", "msgspec", "grpcio", "protobuf", "connectrpc", "uvicorn", "cores"} <= report[
        "machine"
    ].keys()
    goals = {goal["key"]: goal for goal in report["goals"]}
    assert goals.keys() == {
        "one_echo",
        "one_bare",
        "pipelined_bare",
        "one_grpc",
        "one_library",
        "pipelined_grpc",
        "pipelined_grpc_light",
        "pipelined_connect",
        "pipelined_asgi",
        "pipelined_grpc_cpu",
        "fleet_grpc_cpu",
        "pipelined_connect_cpu",
        "pipelined_grpc_bytes",
        "fleet_grpc",
        "fleet_grpc_light",
        "large_grpc",
    }
    for goal in goals.values():
        check_verdict(goal)
    results = {(result["shape"], result["client"]): result for result in report["results"]}
    assert results.keys() == {
        ("one", "light"),
        ("one", "library"),
        ("pipelined", "light"),
        ("pipelined_joined", "light"),
        ("pipelined", "library"),
        ("fleet", "light"),
        ("fleet", "library"),
        ("large", "light"),
        ("large", "library"),
    }
    for (shape, client), result in results.items():
        references = {"echo", "grpc", "grpc_bytes"} if client == "library" else {"echo", "bare"}
        if (shape, client) == ("pipelined", "light"):
            references |= {"connect", "asgi"}
        if shape == "pipelined_joined":
            references = {"echo"}
        assert result["metrics"].keys() == {"ours"} | references
        assert result["ratios"].keys() == {f"ours/{name}" for name in references}
        speed = {"p50_us", "p99_us"} if shape in {"one", "large"} else {"calls_per_second"}
        for contender in result["metrics"].values():
            assert contender.keys() == speed | {"server_us", "client_us", "cpu_us"}
            for spread in contender.values():
                assert spread["min"] <= spread["median"] <= spread["max"]
                assert len(spread["repetitions"]) == 1
            assert all(contender[name]["median"] > 0 for name in speed)


GOALS_OF: dict[str, set[str]] = {
    "unwaited": {"replay_echo", "replay_waiting", "refused_echo", "refused_waiting"},
    "isolation": {
        "slow",
        "fairness",
        "first_apart",
        "first_median",
        "first_last",
        "first_median_ms",
        "first_last_ms",
    },
    "etags": {
        "naive_primary",
        *(
            f"{name}_{what}"
            for name in ("step", "spread")
            for what in ("primary", "share", "requests", "points", "wrong", "refused", "wait", "wait_p99")
        ),
    },
    "forge_call": {
        "httpx_cpu",
        "httpx_crowd",
        "transport_cpu",
        "transport_httpx",
        "transport_crowd",
        "call_cpu",
        "call_httpx",
        "call_crowd",
    },
    "mcp": {
        "comment",
        "comment_high",
        "comment_us",
        "create",
        "create_high",
        "create_us",
        "plain_us",
        "start",
        "start_ms",
    },
    "footprint": {
        "ready_cpu",
        "ready_cpu_trio",
        "resident_memory",
        "resident_all",
        "resident_trio",
        "container",
        "idle_serial_10",
        "idle_serial_100",
        "idle_pipelined_10",
        "idle_pipelined_100",
    },
    "store": {
        "lookup_asyncpg",
        "record_asyncpg",
        "joined_asyncpg",
        "joined_unjoined",
        "lookup_us",
        "lookup_asyncpg_us",
        "record_us",
        "record_asyncpg_us",
        "joined_rate",
        "unjoined_rate",
        "asyncpg_rate",
    },
}
WITHOUT_GOAL = {
    "one_bare",
    "pipelined_bare",
    "comment_high",
    "comment_us",
    "create_high",
    "create_us",
    "plain_us",
    "start_ms",
    "pipelined_grpc_cpu",
    "fleet_grpc_cpu",
    "pipelined_connect_cpu",
    "pipelined_asgi",
    "pipelined_grpc_bytes",
    "first_median",
    "first_last",
    "first_median_ms",
    "first_last_ms",
    "ready_cpu_trio",
    "resident_memory",
    "resident_trio",
    "httpx_cpu",
    "httpx_crowd",
    "transport_cpu",
    "call_cpu",
    "naive_primary",
    *(f"{name}_{what}" for name in ("step", "spread") for what in ("primary", "requests", "wait", "wait_p99")),
    "lookup_us",
    "lookup_asyncpg_us",
    "record_us",
    "record_asyncpg_us",
    "joined_rate",
    "unjoined_rate",
    "asyncpg_rate",
}


def check_verdict(goal: dict[str, Any]) -> None:
    """What is said of a goal is what its figures say; whether it is met depends on the machine."""
    value = goal["value"]
    least = 0 if goal["goal"] == 0 else 1e-9
    assert least <= value["min"] <= value["median"] <= value["max"]
    if goal["key"] in WITHOUT_GOAL:
        assert (goal["direction"], goal["goal"], goal["met"]) == (None, None, None)
        return
    within = value["median"] <= goal["goal"] if goal["direction"] == "at most" else value["median"] >= goal["goal"]
    assert goal["met"] is within
    assert goal["title"]


@pytest.mark.parametrize(
    "name",
    [
        "unwaited",
        "isolation",
        "forge_call",
        "etags",
        "mcp",
        pytest.param("footprint", marks=pytest.mark.postgres),
        pytest.param("store", marks=pytest.mark.postgres),
    ],
)
def test_a_benchmark_prints_one_json_object_with_a_verdict_on_each_goal(name: str) -> None:
    done = run_quickly(f"bench_{name}.py", "--quick", "--json", "--repetitions", "1")
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    assert (report["benchmark"], report["repetitions"]) == (name, 1)
    assert {goal["key"] for goal in report["goals"]} == GOALS_OF[name]
    for goal in report["goals"]:
        check_verdict(goal)


def test_a_benchmark_prints_a_table_with_goals_for_people() -> None:
    done = run_quickly("bench_unwaited.py", "--quick", "--repetitions", "1")
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith(("replayed create", "refusal"))]
    assert len(lines) == 4
    assert all(line.endswith(("met", "missed")) for line in lines)


def test_the_profile_accounts_for_all_samples() -> None:
    done = run_quickly("profile_calls.py", "--quick", "--json")
    assert done.returncode == 0, done.stderr
    profile: dict[str, Any] = json.loads(done.stdout)
    assert profile["calls"] > 0
    assert profile["samples"] > 0
    assert sum(part["percent"] for part in profile["parts"]) == pytest.approx(100, abs=5)  # each is rounded
    assert {"trio", "compass_forged.hub"} <= {part["name"] for part in profile["parts"]}


@pytest.mark.parametrize(
    ("values", "goal", "met"),
    [
        ([1.0, 2.0, 9.0], ("at most", 2.0), True),
        ([1.0, 2.1, 2.2], ("at most", 2.0), False),
        ([1.0, 2.0, 9.0], ("at least", 2.0), True),
        ([1.0, 1.9, 9.0], ("at least", 2.0), False),
        ([1.0], None, None),
    ],
)
def test_a_goal_is_held_against_the_median(
    values: list[float], goal: tuple[Direction, float] | None, met: bool | None
) -> None:
    assert measured("key", "title", "x", values, goal).met is met


def test_a_ratio_is_taken_within_a_repetition() -> None:
    assert ratios([2.0, 30.0], [1.0, 10.0]) == [2.0, 3.0]


@pytest.mark.parametrize("option", [["--repetitions", "0"], ["--repetitions", "many"], ["--slow"]])
def test_a_benchmark_refuses_options_it_cannot_use(option: list[str]) -> None:
    done = run_quickly("bench_unwaited.py", *option)
    assert done.returncode == 2
    assert option[0] in done.stderr


def test_roundtrip_refuses_options_it_does_not_know() -> None:
    done = run_quickly("bench_roundtrip.py", "--operation", "merge")
    assert done.returncode == 2
    assert "--operation" in done.stderr


def test_a_child_that_crashes_is_named_with_its_exit_status_and_its_last_words(tmp_path: Path) -> None:
    last_words = r"'serve_echo' ended with exit status 1(?s:.*)JSONDecodeError"
    arguments = ("a", "b", "no json")
    with (
        child("bench.support.serve_echo", *arguments, scratch=tmp_path) as crashing,
        pytest.raises(ChildFailed, match=last_words) as caught,
    ):
        crashing.line(30)
    assert "Traceback" in str(caught.value)


def test_a_child_that_says_nothing_in_time_is_named(tmp_path: Path) -> None:
    with (
        child("bench.support.load_light", scratch=tmp_path) as silent,
        pytest.raises(ChildFailed, match="said nothing"),
    ):
        silent.line(0.01)


@pytest.mark.postgres
def test_killing_daemons_prints_what_came_of_every_create() -> None:
    done = run_quickly("kill_daemon.py", "--count", "2", "--seed", "3", "--json")
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    assert (report["kills"], report["creates"], report["seed"], report["violation"]) == (2, 16, 3, "")
    assert sum(report["found"].values()) == 16
    assert report["duplicates"] <= report["found"].get("in the window", 0)
