"""The backfill of a script for MySQL and MariaDB: a procedure that walks along the primary key.

A script has no connection, so the procedure reads the key from ``information_schema``, and prepares its statements.
Without ``WHERE``, each batch would pass and lock all rows that were filled before it.
"""

from __future__ import annotations

from collections.abc import Callable

ROWS = 5000
"""The rows of a batch, which commits."""

# Values of these types keep their order and their precision in a user variable.
_TYPES = (
    "'tinyint', 'smallint', 'mediumint', 'int', 'bigint', 'decimal', 'char', 'varchar', 'binary', 'varbinary', "
    "'date', 'datetime', 'uuid'"
)
_QUOTED = "CONCAT('`', REPLACE(c.COLUMN_NAME, '`', '``'), '`')"


def backfill_procedure(
    name: str, table: str, column: str, expression: str, place: tuple[str, str], literal: Callable[[str], str]
) -> str:
    """Return the statement that creates the procedure.

    :param name: its quoted name. *table* and *column* are quoted, too.
    :param expression: generates an id.
    :param place: SQL for the names of the schema and the table in ``information_schema``.
    :param literal: quotes a string.
    """
    update, missing = literal(f"UPDATE {table} SET {column} = {expression}"), literal(f"{column} IS NULL")
    part = "CONCAT('@public_id_{}', s.SEQ_IN_INDEX)".format
    # for a key of two columns: (a > @a1 OR a = @a1 AND (b > @a2))
    behind = (
        f"CONCAT('(', {_QUOTED}, ' > ', {part('a')}, "
        f"IF(s.SEQ_IN_INDEX < parts, CONCAT(' OR ', {_QUOTED}, ' = ', {part('a')}, ' AND '), ''))"
    )
    up_to = (
        f"CONCAT('(', {_QUOTED}, IF(s.SEQ_IN_INDEX < parts, ' < ', ' <= '), {part('e')}, "
        f"IF(s.SEQ_IN_INDEX < parts, CONCAT(' OR ', {_QUOTED}, ' = ', {part('e')}, ' AND '), ''))"
    )
    # for each of both: MariaDB would open the tables of all schemas to join them
    in_columns, in_statistics = (f"{of}.TABLE_SCHEMA = {place[0]} AND {of}.TABLE_NAME = {place[1]}" for of in "cs")
    key = (
        f"FROM information_schema.STATISTICS s JOIN information_schema.COLUMNS c USING (COLUMN_NAME) "
        f"WHERE {in_columns} AND {in_statistics} AND s.INDEX_NAME = 'PRIMARY'"
    )
    order = "ORDER BY s.SEQ_IN_INDEX SEPARATOR"
    return f"""CREATE PROCEDURE {name}()
BEGIN
  DECLARE parts INT;
  DECLARE usable BOOLEAN;
  DECLARE kept, names, ends, copies, behind, up_to, passed TEXT;
  DECLARE longest BIGINT DEFAULT @@SESSION.group_concat_max_len;
  SET SESSION group_concat_max_len = 65536;
  SELECT GROUP_CONCAT(', ', {_QUOTED}, ' = ', {_QUOTED} SEPARATOR '') INTO kept
    FROM information_schema.COLUMNS c WHERE {in_columns} AND c.EXTRA LIKE '%on update%';
  SELECT COUNT(*), SUM(c.DATA_TYPE NOT IN ({_TYPES}) OR s.SUB_PART IS NOT NULL OR s.COLLATION <> 'A') = 0
    INTO parts, usable {key};
  SELECT GROUP_CONCAT({_QUOTED} {order} ', '), GROUP_CONCAT({part("e")} {order} ', '),
    GROUP_CONCAT({part("a")}, ' = ', {part("e")} {order} ', '),
    CONCAT(GROUP_CONCAT({behind} {order} ''), REPEAT(')', parts)),
    CONCAT(GROUP_CONCAT({up_to} {order} ''), REPEAT(')', parts))
    INTO names, ends, copies, behind, up_to {key};
  SET SESSION group_concat_max_len = longest;
  SET passed = 'TRUE';
  walk: LOOP
    IF usable THEN
      SET @public_id_e1 = NULL;
      SET @public_id_do = CONCAT('SELECT ', names, ' INTO ', ends, ' FROM ', {literal(table)}, ' WHERE ', passed,
        ' ORDER BY ', names, ' LIMIT {ROWS - 1}, 1');
      PREPARE public_id_do FROM @public_id_do;
      EXECUTE public_id_do;
    END IF;
    SET @public_id_do = CONCAT({update}, IFNULL(kept, ''), ' WHERE ', {missing}, ' AND ', passed,
      IF(usable, IF(@public_id_e1 IS NULL, '', CONCAT(' AND ', up_to)), ' LIMIT {ROWS}'));
    PREPARE public_id_do FROM @public_id_do;
    EXECUTE public_id_do;
    IF IF(usable, @public_id_e1 IS NULL, ROW_COUNT() = 0) THEN
      LEAVE walk;
    END IF;
    COMMIT;
    IF usable THEN
      SET @public_id_do = CONCAT('SET ', copies), passed = behind;
      PREPARE public_id_do FROM @public_id_do;
      EXECUTE public_id_do;
    END IF;
  END LOOP;
  COMMIT;
  DEALLOCATE PREPARE public_id_do;
END"""
