"""The admin client: what a signal does to it."""

import os
import signal
import time

import pytest
from confluent_kafka import KafkaError

from python_common.config.settings import Settings
from python_ingest.kafka.admin import Broker


class Interrupted(Broker):
    def _note(self, error: KafkaError) -> None:
        os.kill(os.getpid(), signal.SIGUSR1)


def test_a_signal_in_a_callback_of_the_client_interrupts_as_everywhere(offline_settings: Settings) -> None:
    before = signal.signal(signal.SIGUSR1, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            broker = Interrupted(offline_settings, wait=60)
            while True:
                broker._poll()
                time.sleep(0.01)
    finally:
        signal.signal(signal.SIGUSR1, before)
