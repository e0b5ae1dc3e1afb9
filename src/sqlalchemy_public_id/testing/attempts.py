"""The attempts of one tenant to reach the rows of another, by everything that reads rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date
from functools import partial
from typing import Any, NamedTuple, TypeAlias, cast

from sqlalchemy import Column, and_, case, insert, inspect, or_, select, true, update
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import InstanceState, Mapper, Session
from sqlalchemy.orm.attributes import instance_state
from sqlalchemy.orm.exc import FlushError
from sqlalchemy.types import Boolean, Date, DateTime, Enum, Numeric, String

from sqlalchemy_public_id import bulk, idempotency, lookup, references, tokens
from sqlalchemy_public_id.columns import public_id_type
from sqlalchemy_public_id.errors import (
    AmbiguousPublicId,
    ConfigurationError,
    IdempotencyConflict,
    InvalidCursor,
    PublicIdNotFound,
    ReferenceNotReadable,
)
from sqlalchemy_public_id.ext._legacy import LegacyKeys, key_column
from sqlalchemy_public_id.ext._rows import find_row
from sqlalchemy_public_id.lookup.beside import columns_beside
from sqlalchemy_public_id.orm.inspection import id_attributes, public_id_attribute
from sqlalchemy_public_id.references import PublicRef, public_refs
from sqlalchemy_public_id.testing.seen import Seen, ids_of

_SORTABLE = (Boolean, Date, DateTime, Enum, Numeric, String)
"""Types that every database can sort."""

_Call: TypeAlias = Callable[[], Any]


class TenantLeak(NamedTuple):
    """One way in which a tenant reaches rows of another."""

    function: str
    """What was called, such as ``lookup.get``."""
    model: str
    """The name of the model whose rows came through."""
    seen: str
    """What came through, such as the ids of the rows."""


class Attempts:
    """The attempts of *reader* to reach the rows that *stranger* sees."""

    def __init__(self, reader: Seen, stranger: Seen) -> None:
        self.reader = reader
        self.session: Session = reader.session
        self.every: Seen = stranger
        """What the stranger sees, with the rows whose ids the reader has, too."""
        self.stranger: Seen = stranger.apart_from(reader)
        self._found: list[TenantLeak] = []

    def leaks(self) -> list[TenantLeak]:
        """Make all attempts, and return what came through."""
        for mapper, rows in self.every.rows.items():
            if rows:
                self._select(mapper)
                self._find_tokens(mapper)
            for name in ids_of(mapper):
                if self.stranger.ids(mapper, name):
                    self._look_up(mapper, name)
                    self._page(mapper, name)
                    if self.reader.has_own(mapper):
                        self._insert_once(mapper, name)
            for ref in public_refs(mapper.class_).values():
                if inspect(ref.target) in self.stranger.rows and self.reader.rows[mapper]:
                    self._refer(mapper, ref)
        return self._found

    # --- outcomes

    def _note(self, function: str, mapper: Mapper[Any], seen: str) -> None:
        self._found.append(TenantLeak(function, mapper.class_.__name__, seen))

    def _finds_nothing(self, function: str, mapper: Mapper[Any], call: _Call) -> None:
        """Note what *call* returns, unless it is nothing."""
        with self.reader.forgetting():
            seen = None
            with suppress(PublicIdNotFound, ReferenceNotReadable):
                try:
                    seen = call()
                except AmbiguousPublicId as error:  # rows of both are seen
                    seen = error.public_ids
            if seen:
                self._note(function, mapper, _described(seen))

    def _is_refused(self, function: str, mapper: Mapper[Any], text: str, call: _Call) -> None:
        """Note that the id *text* was accepted, unless *call* raises the error for an unknown one."""
        with suppress(InvalidCursor, PublicIdNotFound), self.reader.forgetting():
            # of what else is missing, or of another row with this id: the id itself was found
            with suppress(AmbiguousPublicId, DBAPIError, FlushError):
                call()
            self._note(function, mapper, text)

    # --- lookups

    def _select(self, mapper: Mapper[Any]) -> None:
        """Try an ordinary query, which shows whether the session hides the rows at all."""
        columns = _key_of(mapper).values()
        keys = [and_(*map(_is_equal, columns, row.key)) for row in self.every.rows[mapper]]
        self._finds_nothing("select()", mapper, partial(self._selected, mapper, or_(*keys)))

    def _look_up(self, mapper: Mapper[Any], name: str) -> None:
        model, ids, anyone = mapper.class_, self.stranger.ids(mapper, name), _of_anyone(mapper, name)
        of_one: list[tuple[str, Callable[..., Any]]] = [
            ("lookup.get", partial(lookup.get, self.session, model, attribute=name, **anyone)),
            ("lookup.get", partial(lookup.get, self.session, model, attribute=name, where=true())),
            ("lookup.get_one", partial(lookup.get_one, self.session, model, attribute=name, **anyone)),
        ]
        of_many: list[tuple[str, Callable[..., Any]]] = [
            ("lookup.get_many", partial(lookup.get_many, self.session, model, attribute=name, **anyone)),
            ("lookup.keys_of", partial(lookup.keys_of, self.session, model, attribute=name, **anyone)),
        ]
        if _is_resolved(mapper, name):
            models: Any = {"base": mapper.registry, **anyone}
            of_one.append(("lookup.resolve", partial(lookup.resolve, self.session, **models)))
            of_many.append(("lookup.resolve_many", partial(lookup.resolve_many, self.session, **models)))
        for function, call in of_one:
            for text in self.stranger.one_id_of_each(mapper, name):
                self._finds_nothing(function, mapper, partial(call, text))
        for function, call in of_many:
            self._finds_nothing(function, mapper, partial(call, ids))
        keys = [row.key[0] for row in self.stranger.rows[mapper]]
        if len(mapper.primary_key) == 1 and len({*keys}) == len(keys):  # the tables of a union may repeat keys
            call = partial(lookup.public_ids_of, self.session, model, keys, attribute=name)
            self._finds_nothing("lookup.public_ids_of", mapper, call)
            with suppress(ConfigurationError):  # its key is no integer
                key_column(model)
                self._follow_old_links(mapper, name, keys)

    def _follow_old_links(self, mapper: Mapper[Any], name: str, keys: Sequence[int]) -> None:
        """Try the keys that the adapters of web frameworks accept in old links."""
        accepted = LegacyKeys(up_to=max(1, *keys), until=date.max)

        def find(key: int) -> Any:
            row, _ = find_row(self.session, mapper.class_, str(key), accepted, attribute=name)
            return row

        for key in keys[:1]:
            self._finds_nothing("LegacyKeys", mapper, partial(find, key))

    def _find_tokens(self, mapper: Mapper[Any]) -> None:
        for row in self.every.rows[mapper]:
            for name, digest in row.digests.items():
                call = partial(tokens.find, self.session, mapper.class_, name, digest)
                self._finds_nothing("tokens.get", mapper, call)

    def _selected(self, mapper: Mapper[Any], condition: Any) -> Sequence[Any]:
        return self.session.scalars(select(mapper.class_).where(condition)).unique().all()

    # --- pages

    def _page(self, mapper: Mapper[Any], name: str) -> None:
        model, ids = mapper.class_, self.stranger.ids(mapper, name)
        rows = select(model).where(getattr(model, name).in_(ids))
        anyone = _of_anyone(mapper, name)
        page: Any = partial(lookup.page, self.session, attribute=name, limit=len(ids), **anyone)
        try:
            self._finds_nothing("lookup.page", mapper, partial(page, rows))
        except ConfigurationError:  # the model has no pages
            return
        self._finds_nothing("lookup.page(count=)", mapper, lambda: page(rows, count=True).total)
        for text in self.stranger.one_id_of_each(mapper, name):
            for arguments in _cursors(mapper, name, text):
                function = f"lookup.page({next(iter(arguments))}={', order_by=' if 'order_by' in arguments else ''})"
                self._is_refused(function, mapper, text, partial(page, **{"rows": model, **arguments}))

    # --- idempotent inserts

    def _insert_once(self, mapper: Mapper[Any], name: str) -> None:
        """Try to insert rows with the ids of the stranger, including those of other classes in the hierarchy."""
        base = mapper.base_mapper
        is_inherited = id_attributes(base).get(name, base) is id_attributes(mapper).get(name)
        family = base if is_inherited and base in self.stranger.rows else mapper
        others = [row for row in self.stranger.one_of_each(family) if not issubclass(row.model, mapper.class_)]
        tried = [(mapper, row) for row in self.stranger.one_of_each(mapper)] + [(family, row) for row in others]
        for owner, row in tried:
            for compare in (None, ()) if name in row.ids else ():
                with self.reader.undoing(mapper):
                    one = self.reader.copy(mapper)
                    setattr(one, name, row.ids[name])
                    seen = ""
                    try:
                        stored, created = idempotency.insert_once(self.session, one, attribute=name, compare=compare)
                        seen = "" if created else _described(stored)
                    except IdempotencyConflict as error:
                        seen = ", ".join(error.differing)
                    except AmbiguousPublicId as error:
                        seen = _described(error.public_ids)
                    except DBAPIError:
                        pass  # the database hides the row, though not that its id is taken, or refuses the INSERT
                    if seen:
                        self._note("idempotency.insert_once", owner, seen)

    # --- references

    def _refer(self, mapper: Mapper[Any], ref: PublicRef) -> None:
        target: Mapper[Any] = inspect(ref.target)
        ids = self.stranger.ids(target, ref.target_id)
        self._finds_nothing(_name_of(mapper, ref), target, partial(self._shown, mapper, ref, {*ids}))
        reference = getattr(mapper.class_, ref.attribute)
        for condition in (reference.in_(ids), *(reference == text for text in ids[:1])):
            self._finds_nothing(f"{_name_of(mapper, ref)} in SQL", target, partial(self._selected, mapper, condition))
        for text in self.stranger.one_id_of_each(target, ref.target_id) if self.reader.has_own(mapper) else ():
            for find in (self.reader.stored, self.reader.copy):
                self._assign(mapper, ref, text, find)
            for function, call in self._writes(mapper, ref, text).items():
                with self.reader.undoing(mapper):
                    self._is_refused(f"{function} with {_name_of(mapper, ref)}", target, text, call)

    def _shown(self, mapper: Mapper[Any], ref: PublicRef, ids: set[str]) -> list[str]:
        """Return those of *ids* that the rows of the reader show."""
        rows = self.reader.objects(mapper)
        shown: list[str] = []
        references.load(self.session, rows)
        for row in rows:
            with suppress(ReferenceNotReadable):
                shown.append(getattr(row, ref.attribute))
        return [text for text in shown if text in ids]

    def _assign(self, mapper: Mapper[Any], ref: PublicRef, text: str, find: Callable[[Mapper[Any]], Any]) -> None:
        """Try to assign *text* to an object that *find* returns, and to read what it stands for before the flush."""
        target: Mapper[Any] = inspect(ref.target)
        name = _name_of(mapper, ref)
        others = [
            other
            for other in public_refs(mapper.class_).values()
            if other.key == ref.key and other.target_id != ref.target_id
        ]
        with self.reader.undoing(mapper):
            self._assigned(mapper, ref, text, find)
            self._is_refused(f"{name} =", target, text, self.session.flush)
        for other in others:
            with self.reader.undoing(mapper), self.session.no_autoflush:
                call = partial(getattr, self._assigned(mapper, ref, text, find), other.attribute)
                self._finds_nothing(f"{_name_of(mapper, other)} after {name} =", target, call)
        with self.reader.undoing(mapper), self.session.no_autoflush:
            call = partial(getattr, self._assigned(mapper, ref, text, find), ref.relationship)
            self._finds_nothing(f"{mapper.class_.__name__}.{ref.relationship} after {name} =", target, call)

    def _assigned(self, mapper: Mapper[Any], ref: PublicRef, text: str, find: Callable[[Mapper[Any]], Any]) -> Any:
        one = find(mapper)
        self.session.add(one)
        setattr(one, ref.attribute, text)
        return one

    def _writes(self, mapper: Mapper[Any], ref: PublicRef, text: str) -> dict[str, _Call]:
        """Return the statements that could write *text*, and the bulk insert."""
        columns = [prop.key for prop in mapper.column_attrs if isinstance(prop.columns[0], Column)]
        with self.reader.forgetting():
            stored, copy = self.reader.stored(mapper), self.reader.copy(mapper)
            values = instance_state(copy).dict
            key = {name: getattr(stored, name) for name in _key_of(mapper)}
            shared = {name: getattr(stored, name) for name in ref.shared} | {ref.attribute: text}
        new = {name: values[name] for name in columns if name in values and name != ref.key}

        def insert_copy() -> None:
            one = self.reader.copy(mapper)
            setattr(one, ref.attribute, text)
            bulk.insert(self.session, [one])

        return {
            "insert()": partial(self.session.execute, insert(mapper.class_), [new | shared]),
            "update()": partial(self.session.execute, update(mapper.class_), [key | shared]),
            "bulk.insert()": insert_copy,
        }


def _is_resolved(mapper: Mapper[Any], name: str) -> bool:
    """Return True if ``lookup.resolve()`` finds rows as this model by these ids."""
    is_own = mapper.inherits is None or name not in id_attributes(mapper.inherits)
    return is_own and public_id_type(public_id_attribute(mapper.class_, name)[1]).id_format.prefix is not None


def _cursors(mapper: Mapper[Any], name: str, text: str) -> Iterator[dict[str, Any]]:
    """Yield the arguments of pages at the cursor *text* whose statements differ."""
    model, id = mapper.class_, getattr(mapper.class_, name)
    nullable = [
        getattr(model, prop.key)
        for prop in mapper.column_attrs
        if isinstance(column := prop.columns[0], Column) and column.nullable and isinstance(column.type, _SORTABLE)
    ]
    yield {"after": text}
    yield {"after": text, "where": true()}
    yield {"after": text, "rows": select(model)}
    yield {"after": text, "order_by": id}
    yield {"after": text, "order_by": case((id.is_(None), 1), else_=0)}
    yield {"after": text, "order_by": (*nullable[:1], id), "where": true()}
    yield {"before": text}
    yield {"before": text, "order_by": (*nullable[:1], id)}


def _name_of(mapper: Mapper[Any], ref: PublicRef) -> str:
    return f"{mapper.class_.__name__}.{ref.attribute}"


def _key_of(mapper: Mapper[Any]) -> dict[str, Any]:
    """Return the primary key: name → attribute of the model."""
    names = [mapper.get_property_by_column(column).key for column in mapper.primary_key]
    return {name: getattr(mapper.class_, name) for name in names}


def _is_equal(column: Any, value: Any) -> Any:
    return column == value


def _described(seen: object) -> str:
    """Return *seen* as text: ids rather than objects."""
    several: Any = seen
    if isinstance(seen, Mapping):
        return ", ".join(f"{key}: {_described(row)}" for key, row in several.items())
    if isinstance(seen, Sequence) and not isinstance(seen, str):
        return ", ".join(map(_described, several))
    state = cast("InstanceState[Any] | None", inspect(seen, raiseerr=False))
    if not isinstance(state, InstanceState):
        return str(seen)
    ids = [state.dict[name] for name in ids_of(state.mapper) if name in state.dict]
    return " ".join([state.class_.__name__, *map(str, ids)])


def _of_anyone(mapper: Mapper[Any], name: str) -> Any:
    """Return what makes a lookup leave it to the session to hide rows; nothing if ids are unique alone."""
    return {"where": true()} if columns_beside(mapper, name) else {}
