"""Routes about the caller, the API and a repository."""

from compass_forged.emulator.reach import repository
from compass_forged.emulator.refusals import DOCS, JsonObject, forbidden, needs_authentication, no_route
from compass_forged.emulator.routing import Call, Reply, Routes

DEFAULT_VERSION = "2022-11-28"
VERSIONS = ("2022-11-28", "2026-03-10")
ENTERPRISE_VERSIONS = ("2022-11-28",)
"""What GHES up to 3.20 offers."""

routes = Routes()


def versions(enterprise: str | None) -> tuple[str, ...]:
    """The API versions on offer."""
    return ENTERPRISE_VERSIONS if enterprise else VERSIONS


@routes.add("GET", "/user", f"{DOCS}/users/users#get-the-authenticated-user")
def get_user(call: Call) -> Reply:
    """Who the token speaks as. An App's installation token is nobody here."""
    if call.caller is None:
        raise needs_authentication()
    if call.caller.type == "Bot":
        raise forbidden("Resource not accessible by integration")
    return Reply(call.render.me(call.caller))


@routes.add(
    "GET", "/rate_limit", f"{DOCS}/rate-limit/rate-limit#get-rate-limit-status-for-the-authenticated-user", free=True
)
def get_rate_limit(call: Call) -> Reply:
    """The caller's limits; 404 where limits are off, as on a GHES by default."""
    window = call.limits.window(call.caller.id if call.caller else None, call.state.now())
    if window is None:
        raise no_route()
    core = window.as_json()
    reset = core["reset"]

    def unused(limit: int) -> JsonObject:
        return {"limit": limit, "used": 0, "remaining": limit, "reset": reset}

    resources = {"core": core, "search": unused(30), "graphql": unused(5000), "code_search": unused(10)}
    return Reply({"resources": resources, "rate": core})


@routes.add("GET", "/meta", f"{DOCS}/meta/meta#get-apiname-meta-information")
def get_meta(call: Call) -> Reply:
    """What the API says of itself; a GHES tells its release."""
    meta: JsonObject = {"verifiable_password_authentication": False}
    if call.enterprise:
        meta["installed_version"] = call.enterprise
    return Reply(meta)


@routes.add("GET", "/versions", f"{DOCS}/meta/meta#get-all-api-versions")
def get_versions(call: Call) -> Reply:
    """The API versions on offer, oldest first; GHES up to 3.19 has no such path."""
    if call.enterprise:
        raise no_route()
    return Reply(list(VERSIONS))


@routes.add("GET", "/repos/{owner}/{repo}", f"{DOCS}/repos/repos#get-a-repository")
def get_repository(call: Call) -> Reply:
    """A repository, under its canonical name whatever case was asked for."""
    return Reply(call.render.repo(repository(call), call.caller))
