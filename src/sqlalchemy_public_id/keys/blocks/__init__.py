"""A block of keys is a run of numbers, leased in one transaction and served from memory."""

from sqlalchemy_public_id.keys.blocks.allocator import BlockAllocator
from sqlalchemy_public_id.keys.blocks.column import block_key

__all__ = ["block_key", "BlockAllocator"]
