"""The parts of an Alembic directive: a base class, a method of ``op``, and a function with types that calls it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, ClassVar, Concatenate

from alembic.operations import BatchOperations, MigrateOperation, Operations
from typing_extensions import ParamSpec, TypeVar

P = ParamSpec("P")


class Directive(MigrateOperation):
    """Base of all directives."""

    name: ClassVar[str]
    """The name of the method of ``op``."""
    reversed_by: ClassVar[type[Any]]
    """The directive that undoes it."""

    def arguments(self) -> dict[str, Any]:
        """Return the arguments that a migration has to spell out, in order. ``table`` and ``column`` are positional."""
        raise NotImplementedError

    @classmethod
    def invoke(cls, operations: Any, *args: Any, **kwargs: Any) -> None:
        operations.invoke(cls(*args, **kwargs))

    def to_diff_tuple(self) -> tuple[object, ...]:
        return self.name, *self.arguments().values()


DirectiveT = TypeVar("DirectiveT", bound=Directive)


def registered(cls: type[DirectiveT]) -> type[DirectiveT]:
    """Add the method of the directive to ``op``, and to ``batch_op`` if the directive has a batch form."""
    for operations, source in ((Operations, "invoke"), (BatchOperations, "batch_invoke")):
        if method := getattr(cls, source, None):
            method.__func__.__doc__ = cls.__doc__  # Alembic copies it to the method of op
            operations.register_operation(cls.name, source)(cls)
    return cls


def as_function(directive: Callable[P, Directive]) -> Callable[Concatenate[Any, P], None]:
    """Return a function with the arguments of *directive* after ``op``, for type checkers and ``help()``."""
    cls: Any = directive

    def function(op: Any, /, *args: P.args, **kwargs: P.kwargs) -> None:
        getattr(op, cls.name)(*args, **kwargs)

    documented: Any = function
    parameters = inspect.signature(cls).parameters.values()
    first = inspect.Parameter("op", inspect.Parameter.POSITIONAL_ONLY, annotation="Any")
    documented.__signature__ = inspect.Signature([first, *parameters], return_annotation="None")
    documented.__name__ = documented.__qualname__ = cls.name
    documented.__doc__ = cls.__doc__
    return function
