#!/usr/bin/env python3
"""Prints the circles between the files of each crate, and fails if there is one.

    hack/circles.py            all crates of the workspace
    hack/circles.py TEXT...    the crates whose root file's path begins with one of these texts

A file depends on the file that defines what it names by a path (`crate::`, `super::`, `self::`, a child module); re-exports
are followed to the definition. Tests are left out: what stands under #[cfg(test)], and files whose names end in tests.rs.
"""
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COMMENT = re.compile(r'//[^\n]*|/\*.*?\*/|\br(?P<hashes>#*)".*?"(?P=hashes)|"(?:\\.|[^"\\])*"|\'(?:\\.[^\']*|[^\'\\])\'', re.S)
TEST_ITEM = re.compile(r"#\[cfg\(test\)\]\s*(?:#\[[^\]]*\]\s*)*(?:pub(?:\([^)]*\))? )?(?:mod|use|fn) [^;{]*(;|\{)")
MODULE = re.compile(r'(?:#\[path = (?P<path>\d+)\]\s*)?(?:pub(?:\([^)]*\))? )?\bmod (?P<name>\w+);')
USE = re.compile(r"(?P<public>pub(?:\([^)]*\))? )?\buse (?P<tree>[^;]+);")
PATH = re.compile(r"\b(?:crate|super|self|[a-z_]\w*)(?:::\w+)+")


def without_tests(text):
    """Removes what stands under #[cfg(test)]. The text has no comments and no strings."""
    while found := TEST_ITEM.search(text):
        end = found.end()
        if found[1] == "{":
            depth = 1
            while depth:
                depth += {"{": 1, "}": -1}.get(text[end], 0)
                end += 1
        text = text[: found.start()] + text[end:]
    return text


def names(tree):
    """The paths of a use tree, with the name that each one gets."""
    tree = tree.strip()
    if "{" not in tree:
        path, _, name = tree.partition(" as ")
        path = path.strip().split("::")
        return [(path, name.strip() or path[-1])]
    prefix, rest = tree.split("{", 1)
    prefix = [part for part in prefix.strip().split("::") if part]
    rest, parts, depth, begin = rest[: rest.rindex("}")] + ",", [], 0, 0
    for at, char in enumerate(rest):
        depth += {"{": 1, "}": -1}.get(char, 0)
        if char == "," and depth == 0:
            parts.append(rest[begin:at])
            begin = at + 1
    found = []
    for part in filter(str.strip, parts):
        for path, name in names(part):
            own = path == ["self"]
            found.append((prefix if own else prefix + path, prefix[-1] if own and name == "self" else name))
    return found


class Module:
    def __init__(self, file, parent):
        self.file, self.parent = file, parent
        strings = []
        def blank(match):
            if match[0][0] != '"':
                return " "
            strings.append(match[0][1:-1])
            return f"{len(strings) - 1}" if match.string[: match.start()].endswith("#[path = ") else '""'
        text = without_tests(COMMENT.sub(blank, file.read_text()))
        folder = file.parent if file.stem in ("mod", "lib", "main") else file.parent / file.stem
        self.children = {}
        for found in MODULE.finditer(text):
            name = found["name"]
            named = file.parent / strings[int(found["path"])] if found["path"] else None
            files = [named] if named else [folder / f"{name}.rs", folder / name / "mod.rs"]
            child = next((file for file in files if file.is_file()), None)
            if child and not child.name.endswith("tests.rs"):
                self.children[name] = Module(child, self)
        self.uses = [(path, name) for found in USE.finditer(text) for path, name in names(found["tree"])]
        self.names = {name: path for path, name in self.uses if name != "*"}
        self.globs = [path[:-1] for path, name in self.uses if name == "*"]
        self.paths = [found[0].split("::") for found in PATH.finditer(USE.sub("", text))]

    def all(self):
        yield self
        for child in self.children.values():
            yield from child.all()

    def root(self):
        return self.parent.root() if self.parent else self

    def resolve(self, path, seen=()):
        """The module that defines what the path names, or None for another crate."""
        if (self, tuple(path)) in seen:
            return None
        seen = (*seen, (self, tuple(path)))
        module, path = self, list(path)
        if path[0] == "crate":
            module, path = self.root(), path[1:]
        elif path[0] == "self":
            path = path[1:]
        elif path[0] == "super":
            while path and path[0] == "super" and module:
                module, path = module.parent, path[1:]
        elif path[0] not in self.children:
            return self.resolve(self.names[path[0]] + path[1:], seen) if path[0] in self.names else None
        while module and path:
            name = path[0]
            if name in module.children:
                module, path = module.children[name], path[1:]
                continue
            if name in module.names:
                return module.resolve(module.names[name] + path[1:], seen)
            for glob in module.globs:
                behind = module.resolve(glob, seen)
                if behind and behind is not module and (name in behind.names or name in behind.children or behind.defines(name)):
                    return behind.resolve(["self", *path], seen)
            return module
        return module

    def defines(self, name):
        return re.search(rf"\b(?:struct|enum|trait|type|fn|const|static|macro_rules!|union) {name}\b", self.file.read_text())


def circles(edges):
    """The strongly connected components with more than one file (Tarjan)."""
    index, low, stack, found = {}, {}, [], []
    def visit(file):
        index[file] = low[file] = len(index)
        stack.append(file)
        for other in edges[file]:
            if other not in index:
                visit(other)
                low[file] = min(low[file], low[other])
            elif other in stack:
                low[file] = min(low[file], index[other])
        if low[file] == index[file]:
            at = stack.index(file)
            if len(stack) - at > 1:
                found.append(set(stack[at:]))
            del stack[at:]
    for file in edges:
        if file not in index:
            visit(file)
    return found


def main():
    sys.setrecursionlimit(10_000)
    wanted = sys.argv[1:] or [""]
    trees = ("crates/*/src/lib.rs", "crates/*/tests/*/main.rs", "crates/*/examples/*/main.rs", "tests/*/main.rs")
    roots = [ROOT / "src/lib.rs", *(root for tree in trees for root in sorted(ROOT.glob(tree)))]
    files = arrows = 0
    failed = False
    for root in roots:
        if not str(root.relative_to(ROOT)).startswith(tuple(wanted)):
            continue
        edges = {}
        for module in Module(root, None).all():
            others = {module.resolve(path) for path in [path for path, _ in module.uses] + module.paths}
            edges[module.file] = {other.file for other in others if other and other is not module}
        files, arrows = files + len(edges), arrows + sum(map(len, edges.values()))
        for circle in circles(edges):
            failed = True
            print(f"a circle of {len(circle)} files in {root.relative_to(ROOT).parent}:")
            for file in sorted(circle):
                uses = ", ".join(sorted(str(other.relative_to(root.parent)) for other in edges[file] & circle))
                print(f"  {file.relative_to(root.parent)} -> {uses}")
    if files < 2 or arrows < 2:
        sys.exit("error: found no files or no dependencies between them")
    if failed:
        sys.exit(1)
    print(f"no circles: {files} files, {arrows} dependencies")


if __name__ == "__main__":
    main()
