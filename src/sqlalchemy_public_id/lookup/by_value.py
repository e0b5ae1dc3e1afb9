"""SELECTs of rows by the values of one attribute: by public ids, or by keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Integer, Select, bindparam, inspect, select
from sqlalchemy.orm import Mapper
from sqlalchemy.orm.interfaces import ORMOption
from sqlalchemy.types import TypeEngine
from typing_extensions import TypedDict

from sqlalchemy_public_id.dialects import Traits, traits_for
from sqlalchemy_public_id.lookup.beside import columns_beside, refuse_repeated, requiring_columns
from sqlalchemy_public_id.lookup.selecting import Where, model_of_rows, selected
from sqlalchemy_public_id.orm.inspection import AnySession, is_sharded
from sqlalchemy_public_id.types import IdColumnType


class LoadOptions(TypedDict, total=False):
    """The keyword arguments of :func:`get`, which control how a row is loaded and which rows are visible."""

    options: Sequence[ORMOption]
    with_for_update: bool | Mapping[str, Any] | None
    populate_existing: bool
    execution_options: Mapping[str, Any] | None
    where: Where | None


PARAMETER = "sqlalchemy_public_id"
"""The parameter of a :func:`kept_query`: the value, or the list of values."""
_QUERIES = "sqlalchemy_public_id.queries"
"""Key in the ``info`` of a property: model and purpose → its SELECT. Building it would take most of the time."""


def kept_query(model: type[Any], by: str, purpose: object, build: Callable[[], Any]) -> Any:
    """Return the SELECT of *model* by its attribute *by* that *build* has made for this *purpose*, once."""
    queries = mapper_of_entity(model).attrs[by].info.setdefault(_QUERIES, {})
    query = queries.get((model, purpose))
    if query is None:
        query = queries[model, purpose] = build()
    return query


def query_of_one(model: type[Any], by: str) -> Any:
    """Return the SELECT of the row of *model* with one value of *by*, a public id; None if it is not unique alone."""

    def build() -> Any:
        if columns_beside(mapper_of_entity(model), by):
            return None
        column = getattr(model, by)
        return select(model).where(column == bindparam(PARAMETER, type_=column.type.as_parameter))

    return kept_query(model, by, "one", build)


def rows_by(
    function: str,
    session: AnySession,
    model: Any,
    attribute: str | None,
    by: str,
    values: Iterable[Any],
    shown: Sequence[str],
    load: LoadOptions,
) -> Iterator[Sequence[Any]]:
    """Yield, for each statement, its rows: a value of *by*, which is one of *values*, and the attributes *shown*.

    :param model: the model, or ``select(Model)``.
    :param attribute: the name of the public id, if a model has several.
    :param shown: the names of attributes; none for the object itself.
    """
    values = list(dict.fromkeys(values))
    traits = traits_for(session.get_bind(mapper_of_entity(model_of_rows(model))).dialect)
    if load or isinstance(model, Select) or is_sharded(session):
        yield from _rows_selected(function, session, model, attribute, by, values, shown, load, traits)
        return

    def build() -> Any:
        if columns_beside(mapper_of_entity(model), by):
            return None
        column = getattr(model, by)
        is_one = traits.is_one_of(column, (), _type_of(column), PARAMETER)
        return _showing(select(model), model, by, shown).where(is_one)

    kept = kept_query(model, by, ("many", *shown, traits.array_parameters), build)
    if kept is None:
        yield from _rows_selected(function, session, model, attribute, by, values, shown, load, traits)
        return
    for part in traits.parts(values):
        yield _all(session.execute(kept, {PARAMETER: part}), shown)


def _rows_selected(
    function: str,
    session: AnySession,
    model: Any,
    attribute: str | None,
    by: str,
    values: Sequence[Any],
    shown: Sequence[str],
    load: LoadOptions,
    traits: Traits,
) -> Iterator[Sequence[Any]]:
    """Yield the rows of :func:`rows_by` by statements that are built for them."""
    selection, entity, where = selected(function, model, load.pop("where", None), attribute)
    statement, options = apply_load_options(_showing(selection, entity, by, shown), load)
    column, mapper = getattr(entity, by), mapper_of_entity(entity)
    columns = columns_beside(mapper, by)
    with requiring_columns(function, session, entity, columns, where, selection.whereclause) as own:
        for part in traits.parts(values):
            # a shard is chosen by the values in the statement, so they are no parameters
            query = statement.where(traits.is_one_of(column, part, _type_of(column)))
            query = query.execution_options(**own) if own else query
            rows = _all(session.execute(query, execution_options=options), shown)
            if columns:
                refuse_repeated(mapper, by, rows)
            yield rows


def _showing(statement: Any, entity: Any, by: str, shown: Sequence[str]) -> Any:
    """Return *statement* with the attribute *by* of *entity* and those *shown*, or the object, as its columns."""
    # Beside the object, its id is selected as well: an option may defer the attribute, and an object that the session
    # has held since before an UPDATE may have an older one.
    columns = [*(getattr(entity, name) for name in (by, *shown)), *([] if shown else [entity])]
    return statement.with_only_columns(*columns, maintain_column_froms=True)


def _all(result: Any, shown: Sequence[str]) -> Sequence[Any]:
    # A join repeats rows. unique() alone would hash both columns, for a fifth of the instructions of get_many().
    rows: Sequence[Any] = (result if shown else result.unique(_identity_of_object)).all()
    return rows


def _identity_of_object(row: Sequence[Any]) -> int:
    return id(row[1])  # a model may define __eq__() and __hash__()


def _type_of(column: Any) -> TypeEngine[Any] | None:
    """Return the type of parameters that are compared with *column*; None for its own."""
    return column.type.as_parameter if isinstance(column.type, IdColumnType) else None


def as_passed(public_id: object, text: str) -> str:
    """Return the key of an id in a dict: *public_id* as it was passed, or its *text* if it is no string."""
    return str.__str__(public_id) if isinstance(public_id, str) else text  # a subclass may print something else


def key_as_stored(key: Any, column: Any) -> Any:
    """Return *key* as rows show it: an integer may be passed as text, as to ``session.get()``."""
    is_number = isinstance(key, str) and key.isascii() and key.isdecimal()
    return int(key) if is_number and isinstance(column.type, Integer) else key


def in_order(wanted: Mapping[Any, Any], found: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return what was *found* by the names in *wanted*, in its order, without what an inexact collation finds, too."""
    return {name: found[value] for name, value in wanted.items() if value in found}


def apply_load_options(query: Any, load: LoadOptions) -> tuple[Any, dict[str, Any]]:
    """Return *query* with the loader options and the lock of *load*, and its execution options."""
    query = query.options(*load.get("options", ()))
    lock = load.get("with_for_update")
    if lock is not None and lock is not False:  # an empty dictionary locks, as in session.get()
        query = query.with_for_update(**({} if lock is True else lock))
    execution_options = dict(load.get("execution_options") or {})
    if load.get("populate_existing"):
        execution_options["populate_existing"] = True
    return query, execution_options


def mapper_of_entity(entity: Any) -> Mapper[Any]:
    """Return the mapper of a model, or of an alias of one."""
    mapper: Mapper[Any] = inspect(entity).mapper
    return mapper
