"""The owners of prefixes: prefix → format, typed id, model.

Typed ids share one namespace, because ``TypedId.parse()`` must find the type of any string. Models have one namespace
for each declarative base, because ``lookup.resolve()`` must find the model, and two bases are two applications.

Nothing is kept alive by being registered. An owner that was declared again in the same place (a reloaded module, a
notebook cell) replaces its predecessor.
"""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy_public_id.errors import DuplicatePrefix
from sqlalchemy_public_id.formats import Format


@dataclass(frozen=True)
class _Claim:
    prefix: str
    separator: str
    format: Format
    owner: weakref.ref[type[Any]]
    name: str
    """Module and qualified name of the owner: the same after a reload."""

    def confusion_with(self, other: _Claim) -> str | None:
        """Return how this claim and *other* are ambiguous, in words; None if they are not."""
        if self.prefix == other.prefix:
            return "belongs to"
        if self.prefix.lower() == other.prefix.lower():
            return f"differs only in case from {other.prefix!r} of"
        shorter, longer = sorted((self, other), key=lambda claim: len(claim.lead))
        rest = longer.lead.removeprefix(shorter.lead)
        # If the rest contains the separator of the shorter one, splitting at the last separator separates them.
        if rest != longer.lead and shorter.separator not in rest:
            return f"cannot be told from {other.prefix!r} of"
        return None

    @property
    def lead(self) -> str:
        return self.prefix + self.separator


class Prefixes:
    """One namespace of prefixes. Safe in threads."""

    def __init__(self) -> None:
        self._claims: dict[str, _Claim] = {}
        self._separators: tuple[str, ...] = ()
        self._max_length = 0
        self._lock = threading.Lock()

    def claim(self, owner: type[Any], *formats: Format) -> None:
        """Reserve the prefixes of *formats*, those they still accept included, for *owner*.

        :raises DuplicatePrefix: if another living owner has one of them, or an ambiguous one; nothing is reserved then.
        """
        name = f"{owner.__module__}.{owner.__qualname__}"
        reference = weakref.ref(owner)
        claims = [
            _Claim(part.prefix, part.separator, format, reference, name)
            for format in formats
            for part in format._chain()  # pyright: ignore[reportPrivateUsage]  # private to users, not to us
            if part.prefix is not None
        ]
        for at, claim in enumerate(claims):
            for other in claims[:at]:
                why = claim.confusion_with(other)
                if why is not None and other.format is not claim.format:
                    raise DuplicatePrefix(claim.prefix, holder=f"another public id of {name}", newcomer=name, why=why)
        # A class is freed with its cycles of references: look again before the error. The young objects come first,
        # because collecting all of them can take seconds.
        for generation in range(3):
            if self._reserve(claims) is None:
                return
            gc.collect(generation)
        confusion = self._reserve(claims)
        if confusion is not None:
            claim, holder, why = confusion
            raise DuplicatePrefix(claim.prefix, holder=holder.name, newcomer=name, why=why)

    def owner_of(self, text: object) -> type[Any] | None:
        """Return the owner whose format accepts *text*, found by the prefix before the last separator."""
        if not isinstance(text, str) or len(text) > self._max_length:
            return None
        for separator in self._separators:
            claim = self._claims.get("".join(text.rpartition(separator)[:2]))
            if claim is not None and claim.separator == separator and claim.format.is_valid(text):
                return claim.owner()
        return None

    def _reserve(self, claims: list[_Claim]) -> tuple[_Claim, _Claim, str] | None:
        """Reserve *claims*, and return None; or return one of them, a living holder, and how they are ambiguous."""
        with self._lock:
            for claim in claims:
                for holder in list(self._claims.values()):
                    why = claim.confusion_with(holder)
                    if why is None or holder.name == claim.name:
                        continue
                    if holder.owner() is not None:
                        return claim, holder, why
                    del self._claims[holder.lead]
            names = {claim.name for claim in claims}
            for lead in [lead for lead, old in self._claims.items() if old.name in names]:
                del self._claims[lead]
            self._claims.update((claim.lead, claim) for claim in claims)
            self._separators = tuple(dict.fromkeys(claim.separator for claim in self._claims.values()))
            self._max_length = max((claim.format.max_length for claim in self._claims.values()), default=0)
        return None


typed_ids: Prefixes = Prefixes()
"""The prefixes of all typed ids."""

_models: weakref.WeakKeyDictionary[Any, Prefixes] = weakref.WeakKeyDictionary()
_models_lock = threading.Lock()


def models(scope: object) -> Prefixes:
    """Return the prefixes of the models of *scope*, the registry of a declarative base."""
    with _models_lock:
        return _models.setdefault(scope, Prefixes())


def models_of(text: object) -> Iterator[type[Any]]:
    """Yield the models of all scopes whose format accepts *text*: one of each scope at most."""
    with _models_lock:
        scopes = list(_models.values())
    for prefixes in scopes:
        owner = prefixes.owner_of(text)
        if owner is not None:
            yield owner


_models_of_table: weakref.WeakKeyDictionary[Any, dict[str, weakref.ref[type[Any]]]] = weakref.WeakKeyDictionary()


def remember_model(table: object, column: str, model: type[Any]) -> None:
    """Note that *model* is mapped to the public-id *column* of *table*, for error messages."""
    _models_of_table.setdefault(table, {})[column] = weakref.ref(model)


def model_of(table: object, column: str) -> type[Any] | None:
    """Return the model that is mapped to *column* of *table*, if there is one."""
    model = _models_of_table.get(table, {}).get(column)
    return model() if model is not None else None
