#!/usr/bin/env python3
"""Check the source tree against the layers of docs/architecture.md.

usage: layers.py ROOT

The first block of docs/architecture.md that begins with "```layers" lists the
components (directories of src/, and fuse and tools), one layer per line, the
highest first. A component may include, and call into, components of lower
layers only; components on one line are independent of each other.

A header declares the functions of the file of its name: x.h, or x_impl.h,
those of x.c and x_*.c. The header with the name of its component declares those
of files that have no header. Tables may be listed in one place.
The tag of a struct, an enum or a union is defined once.

Prints one line per violation, and exits with 1 if there is any.
"""
import collections
import os
import re
import sys

MOST_FILES = 40

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+"([^"]+)"', re.M)
COMMENT = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'',
                     re.S)
# A definition and its body begin in the first column. Macros and static
# functions belong to their file.
DEFINED = re.compile(
    r'^(?!static\b|typedef\b|return\b|else\b)[A-Za-z_][\w \t*]*?\b(\w+)\('
    r'[^;{}]*?\)[^;{}()]*\n\{', re.M)
DATA = re.compile(
    r'^(?!static\b|typedef\b|extern\b)(?:const |_Atomic )*(?:struct |enum )?'
    r'\w+[ \t]+\**(\w+)(?:\[[^]]*\])? =', re.M)
STATIC = re.compile(r'^static\b[^;{}=]*?\b(\w+)\(', re.M)
DECLARED = re.compile(
    r'^(?!static\b|typedef\b|return\b)[A-Za-z_][\w \t*]*?\b(\w+)\([^;{}]*\)'
    r'[^;{}]*;', re.M)
EXTERN = re.compile(r'^extern\b[^;(]*?\b(\w+)(?:\[[^]]*\])?(?:,[^;]*)?;', re.M)
TAG = re.compile(r'^(?:struct|enum|union) (ofs_\w+)\n? *\{', re.M)
# not the tag of a struct, which may be that of a function
WORD = re.compile(r'(?<!struct )(?<!enum )\b(?:ofs|optimfs)_\w+')


def layers(path):
    """The layer of each component: {component: height}, 0 the lowest."""
    with open(path, encoding='utf-8') as f:
        block = re.search(r'^```layers\n(.*?)^```', f.read(), re.M | re.S)
    if block is None:
        sys.exit(path + ': no block that begins with ```layers')
    lines = [line.split('#')[0].split() for line in block.group(1).split('\n')]
    lines = [line for line in lines if line]
    return {component: height for height, line in enumerate(reversed(lines))
            for component in line}


def component_of(path):
    """src/format/dcp/read.c is in format/dcp, fuse/ops.c in fuse."""
    where = os.path.dirname(path)
    return where[4:] if where.startswith('src/') else where


def sources(root):
    """The text of each source file, without comments and strings."""
    found = {}
    for top in ('src', 'fuse', 'tools'):
        for where, _, names in os.walk(os.path.join(root, top)):
            for name in names:
                if name.endswith(('.c', '.h', '.cu')):
                    path = os.path.join(where, name)
                    with open(path, encoding='utf-8') as f:
                        found[os.path.relpath(path, root)] = f.read()
    return found


def code_of(text):
    return COMMENT.sub(lambda m: '""' if m.group(0)[0] in '"\'' else ' ', text)


def declares(header, source, texts):
    """May header declare a function of source, in the same component?"""
    name = re.sub(r'_(impl|internal)$', '', os.path.basename(header)[:-2])
    stem = os.path.basename(source).rsplit('.', 1)[0]
    if stem == name or stem.startswith(name + '_'):
        return True
    return (name == os.path.basename(component_of(source)) and
            source.rsplit('.', 1)[0] + '.h' not in texts)


def main():
    root = sys.argv[1]
    height = layers(os.path.join(root, 'docs/architecture.md'))
    texts = sources(root)
    code = {path: code_of(text) for path, text in texts.items()}
    wrong = []

    components = {component_of(path) for path in texts}
    for component in sorted(components - set(height)):
        wrong.append('%s is in no layer' % component)
    for component in sorted(set(height) - components):
        wrong.append('%s is in a layer, but does not exist' % component)
    if wrong:
        return wrong

    def may(upper, lower):
        return upper == lower or height[upper] > height[lower]

    count = collections.Counter(
        component_of(p) for p in texts if p.endswith('.c'))
    for component, n in sorted(count.items()):
        if n > MOST_FILES:
            wrong.append('%s has %d .c files, more than %d' %
                         (component, n, MOST_FILES))

    for path, text in sorted(texts.items()):
        for name in INCLUDE.findall(text):
            for base in ('src', '.', os.path.dirname(path)):
                other = os.path.normpath(os.path.join(base, name))
                if other in texts:
                    if not may(component_of(path), component_of(other)):
                        wrong.append('%s includes %s, which is above it' %
                                     (path, other))
                    break

    # A debugger does not distinguish structs of the same name.
    tags = {}
    for path, text in sorted(code.items()):
        for tag in TAG.findall(text):
            if tags.setdefault(tag, path) != path:
                wrong.append('%s defines %s, as %s does' %
                             (path, tag, tags[tag]))

    # Where each external name is defined.
    home = {}
    for path, text in code.items():
        if path.endswith('.c'):
            for name in DEFINED.findall(text) + DATA.findall(text):
                home.setdefault(name, path)
    for path, text in sorted(code.items()):
        own = set(STATIC.findall(text))
        if path.endswith('.h'):
            functions = set(DECLARED.findall(text))
            for name in sorted(functions | set(EXTERN.findall(text))):
                other = home.get(name)
                if other and (component_of(other) != component_of(path) or
                              (name in functions and
                               not declares(path, other, texts))):
                    wrong.append('%s declares %s, which %s defines' %
                                 (path, name, other))
            continue
        for name in sorted(set(WORD.findall(text)) - own):
            other = home.get(name)
            if other and not may(component_of(path), component_of(other)):
                wrong.append('%s uses %s of %s, which is above it' %
                             (path, name, other))
    return wrong


if __name__ == '__main__':
    violations = main()
    print('\n'.join(violations))
    sys.exit(1 if violations else 0)
