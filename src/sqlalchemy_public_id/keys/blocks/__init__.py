"""Keys in blocks: runs of numbers that are leased in one transaction and served from memory."""

from sqlalchemy_public_id.keys.blocks.allocator import BlockAllocator, block_key

__all__ = ["block_key", "BlockAllocator"]
