"""A program for SQLAlchemy with another name for one of its private parts: ``test_private_names.py`` runs it.

``python renamed_names.py '[["\\\\b_values\\\\b", "_renamed", ""]]' sqlite:// postgresql+psycopg://…`` rewrites the
source of SQLAlchemy while it is imported, sees whether SQLAlchemy itself still works, and prints as JSON what of the
library does not: ``{"rewritten": 12, "failures": ["sqlite flush: AttributeError: …"]}``.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import re
import sys
import traceback
import warnings
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

os.environ["DISABLE_SQLALCHEMY_CEXT_RUNTIME"] = "1"  # compiled modules cannot be rewritten


class RewritingLoader(importlib.machinery.SourceFileLoader):
    """Compiles the source with its names changed; an unchanged module is loaded from its cache."""

    rules: list[tuple[re.Pattern[str], str, re.Pattern[str]]]
    rewritten = 0

    def get_code(self, fullname: str) -> Any:
        path = self.get_filename(fullname)
        source = original = Path(path).read_text(encoding="utf-8")
        for pattern, replacement, files in self.rules:
            if files.search(path):
                source, count = pattern.subn(replacement, source)
                RewritingLoader.rewritten += count
        return super().get_code(fullname) if source == original else compile(source, path, "exec", dont_inherit=True)


class RewritingFinder(importlib.abc.MetaPathFinder):
    """Finds the modules of SQLAlchemy as Python does, and has them rewritten."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if fullname.partition(".")[0] != "sqlalchemy":
            return None
        name = fullname.rpartition(".")[2]
        for folder in map(Path, path or sys.path):
            for file in (folder / name / "__init__.py", folder / f"{name}.py"):
                if file.is_file():
                    folders = [str(file.parent)] if file.stem == "__init__" else None
                    loader = RewritingLoader(fullname, str(file))
                    return importlib.util.spec_from_file_location(
                        fullname, file, loader=loader, submodule_search_locations=folders
                    )
        return None


def works_by_itself(url: str) -> None:
    """Use SQLAlchemy without the library: a flush, RETURNING, an upsert, savepoints, a lock."""
    from sqlalchemy import Column, ForeignKey, Integer, MetaData, String, create_engine, insert, select
    from sqlalchemy.dialects import postgresql, sqlite
    from sqlalchemy.orm import Session, joinedload, registry, relationship

    class Parent: ...

    class Child: ...

    mapping, metadata = registry(), MetaData()
    from sqlalchemy import Table

    parents = Table("parent", metadata, Column("id", Integer, primary_key=True), Column("name", String(9), unique=True))
    children = Table(
        "child", metadata, Column("id", Integer, primary_key=True), Column("parent_id", ForeignKey("parent.id"))
    )
    mapping.map_imperatively(Parent, parents, properties={"children": relationship(Child)})
    mapping.map_imperatively(Child, children)
    engine = create_engine(url)
    metadata.drop_all(engine)
    metadata.create_all(engine)
    upsert: Any = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}[engine.name](parents).values(name="0")
    upsert = upsert.on_conflict_do_update(index_elements=["name"], set_={"name": "zero"})
    with Session(engine) as session:
        all_of_them = [Parent() for _ in range(25)]
        for number, parent in enumerate(all_of_them):
            parent.name = str(number)
        all_of_them[0].children = [Child()]
        session.add_all(all_of_them)
        session.commit()
        query = insert(parents).returning(parents.c.id, sort_by_parameter_order=True)
        assert len(session.execute(query, [{"name": "x"}, {"name": "y"}]).all()) == 2
        session.execute(upsert)
        session.execute(insert(parents).values([{"name": "v"}, {"name": "w"}]))
        assert session.connection().execute(insert(parents), [{"name": "q"}, {"name": "r"}]).rowcount in (2, -1)
        with session.begin_nested() as savepoint:
            session.add(Child())
            session.flush()
            savepoint.rollback()
        session.merge(all_of_them[1])
        session.scalars(select(Parent).options(joinedload(Parent.children)).with_for_update(of=Parent)).unique().all()
        session.bulk_save_objects([Child()])
        session.commit()
    metadata.drop_all(engine)
    engine.dispose()


class Failures(list[str]):
    """What does not work, one line each."""

    def of(self, step: str, call: Callable[[], object]) -> bool:
        try:
            call()
        except Exception as error:
            ours = [frame for frame in traceback.extract_tb(error.__traceback__) if "public_id/" in frame.filename]
            where = f" in {ours[-1].filename.split('sqlalchemy_public_id/')[-1]}" if ours else ""
            self.append(
                f"{step}: {type(error).__name__}: {str(error).splitlines()[0][:120] if str(error) else ''}{where}"
            )
            return False
        return True


def main(rules: str, *urls: str) -> None:
    RewritingLoader.rules = [(re.compile(old), new, re.compile(files)) for old, new, files in json.loads(rules)]
    sys.meta_path.insert(0, RewritingFinder())
    sys.path.insert(0, str(Path(__file__).parent))
    failures = Failures()
    for url in urls:
        works_by_itself(url)  # an error here is no failure of the library: the program ends with it
    warned: list[str] = []
    warnings.simplefilter("always")
    warnings.showwarning = lambda message, *_: warned.append(str(message))  # type: ignore[assignment]

    def use() -> None:
        from renamed_names_use import steps

        for url in urls:
            for name, step in steps(url, warned):
                failures.of(f"{url.partition(':')[0]}, {name}", step)

    failures.of("import or declaration", use)
    sys.stdout.write(json.dumps({"rewritten": RewritingLoader.rewritten, "failures": failures}))


if __name__ == "__main__":
    main(*sys.argv[1:])
