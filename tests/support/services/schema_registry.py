"""A schema registry over HTTP with the ids, subjects and versions that a test gives it, in one context."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from tests.support.services.http_server import Handler, serving


@dataclass
class Registrations:
    """Schemas by id, and the id of each version of a subject. Subjects are answered as `context` qualifies them."""

    schemas: dict[int, Any] = field(default_factory=dict)
    subjects: dict[str, dict[int, int]] = field(default_factory=dict)
    context: str = ""
    asked: list[str] = field(default_factory=list)

    def register(self, schema_id: int, schema: Any, *subjects: str) -> None:
        """Register a schema under an id, as the next version of each subject."""
        self.schemas[schema_id] = schema
        for subject in subjects:
            versions = self.subjects.setdefault(subject, {})
            versions[len(versions) + 1] = schema_id

    def answer(self, path: str) -> tuple[int, Any]:
        """Return status and body of the answer to a GET."""
        match path.strip("/").split("/"):
            case ["schemas", "ids", number] if int(number) in self.schemas:
                return 200, {"schema": json.dumps(self.schemas[int(number)])}
            case ["schemas", "ids", number, "versions"] if int(number) in self.schemas:
                return 200, [
                    {"subject": f"{self.context}{subject}", "version": version}
                    for subject, versions in self.subjects.items()
                    for version, schema_id in versions.items()
                    if schema_id == int(number)
                ]
            case ["subjects", subject, "versions"] if subject in self.subjects:
                return 200, [*self.subjects[subject]]
            case ["subjects", subject, "versions", version] if subject in self.subjects:
                number = max(self.subjects[subject]) if version == "latest" else int(version)
                schema_id = self.subjects[subject][number]
                text = json.dumps(self.schemas[schema_id])
                return 200, {"subject": subject, "version": number, "id": schema_id, "schema": text}
        return 404, {"error_code": 40403, "message": "not found"}


@contextmanager
def registry_of(registrations: Registrations, base: str = "") -> Iterator[str]:
    """Serve a registry below a path; yield its URL."""

    class Registry(Handler):
        def do_GET(self) -> None:
            path = unquote(urlsplit(self.path).path)
            registrations.asked.append(path)
            if not path.startswith(base):
                self.answer(404, b"not a registry")
                return
            status, body = registrations.answer(path.removeprefix(base))
            self.answer(status, json.dumps(body).encode())

    with serving(Registry) as url:
        yield f"{url}{base}"


SILENCE: tuple[int, dict] = (0, {})


@contextmanager
def registry_answering(*answers: tuple[int, dict], subject: str = "") -> Iterator[tuple[str, list[str]]]:
    """Serve HTTP answers in turn, the last one again and again; yield the URL and the paths asked for. Every schema is
    registered under one subject."""
    asked: list[str] = []

    class Answering(Handler):
        def do_GET(self) -> None:
            if "/versions" in self.path:
                self.answer(200, json.dumps([{"subject": subject, "version": 1}]).encode())
                return
            status, body = answers[min(len(asked), len(answers) - 1)]
            asked.append(self.path)
            if (status, body) == SILENCE:
                time.sleep(2)
                return
            self.answer(status, json.dumps(body).encode())

    with serving(Answering) as url:
        yield url, asked
