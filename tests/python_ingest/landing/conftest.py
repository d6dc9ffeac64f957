"""What the tests of landing share: topics of a registry without a broker."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from python_common.config.settings import Settings
from python_ingest.declare.topics import Declaration
from tests.support.registered_topic import RegisteredTopic
from tests.support.services.schema_registry import Registrations, registry_of


@pytest.fixture
def registered(offline_settings: Settings) -> Iterator[Callable[..., RegisteredTopic]]:
    """Return a function that returns the topic `shop`, declared with these changes; all share one registry."""
    registrations = Registrations()
    with registry_of(registrations) as url:
        settings = offline_settings.changed(schema_registry_url=url)
        declaration = Declaration("shop", "bronze", "shop")

        def topic(**changes: Any) -> RegisteredTopic:
            return RegisteredTopic(settings, replace(declaration, **changes), registrations)

        yield topic
