"""What tells a user's own thing from another of the same name."""

from creditscope.registry import Registry

TYPED = "class Typed:\n    pass\n"


def register_typed(registry: Registry) -> None:
    """A class without readable source, as typed into a prompt."""
    space = {"__name__": "nowhere"}
    exec(TYPED, space)
    registry.register("typed")(space["Typed"])


class TestSource:
    def test_seeds_of_a_typed_rule_share_it(self):
        """Otherwise every seed would be a method of its own, and nothing could be judged over seeds."""
        registry = Registry("rule", "creditscope.rules")
        register_typed(registry)
        assert registry.source("typed") == registry.source("typed")

    def test_typed_again_is_another(self):
        registry = Registry("rule", "creditscope.rules")
        register_typed(registry)
        before = registry.source("typed")
        register_typed(registry)
        assert registry.source("typed") != before

    def test_built_in_has_none(self):
        assert Registry("rule", "creditscope.rules").source("dfa") == ""
