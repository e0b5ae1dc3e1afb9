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
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

from sqlalchemy import Column, Engine, event, inspect
from sqlalchemy.ext.horizontal_shard import ShardedSession
from sqlalchemy.orm import InstanceState, Mapper, ORMExecuteState, RelationshipDirection, Session, object_session
from sqlalchemy.orm import sessionmaker as sessionmaker_of

from sqlalchemy_public_id import registry
from sqlalchemy_public_id.columns import public_id_type
from sqlalchemy_public_id.dialects import traits_for
from sqlalchemy_public_id.errors import ConfigurationError, safe_repr
from sqlalchemy_public_id.keys.sharding.rules import Rule, ShardChooser, choosers_of, engines_of, require_shard
from sqlalchemy_public_id.keys.sharding.where_clause import conditions
from sqlalchemy_public_id.orm.inspection import id_attributes

__all__ = ["ShardRouter"]


class ShardRouter:
    """Determines the database of each row, stored or new.

    :param shards: name → engine; an asynchronous one serves ``AsyncSession(sync_session_class=ShardedSession)``. With
        ``by="hash"`` their order counts, and a new one comes last.
    :param by: what determines the shard.

        ``"hash"``: the public id, see :func:`~sqlalchemy_public_id.keys.sharding.rules.bucket_of`. A generated id that
        collides raises ``IntegrityError`` and is not replaced: another one would select another shard.

        ``{"cus": "north", OrderId: "south"}``: the prefix, so that all rows of a model are in one shard.

        ``{10: "north", 20: "south"}``: the cluster id in the key.

        ``{range(1, 10**12): "north", …}`` or :class:`~sqlalchemy_public_id.keys.Ranges`: the key.
    :param place: a function that returns the shard of a new object, for all models, or model → function for some. For
        these models it replaces the hash or prefix, so their ids determine no shard and every shard is queried; a key
        still does. Without it, a new object with a key from the database goes to the shard of its parents, or in turn.
    :raises ConfigurationError: for invalid *by*, *shards* or *place*.
    """

    def __init__(
        self,
        shards: Mapping[str, Any],
        *,
        by: object = "hash",
        place: ShardChooser | Mapping[type[Any], ShardChooser] | None = None,
    ) -> None:
        self.shards: dict[str, Engine] = engines_of(shards)
        """Name → engine."""
        self._names = tuple(self.shards)
        self._rule = Rule(by, self._names)
        self._choosers: Mapping[type[Any], ShardChooser] = choosers_of(place)
        self._turns = itertools.cycle(self._names)
        self._turn_of: weakref.WeakKeyDictionary[InstanceState[Any], str] = weakref.WeakKeyDictionary()

    # --- sessions

    @property
    def choosers(self) -> dict[str, Any]:
        """The three choosers of a sharded session: ``ShardedSession(**router.choosers, shards=router.shards)``."""
        return {
            "shard_chooser": self._choose_shard,
            "identity_chooser": self._choose_by_identity,
            "execute_chooser": self._choose_for_statement,
        }

    def session(self, **options: Any) -> ShardedSession:
        """Return a new session, with the *options* of :class:`~sqlalchemy.orm.Session`."""
        return ShardedSession(**self.choosers, shards=self.shards, **options)

    def sessionmaker(self, **options: Any) -> sessionmaker_of[ShardedSession]:
        """Return a factory of such sessions."""
        return sessionmaker_of(class_=ShardedSession, **self.choosers, shards=self.shards, **options)

    # --- the shard of a row

    def shard_of(self, instance: object) -> str:
        """Return the shard of *instance*, new or stored. A new one gets its public id if that determines the shard.

        The shard of a new object may change with its key and its references.

        :raises ConfigurationError: if nothing determines the shard.
        """
        state: InstanceState[Any] = inspect(instance)
        token = _token(state)
        if token is None and state.identity is not None:  # from a plain session, and maybe expired
            token = self._of_keys(state.identity)
        return token or self._of_new(state)

    def shard_of_id(self, model: type[Any], public_id: object) -> str | None:
        """Return the shard of the row with *public_id*; ``None`` if the id does not determine it, or is malformed."""
        mapper: Mapper[Any] = inspect(model)
        column = _deciding(mapper)
        text = None if column is None else public_id_type(column).canonical(public_id)
        return None if text is None else self._of_id(mapper, text)

    def shard_of_key(self, key: int) -> str | None:
        """Return the shard of the row with *key*; ``None`` if keys do not determine it."""
        return self._rule.of_key(key)

    # --- the choosers

    def _choose_shard(self, mapper: Mapper[Any] | None, instance: Any, clause: Any = None) -> str:
        if instance is not None:
            session = object_session(instance)
            if session is not None:
                self._watch(session)
            state: InstanceState[Any] = inspect(instance)
            shard = self._of_new(state)
            self._refuse_other_key(state, shard)
            self._refuse_related_elsewhere(state, shard)
            return shard
        return (None if mapper is None else self._of_model(mapper)) or self._tightest()

    def _choose_by_identity(
        self,
        mapper: Mapper[Any],
        primary_key: tuple[Any, ...] | int | str,
        *,
        lazy_loaded_from: InstanceState[Any] | None,
        **_: Any,
    ) -> tuple[str, ...]:
        values: tuple[Any, ...] = primary_key if isinstance(primary_key, tuple) else (primary_key,)
        shard = self._of_model(mapper) or self._of_keys(values)
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
        statement: Any = context.statement
        clause = getattr(statement, "whereclause", None)
        parameters: Any = context.parameters if isinstance(context.parameters, Mapping) else {}
        possible = set(self._names)
        for column, values in conditions(clause, parameters):
            of_values = self._of_values(column, values)
            if of_values is not None:
                possible &= of_values
        if len(possible) == len(self._names) and context.is_select and (token := _loading_token(context)) is not None:
            return (token,)
        # if no shard can have a row, one of them returns the empty result
        return tuple(name for name in self._names if name in possible) or self._names[:1]

    # --- the rule

    def _of_new(self, state: InstanceState[Any]) -> str:
        instance, mapper = state.obj(), state.mapper
        chooser = self._chooser_of(mapper)
        if chooser is not None:
            chosen = chooser(instance)
            return require_shard(chosen, self._names, f"the place of {mapper.class_.__name__} is {safe_repr(chosen)}")
        shard = self._of_model(mapper)
        if shard is None and self._rule.is_hash:
            shard = self._by_public_id(state)
        if shard is None and self._rule.is_key:
            shard = self._by_key(state)
        if shard is None:
            raise ConfigurationError(
                f"nothing determines the shard of {mapper.class_.__name__}; write ShardRouter(…, place={{"
                f"{mapper.class_.__name__}: …}}) with a function of the object"
            )
        return shard

    def _by_public_id(self, state: InstanceState[Any]) -> str | None:
        column = _deciding(state.mapper)
        if column is None:
            return None
        name = state.mapper.get_property_by_column(column).key
        if state.identity is None and state.dict.get(name) is None:
            state.dict.pop(name, None)  # None was assigned, which means that the id is to be made
        # makes it if there is none; from now on it is not replaced, because another id would belong to another shard
        public_id = getattr(state.obj(), name)
        if not isinstance(public_id, str):
            raise ConfigurationError(
                f"the public id of {state.class_.__name__} is an SQL expression, which has no value before it "
                f"is stored; assign the id itself"
            )
        return self._rule.of_id(str.__str__(public_id))

    def _by_key(self, state: InstanceState[Any]) -> str | None:
        values = _keys(state)
        shard = self._of_keys(values)
        if shard is None and len(values) == 1 and isinstance(values[0], int):
            raise ConfigurationError(f"the key {values[0]} of {state.class_.__name__} belongs to none of the shards")
        if shard is None:
            shard = next(self._of_parents(state), None)
        if shard is None and state.identity is None:
            shard = self._turn_of.setdefault(state, self._turn_of.get(state) or next(self._turns))
        return shard

    def _refuse_other_key(self, state: InstanceState[Any], shard: str) -> None:
        # a lookup by the key would go to another shard
        values = _keys(state)
        by_key = self._of_keys(values)
        if by_key not in (None, shard):
            raise ConfigurationError(
                f"the key {safe_repr(values[0])} of {state.class_.__name__} belongs to {by_key!r}, "
                f"and its place is {shard!r}"
            )

    def _refuse_related_elsewhere(self, state: InstanceState[Any], shard: str) -> None:
        # with a hash, the key of a row in another shard is that of a different row in this one
        if not self._rule.is_hash:
            return
        name = state.class_.__name__
        for key, parent in _parents(state):
            other = self.shard_of(parent)
            if other != shard:
                raise ConfigurationError(
                    f"{name} belongs to {shard!r}, and its {key} is in {other!r}, where no foreign key can point to; "
                    f"write ShardRouter(…, place={{{name}: …}}) with the shard of its {key}, and let it stay there"
                )

    def _of_parents(self, state: InstanceState[Any]) -> Iterator[str]:
        for _, parent in _parents(state):
            yield self.shard_of(parent)
        for column in state.mapper.columns:
            if column.foreign_keys and not column.primary_key:
                shard = self._of_keys((state.dict.get(state.mapper.get_property_by_column(column).key),))
                if shard is not None:
                    yield shard

    def _of_model(self, mapper: Mapper[Any]) -> str | None:
        column = _deciding(mapper)
        if column is None or self._chooser_of(mapper) is not None:
            return None
        return self._rule.of_prefix(public_id_type(column).id_format.prefix)

    def _of_id(self, mapper: Mapper[Any], text: str) -> str | None:
        of_model = self._of_model(mapper)
        return of_model or (self._rule.of_id(str.__str__(text)) if self._chooser_of(mapper) is None else None)

    def _of_keys(self, values: tuple[Any, ...]) -> str | None:
        return self._rule.of_key(values[0]) if len(values) == 1 and isinstance(values[0], int) else None

    def _of_values(self, column: Column[Any], values: list[Any]) -> set[str] | None:
        """Return the shards of the rows with one of *values* in *column*; ``None`` if they are not known."""
        shards: list[str | None]
        model = registry.model_of(column.table, column.key)
        if model is not None:
            mapper: Mapper[Any] = inspect(model)
            if _deciding(mapper) is not column:
                return None
            type_ = public_id_type(column)
            texts = [type_.canonical(value) for value in values]
            if type_.is_native:  # no row has a malformed id; a text column may have ids of another format
                texts = [text for text in texts if text is not None]
            shards = [None if text is None else self._of_id(mapper, text) for text in texts]
        elif column.primary_key and len(column.table.primary_key) == 1:
            shards = [self._of_keys((value,)) for value in values]
        else:
            return None
        return None if None in shards else {shard for shard in shards if shard is not None}

    def _chooser_of(self, mapper: Mapper[Any]) -> ShardChooser | None:
        return next((self._choosers[cls] for cls in mapper.class_.__mro__ if cls in self._choosers), None)

    def _tightest(self) -> str:
        """Return the shard with the tightest limits: SQL built for it runs on every shard."""

        def allowance(name: str) -> tuple[bool, bool, int]:
            traits = traits_for(self.shards[name].dialect)
            return traits.array_parameters, traits.max_parameters is None, traits.max_parameters or 0

        return min(self._names, key=allowance)

    # --- the session

    def _watch(self, session: Session) -> None:
        if not event.contains(session, "before_flush", self._before_flush):
            event.listen(session, "pending_to_transient", _forget)
            event.listen(session, "persistent_to_transient", _forget)
            event.listen(session, "before_flush", self._before_flush)

    def _before_flush(self, session: Session, context: object, instances: object) -> None:
        # the shard of a new object follows from its attributes now; a stored object stays where it is
        for instance in session.new:
            inspect(instance).identity_token = None  # set by session.connection(bind_arguments={"instance": …})
        for instance in session.dirty:
            state: InstanceState[Any] = inspect(instance)
            token = _token(state)
            if token is not None:
                self._refuse_related_elsewhere(state, token)


