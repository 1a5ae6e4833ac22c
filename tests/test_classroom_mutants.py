"""No green tick for what a docstring forbids: every sentence of it is broken once, and seen.

A learner who works alone has the visible cases only. So for each sentence of each docstring the
solution is changed here to break it, and each change fails in a visible case; so does every mistake
that the sheets know.
"""

# ruff: noqa: E501  # a change of code is one line, whatever is in it

from __future__ import annotations

import ast
import json
import random
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

pytest.importorskip("jupytext", reason="needs radixlab[classroom]")

from radixlab.classroom.outcome import same
from radixlab.classroom.sheet import Exercise, Sheet, find_sheets

SHEETS = {path.stem: Sheet.read(path) for path in find_sheets()}
EXERCISES = {name: (sheet, e) for sheet in SHEETS.values() for name, e in sheet.exercises.items()}

SAYS = ""
"""In place of a change: the sentence says what comes in, or what may be. Nothing can break it."""

Broken = tuple[str, str, str]
"""How a sentence of the docstring begins, a piece of the solution, and what takes its place."""

MUTANTS: dict[str, list[Broken]] = {
    "match_len": [
        ("How many tokens at the beginning", "length = 0", "length = 1"),
        ("How many tokens at the beginning", "ours != theirs", "ours != theirs and length > 1"),
        (
            "Both are lists",
            "zip(edge, token_ids)",
            "((x, token_ids[i]) for i, x in enumerate(edge))",
        ),
        (
            "Both are lists",
            "zip(edge, token_ids)",
            "((edge[i], x) for i, x in enumerate(token_ids))",
        ),
        ("Both are lists", "length = 0", "length = edge[0] != token_ids[0]"),
        ("Both are lists", "length = 0", "length = 0\n    if not edge:\n        return None"),
        ("Both are lists", "length = 0", "length = 0\n    if not token_ids:\n        return None"),
        ("What comes after", "            break", "            continue"),
    ],
    "longest_prefix": [
        (
            "Find the longest",
            "len(slots) < len(token_ids) and",
            "len(slots) < len(token_ids) - 1 and",
        ),
        ("`root` is a Node", "node, slots = root, []", "node, slots = root, token_ids[0] * []"),
        (
            "Where the request ends",
            "token_ids[len(slots) : len(slots) + 1] != [token]",
            "token_ids[len(slots)] != token",
        ),
        (
            "Where the request ends",
            "                return len(slots), slots",
            "                return len(slots) - node.key.index(token), slots",
        ),
        (
            "Where the request ends",
            "                return len(slots), slots",
            "                break",
        ),
        ("Returns a tuple", "    return len(slots), slots", "    return slots, len(slots)"),
        ("Returns a tuple", "slots.append(slot)", "slots.insert(0, slot)"),
        (
            "If nothing is found",
            "node, slots = root, []",
            "if token_ids[:1] and token_ids[0] not in root.children:\n        return None\n    node, slots = root, []",
        ),
        ("Nothing in the tree", "slots.append(slot)", "slots.append(node.value.pop(0))"),
        ("Nothing in the tree", "node, slots = root, []", "node, slots = root, root.value"),
    ],
    "split_at": [
        ("Cut the edge", "return upper", "return node"),
        ("Cut the edge", "node.key[:position]", "node.key[: position - 1]"),
        (
            "The upper node is a new",
            "return upper",
            "upper.key, upper.value, node.key, node.value = node.key, node.value, upper.key, upper.value\n    return upper",
        ),
        ("It takes the first", "node.value[:position]", "node.value[position:]"),
        ("It takes the first", "node.parent)", "None)\n    upper.parent = node.parent"),
        (
            "`node` itself becomes",
            "node.key, node.value = node.key[position:], node.value[position:]",
            "node.key = node.key[position:]",
        ),
        ("`node` itself becomes", "return upper", "node.children = {}\n    return upper"),
        ("`node` itself becomes", "return upper", "node.ref_count = 0\n    return upper"),
        ("`node` itself becomes", "return upper", "node.timestamp = 0\n    return upper"),
        (
            "The upper node is held",
            "upper.ref_count, upper.timestamp = node.ref_count, node.timestamp",
            "pass",
        ),
        (
            "The upper node is held",
            "upper.ref_count, upper.timestamp = node.ref_count, node.timestamp",
            "upper.ref_count = node.ref_count",
        ),
        (
            "The upper node is held",
            "upper.ref_count, upper.timestamp = node.ref_count, node.timestamp",
            "upper.timestamp = node.timestamp",
        ),
        (
            "The upper node is held",
            "upper.ref_count, upper.timestamp = node.ref_count, node.timestamp",
            "upper.ref_count, upper.timestamp = 1, node.timestamp",
        ),
        ("All links must agree", "    node.parent = upper\n", ""),
        ("All links must agree", "upper.children[node.key[0]]", "upper.children[upper.key[0]]"),
        ("All links must agree", "return upper", "upper.parent = None\n    return upper"),
        ("`node` is not the root", SAYS, "what comes in"),
    ],
    "insert": [
        ("Make `token_ids` findable", "return found, duplicates", "return duplicates, found"),
        (
            "Make `token_ids` findable",
            "        Node(token_ids[found:], slots[found:], node)",
            "        pass",
        ),
        ("`token_ids` and `slots` are", SAYS, "what comes in"),
        (
            "Afterwards a node ends",
            "if agree < len(node.key):",
            "if agree < len(node.key) and found + agree < len(token_ids):",
        ),
        (
            "Afterwards a node ends",
            "if agree < len(node.key):",
            "if agree < len(node.key) and found + agree == len(token_ids):",
        ),
        ("`found` is how many", "return found, duplicates", "return len(token_ids), duplicates"),
        (
            "`found` is how many",
            "return found, duplicates",
            "return found - len(duplicates), duplicates",
        ),
        (
            "For those the tree keeps",
            "        found += agree",
            "        node.value = slots[found : found + agree]\n        found += agree",
        ),
        ("Of `slots[:found]`", "if mine != theirs]", "]"),
        ("Of `slots[:found]`", "return found, duplicates", "return found, []"),
        ("Of `slots[:found]`", "return found, duplicates", "return found, sorted(duplicates)"),
        ("Of `slots[:found]`", "return found, duplicates", "return found, duplicates[::-1]"),
        (
            "Of `slots[:found]`",
            "[mine for mine, theirs in pairs",
            "[theirs for mine, theirs in pairs",
        ),
        (
            "From `found` on",
            "        Node(token_ids[found:], slots[found:], node)",
            "        for i in range(found, len(token_ids)):\n            node = Node(token_ids[i : i + 1], slots[i : i + 1], node)",
        ),
        (
            "From `found` on",
            "        Node(token_ids[found:], slots[found:], node)",
            "        Node(token_ids[:], slots[:], node)",
        ),
        (
            "From `found` on",
            "    if found < len(token_ids):\n        Node(",
            "    if True:\n        Node(",
        ),
        (
            "The caller will use",
            "        Node(token_ids[found:], slots[found:], node)",
            "        Node(token_ids[found:] if found else token_ids, slots[found:], node)",
        ),
        (
            "The caller will use",
            "        Node(token_ids[found:], slots[found:], node)",
            "        Node(token_ids[found:], slots[found:] if found else slots, node)",
        ),
    ],
    "repoint": [
        ("Let the beginning of", "row[: len(slots)] = slots", "row[-len(slots) :] = slots"),
        ("`row` is the list", SAYS, "what comes in"),
        ("`node` is where the part", "slots = []\n", "slots = []\n    node.parent.parent\n"),
        (
            "`node` is where the part",
            "slots = []\n",
            "slots = []\n    if node.parent is None:\n        row.clear()\n",
        ),
        ("The path from the root", "slots = node.value + slots", "slots = slots + node.value"),
        ("The path from the root", "slots = node.value + slots", "slots = slots or node.value"),
        ("The path from the root", "row[: len(slots)] = slots", "row[:0] = slots"),
        (
            "The path from the root",
            "row[: len(slots)] = slots",
            "row[: len(slots)] = sorted(slots, reverse=True)",
        ),
        ("The entries behind", "row[: len(slots)] = slots", "row[:] = slots"),
        (
            "The model reads",
            "row[: len(slots)] = slots",
            "row = slots + row[len(slots) :]\n    return row",
        ),
        (
            "The tree is not changed",
            "slots = []\n    while node is not None:\n        slots = node.value + slots",
            "slots = node.value\n    node = node.parent\n    while node is not None:\n        slots[:0] = node.value",
        ),
    ],
    "lock": [
        ("Protect the path", "while node is not cache.root:", "if node is not cache.root:"),
        ("`node` is a node of", SAYS, "what comes in"),
        ("Every node of the path", "while node is not cache.root:", "while node is not None:"),
        (
            "Every node of the path",
            "while node is not cache.root:",
            "while node.parent is not cache.root:",
        ),
        ("Every node of the path", "node.ref_count += 1", "node.ref_count = 1"),
        ("Every node of the path", "node.ref_count += 1", "node.ref_count += 2"),
        ("Every node of the path", "node.ref_count += 1", "node.ref_count += len(node.key)"),
        ("Tokens of nodes that", "if node.ref_count == 0:", "if True:"),
        ("Tokens of nodes that", "if node.ref_count == 0:", "if False:"),
        ("Tokens of nodes that", "            cache.protected_size += len(node.key)\n", ""),
        ("Tokens of nodes that", "            cache.evictable_size -= len(node.key)\n", ""),
        (
            "Tokens of nodes that",
            "cache.protected_size += len(node.key)",
            "cache.protected_size += 1",
        ),
        (
            "The same node may be",
            "while node is not cache.root:",
            "while node is not cache.root and (node.children or not node.ref_count):",
        ),
        (
            "The same node may be",
            "while node is not cache.root:",
            "if node.ref_count > 1:\n        raise NotLocked\n    while node is not cache.root:",
        ),
    ],
    "unlock": [
        ("Give back one lock", "node.ref_count -= 1", "node.ref_count = 0"),
        ("Give back one lock", "while node is not cache.root:", "if node is not cache.root:"),
        ("`node` is a node of", SAYS, "what comes in"),
        (
            "If no lock ends there",
            "node.ref_count <= sum(child.ref_count for child in node.children.values())",
            "node.ref_count == 0",
        ),
        (
            "If no lock ends there",
            "node.ref_count <= sum(child.ref_count for child in node.children.values())",
            "False",
        ),
        ("If no lock ends there", "node.ref_count <= sum(", "node.ref_count < sum("),
        (
            "If no lock ends there",
            "sum(child.ref_count for child in node.children.values())",
            "max([0, *(child.ref_count for child in node.children.values())])",
        ),
        (
            "If no lock ends there",
            "node.ref_count <= sum(child.ref_count for child in node.children.values())",
            "not node.ref_count or any(child.ref_count for child in node.children.values())",
        ),
        ("If no lock ends there", "        raise NotLocked", "        return"),
        (
            "If no lock ends there",
            "        raise NotLocked",
            "        raise ValueError('not locked')",
        ),
        ("If no lock ends there", "        raise NotLocked", "        return NotLocked"),
        (
            "If no lock ends there",
            "        raise NotLocked",
            "        node.ref_count -= 1\n        raise NotLocked",
        ),
        (
            "If no lock ends there",
            "        raise NotLocked",
            "        cache.protected_size -= len(node.key)\n        raise NotLocked",
        ),
        ("Else every node of", "while node is not cache.root:", "while node is not None:"),
        ("Else every node of", "node.ref_count -= 1", "node.ref_count -= node.ref_count == 1"),
        ("Tokens of nodes that", "        if node.ref_count == 0:", "        if True:"),
        ("Tokens of nodes that", "        if node.ref_count == 0:", "        if False:"),
        ("Tokens of nodes that", "            cache.evictable_size += len(node.key)\n", ""),
        ("Tokens of nodes that", "            cache.protected_size -= len(node.key)\n", ""),
        (
            "All nodes stay",
            "            cache.evictable_size += len(node.key)\n",
            "            cache.evictable_size += len(node.key)\n            del node.parent.children[node.key[0]]\n",
        ),
    ],
    "victim": [
        ("Return the node", "return min(", "found = min("),
        (
            "Return the node",
            "    return min(leaves, key=lambda node: node.timestamp, default=None)",
            "    found = min(leaves, key=lambda node: node.timestamp, default=None)\n    if found:\n        del found.parent.children[found.key[0]]\n    return found",
        ),
        (
            "Return the node",
            "    return min(leaves, key=lambda node: node.timestamp, default=None)",
            "    found = min(leaves, key=lambda node: node.timestamp, default=None)\n    if found:\n        cache.evictable_size -= len(found.key)\n    return found",
        ),
        (
            "That is the unlocked",
            "if not node.children and not node.ref_count",
            "if not node.ref_count",
        ),
        (
            "That is the unlocked",
            "if not node.children and not node.ref_count",
            "if not node.children",
        ),
        ("That is the unlocked", "node.timestamp", "-node.timestamp"),
        ("That is the unlocked", "node.timestamp", "0"),
        ("That is the unlocked", "node.timestamp", "len(node.key)"),
        ("That is the unlocked", "node.timestamp", "node.key"),
        ("That is the unlocked", "node.timestamp", "node.value"),
        ("The root is never", "nodes_below(cache.root)", "[cache.root, *nodes_below(cache.root)]"),
        ("If there is no", ", default=None", ""),
        ("If there is no", "default=None", "default=cache.root"),
    ],
    "evict": [
        ("Remove unlocked leaves", "node.timestamp", "-node.timestamp"),
        (
            "Remove unlocked leaves",
            "not node.children and not node.ref_count",
            "not node.ref_count",
        ),
        ("Remove unlocked leaves", "not node.children and not node.ref_count", "not node.children"),
        (
            "Remove unlocked leaves",
            "        del leaf.parent.children[leaf.key[0]]\n",
            "        leaf.ref_count = 1\n",
        ),
        ("Remove unlocked leaves", "return slots", "return len(slots)"),
        ("Stop as soon as", "while len(slots) < num_tokens:", "while len(slots) <= num_tokens:"),
        (
            "Stop as soon as",
            "while len(slots) < num_tokens:",
            "while not slots or len(slots) < num_tokens:",
        ),
        (
            "Leaves go whole",
            "slots += leaf.value",
            "slots += leaf.value[: num_tokens - len(slots)]",
        ),
        (
            "A parent that loses",
            "        nodes = nodes_below(cache.root)\n        leaves = [node for node in nodes if not node.children and not node.ref_count]\n",
            "        leaves = [node for node in leaves if node not in gone]\n",
        ),
        (
            "A parent that loses",
            "        slots += leaf.value\n",
            "        slots += leaf.value\n        leaf = leaf.parent\n        if not leaf.children and leaf is not cache.root and len(slots) < num_tokens:\n            del leaf.parent.children[leaf.key[0]]\n            slots += leaf.value\n",
        ),
        ("The slots come in the order", "slots += leaf.value", "slots = leaf.value + slots"),
        ("The slots come in the order", "slots += leaf.value", "slots += leaf.value[::-1]"),
        ("The slots come in the order", "return slots", "return sorted(slots)"),
        ("The root stays", "    cache.evictable_size -= len(slots)\n", ""),
        (
            "The root stays",
            "cache.evictable_size -= len(slots)",
            "cache.evictable_size -= num_tokens",
        ),
        (
            "The root stays",
            "cache.evictable_size -= len(slots)",
            "cache.protected_size -= len(slots)",
        ),
        (
            "If fewer than",
            "num_tokens > cache.evictable_size",
            "num_tokens >= cache.evictable_size",
        ),
        (
            "If fewer than",
            'raise ValueError(f"asked for {num_tokens}, {cache.evictable_size} are evictable")',
            "return []",
        ),
        (
            "If fewer than",
            'raise ValueError(f"asked for {num_tokens}, {cache.evictable_size} are evictable")',
            "return None",
        ),
        (
            "If fewer than",
            'raise ValueError(f"asked for {num_tokens}, {cache.evictable_size} are evictable")',
            "num_tokens = cache.evictable_size",
        ),
        (
            "If fewer than",
            'raise ValueError(f"asked for {num_tokens}, {cache.evictable_size} are evictable")',
            "raise RuntimeError('too few')",
        ),
    ],
    "floor_to_page": [
        ("How many of", "num_tokens - num_tokens % page_size", "num_tokens // page_size"),
        (
            "How many of",
            "num_tokens - num_tokens % page_size",
            "-(-num_tokens // page_size) * page_size",
        ),
        (
            "How many of",
            "num_tokens - num_tokens % page_size",
            "max(0, num_tokens - 1) // page_size * page_size",
        ),
        ("How many of", "num_tokens - num_tokens % page_size", "num_tokens - num_tokens % 4"),
        (
            "How many of",
            "num_tokens - num_tokens % page_size",
            "(num_tokens - 1) // page_size * page_size",
        ),
        (
            "That is an integer",
            "num_tokens - num_tokens % page_size",
            "num_tokens // page_size * float(page_size)",
        ),
    ],
    "page_table_row": [
        ("The slots of positions", "return [pages", "return [1 + pages"),
        ("The slots of positions", "range(num_tokens)", "range(1, num_tokens + 1)"),
        ("The positions fill", "pages[number]", "sorted(pages)[number]"),
        ("The positions fill", "pages[number]", "(pages[0] + number)"),
        ("The positions fill", "* page_size + offset", "+ offset"),
        ("The positions fill", "+ offset", "+ page_size - 1 - offset"),
        (
            "The last page may",
            "num_tokens > len(pages) * page_size",
            "num_tokens > len(pages) * page_size or num_tokens <= (len(pages) - 1) * page_size",
        ),
        ("The last page may", "range(num_tokens)", "range(len(pages) * page_size)"),
        (
            "The last page may",
            "num_tokens > len(pages) * page_size",
            "num_tokens > len(pages) * page_size or num_tokens % page_size",
        ),
        (
            "If the pages can't",
            "num_tokens > len(pages) * page_size",
            "num_tokens >= len(pages) * page_size",
        ),
        ("If the pages can't", "num_tokens > len(pages) * page_size", "False"),
        ("If the pages can't", "    raise ValueError", "    return []\n        raise ValueError"),
        (
            "If the pages can't",
            "    raise ValueError",
            "    return ValueError\n        raise ValueError",
        ),
        (
            "If the pages can't",
            "range(num_tokens)",
            "range(min(num_tokens, len(pages) * page_size - 1))",
        ),
    ],
    "pages_of": [
        ("The page numbers of", "slot // page_size for", "slot for"),
        ("The page numbers of", "row[::page_size]", "row"),
        (
            "The page numbers of",
            "[slot // page_size for slot in row[::page_size]]",
            "sorted({slot // page_size for slot in row})",
        ),
        (
            "The page numbers of",
            "[slot // page_size for slot in row[::page_size]]",
            "list(range(len(row[::page_size])))",
        ),
        ("`row` is what", SAYS, "what comes in"),
        ("It may be empty", "return [", "row[0]\n    return ["),
        ("It may be empty", "row[::page_size]", "row[page_size - 1 :: page_size]"),
    ],
    "allocate": [
        (
            "Take the first",
            "pool.free_pages[:num_pages], pool.free_pages[num_pages:]",
            "pool.free_pages[-num_pages:], pool.free_pages[:-num_pages]",
        ),
        (
            "Take the first",
            "pages, pool.free_pages = pool.free_pages[:num_pages], pool.free_pages[num_pages:]",
            "pages = pool.free_pages[:num_pages]",
        ),
        ("Take the first", "if num_pages >", "if not num_pages or num_pages >"),
        (
            "Take the first",
            "return [slot for page in pages for slot in range(page * size, (page + 1) * size)]",
            "return pages",
        ),
        ("The slots come as", "return [", "pages.sort()\n    return ["),
        ("The slots come as", "(page + 1) * size)]", "(page + 1) * size)][::-1]"),
        ("The slots come as", "size = pool.page_size", "size = 2"),
        (
            "If there are fewer",
            "if num_pages > len(pool.free_pages):",
            "if num_pages >= len(pool.free_pages):",
        ),
        ("If there are fewer", "if num_pages > len(pool.free_pages):", "if False:"),
        (
            "If there are fewer",
            "        raise ValueError",
            "        pool.free_pages = []\n        raise ValueError",
        ),
        (
            "If there are fewer",
            "        raise ValueError",
            "        return []\n        raise ValueError",
        ),
        ("If there are fewer", "raise ValueError", "raise RuntimeError"),
    ],
    "free": [
        ("Put pages back", "pages + pool.free_pages", "pool.free_pages + pages"),
        ("Put pages back", "pages + pool.free_pages", "pages[::-1] + pool.free_pages"),
        (
            "Put pages back",
            "pages + pool.free_pages",
            "sorted(pages, reverse=True) + pool.free_pages",
        ),
        ("Put pages back", "pages + pool.free_pages", "sorted(pages + pool.free_pages)"),
        (
            "Put pages back",
            "pages + pool.free_pages",
            "pages + [p for p in pool.free_pages if p < 3]",
        ),
        ("`slots` (a list) has all", "slots != [", "sorted(slots) != ["),
        ("If `slots` is anything", "    if slots != [", "    if len(slots) % size and slots != ["),
        ("If `slots` is anything", "    if slots != [", "    if False and slots != ["),
        ("If `slots` is anything", "len(set(pages)) < len(pages) or ", ""),
        ("If `slots` is anything", " or not allocated.issuperset(pages)", ""),
        ("If `slots` is anything", "set(range(pool.num_pages))", "set(range(pool.num_pages + 9))"),
        (
            "If `slots` is anything",
            "not allocated.issuperset(pages)",
            "not allocated.intersection(pages)",
        ),
        (
            "If `slots` is anything",
            '        raise ValueError(f"pages',
            '        pool.free_pages = [p for p in pages if p in allocated] + pool.free_pages\n        raise ValueError(f"pages',
        ),
        (
            "If `slots` is anything",
            '        raise ValueError(f"pages',
            '        return\n        raise ValueError(f"pages',
        ),
        (
            "If `slots` is anything",
            '        raise ValueError(f"pages',
            '        raise RuntimeError(f"pages',
        ),
    ],
    "shortest_prefill_first": [
        ("Return a new list", "sorted(waiting", "sorted(waiting[1:]"),
        ("Return a new list", "max(1, len(each.prompt) - each.cache_hit_len)", "len(each.prompt)"),
        (
            "Return a new list",
            "max(1, len(each.prompt) - each.cache_hit_len)",
            "-max(1, len(each.prompt) - each.cache_hit_len)",
        ),
        (
            "`waiting` is in the order",
            "return sorted(waiting, key=lambda each: max(1, len(each.prompt) - each.cache_hit_len))",
            "waiting.sort(key=lambda each: max(1, len(each.prompt) - each.cache_hit_len))\n    return waiting",
        ),
        (
            "Left to compute is",
            "max(1, len(each.prompt) - each.cache_hit_len)",
            "len(each.prompt) - each.cache_hit_len",
        ),
        (
            "Left to compute is",
            "max(1, len(each.prompt) - each.cache_hit_len)",
            "len(each.prompt) - each.cache_hit_len + (len(each.prompt) == each.cache_hit_len) * 2",
        ),
        ("Ties keep the order", "sorted(waiting,", "sorted(waiting[::-1],"),
        (
            "Ties keep the order",
            "max(1, len(each.prompt) - each.cache_hit_len)",
            "(max(1, len(each.prompt) - each.cache_hit_len), each.name)",
        ),
        (
            "Ties keep the order",
            "max(1, len(each.prompt) - each.cache_hit_len)",
            "(max(1, len(each.prompt) - each.cache_hit_len), len(each.prompt))",
        ),
        (
            "Ties keep the order",
            "max(1, len(each.prompt) - each.cache_hit_len)",
            "(max(1, len(each.prompt) - each.cache_hit_len), -each.cache_hit_len)",
        ),
    ],
    "lpm": [
        ("Return a new list", "-each.cache_hit_len", "each.cache_hit_len"),
        ("Return a new list", "-each.cache_hit_len", "-each.cache_hit_len / len(each.prompt)"),
        ("Return a new list", "-each.cache_hit_len", "-len(each.prompt)"),
        (
            "`waiting` is in the order",
            "return sorted(waiting, key=lambda each: -each.cache_hit_len)",
            "waiting.sort(key=lambda each: -each.cache_hit_len)\n    return waiting",
        ),
        ("Ties keep the order", "sorted(waiting,", "sorted(waiting[::-1],"),
        ("Ties keep the order", "-each.cache_hit_len", "(-each.cache_hit_len, len(each.prompt))"),
        ("Ties keep the order", "-each.cache_hit_len", "(-each.cache_hit_len, -len(each.prompt))"),
        ("Ties keep the order", "-each.cache_hit_len", "(-each.cache_hit_len, each.name)"),
    ],
    "defer_repeated": [
        ("Divide `waiting`", "return now, later", "return waiting, []"),
        ("Go through the list", "for each in waiting:", "for each in waiting[::-1]:"),
        ("After this pass", "for other in now]", "for other in now + later]"),
        ("After this pass", "for other in now]", "for other in waiting if other is not each]"),
        ("After this pass", "for other in now]", "for other in now[-1:]]"),
        ("After this pass", "for other in now]", "for other in now[:1]]"),
        ("After this pass", "max(shared, default=0)", "min(shared, default=0)"),
        ("After this pass", "max(shared, default=0)", "sum(shared)"),
        ("After this pass", "each.prompt[:-1], other.prompt)", "each.prompt, other.prompt)"),
        (
            "After this pass",
            "each.prompt[:-1], other.prompt)",
            "each.prompt[:-1], other.prompt[:-1])",
        ),
        ("If that is at least", "gain >= at_least", "gain > at_least"),
        ("If that is at least", "gain >= at_least", "gain > 0"),
        ("If that is at least", " - each.cache_hit_len", ""),
        ("If that is at least", "gain >= at_least", "gain >= 3"),
        ("If that is at least", "gain >= at_least", "gain >= at_least and not each.cache_hit_len"),
        ("Return two lists", "return now, later", "return later, now"),
        ("Return two lists", "return now, later", "return now, later[::-1]"),
        ("Return two lists", "return now, later", "return now[::-1], later"),
        ("Return two lists", "return now, later", "waiting[:] = now\n    return now, later"),
        (
            "Return two lists",
            "return now, later",
            "return [r.name for r in now], [r.name for r in later]",
        ),
        ("Return two lists", "return now, later", "return now + later"),
    ],
    "causal_mask": [
        ("Who may look at whom", "dtype=torch.bool", "dtype=torch.float64"),
        ("Who may look at whom", "tril(known - new)", "tril(known - new).T"),
        ("A request has", "tril(known - new)", "tril()"),
        ("In row i for", "tril(known - new)", "tril(known - new - 1)"),
        ("In row i for", "tril(known - new)", "tril(known - new + 1)"),
        ("In row i for", "tril(known - new)", "triu(known - new)"),
        ("In row i for", "tril(known - new)", "logical_not()"),
        ("In row i for", ".tril(known - new)", ""),
    ],
    "paged_attention": [
        (
            "Attention of the new",
            "k_pool[page_table], v_pool[page_table]",
            "k_pool[: len(page_table)], v_pool[: len(page_table)]",
        ),
        (
            "Attention of the new",
            "k_pool[page_table], v_pool[page_table]",
            "k_pool[page_table], v_pool[page_table.sort().values]",
        ),
        ("Attention of the new", "return torch", "torch"),
        ("q [new", SAYS, "what comes in"),
        ("Each head attends", '"qhd,khd->hqk", q, k)', '"qhd,khd->qk", q, k)[None]'),
        ("Each head attends", '"qhd,khd->hqk", q, k)', '"qhd,khd->hqk", q[:, :1].expand_as(q), k)'),
        ("A query looks at", ".triu(known - new + 1)", ".triu(1)"),
        ("A query looks at", ".triu(known - new + 1)", ".triu(known - new)"),
        ("A query looks at", ".triu(known - new + 1)", ".triu(known)"),
        (
            "A query looks at",
            "k, v = k_pool[page_table], v_pool[page_table]",
            "page_table = page_table.sort().values\n    k, v = k_pool[page_table], v_pool[page_table]",
        ),
        ("The weights are", " / q.shape[-1] ** 0.5", ""),
        ("The weights are", "q.shape[-1] ** 0.5", "q.shape[-1]"),
        ("The weights are", "q.shape[-1] ** 0.5", "q.shape[1] ** 0.5"),
        ("The weights are", "softmax(-1)", "softmax(0)"),
        ("The weights are", "softmax(-1)", "softmax(1)"),
        ("The weights are", "weights, v)", "weights, k)"),
        ("The weights are", "-torch.inf", "0"),
        ("Return a tensor like", "->qhd", "->hqd"),
        ("Return a tensor like", "weights, v)", "weights, v).flatten(1)"),
        (
            "Compute in the dtype",
            "k, v = k_pool",
            "q = q.float()\n    k_pool, v_pool = k_pool.float(), v_pool.float()\n    k, v = k_pool",
        ),
        (
            "Compute in the dtype",
            "k, v = k_pool[page_table]",
            "k_pool *= 1.0001\n    k, v = k_pool[page_table]",
        ),
        ("Compute in the dtype", "return torch", "v_pool[page_table] = 0\n    return torch"),
        ("All of torch is", SAYS, "what is allowed"),
    ],
}


