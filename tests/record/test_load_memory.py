import gc

import pytest

from creditscope.record.load import collection_paused


@pytest.mark.parametrize("was_on", [True, False])
def test_the_collector_is_left_as_it_was(was_on: bool):
    (gc.enable if was_on else gc.disable)()
    try:
        with collection_paused():
            assert not gc.isenabled()
        assert gc.isenabled() == was_on
        with pytest.raises(ZeroDivisionError), collection_paused():
            raise ZeroDivisionError
        assert gc.isenabled() == was_on
    finally:
        gc.enable()
