# Tasks for development. `script/bootstrap` makes .venv, `.venv/bin/just` runs these.

bin := ".venv/bin"

# What a change must pass.
check: format-check lint types imports deps spelling coverage

# Rewrite files in the project's format.
format:
    {{bin}}/ruff format .
    {{bin}}/ruff check --fix .

format-check:
    {{bin}}/ruff format --check .

# ruff's rules, and the ones on structured concurrency that it has not. Off: 127 recommends another HTTP library (see
# docs/adr); 114 and 128 misread a task_status that is passed on; 910 to 913 ask for a checkpoint on every path, which a fast path must not have; 900 is an opt-in style.
lint:
    {{bin}}/ruff check .
    git ls-files "*.py" | xargs -P 2 -n 40 {{bin}}/flake8-async --enable=ASYNC --disable=ASYNC114,ASYNC127,ASYNC128,ASYNC900,ASYNC910,ASYNC911,ASYNC912,ASYNC913

types:
    {{bin}}/mypy
    {{bin}}/basedpyright

# An import may only point down.
imports:
    {{bin}}/lint-imports --no-cache

# What is imported is declared, and the other way round.
deps:
    {{bin}}/deptry .

spelling:
    {{bin}}/codespell

test *args:
    {{bin}}/python -m pytest {{args}}

# All tests with branch coverage, and its floor.
coverage:
    {{bin}}/coverage erase
    COVERAGE=1 script/test
    {{bin}}/just coverage-report

coverage-report:
    {{bin}}/coverage combine --quiet
    {{bin}}/coverage report

# The benchmarks; each prints a table. They gate nothing.
bench *args:
    for file in bench/bench_*.py; do {{bin}}/python "$file" {{args}}; done

# Fuzz framing and codec in process, then a live daemon; both print a seed to repeat a finding.
fuzz count="1000000":
    {{bin}}/python bench/fuzz_wire.py --count {{count}}
    {{bin}}/python bench/fuzz_live.py --count 100000

# Kill a daemon at random instants during creates, and count what stands afterwards; prints a seed likewise.
kills count="1000":
    {{bin}}/python bench/kill_daemon.py --count {{count}}

# Regenerate after a wanted change: the golden bytes of the wire, and what a model sees of the tools.
golden:
    {{bin}}/python -m tests.support.golden_frames > tests/wire/golden.json
    {{bin}}/python -m tests.support.golden_tools
