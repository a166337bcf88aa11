"""That the benchmarks run and say what they promise; how fast anything is, is not tested."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

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
    assert {"python", "trio", "msgspec", "grpcio", "cores"} <= report["machine"].keys()
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
        references = {"echo", "grpc"} if client == "library" else {"echo"}
        assert result["metrics"].keys() == {"ours"} | references
        assert result["ratios"].keys() == {f"ours/{name}" for name in references}
        speed = {"p50_us", "p99_us"} if shape in {"one", "large"} else {"calls_per_second"}
        for contender in result["metrics"].values():
            assert contender.keys() == speed | {"server_us", "client_us"}
            for spread in contender.values():
                assert spread["min"] <= spread["median"] <= spread["max"]
                assert len(spread["repetitions"]) == 1
            assert all(contender[name]["median"] > 0 for name in speed)


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
