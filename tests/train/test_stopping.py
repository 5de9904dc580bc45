"""When to stop: signals are counted, limits kept, others asked."""

import signal
from queue import SimpleQueue

import pytest

from creditscope.train.stopping import Stopping


class TestStopping:
    """Signals are counted; where one may raise, it does so once."""

    @pytest.fixture(autouse=True)
    def as_at_a_prompt(self):
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        yield
        for number, handler in before.items():
            signal.signal(number, handler)

    def test_none_raises_and_others_are_asked_once_then_ended(self):
        stopping, asked = Stopping(), SimpleQueue()
        stopping.ask = lambda: asked.put(stopping.at_once)
        with stopping.listening():
            signal.raise_signal(signal.SIGINT)
            assert (asked.get(timeout=60), stopping(), stopping.at_once) == (False, True, False)
            signal.raise_signal(signal.SIGTERM)
            assert (asked.get(timeout=60), stopping.at_once) == (True, True)
            for _ in range(20):
                signal.raise_signal(signal.SIGINT)
        assert (stopping.presses, asked.empty()) == (22, True)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL

    @pytest.mark.parametrize(
        ("number", "raised"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)], ids=["Ctrl-C", "TERM"]
    )
    def test_one_raises_where_it_may_and_none_after_it(self, number, raised):
        stopping, cleaned = Stopping(), []

        def train() -> None:
            signal.raise_signal(number)
            try:
                signal.raise_signal(number)
            finally:
                signal.raise_signal(number)
                cleaned.append(True)

        with stopping.listening(), pytest.raises(raised) as found, stopping.interruptible(presses=2):
            train()
        assert (cleaned, stopping.presses) == ([True], 3)
        assert getattr(found.value, "code", 143) == 143

    def test_what_came_before_raises_where_it_may(self):
        stopping = Stopping()
        with stopping.listening():
            signal.raise_signal(signal.SIGINT)
            with pytest.raises(KeyboardInterrupt), stopping.interruptible(presses=1):
                pytest.fail("went on")

    def test_a_time_limit_asks_even_if_nobody_listens(self):
        stopping, asked = Stopping(), SimpleQueue()
        stopping.ask = lambda: asked.put(stopping.at_once)
        with stopping.listening():
            stopping.limit(0.01)
            assert asked.get(timeout=60) is False

    def test_a_handler_of_the_caller_s_own_for_sigterm_is_left(self):
        signal.signal(signal.SIGTERM, own := lambda *_: None)
        with Stopping().listening():
            assert signal.getsignal(signal.SIGTERM) is own
