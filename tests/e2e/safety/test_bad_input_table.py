"""The bad-input table is whole: each row has its case, or a reason why there is none."""

import test_bad_input_access  # noqa: F401
import test_bad_input_objects  # noqa: F401
import test_bad_input_training  # noqa: F401
import test_bad_input_wire  # noqa: F401
from bad_input_table import NOT_OFFERED, ROWS


def test_every_row_is_here():
    assert set(ROWS) | set(NOT_OFFERED) == set(range(1, 56))
    assert not set(ROWS) & set(NOT_OFFERED)
