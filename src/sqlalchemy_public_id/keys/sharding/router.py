"""Sends each row of a :class:`~sqlalchemy.ext.horizontal_shard.ShardedSession` to its database, and each question too.

>>> from sqlalchemy import create_engine
>>> from sqlalchemy_public_id import lookup
>>> from sqlalchemy_public_id.keys import ShardRouter
>>> router = ShardRouter({name: create_engine("sqlite://") for name in ("north", "south")})
>>> for engine in router.shards.values():
...     User.metadata.create_all(engine)
>>> with router.session() as sharded:
...     sharded.add(User(name="Ada", public_id="izkpm55j334u"))
...     sharded.commit()
...     lookup.get_one(sharded, User, "izkpm55j334u").name, router.shard_of_id(User, "izkpm55j334u")
('Ada', 'north')

A row is in one shard, and so are the rows that its foreign keys point to.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

from sqlalchemy import Column, Engine, Integer, event, inspect
from sqlalchemy.ext.horizontal_shard import ShardedSession
from sqlalchemy.orm import InstanceState, Mapper, ORMExecuteState, RelationshipDirection, Session, object_session
from sqlalchemy.orm import sessionmaker as sessionmaker_of

from sqlalchemy_public_id import registry
from sqlalchemy_public_id.dialects import traits_for
from sqlalchemy_public_id.errors import ConfigurationError, shown
from sqlalchemy_public_id.keys.sharding.criteria import conditions, is_never
from sqlalchemy_public_id.keys.sharding.rules import ByHash, ByKey, require_shard, rule_of
from sqlalchemy_public_id.keys.sharding.settings import Place, engines_of, places_of
from sqlalchemy_public_id.orm.inspection import id_attributes
from sqlalchemy_public_id.orm.marks import marks_of
from sqlalchemy_public_id.types import public_id_type

__all__ = ["ShardRouter"]


class ShardRouter:
    """Says in which of several databases a row is, or is to be.

    :param shards: name → engine; an asynchronous one serves ``AsyncSession(sync_session_class=ShardedSession)``. With
        ``by="hash"`` their order counts, and a new one comes last.
    :param by: what tells the shard.

        ``"hash"``: the public id, see :func:`~sqlalchemy_public_id.keys.sharding.rules.bucket_of`. A generated id that
        is taken raises ``IntegrityError`` and is not replaced: another one would select another shard.

        ``{"cus": "north", OrderId: "south"}``: the prefix, so that all rows of a model are in one shard.

        ``{10: "north", 20: "south"}``: the cluster id in the key.

        ``{range(1, 10**12): "north", …}`` or what :func:`~sqlalchemy_public_id.keys.ranges` answers: the key.
    :param place: says the shard of a new object, for all models, or model → function for some. What it says of a model
        holds instead of a hash or prefix, so ids of these models tell nothing and every shard is asked; a key tells its
        shard all the same. Without it, keys that the database makes go where the object's parents are, or in turn.
    :raises ConfigurationError: where *by* or *shards* cannot be what is written there.
    """

    def __init__(
        self,
        shards: Mapping[str, Any],
        *,
        by: object = "hash",
        place: Place | Mapping[type[Any], Place] | None = None,
    ) -> None:
        self.shards: dict[str, Engine] = engines_of(shards)
        """Name → engine."""
        self._names = tuple(self.shards)
        self._rule = rule_of(by, self._names)
        self._place: Mapping[type[Any], Place] = places_of(place)
        self._turns = itertools.cycle(self._names)
        self._turn_of: weakref.WeakKeyDictionary[InstanceState[Any], str] = weakref.WeakKeyDictionary()
        self._watched: weakref.WeakSet[Session] = weakref.WeakSet()

    # --- sessions

    @property
    def choosers(self) -> dict[str, Any]:
        """The three functions of a sharded session: ``ShardedSession(**router.choosers, shards=router.shards)``."""
        return {
            "shard_chooser": self._choose_shard,
            "identity_chooser": self._choose_by_identity,
            "execute_chooser": self._choose_for_statement,
        }

    def session(self, **options: Any) -> ShardedSession:
        """A new session, with the *options* of :class:`~sqlalchemy.orm.Session`."""
        return ShardedSession(**self.choosers, shards=self.shards, **options)

    def sessionmaker(self, **options: Any) -> sessionmaker_of[ShardedSession]:
        """What makes such sessions, for as long as the program runs."""
        return sessionmaker_of(class_=ShardedSession, **self.choosers, shards=self.shards, **options)

    # --- questions

    def shard_of(self, instance: object) -> str:
        """The shard of *instance*, a new object or a stored one. A new one is given its public id, where that decides.

        It may be another one once more is known of a new object: its key, what it refers to.

        :raises ConfigurationError: where nothing tells it.
        """
        state: InstanceState[Any] = inspect(instance)
        token = _token(state)
        if token is None and state.identity is not None:  # of a plain session, and maybe expired
            token = self._of_keys(state.mapper, state.identity)
        return token or self._of_new(state)

    def shard_of_id(self, model: type[Any], public_id: object) -> str | None:
        """The shard of the row of *model* with *public_id*; ``None`` where the id does not tell, or is malformed."""
        mapper: Mapper[Any] = inspect(model)
        column = _deciding(mapper)
        text = None if column is None else public_id_type(column).canonical(public_id)
        return None if text is None or column is None else self._of_id(mapper, column, text)

    def shard_of_key(self, key: int) -> str | None:
        """The shard of the row with *key*; ``None`` where keys do not tell."""
        return self._rule.of_key(key)

    # --- the choosers

    def _choose_shard(self, mapper: Mapper[Any] | None, instance: Any, clause: Any = None) -> str:
        if instance is not None:
            session = object_session(instance)
            if session is not None:
                self._watch(session)
            state: InstanceState[Any] = inspect(instance)
            told = self._of_new(state)
            self._refuse_other_key(state, told)
            self._refuse_related_elsewhere(state, told)
            return told
        return (None if mapper is None else self._of_model(mapper)) or self._most_careful()

    def _choose_by_identity(
        self,
        mapper: Mapper[Any],
        primary_key: tuple[Any, ...] | int | str,
        *,
        lazy_loaded_from: InstanceState[Any] | None,
        **_: Any,
    ) -> tuple[str, ...]:
        values: tuple[Any, ...] = primary_key if isinstance(primary_key, tuple) else (primary_key,)
        told = self._of_model(mapper) or self._of_keys(mapper, values)
        if told is None and lazy_loaded_from is not None:
            told = _token(lazy_loaded_from)
        return self._names if told is None else (told,)

    def _choose_for_statement(self, context: ORMExecuteState) -> tuple[str, ...]:
        self._watch(context.session)
        mapper = context.bind_mapper
        if mapper is not None and (told := self._of_model(mapper)) is not None:
            return (told,)
        if context.is_insert and len(self._names) > 1:
            raise ConfigurationError(
                "an INSERT statement does not tell to which shard its rows belong; add the objects to the session, or "
                "insert in a session of that shard alone, with ids that belong there: Session(router.shards[name])"
            )
        statement: Any = context.statement
        clause = getattr(statement, "whereclause", None)
        parameters: Any = context.parameters if isinstance(context.parameters, Mapping) else {}
        if is_never(clause):
            return self._names[:1]
        possible = set(self._names)
        for column, values in conditions(clause, parameters):
            some = self._of_values(column, values)
            if some is not None:
                possible &= some
        if len(possible) == len(self._names) and context.is_select and (token := _asked_from(context)) is not None:
            return (token,)
        found = tuple(name for name in self._names if name in possible)
        return found or self._names[:1]  # nothing can be found anywhere, and one of them has to say so

    # --- the rule

    def _of_new(self, state: InstanceState[Any]) -> str:
        instance, mapper = state.obj(), state.mapper
        place = self._placed(mapper)
        if place is not None:
            said = place(instance)
            return require_shard(said, self._names, f"the place of {mapper.class_.__name__} is {shown(said)}")
        told = self._of_model(mapper)
        if told is None and isinstance(self._rule, ByHash):
            told = self._by_public_id(state)
        if told is None and isinstance(self._rule, ByKey):
            told = self._by_key(state)
        if told is None:
            raise ConfigurationError(
                f"nothing tells the shard of {mapper.class_.__name__}; write ShardRouter(…, place={{"
                f"{mapper.class_.__name__}: …}}) with a function of the object"
            )
        return told

    def _by_public_id(self, state: InstanceState[Any]) -> str | None:
        column = _deciding(state.mapper)
        if column is None:
            return None
        name = _attribute(state.mapper, column)
        if state.identity is None and name in marks_of(state).borrowed:
            state.dict.pop(name, None)  # that of a row, which is not this one
            marks_of(state).forget(name)
        public_id = getattr(state.obj(), name)  # which makes it if there is none yet
        if not isinstance(public_id, str):
            raise ConfigurationError(
                f"the public id of {state.class_.__name__} is an SQL expression, which does not tell a shard before it "
                f"is stored; give the id itself"
            )
        marks_of(state, create=True).mark_given(name)  # another one, tried after a collision, would be in another shard
        return self._rule.of_id(str.__str__(public_id))

    def _by_key(self, state: InstanceState[Any]) -> str | None:
        mapper = state.mapper
        values = _keys(state)
        told = self._of_keys(mapper, values)
        if told is None and any(value is not None for value in values) and _has_number(mapper):
            raise ConfigurationError(
                f"the key {shown(values[0])} of {mapper.class_.__name__} belongs to none of the shards"
            )
        if told is None:
            told = next(self._of_parents(state), None)
        if told is None and state.identity is None:
            told = self._turn_of.setdefault(state, self._turn_of.get(state) or next(self._turns))
        return told

    def _refuse_other_key(self, state: InstanceState[Any], told: str) -> None:
        """Refuse a row that would not be found by its key, as it is stored in another shard."""
        values = _keys(state)
        by_key = self._of_keys(state.mapper, values)
        if by_key not in (None, told):
            raise ConfigurationError(
                f"the key {shown(values[0])} of {state.class_.__name__} belongs to {by_key!r}, "
                f"and its place is {told!r}"
            )

    def _refuse_related_elsewhere(self, state: InstanceState[Any], told: str) -> None:
        """With a hash, refuse a row that refers to one in another shard: here, its key is that of another row."""
        if not isinstance(self._rule, ByHash):
            return  # keys, or prefixes, tell where the other row is
        name = state.class_.__name__
        for key, parent in _parents(state):
            other = self.shard_of(parent)
            if other != told:
                raise ConfigurationError(
                    f"{name} belongs to {told!r}, and its {key} is in {other!r}, where no foreign key can point to; "
                    f"write ShardRouter(…, place={{{name}: …}}) with the shard of its {key}, and let it stay there"
                )

    def _of_parents(self, state: InstanceState[Any]) -> Iterator[str]:
        """The shards of the objects that *state* refers to."""
        for _, parent in _parents(state):
            yield self.shard_of(parent)
        for column in state.mapper.columns:
            if column.foreign_keys and not column.primary_key:
                told = self._of_number(state.dict.get(state.mapper.get_property_by_column(column).key))
                if told is not None:
                    yield told

    def _of_model(self, mapper: Mapper[Any]) -> str | None:
        column = _deciding(mapper)
        if column is None or self._placed(mapper) is not None:
            return None
        return self._rule.of_prefix(public_id_type(column).id_format.prefix)

    def _of_id(self, mapper: Mapper[Any], column: Column[Any], text: str) -> str | None:
        if self._placed(mapper) is not None:
            return None
        return self._rule.of_prefix(public_id_type(column).id_format.prefix) or self._rule.of_id(str.__str__(text))

    def _of_keys(self, mapper: Mapper[Any], values: tuple[Any, ...]) -> str | None:
        return self._of_number(values[0]) if len(values) == 1 and _has_number(mapper) else None

    def _of_number(self, key: object) -> str | None:
        return self._rule.of_key(key) if isinstance(key, int) else None

    def _of_values(self, column: Column[Any], values: list[Any]) -> set[str] | None:
        """The shards that have rows with one of *values* in *column*; ``None`` where that is not known."""
        told: list[str | None]
        model = registry.model_of(column.table, column.key)
        if model is not None:
            mapper: Mapper[Any] = inspect(model)
            if _deciding(mapper) is not column:
                return None
            texts = (public_id_type(column).canonical(value) for value in values)
            told = [None if text is None else self._of_id(mapper, column, text) for text in texts]
        elif column.primary_key and len(column.table.primary_key) == 1 and isinstance(column.type, Integer):
            told = [self._of_number(value) for value in values]
        else:
            return None
        known = {shard for shard in told if shard is not None}
        return None if None in told else known

    def _placed(self, mapper: Mapper[Any]) -> Place | None:
        for cls in mapper.class_.__mro__:
            if cls in self._place:
                return self._place[cls]
        return None

    def _most_careful(self) -> str:
        """The shard that answers for all when it is asked what SQL it takes: the others take that as well."""

        def allowance(name: str) -> tuple[bool, bool, int]:
            traits = traits_for(self.shards[name].dialect)
            return traits.array_parameters, traits.max_parameters is None, traits.max_parameters or 0

        return min(self._names, key=allowance)

    # --- the session

    def _watch(self, session: Session) -> None:
        if session not in self._watched:
            self._watched.add(session)
            event.listen(session, "pending_to_transient", _forget)
            event.listen(session, "persistent_to_transient", _forget)
            event.listen(session, "before_flush", self._before_flush)

    def _before_flush(self, session: Session, context: object, instances: object) -> None:
        """The shard of a new object is told by what it is now; a stored one stays, whatever it refers to now."""
        for instance in session.new:
            inspect(instance).identity_token = None  # of session.connection(bind_arguments={"instance": …}), say
        for instance in session.dirty:
            state: InstanceState[Any] = inspect(instance)
            token = _token(state)
            if token is not None:
                self._refuse_related_elsewhere(state, token)


def _forget(session: Session, instance: object) -> None:
    """The row of *instance* was not stored; when it is added again, its id may be another one."""
    inspect(instance).identity_token = None


def _asked_from(context: ORMExecuteState) -> str | None:
    """The shard of the objects for which a relationship is loaded."""
    if context.lazy_loaded_from is not None:
        return _token(context.lazy_loaded_from)
    return context.execution_options.get("identity_token")  # selectinload() and its kin


def _token(state: InstanceState[Any]) -> str | None:
    token = state.key[2] if state.key else state.identity_token
    return token if isinstance(token, str) else None


def _deciding(mapper: Mapper[Any]) -> Column[Any] | None:
    """The column of the public id that decides on the shard: that of the topmost model that has one."""
    for above in reversed(list(mapper.iterate_to_root())):
        found = id_attributes(above)
        if found:
            return next(iter(found.values())) if len(found) == 1 else found.get("public_id")
    return None


def _keys(state: InstanceState[Any]) -> tuple[Any, ...]:
    """The key of an object, or what of it is known."""
    if state.identity is not None:
        return state.identity
    mapper = state.mapper
    return tuple(state.dict.get(mapper.get_property_by_column(column).key) for column in mapper.primary_key)


def _parents(state: InstanceState[Any]) -> Iterator[tuple[str, object]]:
    """Attribute → object, for the relationships of *state* to one object each that are loaded, or set."""
    for relationship in state.mapper.relationships:
        parent = state.dict.get(relationship.key)
        if (
            relationship.direction is RelationshipDirection.MANYTOONE
            and not relationship.viewonly
            and parent is not None
        ):
            yield relationship.key, parent


def _attribute(mapper: Mapper[Any], column: Column[Any]) -> str:
    return next(name for name, each in id_attributes(mapper).items() if each is column)


def _has_number(mapper: Mapper[Any]) -> bool:
    """Whether the key is one integer."""
    return len(mapper.primary_key) == 1 and isinstance(mapper.primary_key[0].type, Integer)
