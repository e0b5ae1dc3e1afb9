"""The programs of docs/guides/other-languages.md, run against the library."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sqlalchemy_public_id import Format, NanoId
from sqlalchemy_public_id.formats import JetifyTypeId, Ksuid, ObjectId, Snowflake, Ulid, Uuid4, Uuid7

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "guides" / "other-languages.md"
COUNT = 10_000
FORMATS: dict[str, Format] = {
    "default": NanoId(),
    "prefix": NanoId(prefix="cus"),
    "check digit": NanoId(length=8, check_digit=True, ignore_case=True, prefix="Box", separator="-"),
    "unusual alphabet": NanoId(alphabet="$^[]\\/|+.", prefix="odd", separator="~", length=20),
    "version 7": Uuid7(prefix="post"),
    "version 7, hyphenated": Uuid7(encoding="hyphenated"),
    "version 4": Uuid4(encoding="base58"),
    "another format before": NanoId(prefix="cus", length=10).accepting(NanoId(length=8), Uuid4(prefix="old")),
}
"""The formats that each program makes and checks."""
CHECKED: dict[str, Format] = {
    "TypeID": JetifyTypeId("user"),
    "ULID": Ulid(prefix="evt"),
    "KSUID": Ksuid(),
    "ObjectId": ObjectId(prefix="doc"),
    "Snowflake": Snowflake(5),
}
"""The formats that each program only checks."""

TYPESCRIPT = """
import { readFileSync } from "node:fs";
import { makeId, readId, type Ids } from "./ids.js";
type Given = { count: number; ids: Record<string, Ids>; texts: Record<string, string[]> };
const given = JSON.parse(readFileSync(0, "utf8")) as Given;
const made: Record<string, string[]> = {};
const read: Record<string, (string | null)[]> = {};
for (const [name, ids] of Object.entries(given.ids)) {
  try { made[name] = Array.from({ length: given.count }, () => makeId(ids)); } catch { made[name] = []; }
  read[name] = given.texts[name].map((text) => readId(ids, text));
}
console.log(JSON.stringify({ made, read }));
"""
GO = """package main

import (
	"encoding/json"
	"os"
	ids "example.com/ids/ids"
)

func main() {
	var given struct {
		Count int
		Ids   map[string]ids.Ids
		Texts map[string][]string
	}
	if err := json.NewDecoder(os.Stdin).Decode(&given); err != nil {
		panic(err)
	}
	made, read := map[string][]string{}, map[string][]*string{}
	for name, each := range given.Ids {
		made[name] = []string{}
		for len(made[name]) < given.Count {
			id, err := each.Make()
			if err != nil {
				break
			}
			made[name] = append(made[name], id)
		}
		for _, text := range given.Texts[name] {
			if id, ok := each.Read(text); ok {
				read[name] = append(read[name], &id)
			} else {
				read[name] = append(read[name], nil)
			}
		}
	}
	json.NewEncoder(os.Stdout).Encode(map[string]any{"made": made, "read": read})
}
"""
RUBY = """
require "json"
require_relative "ids"
given = JSON.parse($stdin.read)
made = given["ids"].to_h do |name, ids|
  [name, Array.new(given["count"]) { PublicIds.new(ids).make }]
rescue ArgumentError
  [name, []]
end
read = given["ids"].to_h { |name, ids| [name, given["texts"][name].map { |text| PublicIds.new(ids).read(text) }] }
puts JSON.generate({ made: made, read: read })
"""


def program_of(language: str) -> str:
    """Return the program of the page in *language*."""
    (text,) = re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    return str(text)


@pytest.fixture(scope="module")
def programs(pytestconfig: pytest.Config) -> list[str]:
    """Return the paths of go, node, ruby and tsc. Without them, tests are skipped, or fail with the gate's option."""
    found = subprocess.run([sys.executable, ROOT / "tools/languages", "paths"], capture_output=True, text=True)
    if found.returncode:
        missing = "Go, Node, Ruby or TypeScript is missing: run tools/languages up"
        pytest.fail(missing) if pytestconfig.getoption("--require-all-databases") else pytest.skip(missing)
    return found.stdout.splitlines()


