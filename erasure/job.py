"""One erasure: bronze rows, what is built from them, what older snapshots and files hold, what is published.

Each step can be done again and then finds nothing to do, so a killed one is resumed by the same command.
"""

import sys
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from pyiceberg.catalog import Catalog

from erasure import published, receipts
from erasure.published import Versions
from erasure.receipts import DONE, Receipt
from lakehouse.catalog import load_catalog, load_table, require_views
from lakehouse.errors import UserError
from lakehouse.lease import leased
from lakehouse.lock import locked
from lakehouse.pii.problem import RESTRICTED
from lakehouse.settings import Settings
from python_export.datasets import build, completeness, declared
from python_export.datasets.project import Project
from python_export.publishing.target import open_target
from python_export.report import page
from python_export.run import Exporter
from python_export.telling.exported import Exported
from python_ingest.landing.session import QuietSpark
from python_ingest.repair import erase
from python_ingest.repair.erase import Found, Person
from python_ingest.topics import MODELS_DIR, Declaration, read_declarations
from python_ingest.upkeep.maintain import built_tables
from python_ingest.upkeep.purge import purge_table

# What no other run may do meanwhile.
ALONE = ("weekly", "maintain")
# What became of a version.
HELD, WITHDRAWN = "holds rows", "withdrawn"


@dataclass(frozen=True)
class Request:
    """What is to be erased: the rows of persons, and records by topic, partition and offset."""

    persons: tuple[Person, ...]
    records: tuple[tuple[str, int, int], ...]

    @property
    def places(self) -> list[str]:
        """The records as they are written on the command line."""
        return [":".join(map(str, record)) for record in self.records]


