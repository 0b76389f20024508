"""Classes made by `frozen` behave as dataclasses with `frozen=True, slots=True` do."""

from __future__ import annotations

import copy
import inspect
import pickle
from dataclasses import FrozenInstanceError, asdict, dataclass, field, fields, replace

import pytest

from wane._frozen import frozen


@frozen
class Point:
    """Has every kind of field."""

    x: int
    y: int = 2
    tags: list[str] = field(default_factory=list)
    known: dict[str, int] = field(default_factory=dict, init=False, compare=False, repr=False)


@frozen
class Named(Point):
    """Adds a field to those of its base."""

    name: str = ""

    def __post_init__(self) -> None:
        if self.x < 0:
            raise ValueError("x is negative")


@frozen(kw_only=True)
class ByName:
    """Takes its values by name only."""

    only: int


@frozen
class Empty:
    """Has no fields."""


@dataclass(frozen=True, slots=True)
class Usual:
    """Is what `frozen` is compared with."""

    x: int
    y: int = 2
    tags: list[str] = field(default_factory=list)
    known: dict[str, int] = field(default_factory=dict, init=False, compare=False, repr=False)


def test_values_are_taken_by_position_and_by_name_with_defaults() -> None:
    assert (Point(1).x, Point(1).y, Point(1).tags, Point(1).known) == (1, 2, [], {})
    assert Point(1, y=5, tags=["a"]) == Point(1, 5, ["a"])
    assert Named(1, name="n").name == "n"
    assert ByName(only=3).only == 3
    assert Point(1).tags is not Point(1).tags


@pytest.mark.parametrize("wrong", ["Point()", "Point(1, 2, [], {})", "Point(1, x=1)", "Point(1, z=1)", "ByName(3)"])
def test_wrong_arguments_are_refused(wrong: str) -> None:
    with pytest.raises(TypeError):
        eval(wrong)


def test_instances_are_compared_and_hashed_by_class_and_compared_values() -> None:
    one, other = Named(1, name="n"), Named(1, name="n")
    other.known["seen"] = 1
    assert one == other
    assert one != Named(2, name="n")
    assert Point(1) != Named(1)
    assert Point(1) != object()
    assert (Empty() == Empty(), hash(ByName(only=1)) == hash(ByName(only=1))) == (True, True)
    assert ByName(only=1) != ByName(only=2)


def test_nothing_changes_an_instance() -> None:
    point = Point(1)
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'x'"):
        point.x = 2  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'x'"):
        del point.x
    assert not hasattr(point, "__dict__")


def test_a_post_init_may_refuse() -> None:
    with pytest.raises(ValueError, match="negative"):
        Named(-1)


def test_copies_replacements_and_pickles_are_equal() -> None:
    point = Point(1, 3, ["a"])
    point.known["seen"] = 1
    for one in (copy.copy(point), copy.deepcopy(point), pickle.loads(pickle.dumps(point))):
        assert one == point
        assert one.known == {"seen": 1}
    assert replace(point, y=4) == Point(1, 4, ["a"])
    assert asdict(point) == {"x": 1, "y": 3, "tags": ["a"], "known": {"seen": 1}}


def test_it_is_shown_and_inspected_like_a_dataclass() -> None:
    assert repr(Point(1, tags=["a"])) == repr(Usual(1, tags=["a"])).replace("Usual", "Point")
    assert [one.name for one in fields(Named)] == ["x", "y", "tags", "known", "name"]
    assert list(inspect.signature(Point).parameters) == list(inspect.signature(Usual).parameters)
    assert Point.__match_args__ == Usual.__match_args__
