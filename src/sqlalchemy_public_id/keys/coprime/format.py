"""Sequential public ids, disguised: a counter in the database, written as keys of fixed width.

>>> from sqlalchemy_public_id.formats import BASE36
>>> from sqlalchemy_public_id.keys.coprime.step import CoprimeStep
>>> from sqlalchemy_public_id.keys.coprime.format import CoprimeKey
>>> format = CoprimeKey("order", step=CoprimeStep(BASE36, 6), prefix="ord")
>>> format.is_valid("ord_m8yzrz"), format.number("ord_m8yzrz")
(True, 0)
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar, Protocol

from typing_extensions import Self

from sqlalchemy_public_id.errors import ConfigurationError, KeySpaceExhausted, PublicIdError
from sqlalchemy_public_id.formats._base import Format
from sqlalchemy_public_id.formats._settings import named_settings
from sqlalchemy_public_id.formats.alphabets import BASE36, both_cases, case_of, character_class, check_separator
from sqlalchemy_public_id.formats.budget import Budget
from sqlalchemy_public_id.keys.coprime.step import CoprimeStep, KeySpace
from sqlalchemy_public_id.messages import safe_repr
from sqlalchemy_public_id.types import unwrapped

_SHORT = CoprimeStep(BASE36, 6)


class Allocator(Protocol):
    """Issues each number once: :class:`~sqlalchemy_public_id.keys.blocks.BlockAllocator`, or your own.

    If it has a method ``claim(ids, order)``, each format calls it, so that it can refuse to count equal ids twice.
    """

    @property
    def name(self) -> str:
        """The name of the sequence."""
        ...

    def take(self, count: int) -> list[range]:
        """Return the next *count* numbers, each 0 or more. Safe in threads, and after a fork."""
        ...


@named_settings
@dataclass(frozen=True, eq=False, repr=False)
class CoprimeKey(Format):
    """Ids that are consecutive keys of *step*, with an optional *prefix*.

    The *allocator* counts in the database, so no two processes generate the same id. The unique index is still needed,
    for ids from other sources.

    To check ids, as in a migration or a service that only reads, the name of the allocator is enough. ``repr`` and
    pickles contain the name, because an allocator holds an engine, which belongs to one process. Two formats are equal
    if their names and settings are.

    **An id reveals**, with :class:`~sqlalchemy_public_id.keys.coprime.step.CoprimeStep`, how many ids were generated
    before it, to anyone who has or computes the step; with
    :class:`~sqlalchemy_public_id.keys.coprime.keyed.KeyedStep`, nothing without the secret.

    :raises ConfigurationError: for invalid settings, such as a separator that the alphabet contains.
    """

    counted: ClassVar[bool] = True
    collision_cause: ClassVar[str | None] = (
        "the counter of the ids is behind the rows, or ids come from another counter, too"
    )

    allocator: Allocator | str = field(compare=False)
    """The allocator, or the name of its sequence."""
    _: KW_ONLY
    name: str = field(init=False)
    """The name of the sequence that counts the ids."""
    step: KeySpace = _SHORT
    """The keys and their order; by default six characters of base 36, two billion keys."""
    prefix: str | None = None
    separator: str = "_"
    ignore_case: bool = False
    """True to accept ids, prefix included, in either case. They are stored and shown in the case of the alphabet."""
    _accepted: tuple[Format, ...] = field(default=(), init=False)

    def __post_init__(self) -> None:
        step: object = self.step
        name: object = self.allocator if isinstance(self.allocator, str) else getattr(self.allocator, "name", "")
        if not isinstance(step, KeySpace) or not isinstance(name, str) or not name:
            raise ConfigurationError(
                f"the allocator is {safe_repr(self.allocator)}, and the step {safe_repr(step)}; expected "
                f"BlockAllocator(engine, name), or a name, and CoprimeStep(alphabet, length), or a KeyedStep"
            )
        object.__setattr__(self, "name", name)
        case = case_of(step.alphabet, self.ignore_case)
        accepted = step.alphabet if case is None else both_cases(step.alphabet)
        check_separator(self.prefix, self.separator, accepted, "alphabet", "'.' or '~', or another alphabet")
        pattern = f"{character_class(accepted)}{{{step.length}}}"
        self._describe(pattern, step.length, step.expected, case, ignore_case=self.ignore_case)
        claim = getattr(self.allocator, "claim", None)
        if callable(claim):  # an allocator of your own need not have it
            claim(f"ids {self._lead}{'*' * step.length}", step.fingerprint)

    @property
    def capacity(self) -> int:
        return self.step.size

    @property
    def entropy_bits(self) -> float:
        """How hard an id is to guess once others are known, in bits: 0 for a plain step."""
        return self.step.entropy_bits

    def budget(self) -> Budget:
        """Raise an error: these ids are counted, so they do not collide by chance.

        :raises ConfigurationError: always.
        """
        raise ConfigurationError(
            "counted ids do not collide by chance, so they have no budget; step.remaining(issued) returns how many are "
            "left"
        )

    def number(self, public_id: object, field: str | None = None) -> int:
        """Return the number of *public_id* in the sequence.

        :raises InvalidPublicId: if it is malformed, or an id of an older format that this one accepts.
        """
        return self.step.index(self._with_accepted(()).validate(public_id, field)[len(self._lead) :])

    def example(self) -> str:
        """Return a constant id for documentation, which takes no number."""
        return self._lead + self.step.key(self.capacity * 2 // 3)

    def _make(self, count: int) -> list[str]:
        # exactly *count* ids: the allocator keeps numbers in advance, and drops them after a fork
        try:
            if isinstance(self.allocator, str):
                raise ConfigurationError(
                    f"this format cannot generate ids because it has only the name {self.name!r} of its sequence; "
                    f"write CoprimeKey(BlockAllocator(engine, {self.name!r}), step=…)"
                )
            if count > self.capacity:  # before the counter moves, for all processes
                raise KeySpaceExhausted(
                    f"{count} ids were asked for, and there are {self.capacity} in all; generate fewer, or continue "
                    f"with longer keys"
                )
            blocks = [self.step.keys(block.start, len(block)) for block in self.allocator.take(count)]
        except PublicIdError as error:
            unwrapped(error)  # in a column default, SQLAlchemy would wrap it
            raise
        return [self._lead + text for texts in blocks for text in texts]

    # --- value semantics

    def _with_accepted(self, older: tuple[Format, ...]) -> Self:
        for other in (form for format in older for form in format._chain()):
            if isinstance(other, CoprimeKey) and self._may_repeat(other):
                raise ConfigurationError(
                    f"{self!r} and {other!r} have keys of {self.step.length} characters in different orders, so new "
                    f"ids would repeat old ones; continue with longer keys, or with another prefix"
                    if other.step != self.step or other._lead != self._lead
                    else f"{self!r} and {other!r} have the same keys, and count them separately, so new ids would "
                    f"repeat old ones; keep the name {other.name!r} of the sequence, or continue with longer keys, or "
                    f"with another prefix"
                )
        return super()._with_accepted(older)

    def _may_repeat(self, older: CoprimeKey) -> bool:
        """Return True if the two formats write an equal text, and not with equal numbers of one sequence."""
        is_continued = (older.name, older.step, older._lead) == (self.name, self.step, self._lead)
        mine, theirs = self._characters(), older._characters()
        return not is_continued and len(mine) == len(theirs) and all(a & b for a, b in zip(mine, theirs, strict=True))

    def _characters(self) -> list[set[str]]:
        """Return the characters that an accepted id may have at each place."""
        cases = both_cases if self.ignore_case else str
        return [set(cases(each)) for each in [*self._lead, *[self.step.alphabet] * self.step.length]]

    def named(self) -> Self:
        """Return the format with only the name of its allocator, which checks ids but cannot generate them."""
        return type(self)(**dict(self._settings(), allocator=self.name))._with_accepted(self._accepted)

    def _shown(self, value: object) -> str:
        return repr(self.name if value is self.allocator else value)

    def __copy__(self, memo: object = None) -> Self:
        return self

    __deepcopy__ = __copy__

    def __reduce__(self) -> tuple[Any, ...]:
        return super(CoprimeKey, self.named()).__reduce__()
