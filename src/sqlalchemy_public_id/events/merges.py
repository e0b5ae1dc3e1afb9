"""``Session.merge()`` of objects whose id is generated.

``merge()`` copies each attribute and fires the events of an assignment by the application. The property of the mapper
is the one public place that sees both objects.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any, cast

from sqlalchemy import Column
from sqlalchemy.orm import ColumnProperty, InstanceState, Mapper, Session
from sqlalchemy.orm.attributes import instance_state, set_committed_value

from sqlalchemy_public_id.orm.marks import marks_of
from sqlalchemy_public_id.types import public_id_type


class MergedId(ColumnProperty[Any]):
    """The property of a public id: a column property with another ``merge()``."""

    __slots__ = ()
    inherit_cache: bool = True

    def merge(
        self,
        session: Session,
        source_state: InstanceState[Any],
        source_dict: Any,
        dest_state: InstanceState[Any],
        dest_dict: Any,
        load: bool,
        _recursive: Any,
        _resolve_conflict_map: Any,
    ) -> None:
        """Copy an id of the application as any value. Share a generated id, so that both objects show that of the row.

        A source with the key of a row shows the id of that row afterwards. A source that is merged again keeps the id
        of the first copy, and the second copy gets one of its own.
        """
        name = self.key
        marks = marks_of(source_state)
        is_generated = source_dict.get(name) is None or name in marks.generated or name in marks.borrowed
        if load and is_generated and source_state.key is None and source_state is not dest_state:
            if dest_state.key is None:
                self._share(source_state, source_dict, dest_state, dest_dict)
                return
            if name not in dest_dict or dest_dict[name] is not None:  # a row without an id may take the generated one
                self._show_stored(source_state, source_dict, dest_dict.get(name))
                return
        super().merge(
            session, source_state, source_dict, dest_state, dest_dict, load, _recursive, _resolve_conflict_map
        )

    def _share(
        self, source_state: InstanceState[Any], source_dict: Any, dest_state: InstanceState[Any], dest_dict: Any
    ) -> None:
        name = self.key
        source, dest = marks_of(source_state, create=True), marks_of(dest_state, create=True)
        if dest_dict.get(name) is not None:  # merged from another object with the same key, too
            set_committed_value(source_state.obj(), name, dest_dict[name])
            source.mark_borrowed(name)
            dest.sources.append(weakref.ref(source_state))
            return
        copy = source.copies.get(name)
        if copy is not None and not instance_state(copy).transient:
            return  # the first copy has the id; after a rollback it is transient again, and the id is free
        if source_dict.get(name) is None or name in source.borrowed:
            source_dict[name] = public_id_type(cast("Column[Any]", self.columns[0])).next_id()
        source.mark_generated(name)
        source.copies[name] = dest_state.obj()
        dest_dict[name] = source_dict[name]
        dest.mark_generated(name)
        dest.sources.append(weakref.ref(source_state))

    def _show_stored(self, source_state: InstanceState[Any], source_dict: Any, stored: str | None) -> None:
        """Show the *stored* id on the source, or none if it is not loaded: its own belongs to no row."""
        marks_of(source_state, create=True).mark_borrowed(self.key)
        if stored is not None:
            set_committed_value(source_state.obj(), self.key, stored)
        else:
            source_dict.pop(self.key, None)


def watch_merges(mapper: Mapper[Any], names: Iterable[str]) -> None:
    """Replace the properties of the attributes *names* of a mapper."""
    for name in names:
        prop = mapper.attrs[name]
        if type(prop) is ColumnProperty:
            prop.__class__ = MergedId
