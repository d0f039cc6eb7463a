"""embed.py OUTPUT FILE...: writes the dashboard's files as a C table (src/server/web.h).

@VERSION@ in index.html becomes a hash over all files, so that the names under which browsers keep them change with their content.
"""
import hashlib
import os
import sys

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
LIMIT = 150 * 1000


def main(output, paths):
    files = []
    for path in sorted(paths, key=os.path.basename):
        with open(path, "rb") as f:
            files.append((os.path.basename(path), f.read()))
    whole = hashlib.sha256()
    for name, data in files:
        whole.update(f"{name} {len(data)}\n".encode() + data)
    version = whole.hexdigest()[:12]
    files = [(name, data.replace(b"@VERSION@", version.encode()) if name == "index.html" else data) for name, data in files]
    size = sum(len(data) for _, data in files)
    if size > LIMIT:
        sys.exit(f"the dashboard has {size} bytes, more than {LIMIT}")
    with open(output, "w") as out:
        out.write('/* Made by web/embed.py. */\n#include "server/web.h"\n')
        out.write(f'const char web_version[] = "{version}";\n')
        for i, (_, data) in enumerate(files):
            out.write(f"static const unsigned char file_{i}[] = {{\n")
            for at in range(0, len(data), 32):
                out.write(",".join(map(str, data[at : at + 32])) + ",\n")
            out.write("};\n")
        out.write("const struct web_file web_files[] = {\n")
        for i, (name, data) in enumerate(files):
            kind = TYPES[os.path.splitext(name)[1]]
            tag = hashlib.sha256(data).hexdigest()[:16]
            out.write(f'{{ "{name}", "{kind}", "\\"{tag}\\"", file_{i}, {len(data)} }},\n')
        out.write(f"}};\nconst size_t n_web_files = {len(files)};\n")


main(sys.argv[1], sys.argv[2:])
