"""The paper: studies, published figures and numbers, and exports. A client of the instrument, which knows none of it.

Its studies, figures, exports and commands are found by entry points, as those of anybody else.
"""
