"""The owners of prefixes: prefix → format, typed id, model.

Typed ids share one namespace, because ``TypedId.parse()`` must find the type of any string. Models have one namespace
for each declarative base, because ``lookup.resolve()`` must find the model, and two bases are two applications.

The registry keeps no owner alive. An owner that was declared again in the same place (a reloaded module, a notebook
cell) replaces its predecessor. Any other class holds its prefixes until the garbage collector has freed it, which does
not happen when the last reference is dropped; until then, an unused class cannot be told from one in use. A program
that declares classes in functions has to call ``gc.collect()`` before it gives their prefixes to other classes. The
library does not call it, because mappers are configured under a lock, and a finalizer may wait for another lock.
"""

from __future__ import annotations

import threading
import weakref
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import combinations
from typing import Any, NamedTuple

from sqlalchemy_public_id.errors import DuplicatePrefix
from sqlalchemy_public_id.formats import Format


class _Claim(NamedTuple):
    prefix: str
    separator: str
    format: Format
    owner: weakref.ref[type[Any]]
    name: str
    """Module and qualified name of the owner, which stay the same after a reload."""

    def confusion_with(self, other: _Claim) -> str | None:
        """Return how this claim and *other* are ambiguous, in words; None if they are not."""
        if self.prefix == other.prefix:
            return "belongs to"
        if self.prefix.lower() == other.prefix.lower():
            return f"differs only in case from {other.prefix!r} of"
        if self.separator == other.separator:  # the last separator ends the prefix
            return None
        shorter, longer = sorted((self, other), key=lambda claim: len(claim.lead))
        rest = longer.lead.removeprefix(shorter.lead)
        # If the rest contains the separator of the shorter one, splitting at the last separator tells them apart.
        if rest != longer.lead and shorter.separator not in rest:
            return f"cannot be told from {other.prefix!r} of"
        return None

    @property
    def lead(self) -> str:
        return self.prefix + self.separator


class _Claims:
    """The claims of some owners, in dictionaries: a text is looked up, and a new claim is compared with few others."""

    def __init__(self, owners: Iterable[tuple[_Claim, ...]] = ()) -> None:
        self.by_owner: dict[str, tuple[_Claim, ...]] = {}
        self.by_lead: dict[str, _Claim] = {}
        self.by_separator: defaultdict[str, list[_Claim]] = defaultdict(list)
        self.max_length = 0
        self.alike: defaultdict[str, list[_Claim]] = defaultdict(list)
        """Prefix in lower case → its claims."""
        for claims in owners:
            self.add(claims)

    def add(self, claims: tuple[_Claim, ...]) -> None:
        """Add all *claims* of one owner."""
        for claim in claims:
            self.by_owner[claim.name] = claims
            self.by_lead[claim.lead] = claim
            self.by_separator[claim.separator].append(claim)
            self.max_length = max(self.max_length, claim.format.max_length)
            self.alike[claim.prefix.lower()].append(claim)

    def rivals_of(self, claim: _Claim) -> Iterator[_Claim]:
        """Yield the claims with which *claim* may be confused; some may be yielded twice."""
        yield from self.alike.get(claim.prefix.lower(), ())
        # the last separator ends the prefix, so prefixes with the same separator are not ambiguous
        for separator, others in [*self.by_separator.items()]:  # a finalizer may declare a class meanwhile
            if separator != claim.separator:
                yield from others


