"""Writer schemas by id from the schema registry: fetched once, waited for when it is away."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from python_common.config import connections
from python_common.config.settings import Settings
from python_common.errors import UserError

# A subject, a version, a schema that the registry does not have.
NOT_FOUND = (40401, 40402, 40403)
ATTEMPTS_WHEN_UNKNOWN = 3
# A missing id is asked for again after 1, 2, 4 ... seconds.
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 300.0
# Bytes that only look like registry Avro name any number of ids.
MOST_MISSING = 1_000
DEFAULT_CONTEXT = "."
REMEDIES = {
    401: "Check SCHEMA_REGISTRY_BASIC_AUTH_USER_INFO and SCHEMA_REGISTRY_BEARER_AUTH_TOKEN",
    403: "Give this user the right to read schemas and subjects",
}
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Registered:
    """A schema as registered: its type (AVRO, JSON, PROTOBUF), its text, and the schemas it refers to.

    `references` are the texts of schemas of other subjects, each after those it refers to itself.
    """

    schema_type: str
    text: str
    references: tuple[str, ...] = ()


class Registry:
    """Schemas by id. An outage is waited for, up to `wait` seconds; it never looks like a 404.

    Each method raises a UserError if the registry is unreachable, rejects this client, or returns an unexpected
    response.
    """

    def __init__(self, settings: Settings, wait: float) -> None:
        self.settings = settings
        self._url = settings.schema_registry_url
        self._wait = wait
        self._cache: dict[int, Registered] = {}
        # When to ask for a missing id again, and the pause before that.
        self._missing: dict[int, tuple[float, float]] = {}
        # What was asked last, and answered, as the client's HTTP library has it.
        self._request: Any = None
        self._response: Any = None

    @cached_property
    def _client(self) -> SchemaRegistryClient:
        timeout = self.settings.registry_timeout.total_seconds()
        options = {**connections.registry_client(self.settings), "max.retries": 0, "timeout": timeout}
        client = SchemaRegistryClient(options)
        client._rest_client.session.event_hooks = {
            kind: [partial(setattr, self, f"_{kind}")] for kind in ("request", "response")
        }
        return client

    def schemas(self, schema_ids: Iterable[int]) -> dict[int, Registered]:
        """Return the schemas by id, without those that the registry does not have, or lacks a schema they refer to.

        It is asked again twice for what it does not have, because a replica may lag behind a producer: in rounds, for
        bytes that only look like registry Avro can name many ids. Later calls ask again after 1, 2, 4 ... 300 s.
        """
        wanted = set(schema_ids) - self.missing()
        for attempt in range(ATTEMPTS_WHEN_UNKNOWN):
            missing = sorted(wanted - set(self._cache) - (set(self._missing) if attempt else set()))
            if attempt and missing:
                time.sleep(0.2 * attempt)
            for schema_id in missing:
                schema = self._ask(partial(self._client.get_schema, schema_id), attempts=1)
                registered = self._with_references(schema) if schema is not None else None
                if registered is not None:
                    self._cache[schema_id] = registered
        for schema_id in wanted - set(self._cache):
            _, before = self._missing.pop(schema_id, (0.0, 0.0))
            pause = min(2 * before, LONGEST_PAUSE) or FIRST_PAUSE
            self._missing[schema_id] = time.monotonic() + pause, pause
        while len(self._missing) > MOST_MISSING:
            del self._missing[next(iter(self._missing))]
        return {schema_id: self._cache[schema_id] for schema_id in wanted & set(self._cache)}

    def missing(self) -> set[int]:
        """Return the ids that the registry does not have, and that it is not time to ask for again."""
        now = time.monotonic()
        return {schema_id for schema_id, (due, _) in self._missing.items() if due > now} - self._cache.keys()

    def recovered(self, missing: Iterable[int] = ()) -> set[int]:
        """Ask for the missing ids that are due, and for `missing`; return those found, until `forget_missing`."""
        self._missing = dict.fromkeys(missing, (0.0, 0.0)) | self._missing
        self.schemas(self._missing)
        return self._missing.keys() & self._cache.keys()

    def forget_missing(self, schema_ids: Iterable[int]) -> None:
        """Forget that the registry lacked ids."""
        for schema_id in schema_ids:
            self._missing.pop(schema_id, None)

    def latest(self, subject: str) -> tuple[int, Registered] | None:
        """Return the newest version's id and schema, or None if there is no such subject."""
        version = self._ask(lambda: self._client.get_latest_version(subject))
        registered = self._with_references(version.schema) if version is not None else None
        if version is None or version.schema_id is None or registered is None:
            return None
        return version.schema_id, registered

    def subjects(self, schema_id: int, allowed: Iterable[str]) -> dict[str, int]:
        """Return the subjects that a schema is registered under, or was before they were deleted, and its version.

        A registry that does not list them is asked for the allowed ones alone.
        """
        listed = self._ask(partial(self._client.get_schema_versions, schema_id, deleted=True), may_lack=True)
        versions: list[Any] = [*(listed or ())]
        if listed is None and (schema := self._ask(partial(self._client.get_schema, schema_id))) is not None:
            versions = [self._ask(partial(self._client.lookup_schema, name, schema, deleted=True)) for name in allowed]
        # Registered again after it was deleted, it has two versions: the first one counts.
        pairs = sorted(((known.version, known.subject) for known in versions if known), reverse=True)
        return {self.name_in_context(subject): version for version, subject in pairs}

    def ids(self, subject: str) -> set[int]:
        """Return the ids of the versions of a subject, without deleted ones."""
        versions = self._ask(partial(self._client.get_versions, subject), attempts=1, may_lack=True) or []
        numbers = (version for version in versions if isinstance(version, int))
        answers = (self._ask(partial(self._client.get_version, subject, number), attempts=1) for number in numbers)
        return {answer.schema_id for answer in answers if answer and answer.schema_id is not None}

    def name_in_context(self, subject: str) -> str:
        """Return a subject's name without its context, as in `:.team:orders-value`, if that is the one of the URL."""
        context = unquote(self._url.partition("/contexts/")[2].partition("/")[0]).strip(":") or DEFAULT_CONTEXT
        return subject.removeprefix(f":{context}:")

    def _with_references(self, schema: Schema) -> Registered | None:
        """Return a schema with the texts of all that it refers to; None if the registry lacks one."""
        texts: list[str] = []
        for reference in schema.references or ():
            if reference.subject is None or reference.version is None:
                return None
            version = self._ask(partial(self._client.get_version, reference.subject, reference.version))
            below = self._with_references(version.schema) if version is not None else None
            if below is None:
                return None
            texts += [*below.references, below.text]
        return Registered(schema.schema_type or "AVRO", schema.schema_str or "", tuple(dict.fromkeys(texts)))

    def _ask(
        self, question: Callable[[], Answer], attempts: int = ATTEMPTS_WHEN_UNKNOWN, may_lack: bool = False
    ) -> Answer | None:
        """Return the answer, None for "not found" so many times; `may_lack` if a registry may lack the endpoint."""
        deadline = time.monotonic() + self._wait
        unknown = 0
        pause = 0.2
        while True:
            try:
                return question()
            except SchemaRegistryError as error:
                if error.http_status_code == 404 and error.error_code in NOT_FOUND:
                    unknown += 1
                    if unknown == attempts:
                        return None
                elif may_lack and error.http_status_code in (404, 405, 501):
                    return None
                elif error.http_status_code < 500 and error.http_status_code != 429:
                    raise self._refused(error.http_status_code) from None
                else:
                    self._give_up_after(deadline, f"HTTP {error.http_status_code}")
            except Exception as error:  # whatever the client's HTTP library raises
                if hint := connections.tls_settings_hint("SCHEMA_REGISTRY", str(error)):
                    raise UserError(
                        f"Authentication with the schema registry at {self._url} failed", f"Check {hint}"
                    ) from None
                self._give_up_after(deadline, type(error).__name__)
            time.sleep(pause)
            pause = min(pause * 2, 5.0)

    def _refused(self, status: int) -> UserError:
        """Return the error of an answer that no repetition changes."""
        remedy = REMEDIES.get(status, "Check SCHEMA_REGISTRY_URL")
        if self._response.has_redirect_location:
            target = self._request.url.join(self._response.headers["Location"])
            # Without user and query, which may be secrets.
            remedy = f"Set SCHEMA_REGISTRY_URL to what it refers to, {target.copy_with(userinfo=b'', query=None)}"
        return UserError(f"{self._address()} answered {status} to {self._asked()}", remedy)

    def _asked(self) -> str:
        return f"{self._request.method} {self._request.url.path}" if self._request else "a request"

    def _address(self) -> str:
        """Name the registry, and the proxy that the environment has for it."""
        url = urlsplit(self._url)
        proxies = {} if proxy_bypass(url.hostname or "") else getproxies()
        proxy = urlsplit(proxies.get(url.scheme) or proxies.get("all", "")).netloc.rpartition("@")[2]
        return f"The schema registry at {self._url}{proxy and f' through the proxy {proxy}'}"

    def _give_up_after(self, deadline: float, reason: str) -> None:
        if time.monotonic() > deadline:
            raise UserError(
                f"{self._address()} does not answer {self._asked()} ({reason})",
                "Check SCHEMA_REGISTRY_URL and `lakehouse stack status`, or raise LAKEHOUSE_REGISTRY_TIMEOUT",
            ) from None
