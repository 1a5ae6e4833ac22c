"""Break one rule of the core at a time, and see which test notices.

    python tests/mutations.py [NUMBER ...]

Each rule is broken in a copy of the project, by replacing a piece of its source; the tests of the
core run there until one fails. A table tells which. Exits with 1 if a broken rule is missed, or
if the source has changed so that a rule's text is no longer found.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
QUICK_TESTS = (
    "test_heal",
    "test_failures",
    "test_pool",
    "test_tree",
    "test_errors",
    "test_cache",
    "test_boundary",
)
MORE_TESTS = ("test_exhaustive", "test_events", "test_tokens", "test_long")
LIMIT = 300
"""Seconds; whoever takes longer doesn't end, and was noticed."""


class Mutation(NamedTuple):
    """A rule, and the text whose change breaks it: `before` stands in `module` exactly once."""

    rule: str
    module: str
    before: str
    after: str


MUTATIONS = [
    Mutation(
        "a lock holds the whole path, not the last node alone",
        "cache",
        "            node.ref_count += 1\n            node = parent",
        "            node.ref_count += 1\n            node = stop",
    ),
    Mutation(
        "the tree copies the slots that it is given",
        "cache",
        "                slots = value[node.end // TOKEN_BYTES : stop // TOKEN_BYTES]\n",
        "                slots = value\n",
    ),
    Mutation(
        "a split leaves the upper node held by the same requests",
        "tree",
        "upper.ref_count, upper.timestamp = self.ref_count, self.timestamp",
        "upper.ref_count, upper.timestamp = 0, self.timestamp",
    ),
    Mutation(
        "an unheld node made by a split may be evicted",
        "cache",
        "        if not upper.ref_count:\n            self.strategy.add(upper)",
        "        pass",
    ),
    Mutation(
        "a match refreshes what matched, never the rest of the edge",
        "cache",
        "        self._touch(node)\n        return CacheHandle(self, node)",
        "        self._touch(next(iter(node.children.values()), node))\n"
        "        return CacheHandle(self, node)",
    ),
    Mutation(
        "use refreshes the whole path, parents after children",
        "cache",
        "            touch(node)\n            node = parent",
        "            touch(node)\n            node = self.tree.root",
    ),
    Mutation(
        "where an insertion has ended, nothing heals",
        "cache",
        "            node.border = True\n",
        "",
    ),
    Mutation(
        "only what was used alike heals",
        "cache",
        "upper.created == lower.created and _USE(upper) == _USE(lower)",
        "upper.created == lower.created",
    ),
    Mutation(
        "only parts of one leaf heal",
        "cache",
        "upper.created == lower.created and _USE(upper) == _USE(lower)",
        "_USE(upper) == _USE(lower)",
    ),
    Mutation(
        "what heals keeps the tokens of both parts",
        "tree",
        "upper._key + self._key, upper.value + self.value",
        "upper._key + self._key, self.value + upper.value",
    ),
    Mutation(
        "what leaves the eviction order is a leaf",
        "eviction",
        "return self._order.popitem(False)[0]",
        "return self._order.popitem(True)[0]",
    ),
    Mutation(
        "an evicted leaf makes its parent a leaf",
        "tree",
        "        del parent.children[leaf.child_key]\n",
        "",
    ),
    Mutation(
        "a match ends at a page border",
        "tree",
        "child.split_at(agree - agree % self.page_size)",
        "child.split_at(agree)",
    ),
    Mutation(
        "only whole pages are inserted",
        "cache",
        "        return end - end % self.tree.page_bytes\n",
        "        return end\n",
    ),
    Mutation(
        "the last token is never matched, but computed",
        "manager",
        "limit = request.num_tokens - 1",
        "limit = request.num_tokens",
    ),
    Mutation(
        "equal tokens in two namespaces are two things",
        "tree",
        "        if namespace is not None and start is self.root:\n",
        "        if False:\n",
    ),
    Mutation(
        "a node remembers its namespace",
        "tree",
        "page if namespace is None or parent is not self.root else (namespace, page)",
        "page",
    ),
    Mutation(
        "unlocked tokens are evictable again",
        "cache",
        "        self.protected_size -= released\n        self.evictable_size += released\n",
        "        self.protected_size -= released\n",
    ),
    Mutation(
        "an unlocked node is back in the eviction order",
        "cache",
        "                add(node)\n                released",
        "                released",
    ),
    Mutation(
        "a prefix that was evicted can't be locked any more",
        "cache",
        "handle.node.parent is None and handle.node is not self.tree.root",
        "False",
    ),
    Mutation(
        "admission counts again after locking",
        "manager",
        "        if needed > self.available_size:\n            self.cache.unlock(handle)",
        "        if False:\n            self.cache.unlock(handle)",
    ),
    Mutation(
        "admission reserves the whole output",
        "manager",
        "        needed = self.check_can_start(request) + reserved",
        "        needed = self.round_up(request.prompt_len) + reserved",
    ),
    Mutation(
        "too much is refused before anything is evicted",
        "cache",
        "        if num_tokens > self.evictable_size:\n",
        "        if num_tokens > self.total_size:\n",
    ),
    Mutation(
        "the page table is pointed at the tree's slots after the race",
        "manager",
        "            table[held:found] = new.value[held:found]\n",
        "",
    ),
    Mutation(
        "duplicates are freed after the race",
        "manager",
        "            self.pool.free(duplicates)\n",
        "",
    ),
    Mutation(
        "duplicates are read from the table before it changes",
        "manager",
        "            duplicates = table[held:found]\n"
        "            table[held:found] = new.value[held:found]\n",
        "            table[held:found] = new.value[held:found]\n"
        "            duplicates = table[held:found]\n",
    ),
    Mutation(
        "after insertion a request holds all that it has inserted",
        "manager",
        "        request.handle = new\n        return result",
        "        return result",
    ),
    Mutation(
        "the output is inserted with the prompt",
        "manager",
        "limit=request.computed_len,",
        "limit=min(request.computed_len, request.prompt_len),",
    ),
    Mutation(
        "between prompt and output there is a border of nodes",
        "manager",
        "            border=request.prompt_len,\n",
        "",
    ),
    Mutation(
        "at the end the private slots are freed",
        "manager",
        "        private = request.page_table[request.handle.cached_len :]\n"
        "        self.pool.free(private)\n",
        "        private = request.page_table[request.handle.cached_len :]\n",
    ),
    Mutation(
        "what is cached stays when its request ends",
        "manager",
        "        private = request.page_table[request.handle.cached_len :]\n",
        "        private = request.page_table[:]\n",
    ),
    Mutation(
        "a request ends once",
        "manager",
        "        if request.state is not RUNNING:\n            raise DoubleFree",
        "        if request.state is not RUNNING:\n            return\n"
        "            raise DoubleFree",
    ),
    Mutation(
        "a pool in checked mode knows who owns a page",
        "pool",
        "        if len(owned) * page_size < len(slots) or slots.tolist() != whole:\n",
        "        if slots.tolist() != whole:\n",
    ),
    Mutation(
        "a page that comes back can be had again",
        "pool",
        "        self._stack[top : self._top] = slots\n",
        "",
    ),
    Mutation(
        "negative numbers are no token ids",
        "tokens",
        "        raise _first_invalid(ids)\n    return key",
        "        pass\n    return key",
    ),
    Mutation(
        "what is evicted is told",
        "cache",
        "            for event in events:\n                self.observer(event)\n",
        "            pass\n",
    ),
    Mutation(
        "a page's hash covers all tokens before it",
        "events",
        "        previous = hashlib.sha256(previous + key[start",
        "        previous = hashlib.sha256(key[start",
    ),
]