def typescript(folder: Path, programs: list[str]) -> list[str]:
    (folder / "ids.ts").write_text(program_of("typescript"))
    (folder / "main.ts").write_text(TYPESCRIPT)
    (folder / "package.json").write_text('{"type": "module"}')
    options = ["--strict", "--target", "es2022", "--module", "nodenext", "--types", "node", "--outDir", "out"]
    types = Path(programs[3]).parents[2] / "@types"
    compiler = [programs[1], programs[3], *options, "--typeRoots", str(types), "main.ts"]
    compiled = subprocess.run(compiler, cwd=folder, capture_output=True, text=True)
    assert compiled.returncode == 0, compiled.stdout
    (folder / "out" / "package.json").write_text('{"type": "module"}')
    return [programs[1], "out/main.js"]


def go(folder: Path, programs: list[str]) -> list[str]:
    (folder / "ids").mkdir()
    (folder / "ids" / "ids.go").write_text(program_of("go"))
    (folder / "main.go").write_text(GO)
    (folder / "go.mod").write_text("module example.com/ids\n\ngo 1.18\n")
    subprocess.run([programs[0], "vet", "./..."], cwd=folder, check=True)
    subprocess.run([programs[0], "build", "-o", "ids.exe", "."], cwd=folder, check=True)
    return ["./ids.exe"]


def ruby(folder: Path, programs: list[str]) -> list[str]:
    (folder / "ids.rb").write_text(program_of("ruby"))
    (folder / "main.rb").write_text(RUBY)
    return [programs[2], "-w", "main.rb"]


def mistakes(id: str, format: Format) -> list[str]:
    """Return texts like *id*, most of which are no ids of *format*."""
    lead = f"{format.prefix}{format.separator}" if format.prefix else ""
    body = id.removeprefix(lead)
    swapped = body[1] + body[0] + body[2:]
    changed = body[:-1] + ("a" if body[-1] != "a" else "b")
    bodies = [swapped, changed, body[:-1], body + "0", body.upper(), body.lower(), "z" * len(body), "0" * len(body)]
    texts = [lead + each for each in bodies]
    return [*texts, lead.upper() + body, body, "x" + id, f" {id}", f"{id}\n", f"\n{id}", f"{id}\n{id}", id + "é", ""]


LANGUAGES: dict[str, Callable[[Path, list[str]], list[str]]] = {"typescript": typescript, "go": go, "ruby": ruby}


@pytest.mark.parametrize("language", LANGUAGES)
def test_program_of_the_page(tmp_path: Path, programs: list[str], language: str) -> None:
    """A program makes ids that the library accepts, in one order, accepts its ids, and refuses what it refuses."""
    formats = FORMATS | CHECKED
    texts: dict[str, list[str]] = {}
    for name, format in formats.items():
        ids = format.generate_many(COUNT if name in FORMATS else COUNT // 10)
        for older in format.forms[1:]:
            ids += older.generate_many(10)
        texts[name] = [*ids, *(text for id in ids[:50] + ids[-20:] for text in mistakes(id, format))]
    given = {"count": COUNT, "ids": {name: format.spec() for name, format in formats.items()}, "texts": texts}
    command = LANGUAGES[language](tmp_path, programs)
    ran = subprocess.run(command, cwd=tmp_path, input=json.dumps(given), capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    answer: Any = json.loads(ran.stdout)

    for name, format in formats.items():
        made, read = answer["made"][name], answer["read"][name]
        expected = [_stored(format, text) for text in texts[name]]
        rows = zip(texts[name], expected, read, strict=True)
        wrong = [(text, mine, theirs) for text, mine, theirs in rows if mine != theirs]
        assert wrong == []
        assert None in expected
        assert [text for text in made if format.canonical(text) != text] == []
        assert (len(made), len(set(made))) == ((COUNT, COUNT) if name in FORMATS else (0, 0))
    times = [format.timestamp(text) for format, text in _timed(answer["made"])]
    assert times == sorted(times)


def _stored(format: Format, text: str) -> str | None:
    """Return what the column of the form of *text* stores, as text."""
    return next((form.canonical(text) for form in format.forms if form.is_valid(text)), None)


def _timed(made: dict[str, list[str]]) -> list[tuple[Any, str]]:
    format = FORMATS["version 7"]
    return [(format, text) for text in sorted(made["version 7"])]
