"""Peer: the floor. Consumes the topic with librdkafka, and neither decodes nor writes."""

import sys

from bench.ingest.peers.consuming import chunks
from python_common.config.settings import from_environment


def main(topic: str) -> None:
    """Read the topic once for each line on stdin; answer each with the records read."""
    settings = from_environment()
    for _ in sys.stdin:
        print(sum(map(len, chunks(settings, topic))), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
