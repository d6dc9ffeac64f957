"""One export run: build, then write, verify and publish each dataset of some weeks, or withhold it with a reason."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from pyiceberg.catalog import Catalog

from python_common.config.settings import Settings
from python_common.errors import DeadlineError, Issue, Kind, UserError
from python_common.failure import to_user_error
from python_common.locks.lease import LeaseLostError
from python_common.log import log
from python_common.spark import thrift
from python_common.weeks import IsoWeek
from python_dbt.project import Project
from python_dbt.run import FIGURES, build, invocation, rerun
from python_export.csv import pii_scan
from python_export.csv.compare import verify
from python_export.csv.facts import SPREADSHEET_ROWS, Facts, measure
from python_export.csv.write import write
from python_export.datasets import declared
from python_export.datasets.declared import Dataset
from python_export.datasets.snapshot import Source, require_week
from python_export.notify.exported import Exported
from python_export.publishing import formats, hold, late
from python_export.publishing.manifest import Manifest, next_delivery
from python_export.publishing.publish import WithdrawnContentError, build_manifest, publish, put_contract
from python_export.publishing.target import Target, is_announced, open_target, staging, stopped
from python_export.publishing.versions import tag_snapshot
from python_export.readiness import completeness, decision, pii_gate
from python_export.readiness.decision import Decisions, TopicRead
from python_export.readiness.unclassified import omitted_fields, unclassified_fields
from python_export.readiness.week_counts import week_counts
from python_export.variables import Channels

# Weeks that late data changed and a run exports again, the newest first: a run stays short, and the next one goes on.
RESTATED_WEEKS = 8


@dataclass
class Run:
    """What the steps of one run share: they publish what is complete, and withhold the rest by name.

    `weeks` are those that it is for; without any, those that are due. `exported` is filled in as things happen: what is
    published stays when a later step fails. `figures` are those by which older weeks are due, None if they are not
    asked or not known.

    `reads` are what is known of the topics of the datasets and of their producers, from before the build. `issues` are
    what the run has found wrong: models/ops/ops_export_weeks.sql decides which datasets they withhold. `checked` are by
    kind the objects whose earlier issues these replace, None for all; `in_every_week` is what is wrong in every week by
    these and by earlier checks. `published` are dataset and week of what has its one version. `builds` are the ids of
    the run's builds: without any, tables may be of an earlier one. `has_views` is whether the run has made the views
    that decide.
    """

    settings: Settings
    catalog: Catalog
    project: Project
    exported: Exported
    weeks: Sequence[IsoWeek] = ()
    # Raises if another machine may be at work; asked before each build and each version.
    require: Callable[[], None] = lambda: None
    at_most: int = RESTATED_WEEKS
    # Why another version is published of what has its one version; None if it is not.
    restated: str | None = None
    full_refresh: bool = False
    figures: late.Figures | None = None
    reads: dict[str, TopicRead] = field(default_factory=dict)
    issues: list[Issue] = field(default_factory=list)
    checked: dict[Kind, Collection[str] | None] = field(default_factory=dict)
    in_every_week: set[str] = field(default_factory=set)
    published: Collection[tuple[str, str]] = ()
    builds: set[str] = field(default_factory=set)
    has_views: bool = False

    @property
    def bom(self) -> bool:
        """Whether files begin with a byte order mark."""
        return self.settings.export_bom == "true"

    def export(self, names: Iterable[str] = (), with_build: bool = True) -> None:
        """Export the weeks, or those that are due, of the named datasets, by default of all."""
        known = declared.load(self.project)
        chosen = declared.choose(known, names)
        self.read_topics(chosen, known.values())
        if not self.weeks:
            log.info("building the figures of all weeks")
            self.issues += build(self.project, [FIGURES], ())
            self.figures = late.figures(self.catalog)
        self.publish(chosen, with_build)

    def preview(self, names: Iterable[str] = (), with_due: bool = False) -> list[tuple[str, str, str, str]]:
        """Return dataset, week, why it is due and what withholds it, as `export` finds them and the last run found it.

        No model is built and no file written. Weeks that are due, without weeks or `with_due`, are those by the figures
        of the last build.
        """
        known = declared.load(self.project)
        chosen = declared.choose(known, names)
        omitted = self.read_topics(chosen, known.values())
        target = open_target(self.settings)
        if with_due or not self.weeks:
            self.figures = late.figures(self.catalog)
        due = self._due(target, chosen)
        decision.record_reads(self.catalog, self.reads, {week for _, week in due})
        decided = self._decisions(due)
        holds = hold.unapproved(self.catalog)
        rows = []
        for name, week in due:
            why = late.why_due(target, name, week, has_one_version=bool(known[name].suppressed))
            if row := holds.get(target.address(f"{name}/{week}")):
                reason = f"held by the last run, {row.sha256[:12]}: {row.reason}"
            else:
                own = [issue.message for issue in omitted if issue.object in known[name].lineage]
                reason = "; ".join(dict.fromkeys([*decided[name, week].reasons, *own]))
            rows.append((name, str(week), why, reason))
        return rows

    def read_topics(self, chosen: Collection[Dataset], known: Iterable[Dataset] = ()) -> list[Issue]:
        """Read how far the topics of some datasets are, and which of their fields no file has; return the issues."""
        formats.require({form for dataset in chosen for form in dataset.formats})
        with thrift.connect(self.settings) as cursor:
            issues, warnings = omitted_fields(self.catalog, self.project)
            self.issues += issues
            self.exported.warnings += warnings + unclassified_fields(self.catalog, self.project)
            self.reads = completeness.read_topics(self.settings, cursor, self.catalog, chosen, known)
        # A topic that could not be landed is behind, or it has been landed since: the read knows.
        self.checked = {"fields": None, "ingest": self.reads.keys(), **self.checked}
        return issues

    def record(self, weeks: Collection[IsoWeek]) -> None:
        """Record what is known of topics, and the issues, for a decision about some weeks."""
        self.reads = completeness.without_rolled_back(self.catalog, self.reads)
        decision.record_reads(self.catalog, self.reads, weeks)
        self._record_issues(weeks)

    def _record_issues(self, weeks: Collection[IsoWeek]) -> None:
        self.in_every_week = decision.record_issues(self.catalog, self.issues, self.checked, weeks)

    def add_failed(self, issues: Iterable[Issue], exports: Collection[str], weeks: Collection[IsoWeek]) -> None:
        """Add what failed in a build of some weeks: in an export model it counts for these weeks alone."""
        for issue in issues:
            self.issues += [replace(issue, week=str(week)) for week in weeks] if issue.model in exports else [issue]

    def without_dataset(self, datasets: Iterable[Dataset]) -> list[str]:
        """Return the issues that withhold nothing, because no dataset comes from their objects."""
        objects = frozenset().union(*(dataset.lineage for dataset in datasets))
        issues = [issue for issue in self.issues if issue.kind != "file"]
        withholding = {issue.message for issue in issues if issue.object in objects}
        return [reason for reason in dict.fromkeys(issue.message for issue in issues) if reason not in withholding]

    def publish(self, datasets: Collection[Dataset], with_build: bool = True, are_built: bool = False) -> None:
        """Publish the weeks of datasets, and with figures the older weeks that are due, without what killed runs left.

        The weeks are built before, unless they `are_built`. Which weeks have their one version is read before and
        recorded after.
        """
        target = open_target(self.settings)
        announced = is_announced(self.settings, target, Channels.of(self.project.env).root)
        once = [dataset.name for dataset in datasets if dataset.suppressed]
        self.published = late.published_once(self.catalog, target, once, announced)
        with staging(target.staging) as directory:
            target.clean([dataset.name for dataset in datasets])
            try:
                self._export(self._due(target, datasets), with_build, are_built, target, directory)
            finally:
                late.published_once(self.catalog, target, once, announced)

    def _export(
        self, due: late.WeeksToExport, with_build: bool, are_built: bool, target: Target, directory: Path
    ) -> None:
        """Build the weeks, at once, but for those that `are_built`; publish week by week, in the order of `due`.

        What fails for a dataset withholds it. If all fails alike, it is raised: then it is no matter of a dataset.
        """
        failed: list[tuple[Issue, Exception]] = []
        weeks = [*dict.fromkeys(week for _, week in due)]
        if not self.restated:
            due, versions, warnings = late.without_published(target, due, self.published)
            self.exported.published += versions
            self.exported.warnings += warnings
        names = {name for name, _ in due}
        self.checked["file"] = names
        if with_build:
            known = declared.load(self.project)
            self.checked.setdefault("build", frozenset().union(*(known[name].lineage for name in names)))
        decided = self._decide(due, weeks)
        due = self._without_waiting(due, decided)
        if with_build:
            to_build = [(name, week) for name, week in due if not (are_built and week in self.weeks)]
            self._build(to_build, decided, not are_built)
            decided = self._decide(due, weeks)
        for week in weeks:
            scratch = directory / str(week)
            scratch.mkdir()
            # What the models declare now: dbt may just have read a newer project.
            datasets = declared.load(self.project)
            chosen = [datasets[name] for name, due_week in due if due_week == week]
            failed += self._publish_week(week, chosen, decided, target, scratch)
            if self.figures is not None:
                public = (version.manifest for version in self.exported.published)
                done = [(manifest.dataset, manifest.week) for manifest in public if manifest.week == str(week)]
                late.record_figures(self.catalog, target, done, self.figures)
        if len(failed) == len(due) and len({type(error) for _, error in failed}) == 1:
            raise failed[0][1]
        for issue, _ in failed:
            self._refuse(issue)
        outcomes = {
            target.address(f"{one.manifest.dataset}/{one.manifest.week}"): f"published v{one.manifest.version}"
            for one in self.exported.published
        }
        outcomes |= {target.address(f"{one.object}/{one.week}"): one.message for one in self.exported.withheld}
        decision.log_outcomes(self.catalog, outcomes)
        self.exported.warnings += dict.fromkeys(text for one in decided.values() for text in one.warnings)
        self.exported.has_issues = any(issue.kind != "file" for issue in self.issues) or any(
            one.reasons for one in decided.values()
        )
        self.exported.warnings += self.without_dataset(declared.load(self.project).values())
        self._record_issues(weeks)

    def _decide(self, due: late.WeeksToExport, weeks: Collection[IsoWeek]) -> Decisions:
        """Record what is known about some weeks, and return what dbt decides by it of due ones."""
        self.require()
        self.record(weeks)
        return self._decisions(due)

    def _decisions(self, due: late.WeeksToExport) -> Decisions:
        if not due:
            return {}
        if not self.has_views:
            rerun(self.project, (), *decision.MODELS)
            self.has_views = True
        with thrift.connect(self.settings) as cursor:
            return decision.decisions(cursor, due)

    def _without_waiting(self, due: late.WeeksToExport, decided: Decisions) -> late.WeeksToExport:
        """Return due weeks without those that wait for what is wrong in every week, and add a warning of each dataset.

        What the run is for does not wait: it is withheld.
        """
        waiting: dict[tuple[str, str], list[IsoWeek]] = {}
        left = []
        for name, week in due:
            reasons = decided[name, week].reasons
            if week in self.weeks or self.in_every_week.isdisjoint(reasons):
                left.append((name, week))
            else:
                waiting.setdefault((name, "; ".join(reasons)), []).append(week)
        self.exported.warnings += [
            f"{len(weeks)} due weeks of {name}, the first {min(weeks)}, are not published yet: {reason}"
            for (name, reason), weeks in waiting.items()
        ]
        return left

    def _due(self, target: Target, datasets: Collection[Dataset]) -> late.WeeksToExport:
        """Return the weeks, the newest first, then with figures those that are due."""
        names = [dataset.name for dataset in datasets]
        chosen = [(name, week) for week in sorted(self.weeks, reverse=True) for name in names]
        if self.figures is None:
            return chosen
        once = [dataset.name for dataset in datasets if dataset.suppressed]
        due, left = late.weeks_to_export(
            self.catalog, target, self.figures, names, self.exported.week, self.at_most, once
        )
        if left:
            self.exported.warnings.append(
                f"{len(left)} older weeks that late data changed are left for the next run, the newest {left[0]}"
            )
        return [*dict.fromkeys([*chosen, *due])]

    def _build(self, due: late.WeeksToExport, decided: Decisions, with_ancestors: bool) -> None:
        """Have dbt build what may be published of some weeks.

        What fails in the export models of several weeks is built again week by week: a bad week costs that week.
        """
        datasets = declared.load(self.project)
        wanted = [(datasets[name], week) for name, week in due if not decided[name, week].reasons]
        weeks = sorted({week for _, week in wanted})
        exports = {dataset.model: dataset for dataset, _ in wanted}
        issues = self._built(exports.values(), weeks, with_ancestors) if weeks else []
        if len(weeks) > 1:
            again = {issue.model for issue in issues if issue.model in exports}
            for week in weeks:
                if chosen := [dataset for dataset, its_week in wanted if its_week == week and dataset.model in again]:
                    self.add_failed(self._built(chosen, [week], with_ancestors=False), exports, [week])
            issues = [issue for issue in issues if issue.model not in exports]
        self.add_failed(issues, exports, weeks)

    def _built(self, chosen: Collection[Dataset], weeks: Sequence[IsoWeek], with_ancestors: bool) -> list[Issue]:
        self.require()
        log.info(f"{', '.join(map(str, weeks))}: building {', '.join(dataset.model for dataset in chosen)}")
        # What they count has other ancestors.
        models = [name for dataset in chosen for name in (dataset.models if with_ancestors else (dataset.model,))]
        issues = build(self.project, models, weeks, with_ancestors)
        self.builds.add(invocation(self.project))
        return issues

    def _publish_week(
        self, week: IsoWeek, chosen: list[Dataset], decided: Decisions, target: Target, directory: Path
    ) -> list[tuple[Issue, Exception]]:
        """Write and verify every dataset that may be published, then publish one by one; return what failed."""

        def refusal(name: str, reason: str) -> Issue:
            return Issue(reason, object=name, kind="file", week=str(week))

        reasons = {dataset.name: decided[dataset.name, week].reasons for dataset in chosen}
        self.exported.withheld += [
            refusal(name, "; ".join(sentences)) for name, sentences in reasons.items() if sentences
        ]
        accepted = [dataset for dataset in chosen if not reasons[dataset.name]]
        unproven = pii_gate.reasons(self.project, accepted)
        for name, reason in unproven.items():
            self._refuse(refusal(name, reason))
        accepted = [dataset for dataset in accepted if dataset.name not in unproven]
        staged: list[tuple[Source, Path, Facts]] = []
        failed: dict[str, Exception] = {}
        with thrift.connect(self.settings) as cursor:
            counts = {}
            for dataset in accepted:
                counts[dataset.name] = week_counts(cursor, dataset, week, self.exported.warnings.append)
                try:
                    staged.append(self._stage(dataset, week, directory / dataset.name))
                except DeadlineError:
                    raise
                except CheckFailedError as error:
                    self._refuse(refusal(dataset.name, error.message))
                except Exception as error:
                    failed[dataset.name] = error
        resolved: set[str] = set()
        delivery = next_delivery(target, str(week))
        for source, file, facts in staged:
            dataset = source.dataset
            draft = replace(
                build_manifest(source, week, facts, decided[dataset.name, week].warnings),
                delivery=delivery,
                restated=self.restated,
                bom=self.bom,
                dead_letters=sum(
                    read.dead_letters(week) for topic in dataset.topics if (read := self.reads.get(topic.topic))
                ),
                **counts[dataset.name],
            )
            tag = partial(self._tag_snapshot, target)
            review = partial(hold.review, self.catalog, target, dataset.hold)
            scratch = directory / dataset.name / "scratch"
            try:
                version = publish(target, file, draft, dataset.fields, scratch, tag, dataset.formats, review)
                put_contract(target, dataset)
            except (DeadlineError, LeaseLostError):
                raise
            except WithdrawnContentError as error:
                self.exported.warnings.append(str(error))
                resolved.add(target.address(f"{dataset.name}/{week}"))
                continue
            except hold.HeldError as error:
                self._refuse(refusal(dataset.name, error.message))
                self.exported.held_weeks += 1
                continue
            except Exception as error:
                failed[dataset.name] = error
                continue
            self.exported.published.append(version)
            resolved.add(target.address(f"{dataset.name}/{week}"))
        hold.drop(self.catalog, resolved)
        return [(refusal(name, self._to_user_error(error, directory).message), error) for name, error in failed.items()]

    def _refuse(self, issue: Issue) -> None:
        """Withhold a dataset for what came after the decision: a check of its file, or a failure to publish it."""
        self.exported.withheld.append(issue)
        self.issues.append(issue)

    def _stage(self, dataset: Dataset, week: IsoWeek, directory: Path) -> tuple[Source, Path, Facts]:
        """Return the file of a dataset, written and verified; a CheckFailedError if a check refuses it."""
        with _checking():
            tested = require_week(self.catalog, dataset, week, self.builds)
            if not self.builds:
                pii_gate.require_proven(self.project, tested)
            source = pii_scan.withhold(tested, directory / "scanned")
        log.info("%s: writing", dataset.name)
        file = directory / "version" / f"{dataset.name}.csv"
        file.parent.mkdir()
        write(source, file, directory / "sorted", self.bom)
        log.info("%s: verifying", dataset.name)
        with _checking():
            verify(file, source, directory / "verified")
            facts = measure(source, directory / "counted")
        if facts.rows >= SPREADSHEET_ROWS:
            log.warning("%s: of %d rows a spreadsheet shows %d", dataset.name, facts.rows, SPREADSHEET_ROWS - 1)
        return source, file, facts

    def _tag_snapshot(self, target: Target, manifest: Manifest) -> None:
        """Have the right to publish a version whose number is chosen, and tag its snapshot.

        Another run that publishes after the question takes the same number, so one of the two is refused. The tag comes
        before the version: one whose snapshot may expire could not be written again.
        """
        self.require()
        tag_snapshot(self.catalog, target, manifest)

    def _to_user_error(self, error: Exception, directory: Path) -> UserError:
        return stopped(error, directory) if isinstance(error, OSError) else to_user_error(error, self.settings)


class CheckFailedError(UserError):
    """A check refuses a dataset, which withholds it."""


@contextmanager
def _checking() -> Iterator[None]:
    try:
        yield
    except UserError as error:
        raise CheckFailedError(error.message, error.remedy) from error
