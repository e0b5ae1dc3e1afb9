"""Choose the database of each row and each statement of a :class:`~sqlalchemy.ext.horizontal_shard.ShardedSession`.

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

A row is in the same shard as the rows that its foreign keys point to.
"""

from __future__ import annotations

import itertools
import math
import weakref
from collections.abc import Iterator, Mapping
from typing import Any, cast

from sqlalchemy import Column, Engine, event, inspect
from sqlalchemy.ext.horizontal_shard import ShardedSession
from sqlalchemy.orm import InstanceState, Mapper, ORMExecuteState, RelationshipDirection, Session, object_session
from sqlalchemy.orm import sessionmaker as sessionmaker_of

from sqlalchemy_public_id import registry
from sqlalchemy_public_id.columns import public_id_type
from sqlalchemy_public_id.dialects import traits_for
from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.keys.sharding import rules
from sqlalchemy_public_id.keys.sharding.where_clause import conditions
from sqlalchemy_public_id.messages import safe_repr
from sqlalchemy_public_id.orm.inspection import id_attributes

__all__ = ["ShardRouter"]


class ShardRouter:
    """Determines the database of each row, stored or new.

    :param shards: name → engine; an ``AsyncEngine`` for ``AsyncSession(sync_session_class=ShardedSession)``. With
        ``by="hash"``, their order matters, and new shards have to be added at the end.
    :param by: what determines the shard.

        ``"hash"``: the public id, see :func:`~sqlalchemy_public_id.keys.sharding.rules.bucket_of`. A generated id that
        collides raises ``IntegrityError`` and is not replaced: another one would select another shard.

        ``{"cus": "north", OrderId: "south"}``: the prefix, so that all rows of a model are in one shard.

        ``{10: "north", 20: "south"}``: the cluster id in the key.

        ``{range(1, 10**12): "north", …}`` or :class:`~sqlalchemy_public_id.keys.Ranges`: the key.
    :param place: a function that returns the shard of a new object, or model → function for some models. For these
        models it replaces the hash or prefix, so public ids determine no shard, and all shards are queried; keys still
        determine the shard. Without it, objects with keys from the database go to their parents' shard, or to shards in
        turn.
    :raises ConfigurationError: for invalid *by*, *shards* or *place*.
    """

    def __init__(
        self,
        shards: Mapping[str, Any],
        *,
        by: object = "hash",
        place: rules.ShardChooser | Mapping[type[Any], rules.ShardChooser] | None = None,
    ) -> None:
        self.shards: dict[str, Engine] = rules.engines_of(shards)
        """Name → engine."""
        self._names = tuple(self.shards)
        self._rules, self._ranges = rules.rules_of(by, self._names)  # both are empty for a hash
        self._choosers = rules.choosers_of(place)
        self._turns = itertools.cycle(self._names)
        self._turn_of: weakref.WeakKeyDictionary[InstanceState[Any], str] = weakref.WeakKeyDictionary()

    # --- sessions

    @property
    def choosers(self) -> dict[str, Any]:
        """The choosers of a sharded session: ``ShardedSession(**router.choosers, shards=router.shards)``."""
        return {
            "shard_chooser": self._choose_shard,
            "identity_chooser": self._choose_by_identity,
            "execute_chooser": self._choose_for_statement,
        }

    def session(self, **options: Any) -> ShardedSession:
        """Return a new session, with the *options* of :class:`~sqlalchemy.orm.Session`."""
        return ShardedSession(**self.choosers, shards=self.shards, **options)

    def sessionmaker(self, **options: Any) -> sessionmaker_of[ShardedSession]:
        """Return a factory of sharded sessions, with the *options* of :class:`~sqlalchemy.orm.Session`."""
        return sessionmaker_of(class_=ShardedSession, **self.choosers, shards=self.shards, **options)

    # --- the shard of a row

    def shard_of(self, instance: object) -> str:
        """Return the shard of *instance*, new or stored. A new one gets its public id, if the id determines the shard.

        The shard of a new object may change if its key or its references do.

        :raises ConfigurationError: if nothing determines the shard.
        """
        state: InstanceState[Any] = inspect(instance)
        stored = None if state.identity is None else self._of_key(state.identity)  # in a plain session, maybe expired
        return _token(state) or stored or self._of_new(state)

    def shard_of_id(self, model: type[Any], public_id: object) -> str | None:
        """Return the shard of the row with *public_id*; ``None`` if the id does not determine it, or is malformed."""
        mapper: Mapper[Any] = inspect(model)
        column = _deciding(mapper)
        text = None if column is None else public_id_type(column).canonical(public_id)
        return None if text is None else self._of_model(mapper, text)

    def shard_of_key(self, key: int) -> str | None:
        """Return the shard of the row with *key*; ``None`` if keys do not determine it."""
        return None if self._ranges is None else self._rules.get(self._ranges.shard_of(key))

    # --- the choosers

    def _choose_shard(self, mapper: Mapper[Any] | None, instance: Any, clause: Any = None) -> str:
        if instance is None:
            return (None if mapper is None else self._of_model(mapper)) or self._tightest()
        session = object_session(instance)
        if session is not None:
            self._watch(session)
        state: InstanceState[Any] = inspect(instance)
        shard = self._of_new(state)
        self._refuse_related_elsewhere(state, shard)
        return shard

    def _choose_by_identity(
        self, mapper: Mapper[Any], primary_key: Any, *, lazy_loaded_from: InstanceState[Any] | None, **_: Any
    ) -> tuple[str, ...]:
        shard = self._of_model(mapper) or self._of_key(primary_key)
        if shard is None and lazy_loaded_from is not None:
            shard = _token(lazy_loaded_from)
        return self._names if shard is None else (shard,)

    def _choose_for_statement(self, context: ORMExecuteState) -> tuple[str, ...]:
        self._watch(context.session)
        mapper = context.bind_mapper
        if mapper is not None and (shard := self._of_model(mapper)) is not None:
            return (shard,)
        if context.is_insert and len(self._names) > 1:
            raise ConfigurationError(
                "the shard of an INSERT statement is not known; add the objects to the session, or "
                "insert in a session of that shard alone, with ids that belong there: Session(router.shards[name])"
            )
        parameters: Any = context.parameters if isinstance(context.parameters, Mapping) else {}
        possible = set(self._names)
        for column, values in conditions(getattr(context.statement, "whereclause", None), parameters):
            possible &= self._of_values(column, values)
        if len(possible) == len(self._names) and context.is_select:  # may be a lazy load or a selectinload()
            owner = context.lazy_loaded_from
            token = _token(owner) if owner is not None else context.execution_options.get("identity_token")
            possible = possible if token is None else {token}
        # if no shard can have a row, one of them returns the empty result
        return tuple(name for name in self._names if name in possible) or self._names[:1]

    # --- the rule

    def _of_new(self, state: InstanceState[Any]) -> str:
        instance, mapper, name = state.obj(), state.mapper, state.class_.__name__
        values = state.identity or tuple(mapper.primary_key_from_instance(instance))
        shard = self._of_key(values)
        chooser = self._chooser_of(mapper)
        if chooser is not None:
            chosen = chooser(instance)
            place = rules.require_shard(chosen, self._names, f"the place of {name} is {safe_repr(chosen)}")
            if shard not in (None, place):  # a lookup by the key would go to another shard
                raise ConfigurationError(
                    f"the key {safe_repr(values[0])} of {name} belongs to {shard!r}, but place= returned {place!r}; "
                    f"assign a key of {place!r}, or return {shard!r}"
                )
            return place
        column, public_id = _deciding(mapper), None
        if not self._rules and column is not None:
            key = mapper.get_property_by_column(column).key
            if state.identity is None and state.dict.get(key) is None:
                state.dict.pop(key, None)  # an assigned None means that an id has to be made
            # makes the id if there is none; the guard cannot replace it: another id would belong to another shard
            public_id = getattr(instance, key)
        shard = shard or self._of_model(mapper, public_id)
        if self._ranges and shard is None and not (len(values) == 1 and isinstance(values[0], int)):
            shard = self._of_parents(state)
            if shard is None and state.identity is None:
                shard = self._turn_of[state] = self._turn_of.get(state) or next(self._turns)
        if shard is None:
            raise ConfigurationError(
                f"nothing determines the shard of {name}: its public id is an SQL expression or has no prefix of a "
                f"shard, and its key {safe_repr(values)} belongs to no shard; write ShardRouter(…, "
                f"place={{{name}: …}}) with a function that returns the shard of an object"
            )
        return shard

    def _refuse_related_elsewhere(self, state: InstanceState[Any], shard: str) -> None:
        # with a hash, the key of a row in another shard belongs to a different row in this one
        name = state.class_.__name__
        for key, parent in () if self._rules else _parents(state):
            other = self.shard_of(parent)
            if other != shard:
                raise ConfigurationError(
                    f"{name} belongs to {shard!r}, but its {key} is in {other!r}, and foreign keys cannot cross "
                    f"shards; write ShardRouter(…, place={{{name}: …}}) with the shard of its {key}, and do not move it"
                )

    def _of_parents(self, state: InstanceState[Any]) -> str | None:
        foreign = [column for column in state.mapper.columns if column.foreign_keys]
        keys = [state.dict.get(state.mapper.get_property_by_column(column).key) for column in foreign]
        related = (self.shard_of(parent) for _, parent in _parents(state))
        return next(filter(None, itertools.chain(related, map(self._of_key, keys))), None)

    def _of_model(self, mapper: Mapper[Any], public_id: object = None) -> str | None:
        """Return the shard of the row with *public_id*, or, if that is ``None``, of all rows of the model."""
        column = _deciding(mapper)
        if column is None or self._chooser_of(mapper) is not None:
            return None
        if isinstance(public_id, str) and not self._rules:
            return self._names[rules.bucket_of(public_id, len(self._names))]
        return self._rules.get(public_id_type(column).id_format.prefix)

    def _of_key(self, key: tuple[Any, ...] | int | str | None) -> str | None:
        """Return the shard of *key*, a value or a tuple of values; ``None`` if it is not a single integer."""
        values = key if isinstance(key, tuple) else (key,)
        return self.shard_of_key(values[0]) if len(values) == 1 and isinstance(values[0], int) else None

    def _of_values(self, column: Column[Any], values: list[Any]) -> set[str]:
        """Return the shards in which rows with one of *values* in *column* can be."""
        shards: list[str | None] = [None]
        model = registry.model_of(column.table, column.key)
        if model is not None:
            mapper: Mapper[Any] = inspect(model)
            if _deciding(mapper) is column:
                type_ = public_id_type(column)
                texts = [type_.canonical(value) for value in values]
                # no row has a malformed id; a text column may have ids of another format
                known = [text for text in texts if text is not None or not type_.is_native]
                shards = [None if text is None else self._of_model(mapper, text) for text in known]
        elif column.primary_key and len(column.table.primary_key) == 1:
            shards = [self._of_key(value) for value in values]
        return {name for name in self._names if None in shards or name in shards}

    def _chooser_of(self, mapper: Mapper[Any]) -> rules.ShardChooser | None:
        return next((self._choosers[cls] for cls in mapper.class_.__mro__ if cls in self._choosers), None)

    def _tightest(self) -> str:
        """Return the shard with the tightest limits: SQL built for it runs on every shard."""
        traits = {name: traits_for(engine.dialect) for name, engine in self.shards.items()}
        return min(traits, key=lambda name: (traits[name].array_parameters, traits[name].max_parameters or math.inf))

    # --- the session

    def _watch(self, session: Session) -> None:
        if not event.contains(session, "before_flush", self._before_flush):
            event.listen(session, "pending_to_transient", _forget)
            event.listen(session, "persistent_to_transient", _forget)
            event.listen(session, "before_flush", self._before_flush)

    def _before_flush(self, session: Session, context: object, instances: object) -> None:
        # the shard of a new object follows from its attributes now; a stored object stays where it is
        for instance in session.new:
            _forget(session, instance)  # the token is set by session.connection(bind_arguments={"instance": …}), too
        for instance in session.dirty:
            self._refuse_related_elsewhere(inspect(instance), self.shard_of(instance))


def _forget(session: Session, instance: object) -> None:
    inspect(instance).identity_token = None  # not stored; its id may differ when the object is added again


def _token(state: InstanceState[Any]) -> str | None:
    return cast("str | None", state.key[2] if state.key else state.identity_token)


def _deciding(mapper: Mapper[Any]) -> Column[Any] | None:
    # the public id of the topmost model that has one
    for above in reversed(list(mapper.iterate_to_root())):
        columns = id_attributes(above)
        if columns:
            return next(iter(columns.values())) if len(columns) == 1 else columns.get("public_id")
    return None


def _parents(state: InstanceState[Any]) -> Iterator[tuple[str, object]]:
    """Yield attribute and object for the many-to-one relationships of *state* that are loaded or set."""
    for relationship in state.mapper.relationships:
        is_reference = relationship.direction is RelationshipDirection.MANYTOONE and not relationship.viewonly
        if is_reference and (parent := state.dict.get(relationship.key)) is not None:
            yield relationship.key, parent
