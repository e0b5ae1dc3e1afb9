"""Keys from blocks: many numbers leased in one short transaction, and served from memory."""

from sqlalchemy_public_id.keys.blocks.allocator import BlockAllocator
from sqlalchemy_public_id.keys.blocks.key import block_key

__all__ = ["block_key", "BlockAllocator"]
