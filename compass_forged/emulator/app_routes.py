"""Routes of an App, which is asked for by its claim: who it is, and a token of one of its installations."""

from compass_forged.emulator.apps import TOKEN_LIFE, App, new_token
from compass_forged.emulator.refusals import DOCS, JsonObject, forbidden, needs_authentication, not_found
from compass_forged.emulator.render import node_id, timestamp
from compass_forged.emulator.routing import Call, Reply, Routes

routes = Routes()

_APPS = f"{DOCS}/apps/apps"
_SUSPENDED = "This installation has been suspended"


def is_app_path(path: str) -> bool:
    """Whether a path, without the forge's prefix, is asked for with a claim instead of a token."""
    return path == "/app" or path.startswith("/app/")


@routes.add("GET", "/app", f"{_APPS}#get-the-authenticated-app", free=True)
def get_app(call: Call) -> Reply:
    """The App itself."""
    app = _app(call)
    created = timestamp(app.created_at)
    return Reply(
        {
            "id": app.id,
            "slug": app.slug,
            "node_id": node_id("App", app.id),
            "client_id": app.client_id,
            "owner": call.render.account(call.state.account(app.login)),
            "name": app.slug,
            "description": None,
            "external_url": f"{call.render.web}/apps/{app.slug}",
            "html_url": f"{call.render.web}/apps/{app.slug}",
            "created_at": created,
            "updated_at": created,
            "permissions": dict(app.permissions),
            "events": [],
            "installations_count": len(app.installations),
        }
    )


@routes.add(
    "POST",
    "/app/installations/{installation_id}/access_tokens",
    f"{_APPS}#create-an-installation-access-token-for-an-app",
    free=True,
)
def create_token(call: Call) -> Reply:
    """A token that lives an hour."""
    app = _app(call)
    installation = app.installations.get(call.number("installation_id"))
    if installation is None:
        raise not_found()
    if installation.suspended:
        raise forbidden(_SUSPENDED)
    token = new_token(app)
    ends = call.state.now() + TOKEN_LIFE
    call.state.grant_token(token, app.login, ends=ends, permissions=app.permissions)
    body: JsonObject = {
        "token": token,
        "expires_at": timestamp(ends),
        "permissions": dict(app.permissions),
        "repository_selection": "all",
    }
    return Reply(body, 201)


def _app(call: Call) -> App:
    if call.app is None:
        raise needs_authentication()
    return call.app
