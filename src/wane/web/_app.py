"""The application: routes from the lists of pages and endpoints, each behind the same checks."""

from __future__ import annotations

import csv
import hmac
import io
import json
import threading
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import asynccontextmanager
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from wane import __version__
from wane._contract.model import Contract
from wane._contract.show import rows as contract_rows
from wane._keeper import Keeper, open_keeper
from wane.errors import MetricsError, WaneError
from wane.web._access import ANONYMOUS, COOKIE, AccessRole, Identity, identify
from wane.web._call import WebCall, parse_body
from wane.web._endpoints import ENDPOINTS, FORMS, PREFIX, Endpoint, openapi
from wane.web._filters import FILTERS, ago_text
from wane.web._jobs import ArchiveJobs
from wane.web._pages import PAGES, ConsolePage
from wane.web._plain import as_json, plain
from wane.web._pool import KeeperPool
from wane.web._problems import RequestRefused, problem_of, status_of
from wane.web._proxy import TrustedProxy
from wane.web._resources import audit_row, read_trail
from wane.web._shared_health import SharedHealth
from wane.web._shield import Rates, Shield, TooLarge, TooSlow

R = TypeVar("R")

_STATIC = Path(__file__).with_name("static")
_MOST_EXPORTED = 10_000
_REFRESH_SECONDS = 15
_COLUMNS = (
    "id",
    "executed_at",
    "kind",
    "table",
    "rule",
    "rows",
    "counts",
    "actor",
    "run",
    "cutoff",
    "seconds",
    "batches",
)


