"""Cut GitHub's OpenAPI document down to the answers of the operations that the bundled forge has.

Run as ``python tests/emulator/make_openapi_responses.py`` with the whole document beside the checkout; it writes
``openapi_responses.json``. Prose and examples are left out, and so are optional parts that the forge never sends.
"""

import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
FULL = HERE.parents[2] / "shared" / "contracts" / "github-openapi-subset.json"
REDUCED = HERE / "openapi_responses.json"

OPERATIONS = (
    ("get", "/user"),
    ("get", "/app"),
    ("post", "/app/installations/{installation_id}/access_tokens"),
    ("get", "/rate_limit"),
    ("get", "/meta"),
    ("get", "/versions"),
    ("get", "/repos/{owner}/{repo}"),
    ("get", "/repos/{owner}/{repo}/issues"),
    ("post", "/repos/{owner}/{repo}/issues"),
    ("get", "/repos/{owner}/{repo}/issues/{issue_number}"),
    ("patch", "/repos/{owner}/{repo}/issues/{issue_number}"),
    ("get", "/repos/{owner}/{repo}/issues/{issue_number}/comments"),
    ("post", "/repos/{owner}/{repo}/issues/{issue_number}/comments"),
    ("get", "/repos/{owner}/{repo}/issues/comments/{comment_id}"),
    ("post", "/repos/{owner}/{repo}/issues/{issue_number}/labels"),
    ("get", "/repos/{owner}/{repo}/labels"),
    ("post", "/repos/{owner}/{repo}/labels"),
    ("get", "/repos/{owner}/{repo}/labels/{name}"),
    ("get", "/repos/{owner}/{repo}/pulls"),
    ("post", "/repos/{owner}/{repo}/pulls"),
    ("get", "/repos/{owner}/{repo}/pulls/{pull_number}"),
    ("get", "/repos/{owner}/{repo}/pulls/{pull_number}/files"),
    ("get", "/repos/{owner}/{repo}/pulls/{pull_number}/comments"),
    ("get", "/repos/{owner}/{repo}/pulls/{pull_number}/reviews"),
    ("post", "/repos/{owner}/{repo}/pulls/{pull_number}/reviews"),
    ("get", "/repos/{owner}/{repo}/pulls/{pull_number}/reviews/{review_id}"),
    ("delete", "/repos/{owner}/{repo}/pulls/{pull_number}/reviews/{review_id}"),
    ("post", "/repos/{owner}/{repo}/pulls/{pull_number}/reviews/{review_id}/events"),
    ("get", "/repos/{owner}/{repo}/commits/{ref}/check-runs"),
    ("get", "/repos/{owner}/{repo}/commits/{ref}/status"),
)
NEVER_SENT = {
    "full-repository": {"parent", "source", "template_repository", "security_and_analysis", "code_of_conduct"},
    "issue": {"repository", "type", "milestone", "sub_issues_summary", "issue_dependencies_summary"}
    | {"issue_field_values", "pinned_comment", "parent_issue_url"},
    "installation-token": {"repositories", "single_file", "has_multiple_single_files", "single_file_paths"},
    "issue-comment": {"pin", "minimized"},
    "pull-request": {"milestone", "requested_teams", "auto_merge", "stack"},
    "pull-request-simple": {"milestone", "requested_teams", "auto_merge", "stack"},
    "check-run": {"deployment", "pull_requests"},
    "minimal-repository": {"security_and_analysis", "code_of_conduct"},
}
PROSE = {"description", "example", "examples", "title", "externalDocs"}


def slim(schema: Any) -> Any:
    """A schema without prose. Names of properties are not keywords, even those named ``title``."""
    if isinstance(schema, list):
        return [slim(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept: dict[str, Any] = {}
    for name, value in schema.items():
        if name == "properties":
            kept[name] = {each: {} if each == "suggestions" else slim(inner) for each, inner in value.items()}
        elif name not in PROSE and not name.startswith("x-"):
            kept[name] = slim(value)
    return kept


def references(schema: Any) -> set[str]:
    """The components that a schema names."""
    if isinstance(schema, list):
        return {name for each in schema for name in references(each)}
    if not isinstance(schema, dict):
        return set()
    own = {schema["$ref"].rpartition("/")[2]} if isinstance(schema.get("$ref"), str) else set()
    return own | {name for each in schema.values() for name in references(each)}


def reduce(full: dict[str, Any]) -> dict[str, Any]:
    """The reduced document."""
    paths: dict[str, Any] = {}
    for method, path in OPERATIONS:
        paths.setdefault(path, {})[method] = {"responses": _responses(full, full["paths"][path][method])}
    schemas: dict[str, Any] = {}
    wanted = references(paths) | {"basic-error", "validation-error"}
    while wanted:
        name = wanted.pop()
        schema = slim(full["components"]["schemas"][name])
        for cut in NEVER_SENT.get(name, ()):
            if cut in schema["properties"]:
                schema["properties"][cut] = {}
        schemas[name] = schema
        wanted |= references(schema) - set(schemas)
    return {"paths": paths, "components": {"schemas": schemas}}


def _responses(full: dict[str, Any], operation: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for status, response in operation["responses"].items():
        if "$ref" in response:
            response = full["components"]["responses"][response["$ref"].rpartition("/")[2]]  # noqa: PLW2901 -- resolved
        if "content" in response:
            schema = slim(response["content"]["application/json"]["schema"])
            found[status] = {"content": {"application/json": {"schema": schema}}}
    return found


def render(full: dict[str, Any]) -> str:
    """The reduced document as it stands in the file."""
    return json.dumps(reduce(full), indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    if not FULL.exists():
        sys.exit(f"{FULL}: not there; put GitHub's OpenAPI subset there and run again")
    REDUCED.write_text(render(json.loads(FULL.read_text(encoding="utf-8"))), encoding="utf-8")
