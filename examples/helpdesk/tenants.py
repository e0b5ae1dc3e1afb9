"""The session of a request, which sees the rows of one organization only."""

from __future__ import annotations

from sqlalchemy import event
from sqlalchemy.orm import ORMExecuteState, Session, with_loader_criteria

from .models import OfOrganization, Organization

ALL_ORGANIZATIONS = {"all_organizations": True}
"""Execution options of a SELECT that is sent before the organization is known, to find the user."""


class TenantSession(Session):
    """A session that needs ``info["organization_id"]``, the key of the organization whose rows it sees."""


@event.listens_for(TenantSession, "do_orm_execute")
def only_this_organization(state: ORMExecuteState) -> None:
    """Add a condition to each SELECT, for every model in it."""
    if state.is_select and not state.is_column_load and not state.execution_options.get("all_organizations"):
        key = state.session.info["organization_id"]  # a KeyError if nobody has signed in
        state.statement = state.statement.options(
            with_loader_criteria(OfOrganization, lambda model: model.organization_id == key, include_aliases=True),
            with_loader_criteria(Organization, Organization.id == key, include_aliases=True),
        )
