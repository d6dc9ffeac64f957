"""The admin client: what a signal does to it."""

import gc
import os
import signal
import traceback
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError

from python_common.config.settings import Settings
from python_ingest.kafka.admin import Broker


class Interrupted(Broker):
    def _note(self, error: KafkaError) -> None:
        os.kill(os.getpid(), signal.SIGALRM)


@pytest.fixture(autouse=True)
def interrupting() -> Iterator[None]:
    """An alarm is what Ctrl-C is; no garbage is collected meanwhile, for Python loses what is raised then."""
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    gc.collect()
    gc.disable()
    yield
    gc.enable()
    signal.signal(signal.SIGALRM, before)


def test_a_signal_in_a_callback_does_not_interrupt(offline_settings: Settings) -> None:
    with pytest.raises(KeyboardInterrupt):
        Interrupted(offline_settings, wait=60).check()


def interrupt_at_any_moment(settings: Settings) -> None:
    broker = Broker(settings, wait=60)
    for microseconds in range(20, 4_000, 20):
        with pytest.raises(KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_REAL, microseconds / 1_000_000)
            broker.check()


def test_a_signal_during_a_question_does_not_interrupt(offline_settings: Settings) -> None:
    """In a process that ends with its client open: Python may leave the lock of an interrupted future locked.

    The client's thread would then wait for it, and the process for that thread.
    """
    child = os.fork()
    if not child:
        try:
            interrupt_at_any_moment(offline_settings)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