class Result(NamedTuple):
    """What became of a broken rule: the test that noticed, or why there is none."""

    caught: bool
    by: str
    seconds: float


def copy_project(target: Path) -> None:
    """The package and the tests, as they are in the working tree."""
    ignore = shutil.ignore_patterns("__pycache__", "models")
    for folder in ("radixlab", "tests"):
        shutil.copytree(ROOT / folder, target / folder, ignore=ignore)
    shutil.copy(ROOT / "pyproject.toml", target)


def apply(mutation: Mutation, package: Path) -> str:
    """Break the rule; returns the module's text as it was."""
    path = package / f"{mutation.module}.py"
    text = path.read_text(encoding="utf-8")
    if text.count(mutation.before) != 1:
        found = text.count(mutation.before)
        raise LookupError(f"{mutation.rule}: its text is in {path.name} {found} times, not once")
    path.write_text(text.replace(mutation.before, mutation.after), encoding="utf-8")
    return text


def run_tests(project: Path, tests: Sequence[str]) -> Result:
    """Run the tests until the first fails."""
    files = [f"tests/{name}.py" for name in tests if (project / f"tests/{name}.py").exists()]
    options = ["-x", "-q", "--tb=no", "-rfE", "-m", "not long", "-p", "no:cacheprovider"]
    options += ["-p", "_hypothesis_pytestplugin"]
    environment = {
        **os.environ,
        "PYTHONPATH": str(project),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # so that pytest starts in half the time
    }
    start = time.perf_counter()
    try:
        run = subprocess.run(
            [sys.executable, "-m", "pytest", *options, *files],
            cwd=project,
            env=environment,
            capture_output=True,
            text=True,
            timeout=LIMIT,
        )
    except subprocess.TimeoutExpired:
        return Result(True, "did not end", LIMIT)
    seconds = time.perf_counter() - start
    failed = re.search(r"^(?:FAILED|ERROR) tests/(.+?)(?: - .*)?$", run.stdout, re.MULTILINE)
    if run.returncode == 0:
        return Result(False, "nothing", seconds)
    if failed is None:
        raise RuntimeError(f"pytest failed without a failed test:\n{run.stdout}\n{run.stderr}")
    return Result(True, failed[1], seconds)


def check(mutations: Sequence[Mutation], tests: Sequence[str]) -> list[Result]:
    """Break each rule in turn, in one copy of the project, whose tests must pass at first."""
    results = []
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder)
        copy_project(project)
        whole = run_tests(project, tests)
        if whole.caught:
            raise RuntimeError(f"with no rule broken, {whole.by} fails")
        for mutation in mutations:
            original = apply(mutation, project / "radixlab")
            results.append(run_tests(project, tests))
            module = project / "radixlab" / f"{mutation.module}.py"
            module.write_text(original, encoding="utf-8")
            print(row(mutation, results[-1]), flush=True)
    return results


def row(mutation: Mutation, result: Result) -> str:
    mark = "caught" if result.caught else "MISSED"
    return f"{mark}  {mutation.rule:62} {result.seconds:5.1f} s  {result.by}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("numbers", nargs="*", type=int, help="which rules (from 0; all)")
    chosen = parser.parse_args(arguments).numbers
    mutations = [MUTATIONS[number] for number in chosen] or MUTATIONS
    results = check(mutations, (*QUICK_TESTS, *MORE_TESTS))
    missed = sum(not result.caught for result in results)
    print(f"{len(results)} rules broken, {len(results) - missed} caught, {missed} missed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
