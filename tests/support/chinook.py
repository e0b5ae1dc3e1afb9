"""The eleven tables of Chinook, a sample database that people know (https://github.com/lerocha/chinook-database): its
names, types and foreign keys, declared here, with a few rows of our own.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from sqlalchemy import (
    Column,
    Connection,
    DateTime,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Numeric,
    String,
    Table,
    insert,
)

METADATA = MetaData()


def _table(name: str, *columns: Column[Any]) -> Table:
    """A table with a key, unless a column is one, and an index on each foreign key, as Chinook has them."""
    keys = [] if any(column.primary_key for column in columns) else [Column(f"{name}Id", Integer, primary_key=True)]
    table = Table(name, METADATA, *keys, *columns, sqlite_autoincrement=bool(keys))
    for column in columns:
        if column.foreign_keys:
            Index(f"IFK_{name}{column.name}", column)
    return table


def _reference(table: str, name: str | None = None, **options: Any) -> Column[Any]:
    key = f"{table}Id"
    return Column(name or key, Integer, ForeignKey(f"{table}.{key}"), **options)


def _address(prefix: str = "") -> list[Column[Any]]:
    lengths = {"Address": 70, "City": 40, "State": 40, "Country": 40, "PostalCode": 10}
    return [Column(prefix + name, String(length)) for name, length in lengths.items()]


def _price(name: str) -> Column[Any]:
    return Column(name, Numeric(10, 2), nullable=False)


ARTIST, GENRE, MEDIA_TYPE, PLAYLIST = (
    _table(name, Column("Name", String(120))) for name in ("Artist", "Genre", "MediaType", "Playlist")
)
ALBUM = _table("Album", Column("Title", String(160), nullable=False), _reference("Artist", nullable=False))
EMPLOYEE = _table(
    "Employee",
    Column("LastName", String(20), nullable=False),
    Column("FirstName", String(20), nullable=False),
    Column("Title", String(30)),
    _reference("Employee", "ReportsTo"),
    Column("BirthDate", DateTime),
    Column("HireDate", DateTime),
    *_address(),
    Column("Phone", String(24)),
    Column("Fax", String(24)),
    Column("Email", String(60)),
)
CUSTOMER = _table(
    "Customer",
    Column("FirstName", String(40), nullable=False),
    Column("LastName", String(20), nullable=False),
    Column("Company", String(80)),
    *_address(),
    Column("Phone", String(24)),
    Column("Fax", String(24)),
    Column("Email", String(60), nullable=False),
    _reference("Employee", "SupportRepId"),
)
INVOICE = _table(
    "Invoice",
    _reference("Customer", nullable=False),
    Column("InvoiceDate", DateTime, nullable=False),
    *_address("Billing"),
    _price("Total"),
)
TRACK = _table(
    "Track",
    Column("Name", String(200), nullable=False),
    _reference("Album"),
    _reference("MediaType", nullable=False),
    _reference("Genre"),
    Column("Composer", String(220)),
    Column("Milliseconds", Integer, nullable=False),
    Column("Bytes", Integer),
    _price("UnitPrice"),
)
INVOICE_LINE = _table(
    "InvoiceLine",
    _reference("Invoice", nullable=False),
    _reference("Track", nullable=False),
    _price("UnitPrice"),
    Column("Quantity", Integer, nullable=False),
)
PLAYLIST_TRACK = _table(
    "PlaylistTrack", _reference("Playlist", primary_key=True), _reference("Track", primary_key=True)
)


def fill(connection: Connection) -> None:
    """Store rows in every table; the keys are those that the database counts."""
    price, day = Decimal("0.99"), datetime(2026, 1, 1)
    names = {ARTIST: 10, GENRE: 3, MEDIA_TYPE: 2, PLAYLIST: 2}
    rows: dict[Table, list[dict[str, Any]]] = {
        **{table: [{"Name": f"{table.name} {at} – Ärger"} for at in range(count)] for table, count in names.items()},
        ALBUM: [{"Title": f"Album {at}", "ArtistId": 1 + at % 10} for at in range(15)],
        EMPLOYEE: [
            {"LastName": f"Last {at}", "FirstName": "First", "ReportsTo": at or None, "HireDate": day}
            for at in range(4)
        ],
        CUSTOMER: [
            {"LastName": f"Last {at}", "FirstName": "First", "Email": f"{at}@example.com", "SupportRepId": 1 + at % 4}
            for at in range(12)
        ],
        TRACK: [
            {"Name": f"Track {at}", "AlbumId": 1 + at % 15, "MediaTypeId": 1 + at % 2, "GenreId": 1 + at % 3}
            | {"Milliseconds": 1000 * at, "UnitPrice": price}
            for at in range(60)
        ],
        INVOICE: [
            {"CustomerId": 1 + at % 12, "InvoiceDate": day + timedelta(days=at), "Total": price * (1 + at % 5)}
            for at in range(40)
        ],
        INVOICE_LINE: [
            {"InvoiceId": 1 + at % 40, "TrackId": 1 + at * 7 % 60, "UnitPrice": price, "Quantity": 1 + at % 2}
            for at in range(100)
        ],
        PLAYLIST_TRACK: [{"PlaylistId": 1 + at % 2, "TrackId": 1 + at // 2} for at in range(80)],
    }
    for table, values in rows.items():
        connection.execute(insert(table), values)
