"""Keys from blocks (hi/lo): a short transaction leases many numbers, which are then served from memory."""

from sqlalchemy_public_id.keys.blocks.allocator import BlockAllocator
from sqlalchemy_public_id.keys.blocks.key import block_key

__all__ = ["block_key", "BlockAllocator"]