class Web:
    """The console of one contract on one database."""

    def __init__(
        self, contract: Contract, url: str | None, *, authentication: bool, proxy: TrustedProxy | None = None
    ) -> None:
        self.contract = contract
        self.authentication = authentication
        self.proxy = proxy
        open_one = partial(open_keeper, url, contract=contract)
        self.pool = KeeperPool(open_one)
        self.jobs = ArchiveJobs(open_one)
        self.health = SharedHealth()
        self.templates = Environment(
            loader=PackageLoader("wane.web"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self.templates.filters.update(FILTERS)
        self.templates.globals.update(ago=ago_text, version=__version__)
        self.known = frozenset(one.table for one in contract_rows(contract))
        self._metrics: Any = None
        self._turn = threading.Lock()

    def app(self, host_names: Collection[str], rates: Rates) -> Starlette:
        return Starlette(
            routes=list(self._routes()),
            middleware=[Middleware(Shield, hosts={one.lower() for one in host_names}, rates=rates, proxy=self.proxy)],
            exception_handlers={
                WaneError: self._failed,
                RequestRefused: self._failed,
                TooLarge: self._too_large,
                TooSlow: self._too_slow,
                HTTPException: self._not_served,
                Exception: self._broken,
            },
            lifespan=self._lifespan,
        )

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        del app
        yield
        if self._metrics is not None:
            self._metrics.close()
        self.jobs.close()
        self.pool.close()

    def _routes(self) -> Iterator[Route | Mount]:
        yield Mount("/static", StaticFiles(directory=_STATIC))
        yield Route("/healthz", self._alive)
        yield Route("/readyz", self._ready)
        yield Route("/metrics", partial(self._checked, AccessRole.VIEWER, self._measure))
        yield Route("/login", self._login_page, methods=["GET"])
        yield Route("/login", self._login, methods=["POST"])
        yield Route("/logout", self._logout, methods=["POST"])
        yield Route(f"{PREFIX}/openapi.json", self._document)
        for one in ENDPOINTS:
            yield Route(one.path, partial(self._checked, one.role, partial(self._answer, one)), methods=[one.method])
        for path, one in FORMS.items():
            yield Route(f"/do{path}", partial(self._checked, one.role, partial(self._act, one)), methods=["POST"])
        for kind in ("csv", "json"):
            yield Route(f"/runs.{kind}", partial(self._checked, AccessRole.VIEWER, partial(self._export, kind)))
        for page in PAGES:
            yield Route(page.path, partial(self._checked, page.role, partial(self._page, page)), methods=["GET"])

    # Callers

    async def _checked(
        self, role: AccessRole, answer: Callable[[Request, Identity], Any], request: Request
    ) -> Response:
        identity = await self._identity(request)
        if identity is None:
            raise RequestRefused(401, "Unauthenticated", "a token is needed", "`wane token create` makes one")
        if identity is ANONYMOUS and role is not AccessRole.VIEWER:
            raise _read_only()
        if not identity.role.includes(role):
            raise RequestRefused(
                403, "Forbidden", f"this needs the role {role.value}, and the token has {identity.role.value}"
            )
        response: Response = await answer(request, identity)
        return response

    async def _identity(self, request: Request) -> Identity | None:
        if not self.authentication:
            return ANONYMOUS
        if self.proxy is not None and (named := self.proxy.identify(request.scope)) is not None:
            return named
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        by_cookie = scheme.lower() != "bearer"
        text = request.cookies.get(COOKIE, "") if by_cookie else given.strip()
        return await self.pool.run(lambda keeper: identify(keeper.store, text, by_cookie=by_cookie)) if text else None

    async def _call(self, request: Request, identity: Identity) -> WebCall:
        body = {}
        if request.method != "GET":
            body = parse_body(await request.body(), request.headers.get("content-type", "application/json"))
            _require_own_form(request, identity, body)
        cross_site = request.headers.get("sec-fetch-site") == "cross-site"
        return WebCall(
            identity,
            dict(request.query_params),
            body,
            request.path_params,
            jobs=self.jobs,
            health=self.health,
            cross_site=cross_site,
        )

    async def _login_page(self, request: Request) -> Response:
        if not self.authentication:
            return RedirectResponse(_root(request) + "/", status_code=303)
        return self._render(request, "login.html", {"problem": None}, title="Sign in")

    async def _login(self, request: Request) -> Response:
        _require_same_origin(request)
        if not self.authentication:
            raise RequestRefused(
                403, "ReadOnly", "this console needs no token: it only reads", "`wane serve --auth` requires tokens"
            )
        body = parse_body(await request.body(), request.headers.get("content-type", ""))
        text = str(body.get("token", "")).strip()
        found = await self.pool.run(lambda keeper: identify(keeper.store, text, by_cookie=True)) if text else None
        if found is None:
            problem = "this token is unknown, expired or revoked"
            return self._render(request, "login.html", {"problem": problem}, title="Sign in", status=401)
        response = RedirectResponse(_root(request) + "/", status_code=303)
        secure = request.url.scheme == "https"
        response.set_cookie(COOKIE, text, httponly=True, samesite="strict", secure=secure, path=_root(request) or "/")
        return response

    async def _logout(self, request: Request) -> Response:
        _require_same_origin(request)
        response = RedirectResponse(_root(request) + "/login", status_code=303)
        response.delete_cookie(COOKIE, path=_root(request) or "/")
        return response

    # Answers

    async def _answer(self, endpoint: Endpoint, request: Request, identity: Identity) -> Response:
        call = await self._call(request, identity)
        found = await self._run(request, lambda keeper: as_json(endpoint.answer(keeper, call)))
        return Response(found, media_type="application/json")

    async def _act(self, endpoint: Endpoint, request: Request, identity: Identity) -> Response:
        call = await self._call(request, identity)
        done = await self._run(request, lambda keeper: plain(endpoint.answer(keeper, call)))
        if "job" in done:
            return RedirectResponse(f"{_root(request)}/archive/jobs/{done['job']['id']}", status_code=303)
        context = {
            "description": endpoint.description,
            "done": done,
            "table": call.text("table"),
            "pool": call.text("pool"),
        }
        return self._render(request, "done.html", context, title="Done", identity=identity)

    async def _page(self, page: ConsolePage, request: Request, identity: Identity) -> Response:
        call = await self._call(request, identity)

        def render(keeper: Keeper) -> Response:
            # On the thread, like the reads: a page of a thousand tables takes a while to write.
            context = {"page": page, "shown": keeper.store.shown, **page.read(keeper, call)}
            return self._render(request, page.template, context, title=page.title, identity=identity)

        return await self._run(request, render)

    async def _run(self, request: Request, work: Callable[[Keeper], R]) -> R:
        """Run the work of a request; what only reads ends when its client goes away."""
        if request.method != "GET":
            try:
                return await self.pool.run(work)
            finally:
                self.health.forget()
        return await self.pool.read(work, partial(_disconnected, request))

    def _render(
        self,
        request: Request,
        template: str,
        context: dict[str, Any],
        *,
        title: str,
        status: int = 200,
        identity: Identity | None = None,
    ) -> Response:
        paused = request.query_params.get("pause") == "1"
        page = context.get("page")
        common = {
            "root": _root(request),
            "here": request.url.path,
            "address": request.url.path + (f"?{request.url.query}" if request.url.query else ""),
            "refresh_seconds": None if paused or page is None or not page.refreshes else _REFRESH_SECONDS,
            "title": title,
            "pages": [one for one in PAGES if one.listed],
            "identity": identity,
            "authentication": self.authentication,
            "may": partial(_may, identity),
            "page": None,
            "shown": "",
            "known": self.known,
            "paused": paused,
        }
        text = self.templates.get_template(template).render({**common, **context})
        return HTMLResponse(text, status_code=status)

    async def _export(self, kind: str, request: Request, identity: Identity) -> Response:
        call = await self._call(request, identity)
        entries = await self._run(request, lambda keeper: read_trail(keeper, call, _MOST_EXPORTED))
        rows = [plain(audit_row(one)) for one in entries]
        name = {"content-disposition": f'attachment; filename="wane-runs.{kind}"'}
        if kind == "json":
            return Response(as_json({"items": rows}), media_type="application/json", headers=name)
        out = io.StringIO()
        writer = csv.DictWriter(out, _COLUMNS, extrasaction="ignore")
        writer.writeheader()
        writer.writerows({key: _cell(one[key]) for key in _COLUMNS} for one in rows)
        return Response(out.getvalue(), media_type="text/csv; charset=utf-8", headers=name)

    async def _document(self, request: Request) -> Response:
        del request
        return Response(json.dumps(openapi()), media_type="application/json")

    async def _measure(self, request: Request, identity: Identity) -> Response:
        del request, identity
        return Response(await self.pool.run(self._measured), media_type="text/plain; version=0.0.4; charset=utf-8")

    def _measured(self, keeper: Keeper) -> bytes:
        with self._turn:
            if self._metrics is None:
                try:
                    from wane.observe._metrics import Metrics
                except ImportError as problem:
                    raise MetricsError("the library of metrics is missing", "pip install 'wane[metrics]'") from problem
                self._metrics = Metrics(self.contract)
                self._metrics.watch(keeper.store.clone)
        return bytes(self._metrics.text())

    async def _alive(self, request: Request) -> Response:
        del request
        return Response("ok\n", media_type="text/plain")

    async def _ready(self, request: Request) -> Response:
        del request
        try:
            ready = await self.pool.run(lambda keeper: keeper.store.is_migrated())
        except WaneError:
            ready = False
        return Response("ready\n" if ready else "not ready\n", 200 if ready else 503, media_type="text/plain")

    # Failures

    async def _failed(self, request: Request, problem: Exception) -> Response:
        assert isinstance(problem, WaneError | RequestRefused)
        return self._explained(request, problem)

    async def _too_large(self, request: Request, problem: Exception) -> Response:
        del problem
        return self._explained(request, RequestRefused(413, "TooLarge", "the body is too large"))

    async def _too_slow(self, request: Request, problem: Exception) -> Response:
        del problem
        return self._explained(request, RequestRefused(408, "TooSlow", "the body did not arrive in time"))

    async def _not_served(self, request: Request, problem: Exception) -> Response:
        assert isinstance(problem, HTTPException)
        status = HTTPStatus(problem.status_code)
        return self._explained(
            request, RequestRefused(status, status.phrase.replace(" ", ""), status.description or status.phrase)
        )

    async def _broken(self, request: Request, problem: Exception) -> Response:
        del problem  # The server logs it; the client learns no more than that.
        return self._explained(
            request, RequestRefused(500, "InternalError", "this failed unexpectedly: see the server's log")
        )

    def _explained(self, request: Request, problem: WaneError | RequestRefused) -> Response:
        status = problem.status if isinstance(problem, RequestRefused) else status_of(problem)
        headers = {"retry-after": "5"} if status == 503 else {}
        if status == 401:
            headers["www-authenticate"] = "Bearer"
        path = request.url.path.removeprefix(_root(request))
        if status == 401 and not path.startswith(("/api/", "/metrics")) and request.method == "GET":
            return RedirectResponse(_root(request) + "/login", status_code=303)
        if path.startswith("/api/"):
            return Response(as_json(problem_of(problem)), status, headers, media_type="application/problem+json")
        page = self._render(request, "error.html", {"problem": problem_of(problem)}, title="Problem", status=status)
        page.headers.update(headers)
        return page


def _may(identity: Identity | None, action: str) -> bool:
    """Return whether an identity may submit one of the forms."""
    return identity is not None and bool(identity.form_key) and identity.role.includes(FORMS[f"/{action}"].role)


async def _disconnected(request: Request) -> None:
    """Return when the client of a request has gone away."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _root(request: Request) -> str:
    return str(request.scope.get("root_path", ""))


def _cell(value: Any) -> Any:
    """Write a value for a CSV file; a spreadsheet must take none of them for a formula."""
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value
    return f"'{text}" if isinstance(text, str) and text.startswith(("=", "+", "-", "@", "\t", "\r")) else text


def _require_same_origin(request: Request) -> None:
    origin = request.headers.get("origin")
    if origin not in (None, "null") and urlsplit(str(origin)).netloc != request.headers.get("host"):
        raise RequestRefused(403, "CrossSite", "this form was sent from another site")


def _read_only() -> RequestRefused:
    return RequestRefused(
        403, "ReadOnly", "without authentication the console only reads", "start it with `wane serve --auth`"
    )


def _require_own_form(request: Request, identity: Identity, body: dict[str, Any]) -> None:
    """Refuse what changes something, unless a holder of a token sent it on purpose."""
    if not identity.form_key:
        raise _read_only()
    _require_same_origin(request)
    if identity.in_browser and not hmac.compare_digest(str(body.pop("form_key", "")), identity.form_key):
        raise RequestRefused(
            403, "CrossSite", "the form does not belong to this session", "reload the page and try again"
        )
