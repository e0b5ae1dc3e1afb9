"""Check that two tenants are apart: everything of the library that reads rows is tried with the other's ids."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy.orm import Session, scoped_session

from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.orm.inspection import is_sharded, mapped_classes, registry_of, session_of
from sqlalchemy_public_id.testing.attempts import Attempts, TenantLeak
from sqlalchemy_public_id.testing.seen import Seen

__all__ = ["TenantLeak", "TenantsNotApart", "assert_tenants_are_apart"]


class TenantsNotApart(AssertionError):
    """One tenant reaches rows of the other, or there were no rows to try it with."""

    leaks: tuple[TenantLeak, ...]
    """Everything that came through."""
    untried: tuple[str, ...]
    """The names of the models of which one of the sessions sees no row."""

    def __init__(self, leaks: Sequence[TenantLeak], untried: Sequence[str]) -> None:
        self.leaks, self.untried = tuple(leaks), tuple(untried)
        lines: list[str] = []
        if leaks:
            lines.append("one tenant reaches rows of the other:")
            for model in dict.fromkeys(leak.model for leak in leaks):
                functions = dict.fromkeys(leak.function for leak in leaks if leak.model == model)
                lines.append(f"  {model}: {', '.join(functions)}")
            lines.append("let the sessions hide these rows; if all tenants share a model, name it in shared=[…]")
        if untried:
            lines.append(f"nothing was tried with {', '.join(untried)}: commit a row of each for both tenants")
        super().__init__("\n".join(lines))


def assert_tenants_are_apart(
    base: Any,
    session_of_a: Session | scoped_session[Session],
    session_of_b: Session | scoped_session[Session],
    *,
    shared: Collection[type[Any]] = (),
) -> None:
    """Try to reach the rows of one tenant in the session of the other, with every function of this library.

    The functions are called with the ids, keys and tokens of the other tenant's rows, in both directions. All of these
    must hold:

    * lookups and pages do not find the rows, and their ids are invalid as cursors;
    * a reference refuses their ids, by whatever it is assigned, and the rows of a tenant refer to none of them;
    * an idempotent insert with one of their ids tells nothing about the stored row.

    Nothing that is stored is changed: both sessions are rolled back.

    >>> from sqlalchemy_public_id import testing
    >>> with Session(engine) as session_of_a, Session(engine) as session_of_b:  # nothing distinguishes the tenants
    ...     testing.assert_tenants_are_apart(User.registry, session_of_a, session_of_b)
    Traceback (most recent call last):
      ...
    sqlalchemy_public_id.testing.tenants.TenantsNotApart: one tenant reaches rows of the other:
      User: select(), lookup.get, lookup.get_one, ...

    :param base: the declarative base of the models, or their ``registry``.
    :param session_of_a: a session that sees the rows of one tenant only. For an ``AsyncSession``, pass its
        ``sync_session``, and make the call in ``run_sync()``.
    :param session_of_b: a session that sees the rows of the other tenant only.
    :param shared: models whose rows all tenants may see. Nothing is tried with them and their subclasses.
    :raises TenantsNotApart: if anything came through, or if a session sees no row of a model, so that nothing could be
        tried. It is an ``AssertionError``, and lists models and functions.
    :raises ConfigurationError: if a session has changes that are not flushed, is sharded, or uses ``AUTOCOMMIT``, and
        if the same session is passed twice.
    """
    declared = registry_of(base, "base is")
    declared.configure()
    mappers = [mapper for mapper in mapped_classes(declared) if not issubclass(mapper.class_, tuple(shared))]
    sessions = _checked(session_of_a), _checked(session_of_b)
    if sessions[0] is sessions[1]:
        raise ConfigurationError("both tenants have the same session; pass one session for each")
    # both may have savepoints of one connection, which end in the opposite order of their beginning
    b, a = [Seen(session, mappers) for session in reversed(sessions)]
    leaks: list[TenantLeak] = []
    for reader, stranger in ((a, b), (b, a)):
        try:
            leaks += Attempts(reader, stranger).leaks()
        finally:
            reader.session.rollback()
    untried = [mapper.class_.__name__ for mapper in mappers if not (a.rows[mapper] and b.rows[mapper])]
    if leaks or untried:
        raise TenantsNotApart(list({leak[:2]: leak for leak in leaks}.values()), untried)


def _checked(given: Any) -> Session:
    """Return the session, unless what is tried in it could not be undone."""
    if hasattr(given, "run_sync"):
        raise TypeError(
            "expected a Session, not an AsyncSession: await session_of_a.run_sync(lambda session: "
            "assert_tenants_are_apart(Base, session, session_of_b.sync_session))"
        )
    session = session_of(given)
    if is_sharded(session):
        raise ConfigurationError("a sharded session keeps no savepoints; pass a session of one shard")
    if session.new or session.dirty or session.deleted:
        raise ConfigurationError("a session has changes that are not flushed, and rolls them back; commit them")
    return session