def sentences(exercise: Exercise) -> list[str]:
    """The sentences of its docstrings."""
    tree = ast.parse(exercise.stub)
    texts = [ast.get_docstring(node) or "" for node in tree.body if hasattr(node, "name")]
    parts = re.split(r"(?<=\.)\s+(?=[A-Z`])|\n\n", "\n\n".join(texts))
    return [" ".join(part.split()) for part in parts]


@cache
def drawn(name: str) -> list[tuple[list[Any], Any]]:
    """The visible cases of an exercise and what the solution gives."""
    sheet, exercise = EXERCISES[name]
    names: dict[str, Any] = {}
    exec(exercise.cases, names)
    cases = [args for group, args in names["cases"](random.Random()) if group in exercise.visible]
    return list(zip(cases, results(sheet, exercise, exercise.solution), strict=True))


def results(sheet: Sheet, exercise: Exercise, source: str) -> Iterator[Any]:
    """What a source gives in the visible cases; of an exception its type."""
    names: dict[str, Any] = {}
    for code in (given(sheet), *(e.solution for e in sheet.exercises.values()), source):
        exec(code, names) if isinstance(code, str) else names.update(code)
    for each in sheet.exercises.values():
        exec(each.driver, names)
        if each is exercise:
            break
    cases: dict[str, Any] = {}
    exec(exercise.cases, cases)
    for group, args in cases["cases"](random.Random()):
        if group in exercise.visible:
            try:
                yield names[exercise.entry](*json.loads(json.dumps(args)))
            except Exception as error:
                yield type(error)