class Prefixes:
    """One namespace of prefixes. Safe in threads."""

    def __init__(self) -> None:
        self._claims = _Claims()
        self._lock = threading.RLock()  # a finalizer may run anywhere, and declare a class

    def claim(self, owner: type[Any], *formats: Format) -> None:
        """Reserve the prefixes of *formats*, including those of older formats that they accept, for *owner*.

        :raises DuplicatePrefix: if another owner that is not freed yet has one of them, or an ambiguous one. Then
            nothing is reserved.
        """
        name = f"{owner.__module__}.{owner.__qualname__}"
        reference = weakref.ref(owner)
        claims = tuple(
            _Claim(part.prefix, part.separator, format, reference, name)
            for format in formats
            for part in format._chain()  # pyright: ignore[reportPrivateUsage]  # private to users, not to us
            if part.prefix is not None
        )
        for other, claim in combinations(claims, 2):
            why = claim.confusion_with(other)
            if why is not None and other.format is not claim.format:
                raise DuplicatePrefix(claim.prefix, holder=f"another public id of {name}", newcomer=name, why=why)
        with self._lock:
            if self._claims.by_owner.get(name, ()) == claims:
                return
            leaving = {name} & self._claims.by_owner.keys()
            for claim in claims:
                for rival in self._claims.rivals_of(claim):
                    why = claim.confusion_with(rival)
                    if why is None or rival.name == name:
                        continue
                    if rival.owner() is not None:
                        raise DuplicatePrefix(claim.prefix, holder=rival.name, newcomer=name, why=why)
                    leaving.add(rival.name)
            if leaving:
                staying = self._claims.by_owner.items()
                self._claims = _Claims(claims for name, claims in staying if name not in leaving)
            self._claims.add(claims)

    def owner_of(self, text: object) -> type[Any] | None:
        """Return the owner whose format accepts *text*, found by the prefix before the last separator."""
        claim = self._claim_of(text)
        return None if claim is None else claim.owner()

    def format_of(self, text: object) -> Format | None:
        """Return the format that accepts *text*, as :meth:`owner_of` finds its owner."""
        claim = self._claim_of(text)
        return None if claim is None or claim.owner() is None else claim.format

    def _claim_of(self, text: object) -> _Claim | None:
        held = self._claims
        if not isinstance(text, str) or len(text) > held.max_length:
            return None
        for separator in tuple(held.by_separator):  # another thread may add one
            prefix, end, _ = text.rpartition(separator)
            claim = held.by_lead.get(prefix + end)
            if claim is None:  # a format may accept its prefix in either case
                claim = next((each for each in held.alike.get(prefix.lower(), ()) if each.separator == end), None)
            if claim is not None and claim.separator == separator and claim.format.is_valid(text):
                return claim
        return None


typed_ids: Prefixes = Prefixes()
"""The prefixes of all typed ids."""

_models: weakref.WeakKeyDictionary[Any, Prefixes] = weakref.WeakKeyDictionary()
_models_lock = threading.RLock()


def models(scope: object) -> Prefixes:
    """Return the prefixes of the models of *scope*, the registry of a declarative base."""
    with _models_lock:
        return _models.setdefault(scope, Prefixes())


def models_of(text: object) -> Iterator[type[Any]]:
    """Yield the models of all scopes whose format accepts *text*, at most one per scope, in the order of the scopes."""
    for prefixes in _scopes():
        owner = prefixes.owner_of(text)
        if owner is not None:
            yield owner


def format_of(text: object) -> Format | None:
    """Return the format of the typed ids, or of the model, that accepts *text*; ``None`` if there is none."""
    formats = (prefixes.format_of(text) for prefixes in (typed_ids, *_scopes()))
    return next((format for format in formats if format is not None), None)


def _scopes() -> list[Prefixes]:
    with _models_lock:
        return list(_models.values())


_models_of_table: weakref.WeakKeyDictionary[Any, dict[str, weakref.ref[type[Any]]]] = weakref.WeakKeyDictionary()


def remember_model(table: object, column: str, model: type[Any]) -> None:
    """Note that *model* is mapped to the public-id *column* of *table*, for error messages."""
    _models_of_table.setdefault(table, {})[column] = weakref.ref(model)


def model_of(table: object, column: str) -> type[Any] | None:
    """Return the model that is mapped to *column* of *table*, if there is one."""
    model = _models_of_table.get(table, {}).get(column)
    return model() if model is not None else None
