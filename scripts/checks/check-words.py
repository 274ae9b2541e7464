#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that comments, documents and names use plain words.

usage: check-words.py [--list] ROOT

Reports as faults:
- Words that only this project uses, if they are more frequent than
  words-allowed.txt beside it allows. WORDS has the field's word for each. The
  allowed numbers may only fall.
- Comments that begin with "of", "what", "whose" and the like: they describe
  their subject without naming it. A comment names its subject first.
- Struct tags with the prefix of a library that are defined twice.
- Sentences of documents with more than 45 words.

Prints one line per fault; exit code 1 if there is any. --list prints each
place instead.
"""
import collections
import os
import re
import sys

# Word: what to write instead.
WORDS = {
    "twin": "functional variant; the model at another size",
    "verdict": "decision, result",
    "home": "owner (of a parameter), folder of a user: HOME",
    "room": "scratch, capacity, space",
    "told": "reported, sent, given",
    "slope": "derivative, numerical derivative",
    "narrow": "16-bit",
    "behind": "after, following",
    "whoever": "the process that, the client that",
    "somebody": "a reader, a user, a process",
    "crew": "local ranks",
}
FIRST = ("of", "what", "whose", "whoever", "who", "there where")
MOST_WORDS = 45
CODE = (".c", ".h", ".def", ".cu", ".cuh", ".cpp")
TEXT = CODE + (".py", ".sh", ".md", ".proto")
COMMENT = re.compile(r"/\*+(.*?)\*/|//([^\n]*)", re.S)
TAG = re.compile(r"^(?:struct|union|enum) (psts?d?(?:ctl)?_\w+) \{", re.M)


def files(root):
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(f for f in folders if not f.startswith(
            (".", "build", "out", "__pycache__")))
        for name in sorted(names):
            path = os.path.join(folder, name)
            if name.endswith(TEXT) and name != "check-words.py":
                with open(path, encoding="utf-8", errors="replace") as file:
                    # below the mark there are names of libraries
                    yield (os.path.relpath(path, root),
                           file.read().split("<!-- table -->")[0])


def line_of(text, at):
    return text.count("\n", 0, at) + 1


def words(name, text):
    """Yields (word, place). A word that is a part of a name counts:
    `home_of`."""
    for word in WORDS:
        for m in re.finditer(rf"(?<![a-zA-Z]){word}s?(?![a-zA-Z])", text):
            yield word, f"{name}:{line_of(text, m.start())}"


def riddles(name, text):
    """Yields comments that begin with a word of FIRST. Comments that follow
    code in their line continue its name, as in `digest; /* of the plan */`,
    and are skipped."""
    if name.endswith(CODE):
        for m in COMMENT.finditer(text):
            if text[text.rfind("\n", 0, m.start()) + 1:m.start()].strip():
                continue
            said = " ".join((m[1] or m[2] or "").replace("*", " ").split())
            if said.lower().startswith(tuple(w + " " for w in FIRST)):
                yield f"{name}:{line_of(text, m.start())}: {said[:60]}"


def long_sentences(name, text):
    """Yields sentences with more than MOST_WORDS words, of paragraphs and list
    items. Code, tables and headings are skipped."""
    if not name.endswith(".md"):
        return
    text = re.sub(r"^(```|~~~).*?^\1[^\n]*$", "", text, flags=re.S | re.M)
    for paragraph in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", text):
        if re.match(r"\s*[|#<]", paragraph):
            continue
        for sentence in re.split(r"(?<=[.:;?!])\s+", " ".join(
                paragraph.split())):
            if len(re.findall(r"[A-Za-z]\w+", re.sub(
                    r"`[^`]*`", "code", sentence))) > MOST_WORDS:
                yield f"{name}: {sentence[:60]}"


def allowed(root):
    ret = {}
    with open(f"{root}/scripts/checks/words-allowed.txt",
              encoding="utf-8") as file:
        for line in file:
            if line.strip() and not line.startswith("#"):
                word, count = line.rsplit(None, 1)
                ret[word] = int(count)
    return ret


def main():
    show = "--list" in sys.argv[1:2]
    root = sys.argv[-1]
    places = collections.defaultdict(list)
    tags = collections.defaultdict(list)
    for name, text in files(root):
        for word, place in words(name, text):
            places[word].append(place)
        places["(riddle)"] += riddles(name, text)
        places["(long sentence)"] += long_sentences(name, text)
        if name.startswith(("stages/", "daemon/")):
            for m in TAG.finditer(text):
                tags[m[1]].append(name)
    limits = allowed(root)
    faults = []
    for word in [*WORDS, "(riddle)", "(long sentence)"]:
        if show:
            print(f"{word} {len(places[word])}", *places[word], sep="\n  ")
        elif len(places[word]) > limits.get(word, 0):
            faults.append(
                f"{word}: {len(places[word])} times, {limits.get(word, 0)} "
                f"are allowed; write {WORDS.get(word, 'it plainly')} "
                f"(scripts/checks/check-words.py --list names the places)")
        elif len(places[word]) < limits.get(word, 0):
            faults.append(f"{word}: only {len(places[word])} times now; lower "
                          "the number in scripts/checks/words-allowed.txt")
    for tag, where in sorted(tags.items()):
        if len(where) > 1:
            faults.append(f"{tag} is defined in {' and '.join(where)}")
    print("\n".join(faults) or "words, comments and struct tags are plain")
    return 1 if faults and not show else 0


if __name__ == "__main__":
    sys.exit(main())