@dataclass(frozen=True)
class Erasure:
    """What the steps of one erasure share. `say` takes a line, which never names a person."""

    settings: Settings
    project: Project
    request: Request
    say: Callable[[str], None]
    withdraws: bool = False
    # Raises if another machine may be at work.
    require: Callable[[], None] = lambda: None

    def run(self, dry: bool) -> Exported | None:
        """Erase, unless it is a dry run, and say what was done.

        With `withdraws` also take back what is published, and return what was published in its place.

        Raises:
            UserError: nobody declares such a person, or no row is there; or a step failed: the same command goes on.
        """
        declarations = read_declarations(MODELS_DIR)
        request = replace(self.request, persons=erase.of_sources(declarations, self.request.persons))
        with ExitStack() as stack:
            for name in ALONE:
                stack.enter_context(locked(name, self.say))
            catalog = load_catalog(self.settings)
            require_views(catalog, self.settings)
            leases = [stack.enter_context(leased(catalog, name, self.say, "erase")) for name in ALONE]

            def require() -> None:
                for lease in leases:
                    lease.require()

            return replace(self, request=request, require=require)._run(catalog, declarations, dry)

    def _run(self, catalog: Catalog, declarations: list[Declaration], dry: bool) -> Exported | None:
        found = self._find(catalog, declarations)
        rows = {table.declaration.identifier: len(table.places) for table in found if table.places}
        before = receipts.of_request(self.settings.needed("pii_key_file"), self.request.persons, self.request.places)
        for other in receipts.every():
            if other.state != DONE and other.id not in {receipt.id for receipt in before}:
                self.say(f"the erasure of {other.begun_at} is not finished: give its command again ({other.path})")
        build.parse(self.project, anew=True)
        self._require_known(catalog, declarations)
        self._tell_of_shared(found)
        for table, count in rows.items():
            self.say(f"{table}: {count:,} rows" + (" would be erased" if dry else ""))
        is_new = not before or before[-1].state == DONE
        versions = self._versions()
        self._tell_of_versions(versions)
        if not rows and is_new and not (before and self.withdraws and versions.rows):
            if not before:
                raise UserError(
                    "No row of what you name is in any bronze table, and no receipt in"
                    f" {receipts.directory()} says that one was",
                    "Check the id; `lakehouse ingest run` first if its records are not landed yet",
                )
            self.say(f"It was erased on {before[-1].ended_at}, and no row has come since: nothing to do")
            return None
        if dry:
            return None
        receipt = before[-1] if not is_new else self._begin()
        receipt.versions |= dict.fromkeys(versions.rows, HELD)
        if rows or receipt.tables:
            self._erase(catalog, found, receipt)
            self.require()
            self._rebuild(receipt)
            self._purge(catalog, receipt)
            self._tell_of_kafka(declarations, receipt)
        exported = self._withdraw(catalog, receipt) if self.withdraws else None
        receipt.end()
        self.say(f"receipt: {receipt.path}")
        return exported

    def _require_known(self, catalog: Catalog, declarations: list[Declaration]) -> None:
        """Refuse a lake with a table of raw data that is neither landed nor built any more: who is in it, nobody knows.

        Raises:
            UserError: there is one, for instance of a model that an upgrade has removed.
        """
        landed = {declaration.identifier for declaration in declarations}
        built = {f"{node['schema']}.{node['alias']}" for node in self.project.manifest()["nodes"].values()}
        restricted = RESTRICTED | {name.split(".")[0] for name in landed}
        for (schema,) in catalog.list_namespaces():
            names = {f"{schema}.{name}" for _, name in catalog.list_tables(schema)} if schema in restricted else set()
            for name in sorted(names - landed - built):
                if load_table(catalog, name) is not None:
                    raise UserError(
                        f"{name} may hold the person, and no topic is declared for it and no model builds it",
                        f"Drop it by `drop table {name} purge`, or declare it again; then give the same command",
                    )

    def _withdraw(self, catalog: Catalog, receipt: Receipt) -> Exported:
        """Publish the weeks that have changed, then take the old versions back, whether or not there are new ones."""
        target = open_target(self.settings)
        self.require()
        receipt.save()
        exported = Exported(completeness.last_week(self.settings, datetime.now(UTC)))
        try:
            exporter = Exporter(self.settings, catalog, self.project, exported, say=self.say, require=self.require)
            # Every version that is withdrawn is to be replaced, however many weeks that takes.
            replace(exporter, at_most=sys.maxsize).run(None)
        finally:
            published.withdraw(target, receipt.versions, self.say)
            receipt.versions = dict.fromkeys(receipt.versions, WITHDRAWN)
            new = {file.manifest.path for file in exported.published if not file.unchanged}
            receipt.replaced_by = sorted({*receipt.replaced_by, *new})
            receipt.save()
        for week in exported.weeks():
            page.write(self.settings, week, exported.notices())
        return exported

    def _find(self, catalog: Catalog, declarations: list[Declaration]) -> list[Found]:
        return erase.joined(
            [
                *erase.find(catalog, declarations, self.request.persons),
                *erase.named(catalog, declarations, self.request.records),
            ]
        )

    def _begin(self) -> Receipt:
        receipt = receipts.begin(self.settings.needed("pii_key_file"), self.request.persons, self.request.places)
        receipt.save()
        return receipt

    def _erase(self, catalog: Catalog, found: list[Found], receipt: Receipt) -> None:
        spark, writer = QuietSpark(self.settings), f"{erase.WRITER}{uuid.uuid4()}"
        receipt.shared |= {table.declaration.identifier: table.shared for table in found if table.shared}
        for table in found:
            name = table.declaration.identifier
            # Known before it is done: what a kill leaves is let go of all the same.
            receipt.tables.setdefault(name, {"rows": 0, "erased_at": None})
            receipt.save()
            if table.places:
                self.require()
                done = erase.erase(catalog, spark(), table, writer)
                entry = receipt.tables[name]
                receipt.tables[name] = {
                    "rows": entry["rows"] + done.rows,
                    "erased_at": f"{done.at:%Y-%m-%dT%H:%M:%S.%fZ}",
                }
                receipt.save()
                self.say(f"{name}: {done.rows:,} rows are erased")
        spark.stop()

    def _rebuild(self, receipt: Receipt) -> None:
        """Build anew whatever comes from the tables.

        An erased row has no key any more by which an increment could find what it had made.
        """
        self.say("building anew what comes from there")
        build.rebuild(self.project, *(f"{name}+" for name in self._sources(receipt)))

    def _purge(self, catalog: Catalog, receipt: Receipt) -> None:
        spark = QuietSpark(self.settings)
        for name, entry in receipt.tables.items():
            at = datetime.fromisoformat(entry["erased_at"]) if entry["erased_at"] else erase.erased_at(catalog, name)
            self.require()
            self._let_go(catalog, spark, name, at, receipt)
        rebuilt = self._rebuilt(receipt)
        for name in built_tables(self.settings):
            if name in rebuilt:
                self.require()
                self._let_go(catalog, spark, name, datetime.now(UTC), receipt)
        spark.stop()
        purged = receipt.purged.values()
        self.say(
            f"{len(receipt.purged)} tables let go of {sum(entry['snapshots'] for entry in purged):,} snapshots"
            f" and {sum(entry['orphans'] for entry in purged):,} files that nothing refers to"
        )
        if tags := sorted({tag for entry in purged for tag in entry["tags"]}):
            self.say(f"tags that kept older snapshots are removed: {', '.join(tags)}")

    def _let_go(self, catalog: Catalog, spark: QuietSpark, name: str, at: datetime, receipt: Receipt) -> None:
        done = purge_table(catalog, spark(), name, at)
        before = receipt.purged.get(name, {"tags": [], "snapshots": 0, "orphans": 0})
        receipt.purged[name] = {
            "tags": sorted({*before["tags"], *done.tags}),
            "snapshots": before["snapshots"] + done.snapshots,
            "orphans": before["orphans"] + done.orphans,
        }
        receipt.save()

    def _sources(self, receipt: Receipt) -> dict[str, str]:
        """Return dbt's sources of the tables: how a selection names each, and its unique id."""
        return {
            f"source:{node['source_name']}.{node['name']}": unique_id
            for unique_id, node in self.project.manifest()["sources"].items()
            if f"{node['schema']}.{node['identifier']}" in receipt.tables
        }

    def _rebuilt(self, receipt: Receipt) -> set[str]:
        """Return the tables that dbt builds from those of an erasure."""
        manifest = self.project.manifest()
        waiting, seen = [*self._sources(receipt).values()], set()
        while waiting:
            for child in manifest["child_map"].get(waiting.pop(), []):
                if child not in seen:
                    seen.add(child)
                    waiting.append(child)
        nodes = [manifest["nodes"][name] for name in seen if name in manifest["nodes"]]
        return {f"{node['schema']}.{node['alias']}" for node in nodes if node["resource_type"] in ("model", "snapshot")}

    def _versions(self) -> Versions:
        datasets = declared.load(self.project).values()
        return published.find(
            open_target(self.settings), datasets, self.settings.needed("pii_key_file"), self.request.persons
        )

    def _tell_of_shared(self, found: list[Found]) -> None:
        for table in found:
            if table.shared:
                self.say(f"{table.declaration.identifier}: {table.shared:,} that others' rows name too are kept")

    def _tell_of_versions(self, versions: Versions) -> None:
        for path, rows in versions.rows.items():
            self.say(f"{path} is published and holds {rows:,} rows of the person, masked")
        for line in versions.unknown:
            self.say(f"not looked through: {line}")

    def _tell_of_kafka(self, declarations: list[Declaration], receipt: Receipt) -> None:
        topics = [declaration.topic for declaration in declarations if declaration.identifier in receipt.tables]
        self.say(
            f"Kafka still has the records of {', '.join(topics)} until retention deletes them, or a tombstone and"
            " compaction do: see docs/operations.md"
        )
