"""fastavro's decoder in Python, with numbers as Avro's Java library reads them, by which a record is a dead letter."""

from typing import Any

from fastavro._read_py import read_data
from fastavro.io.binary_decoder import BinaryDecoder


class JavaDecoder(BinaryDecoder):
    """Reads an int of at most five bytes, of which it keeps 32 bits, and a long of ten; no index is negative."""

    def value(self, schema: Any, types: dict[str, Any]) -> Any:
        """Return the value of a parsed schema with these named types; raises what a reader of damaged bytes raises."""
        return read_data(self, schema, {"writer": types, "reader": {}})  # type: ignore[no-untyped-call]

    def _number(self, most_bytes: int, bits: int) -> int:
        encoded: int = 0
        for place in range(most_bytes):
            byte: int = self.fo.read(1)[0]
            encoded |= (byte & 0x7F) << 7 * place
            if byte < 0x80:
                encoded &= 2**bits - 1
                return (encoded >> 1) ^ -(encoded & 1)
        raise OverflowError

    def read_long(self) -> int:
        """Return a long."""
        return self._number(10, 64)

    def read_int(self) -> int:
        """Return an int."""
        return self._number(5, 32)

    def read_index(self) -> int:
        """Return the index of a union's branch."""
        index = self.read_int()
        if index < 0:
            raise IndexError
        return index
