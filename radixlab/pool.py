"""The free list of the KV cache pool: which physical pages nobody owns (chapter, section 4.1).

The pool itself (the K and V tensors) is somewhere else: a page is only a number here. A token slot
is `page * page_size + offset`, and a page is named by its first slot, as in mini-SGLang's
CacheManager.
"""

from __future__ import annotations

from array import array

from radixlab.errors import DoubleFree, InvalidArgument, InvalidPageSize, PoolExhausted


class PageAllocator:
    """Hands out the pages of a pool and takes them back.

    The free list is one preallocated stack of token slots, a page's slots side by side: everything
    from `_top` on is free, the next page to go first. So pages come and go in one copy, and already
    as one slot per token. A fresh pool gives ascending slots; blocks that come back are reused last
    in, first out, each in its own order.

    `num_pages` and `page_size` (tokens) must be positive, and a slot's number an int32, else
    `InvalidPageSize`. With `checked=True` each page's owner is known, so that a page freed twice
    raises `DoubleFree` exactly; otherwise only an overfull free list is noticed.
    """

    def __init__(self, num_pages: int, page_size: int = 1, *, checked: bool = False) -> None:
        if type(page_size) is not int or page_size < 1:
            raise InvalidPageSize(page_size)
        if type(num_pages) is not int or not 0 < num_pages * page_size < 2**31:
            raise InvalidPageSize(page_size, num_pages)
        self.page_size, self.num_pages = page_size, num_pages
        self.total_size = num_pages * page_size
        self._stack = array("i", range(self.total_size))
        self._top = 0
        self._free = set(self._stack[::page_size]) if checked else None

    @property
    def free_size(self) -> int:
        """Token slots on the free list."""
        return self.total_size - self._top

    @property
    def free_list(self) -> array[int]:
        """The free pages, each by its first slot, the next to be allocated first (a copy)."""
        return self._stack[self._top :: self.page_size]

    @property
    def free_slots(self) -> array[int]:
        """The slots of all free pages, in the same order (a copy)."""
        return self._stack[self._top :]

    def allocate(self, num_pages: int) -> array[int]:
        """Take pages from the free list; returns their token slots (chapter 4.2, step 4).

        Raises `PoolExhausted` when there are fewer.
        """
        end = self._top + num_pages * self.page_size
        if not self._top <= end <= self.total_size:
            raise PoolExhausted(end - self._top, self.free_size)
        slots = self._stack[self._top : end]
        self._top = end
        if self._free is not None:
            self._free.difference_update(slots[:: self.page_size])
        return slots

    def free(self, slots: array[int]) -> None:
        """Put all slots of some pages back on the free list (chapter 4.2, step 7).

        Raises `InvalidArgument` for half a page, and `DoubleFree` when the free list would
        overflow; in checked mode also for a page that is free already, named twice, or not of this
        pool.
        """
        top = self._top - len(slots)
        if len(slots) % self.page_size:
            allowed = f"whole pages of {self.page_size} slots"
            raise InvalidArgument("slots", f"{len(slots)} slots", allowed)
        if top < 0:
            raise DoubleFree("pages", len(slots), self._top)
        owned = None if self._free is None else self._check_owned(slots, self._free)
        self._stack[top : self._top] = slots
        self._top = top
        if self._free is not None and owned is not None:
            self._free |= owned

    def _check_owned(self, slots: array[int], free: set[int]) -> set[int]:
        pages, page_size = set(slots[:: self.page_size]), self.page_size
        owned = {p for p in pages - free if p % page_size == 0 and 0 <= p < self.total_size}
        whole = [slot for p in slots[::page_size] for slot in range(p, p + page_size)]
        if len(owned) * page_size < len(slots) or slots.tolist() != whole:
            raise DoubleFree("pages", len(slots), len(owned) * page_size)
        return pages
