"""One erasure: bronze rows, the models built from them, older snapshots and files, published versions.

Each step is idempotent, so the same command resumes a killed one.
"""

import sys
import uuid
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta

from pyiceberg.catalog import Catalog

from python_common import private_files
from python_common.catalog.catalog import load_catalog, load_table, require_views
from python_common.config.environment import landed_rows
from python_common.config.settings import Settings
from python_common.errors import UserError
from python_common.locks.lease import alone
from python_common.log import log
from python_common.output import console
from python_common.spark.session import LazySparkSession
from python_dbt.pii.flows import RESTRICTED
from python_dbt.project import Project
from python_dbt.run import parse, rebuild
from python_export.datasets import declared
from python_export.notify import page
from python_export.notify.exported import Exported
from python_export.publishing.target import Target
from python_export.readiness import completeness
from python_export.run import Run
from python_ingest.declare.topics import MODELS_DIR, Declaration, read_declarations
from python_ingest.maintenance import erase, receipts
from python_ingest.maintenance.erase import Person, Record, RowsToErase
from python_ingest.maintenance.maintain import built_tables
from python_ingest.maintenance.purge import erased_at, purge_table
from python_ingest.maintenance.receipts import DONE, Receipt
from python_jobs import fork
from python_jobs.erase import published

# The locks and leases that an erasure holds.
LEASES = ("weekly", "maintain")
# States of a version.
HOLDS_ROWS, WITHDRAWN = "holds rows", "withdrawn"