def _forget(session: Session, instance: object) -> None:
    inspect(instance).identity_token = None  # not stored; when it is added again, its id may differ


def _loading_token(context: ORMExecuteState) -> str | None:
    """Return the shard of the objects whose relationship is loaded."""
    if context.lazy_loaded_from is not None:
        return _token(context.lazy_loaded_from)
    return context.execution_options.get("identity_token")  # selectinload() and similar


def _token(state: InstanceState[Any]) -> str | None:
    token = state.key[2] if state.key else state.identity_token
    return token if isinstance(token, str) else None


def _deciding(mapper: Mapper[Any]) -> Column[Any] | None:
    # the public id of the topmost model that has one
    for above in reversed(list(mapper.iterate_to_root())):
        columns = id_attributes(above)
        if columns:
            return next(iter(columns.values())) if len(columns) == 1 else columns.get("public_id")
    return None


def _keys(state: InstanceState[Any]) -> tuple[Any, ...]:
    if state.identity is not None:
        return state.identity
    mapper = state.mapper
    return tuple(state.dict.get(mapper.get_property_by_column(column).key) for column in mapper.primary_key)


def _parents(state: InstanceState[Any]) -> Iterator[tuple[str, object]]:
    """Yield attribute and object for the many-to-one relationships of *state* that are loaded or set."""
    for relationship in state.mapper.relationships:
        parent = state.dict.get(relationship.key)
        if (
            relationship.direction is RelationshipDirection.MANYTOONE
            and not relationship.viewonly
            and parent is not None
        ):
            yield relationship.key, parent
