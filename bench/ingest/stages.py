"""Where the CPU time of landing a topic goes, and what a library needs for the same."""

from bench import table_of
from bench.ingest.landings import Bench
from python_common.output import console

# Each stage runs so often; the last time counts.
TIMES = 3
STAGES = (
    *("read", "decoded", "rows", "landed", "few"),
    *("consumed", "decoded_by_fastavro", "scanned", "written_by_pyarrow", "appended_by_pyiceberg"),
)


def land_in_stages(bench: Bench, name: str, records: int) -> None:
    """Run the stages of landing a topic in one process, and print what each adds to the one before it.

    Parquet is what is left of a landing without the rows before it, and without a batch of three records.
    """
    bench.fill(name, records)
    cpu = {}
    with bench.start("stages", name) as peer:
        for stage in STAGES:
            cpu[stage] = [peer.land(stage, records).cpu_seconds for _ in range(TIMES)][-1]
            console.print(f"{stage.replace('_', ' ')}: {cpu[stage]:.2f} CPU s")
    consumed, commit = cpu["consumed"], cpu["few"]
    added = (
        ("reading from Kafka", cpu["read"], consumed, "librdkafka"),
        ("decoding", cpu["decoded"] - cpu["read"], cpu["decoded_by_fastavro"] - consumed, "fastavro"),
        ("raw bytes, headers, positions", cpu["rows"] - cpu["decoded"], None, ""),
        ("Parquet", cpu["landed"] - cpu["rows"] - commit, cpu["written_by_pyarrow"] - cpu["scanned"], "PyArrow"),
        ("plan and commit", commit, cpu["appended_by_pyiceberg"], "PyIceberg"),
    )
    table = table_of("stage", "CPU s per\nmillion", "of all", "CPU s per\nmillion", "by", "ratio")
    million = records / 1e6
    for stage, seconds, by_library, library in added:
        figures = f"{seconds / million:.2f}", f"{seconds / cpu['landed']:.2f}"
        peer_figures = (f"{by_library / million:.2f}", library, f"{seconds / by_library:.2f}") if by_library else ()
        table.add_row(stage, *figures, *peer_figures)
    table.add_row("all", f"{cpu['landed'] / million:.2f}", "1.00")
    console.print(f"\n{records:,} records in one batch, in a warm process")
    console.print(table)