@dataclass(frozen=True)
class Erasure:
    """Erases the rows of persons, and records by topic, partition and offset. What it prints names no person."""

    settings: Settings
    project: Project
    persons: tuple[Person, ...]
    records: tuple[Record, ...]
    withdraws: bool
    # Raises if another machine may be at work.
    require: Callable[[], None] = lambda: None

    def run(self, dry: bool) -> Exported:
        """Erase, unless it is a dry run; return what was published, with a warning for what cannot be searched.

        With `withdraws` also withdraw what is published, and publish new versions.

        Raises:
            UserError: no source declares such a person, no row was found, or a step failed: the same command goes on.
        """
        declarations = read_declarations(MODELS_DIR)
        persons = erase.of_sources(declarations, self.persons)
        with ExitStack() as stack:
            catalog = load_catalog(self.settings)
            require_views(catalog, self.settings)
            leases = [stack.enter_context(alone(catalog, name, "erase")) for name in LEASES]

            def require() -> None:
                for lease in leases:
                    lease.require()

            exported = Exported(completeness.last_week(self.settings, datetime.now(UTC)))
            job = replace(self, persons=persons, require=require)
            not_searched = job._run(catalog, declarations, exported, dry)
        exported.warnings += [f"not searched: {line}" for line in not_searched]
        exported.has_issues |= bool(not_searched)
        return exported

    def _run(self, catalog: Catalog, declarations: list[Declaration], exported: Exported, dry: bool) -> list[str]:
        positions = [":".join(map(str, record)) for record in self.records]
        named = erase.named(catalog, declarations, self.records)
        to_erase = erase.merge_by_table([*erase.find(catalog, declarations, self.persons), *named])
        rows = {table.declaration.identifier: len(table.positions) for table in to_erase if table.positions}
        key_file = self.settings.needed("pii_key_file")
        before = receipts.of_request(catalog, key_file, self.persons, positions)
        parse(self.project, always=True)
        self._require_known(catalog, declarations)
        for table in to_erase:
            if table.shared:
                console.print(f"{table.declaration.identifier}: {table.shared:,} that others' rows name too remain")
        for name, count in rows.items():
            console.print(f"{name}: {count:,} rows" + (" would be erased" if dry else ""))
        is_new = not before or before[-1].state == DONE
        targets, not_searched = published.targets(self.settings, catalog)
        versions = self._versions(catalog, declarations, targets, not_searched)
        for path, count in versions.items():
            is_there = f"is published and holds {count:,} rows of the person, masked"
            console.print(
                path, is_there if count else "is withdrawn, and changes.csv of the next version lists its keys"
            )
        if not rows and is_new and not (before and self.withdraws and versions):
            if not before:
                raise UserError(
                    "No row of what you name is in any bronze table, and no receipt in"
                    f" {receipts.TABLE.identifier} records that one was",
                    "Check the id; `lakehouse ingest run` first if its records are not landed yet",
                )
            console.print(f"It was erased on {before[-1].ended_at}, and no row has come since: nothing to do")
            return not_searched
        if dry:
            return not_searched
        not_searched += fork.drop_all(self.settings)
        private_files.delete(landed_rows())
        receipt = before[-1] if not is_new else receipts.begin(key_file, self.persons, positions)
        receipt.versions |= dict.fromkeys(versions, HOLDS_ROWS)
        receipt.not_searched = not_searched
        receipt.save(catalog)
        if rows or receipt.tables:
            self._erase(catalog, to_erase, receipt)
            self.require()
            self._rebuild(receipt)
            self._purge(catalog, receipt)
            self._print_kafka_notice(declarations, receipt)
        self._clean(targets, receipt)
        if self.withdraws:
            self._withdraw(catalog, targets, exported, receipt)
        receipt.end(catalog)
        console.print(f"receipt: {receipt.name} of {receipts.TABLE.identifier}")
        return receipt.not_searched

    def _require_known(self, catalog: Catalog, declarations: list[Declaration]) -> None:
        """Refuse a table of raw data that is neither landed nor built any more, as of a model that an upgrade removed.

        Raises:
            UserError: the lake has one, and it may hold the person.
        """
        landed = {declaration.identifier for declaration in declarations}
        built = {node.table for node in self.project.manifest().nodes.values()}
        restricted = RESTRICTED | {name.split(".")[0] for name in landed}
        for (schema,) in catalog.list_namespaces():
            names = {f"{schema}.{name}" for _, name in catalog.list_tables(schema)} if schema in restricted else set()
            for name in sorted(names - landed - built):
                if load_table(catalog, name) is not None:
                    raise UserError(
                        f"{name} may hold the person, but no topic is declared for it and no model builds it",
                        f"Drop it by `drop table {name} purge`, or declare it again; then give the same command",
                    )

    def _withdraw(self, catalog: Catalog, targets: list[Target], exported: Exported, receipt: Receipt) -> None:
        """Publish the weeks that have changed, then withdraw the old versions, whether or not there are new ones."""
        self.require()
        try:
            # Every withdrawn version is replaced, however many weeks that takes.
            Run(self.settings, catalog, self.project, exported, require=self.require, at_most=sys.maxsize).export()
        finally:
            published.withdraw(targets, receipt.versions)
            receipt.versions = dict.fromkeys(receipt.versions, WITHDRAWN)
            new = {file.manifest.path for file in exported.published if not file.unchanged}
            receipt.replaced_by = sorted({*receipt.replaced_by, *new})
            receipt.save(catalog)
        # The same command, or the next run, does this if the export failed: until then these reports are missing.
        page.write_all(self.settings, catalog, exported)

    def _clean(self, targets: list[Target], receipt: Receipt) -> None:
        """Delete what dead exports left in export roots: nothing exports while this has the lease."""
        self.require()
        names = declared.of_manifest(self.project.manifest())
        receipt.not_searched += published.clean(targets, names)

    def _erase(self, catalog: Catalog, to_erase: list[RowsToErase], receipt: Receipt) -> None:
        spark, writer = LazySparkSession(self.settings), f"{erase.WRITER}{uuid.uuid4()}"
        receipt.shared |= {table.declaration.identifier: table.shared for table in to_erase if table.shared}
        for table in to_erase:
            name = table.declaration.identifier
            # Saved before it is done: a kill may leave the commit, of just these rows, and no more of the receipt.
            entry = receipt.tables.setdefault(name, {"rows": 0, "erased_at": None})
            before = entry["rows"] if entry["erased_at"] else 0
            if table.positions and not entry["erased_at"]:
                entry["rows"] = len(table.positions)
            receipt.save(catalog)
            if table.positions:
                self.require()
                rows = erase.erase(catalog, spark(), table, writer)
                at = erased_at(catalog, spark(), name).isoformat()
                receipt.tables[name] = {"rows": before + rows, "erased_at": at}
                receipt.save(catalog)
                log.info(f"{name}: {rows:,} rows are erased")
        spark.stop()

    def _rebuild(self, receipt: Receipt) -> None:
        """Rebuild all models behind the tables: an erased row has no key by which an increment finds its results."""
        log.info("rebuilding all models behind these tables")
        rebuild(self.project, *(f"{name}+" for name in self._sources(receipt)))

    def _purge(self, catalog: Catalog, receipt: Receipt) -> None:
        spark = LazySparkSession(self.settings)
        for name, entry in receipt.tables.items():
            noted = entry["erased_at"]
            at = datetime.fromisoformat(noted) if noted else erased_at(catalog, spark(), name)
            self._purge_table(catalog, spark, name, at, receipt)
        rebuilt = self._rebuilt(receipt)
        # Nothing else writes these meanwhile, and the clock of a store may be ahead.
        at = datetime.now(UTC) + timedelta(days=1)
        for name in built_tables(self.settings):
            if name in rebuilt:
                self._purge_table(catalog, spark, name, at, receipt)
        spark.stop()
        purged = receipt.purged.values()
        console.print(
            f"{len(receipt.purged)} tables: {sum(entry['snapshots'] for entry in purged):,} snapshots expired,"
            f" {sum(entry['orphans'] for entry in purged):,} orphan files deleted"
        )

    def _purge_table(
        self, catalog: Catalog, spark: LazySparkSession, name: str, at: datetime, receipt: Receipt
    ) -> None:
        done = asdict(purge_table(catalog, spark(), name, at, self.require))
        before = receipt.purged.get(name)
        receipt.purged[name] = {key: before[key] + count for key, count in done.items()} if before else done
        receipt.save(catalog)

    def _sources(self, receipt: Receipt) -> dict[str, str]:
        """Return dbt's sources of the tables: how a selection names each, and its unique id."""
        return {
            f"source:{source.source_name}.{source.name}": source.unique_id
            for source in self.project.manifest().sources.values()
            if source.table in receipt.tables
        }

    def _rebuilt(self, receipt: Receipt) -> set[str]:
        """Return the tables that dbt builds from those of an erasure."""
        manifest = self.project.manifest()
        sources = {*self._sources(receipt).values()}
        built = (node for node in manifest.nodes.values() if node.resource_type in ("model", "snapshot"))
        return {node.table for node in built if not sources.isdisjoint(manifest.ancestors(node.unique_id))}

    def _versions(
        self, catalog: Catalog, declarations: list[Declaration], targets: list[Target], not_searched: list[str]
    ) -> dict[str, int]:
        spark = LazySparkSession(self.settings)
        persons = {*self.persons, *erase.everyone(catalog, declarations, self.persons)}
        hashes = published.pseudonyms(spark(), self.settings.needed("pii_key_file"), persons) if persons else set()
        spark.stop()
        return published.find(targets, persons, hashes, published.person_columns(self.project.manifest()), not_searched)

    def _print_kafka_notice(self, declarations: list[Declaration], receipt: Receipt) -> None:
        topics = [declaration.topic for declaration in declarations if declaration.identifier in receipt.tables]
        console.print(
            f"Kafka still has the records of {', '.join(topics)} until retention deletes them, or a tombstone and"
            " compaction do: see docs/privacy.md"
        )


def record_at(topic: str, position: Iterable[str]) -> Record:
    """Return the record at [generation,] partition and offset, as text; without a generation it is 0."""
    generation, partition, offset = (0, *map(int, position))[-3:]
    return topic, generation, partition, offset


def again(settings: Settings, project: Project, dry: bool = False) -> Exported:
    """Erase once more all that receipts name: a restored lake is as it was before. Published versions are withdrawn.

    Raises:
        UserError: as of `Erasure.run`.
    """
    catalog, declarations = load_catalog(settings), read_declarations(MODELS_DIR)
    everyone = erase.everyone(catalog, declarations)
    persons, positions = receipts.named(catalog, settings.needed("pii_key_file"), everyone)
    records: list[Record] = []
    for topic, *position in (position.split(":") for position in positions):
        record = record_at(topic, position)
        # The restored table may end before it.
        with suppress(UserError):
            records += [record] if erase.named(catalog, declarations, [record]) else []
    if not persons and not records:
        console.print("nothing that a receipt names is in any bronze table")
        return Exported(completeness.last_week(settings, datetime.now(UTC)))
    return Erasure(settings, project, tuple(persons), tuple(records), withdraws=True).run(dry)
