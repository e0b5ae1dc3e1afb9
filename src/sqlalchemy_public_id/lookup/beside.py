"""Ids that are unique only with other columns: a lookup names these columns, and finds at most one row.

Two tenants may then have equal ids, so that an id without its tenant could lead to the row of another one. The columns
are named by ``where=``, by the statement that is passed, or by criteria that the program adds to its session.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, cast
from weakref import ref

from sqlalchemy import Column, ColumnClause, ColumnElement, Table, event, inspect, select, true
from sqlalchemy.exc import NoInspectionAvailable
from sqlalchemy.orm import Mapper, ORMExecuteState
from sqlalchemy.orm.exc import UnmappedColumnError
from sqlalchemy.sql import visitors

from sqlalchemy_public_id._private import options_of
from sqlalchemy_public_id.columns import unique_with
from sqlalchemy_public_id.errors import AmbiguousPublicId, ConfigurationError
from sqlalchemy_public_id.orm.inspection import AnySession, id_attributes, session_of
from sqlalchemy_public_id.weak import RefDict

_beside: RefDict[Mapper[Any], dict[str, tuple[Column[Any], ...]]] = RefDict()
"""Mapper → attribute → the columns with which its ids are unique."""

NOTHING: AbstractContextManager[Mapping[str, Any]] = nullcontext({})
"""What :func:`requiring_columns` returns for ids that are unique alone."""

_LOOKUP = "sqlalchemy_public_id_lookup"
"""An execution option: the lookup that has sent the statement, whose criteria are inspected."""


def columns_beside(mapper: Mapper[Any], name: str) -> tuple[Column[Any], ...]:
    """Return the columns with which the public id *name* of *mapper* is unique; none if it is unique alone.

    There are none either if *name* is another attribute.
    """
    kept = _beside.get(ref(mapper))
    found = kept.get(name) if kept is not None else None
    if found is None:
        # the tables of concrete subclasses have columns of their own
        columns = [id_attributes(each).get(name) for each in mapper.self_and_descendants]
        tables = (column for column in columns if column is not None and isinstance(column.table, Table))
        found = tuple(dict.fromkeys(each for column in tables for each in unique_with(column)))
        if mapper.configured:  # until then, attributes can be added to it
            (_beside.keep(mapper, {}) if kept is None else kept)[name] = found
    return found


def names_beside(mapper: Mapper[Any], columns: Sequence[Column[Any]]) -> tuple[str, ...]:
    """Return the names of the attributes of *mapper* that hold *columns*, or of columns that are not mapped."""
    return tuple(dict.fromkeys(attribute_of(mapper, column) for column in columns))


def attribute_of(mapper: Mapper[Any], column: Column[Any]) -> str:
    """Return the name of the attribute of *mapper* that holds *column*; the key of a column that is not mapped."""
    try:
        return mapper.get_property_by_column(column).key
    except UnmappedColumnError:  # it may also be the column of a concrete subclass
        return column.key


def are_named(columns: Sequence[Column[Any]], condition: Any) -> bool:
    """Return True if *condition* contains each of *columns*, or a column of an alias or subquery that stands for it."""
    if hasattr(condition, "__clause_element__"):
        condition = condition.__clause_element__()
    if not isinstance(condition, ColumnElement):
        return False
    within = cast("Iterable[Any]", visitors.iterate(cast("Any", condition)))
    named: list[ColumnClause[Any]] = [each for each in within if isinstance(each, ColumnClause)]
    return all(any(each.shares_lineage(column) for each in named) for column in columns)


def ambiguous(mapper: Mapper[Any], name: str, public_ids: Iterable[object]) -> AmbiguousPublicId:
    """Build the error for *public_ids*, each of which several rows have."""
    columns = names_beside(mapper, columns_beside(mapper, name))
    return AmbiguousPublicId(tuple(public_ids), model=mapper.class_.__name__, columns=columns)


def refuse_repeated(mapper: Mapper[Any], name: str, rows: Iterable[Sequence[Any]]) -> None:
    """Raise an error if different *rows*, each a public id and a key or an object, have one id.

    :raises AmbiguousPublicId: for these ids.
    """
    counts = Counter(row[0] for row in {(row[0], *map(_identity, row[1:])): row for row in rows}.values())
    repeated = [public_id for public_id, count in counts.items() if count > 1]
    if repeated:
        raise ambiguous(mapper, name, repeated)


def _identity(value: Any) -> Any:
    try:
        return ("object", id(value)) if inspect(value, raiseerr=False) is not None else value
    except NoInspectionAvailable:
        return value


def requiring_columns(
    function: str,
    session: AnySession,
    entity: Any,
    columns: Sequence[Column[Any]],
    where: Any,
    given: Any,
    *,
    is_joined: bool = False,
) -> AbstractContextManager[Mapping[str, Any]]:
    """Refuse a lookup that does not name *columns*, before its SQL is sent.

    If neither *where* nor *given* names them, criteria of the session may: a listener to ``do_orm_execute`` adds them
    to the statement. So the statement is inspected after all of these listeners have run.

    :param where: the condition of the caller, or None. ``true()`` stands for any values of the columns.
    :param given: a condition of the statement that applies to the row of the id as well, or None.
    :param is_joined: True if the statement joins *entity*, a class, to others.
    :returns: the execution options of the lookup's statement.
    :raises ConfigurationError: inside the block, when the statement is executed.
    """
    if not columns or isinstance(where, type(true())) or are_named(columns, where) or are_named(columns, given):
        return NOTHING
    return _requiring_criteria(function, session, entity, columns, is_joined)


@contextmanager
def _requiring_criteria(
    function: str, session: AnySession, entity: Any, columns: Sequence[Column[Any]], is_joined: bool
) -> Generator[Mapping[str, Any]]:
    lookup, session = object(), session_of(session)

    def do_orm_execute(state: ORMExecuteState) -> None:
        # it also runs for other statements: of listeners, and of loader options
        is_own = state.execution_options.get(_LOOKUP) is lookup
        is_load = state.is_relationship_load or state.is_column_load
        found = _criteria(state, entity, is_joined)
        if is_own and not is_load and not any(are_named(columns, each) for each in found):
            raise unnamed(function, inspect(entity).mapper, columns)

    event.listen(session, "do_orm_execute", do_orm_execute)
    try:
        yield {_LOOKUP: lookup}
    finally:
        event.remove(session, "do_orm_execute", do_orm_execute)


def unnamed(function: str, mapper: Mapper[Any], columns: Sequence[Column[Any]]) -> ConfigurationError:
    """Build the error for a lookup that does not name *columns*."""
    model, names = mapper.class_.__name__, names_beside(mapper, columns)
    condition = ", ".join(f"{model}.{name} == …" for name in names)
    condition = condition if len(names) == 1 else f"sqlalchemy.and_({condition})"
    return ConfigurationError(
        f"{function}() does not name {', '.join(f'{model}.{name}' for name in names)}, and an id of {model} is unique "
        f"only with it: write where={condition}, or let criteria of the session (with_loader_criteria()) name it. If "
        f"no two rows have equal ids, or if the database hides the others, write where=sqlalchemy.true()"
    )


def _criteria(state: ORMExecuteState, entity: Any, is_joined: bool) -> Generator[Any]:
    """Yield the conditions that apply to *entity* in the statement that is about to be executed."""
    statement: Any = state.statement
    yield statement.whereclause
    mapper = inspect(entity).mapper
    keys = [getattr(entity, mapper.get_property_by_column(key).key) for key in mapper.primary_key]
    if is_joined:  # the criteria of what is joined are in the ON clause
        bare: Any = select(*keys).options(*(options_of(statement) or ()))
    else:
        bare = statement.with_only_columns(*keys, maintain_column_froms=True).order_by(None)
    # only a compiled statement shows which criteria apply to the entity, and how
    compiled: Any = bare.compile(dialect=state.session.get_bind(mapper).dialect)
    yield getattr(compiled.compile_state, "statement", bare).whereclause