_given: dict[str, dict[str, Any]] = {}


def given(sheet: Sheet) -> dict[str, Any]:
    """What the given cells define; a model is read once."""
    if sheet.name not in _given:
        exec(sheet.given, _given.setdefault(sheet.name, {}))
    return _given[sheet.name]


def is_seen(name: str, source: str) -> bool:
    """Whether a visible case tells it from the solution."""
    sheet, exercise = EXERCISES[name]
    wanted = [value for _, value in drawn(name)]
    assert not any(isinstance(value, type) for value in wanted), "the solution raises"
    got = results(sheet, exercise, source)
    return not all(same(came, value) for came, value in zip(got, wanted, strict=True))


@pytest.mark.parametrize("name", EXERCISES)
def test_every_sentence_of_a_docstring_is_broken_once(name: str) -> None:
    said = sentences(EXERCISES[name][1])
    begun = {begin for begin, *_ in MUTANTS[name]}
    silent = [each for each in said if not any(each.startswith(begin) for begin in begun)]
    unknown = [begin for begin in begun if not any(each.startswith(begin) for each in said)]
    assert not silent, "no mutant breaks these"
    assert not unknown, "no docstring says this (any more)"


@pytest.mark.parametrize("name", EXERCISES)
def test_whoever_breaks_a_sentence_gets_no_green_tick(name: str) -> None:
    solution = EXERCISES[name][1].solution
    unseen = []
    for begin, old, new in MUTANTS[name]:
        if old is not SAYS:
            assert old in solution, f"the solution has changed: {old!r} is gone"
            if not is_seen(name, solution.replace(old, new)):
                unseen.append((begin, old, new))
    assert not unseen


@pytest.mark.parametrize("name", EXERCISES)
def test_whoever_makes_a_mistake_that_the_sheet_knows_gets_no_green_tick(name: str) -> None:
    wrong = EXERCISES[name][1].wrong
    assert not [each.message for each in wrong if not is_seen(name, each.source)]
