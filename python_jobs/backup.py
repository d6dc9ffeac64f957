"""Saves the metadata of all tables in one file, before a backup copies the warehouse, and restores it.

The newest metadata file of an Iceberg table names all others, so this works for every catalog. The saved file holds
these files whole, because a table deletes old ones after some commits.
"""

import json
from collections.abc import Collection
from pathlib import Path

from pyarrow.fs import FileSelector
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import TableAlreadyExistsError
from pyiceberg.io import load_file_io
from pyiceberg.io.pyarrow import PyArrowFileIO
from tenacity import retry, retry_if_exception_type, stop_after_attempt

from python_common import private_files
from python_common.catalog.catalog import make_namespace, table_names
from python_common.errors import UserError
from python_common.locks import lease

ATTEMPTS = 5


def save(catalog: Catalog, path: Path) -> int:
    """Write the metadata of all tables while no build runs, and return their number.

    A build between two tables would leave one that has read rows which the other lacks. The ingester may go on: each
    bronze table is consistent after each commit.
    """
    with lease.alone(catalog, "weekly", "backup"):
        saved = {name: _metadata(catalog, name) for name in table_names(catalog) if name != lease.TABLE.identifier}
    private_files.write(path, json.dumps(saved, indent=1))
    return len(saved)


# After so many commits a table's metadata file is deleted, which may be between these two lines.
@retry(retry=retry_if_exception_type(FileNotFoundError), stop=stop_after_attempt(ATTEMPTS), reraise=True)
def _metadata(catalog: Catalog, name: str) -> dict[str, str]:
    table = catalog.load_table(name)
    with table.io.new_input(table.metadata_location).open() as file:
        return {"location": table.metadata_location, "metadata": file.read().decode()}


def restore(catalog: Catalog, path: Path, newest: Collection[str] = ()) -> int:
    """Register the tables of a saved file, whose files are back in the warehouse, and return their number.

    A table in `newest` gets its newest metadata file in the warehouse, if that is later than the saved one.

    Raises:
        UserError: the file is not a saved one, or the catalog has a table of one of these names, or cannot register
            one.
    """
    try:
        saved = {
            name: (table["location"], table["metadata"], json.loads(table["metadata"])["table-uuid"])
            for name, table in json.loads(path.read_text()).items()
        }
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        raise UserError(f"{path} is not a file of `lakehouse backup save`", "Name the file that it wrote") from None
    for name, (saved_at, metadata, table_uuid) in saved.items():
        location = _newest(catalog, saved_at) if name in newest else saved_at
        output = load_file_io(catalog.properties, location).new_output(location)
        if not output.exists():
            with output.create() as file:
                file.write(metadata.encode())
        make_namespace(catalog, name.rpartition(".")[0])
        try:
            registered = catalog.register_table(name, location)
        except TableAlreadyExistsError:
            raise UserError(
                f"There is a table {name} already", "Restore into a catalog that is empty: LAKEHOUSE_CATALOG_URI"
            ) from None
        if str(registered.metadata.table_uuid) != table_uuid:
            raise UserError(
                f"The catalog made a new table {name} instead of the one at {location}",
                "Nothing is lost: restore into a catalog that takes tables back, such as one in PostgreSQL",
            )
    return len(saved)


def _newest(catalog: Catalog, location: str) -> str:
    """Return the newest metadata file in the directory of one, by the number that its name begins with."""
    scheme, host, path = PyArrowFileIO.parse_location(location, catalog.properties)
    folder = FileSelector(path.rpartition("/")[0], allow_not_found=True)
    files = PyArrowFileIO(catalog.properties).fs_by_scheme(scheme, host).get_file_info(folder)
    names = [file.base_name for file in files if file.base_name.endswith(".metadata.json")]
    return f"{location.rpartition('/')[0]}/{max([*names, location.rpartition('/')[2]])}"
