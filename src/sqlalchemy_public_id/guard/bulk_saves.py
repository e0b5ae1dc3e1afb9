"""Objects that are stored without a flush: ``Session.bulk_save_objects()`` does not fill them.

The column default makes their ids. Without them, a later access would make an id that no row has.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy.orm.attributes import set_committed_value

from sqlalchemy_public_id._compat import bulk_saved_objects
from sqlalchemy_public_id.guard import generated
from sqlalchemy_public_id.guard.parameters import id_parameters
from sqlalchemy_public_id.orm.marks import marks_of

__all__ = ["show_made_ids"]


def show_made_ids(context: Any) -> None:
    """Have each object that the INSERT of *context* has stored show the id that its row has, for ever."""
    if generated.of(context.root_connection):
        return  # a flush, which knows its objects
    for values, row in zip(bulk_saved_objects(context), context.compiled_parameters, strict=False):
        state = values["_sa_instance_state"]
        for parameter in id_parameters(context.compiled):
            name = state.mapper.get_property_by_column(parameter.column).key
            if parameter.made:
                set_committed_value(state.obj(), name, row[parameter.name])
            marks_of(state, create=True).give(name)
