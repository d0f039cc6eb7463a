"""embed.py OUTPUT DESCRIPTORS: writes a set of descriptors (protoc --descriptor_set_out) as a C array (src/server/reflection.h)."""
import sys


def main(output, path):
    with open(path, "rb") as f:
        data = f.read()
    with open(output, "w") as out:
        out.write('/* Made by proto/embed.py. */\n#include "server/reflection.h"\n')
        out.write("const unsigned char reflection_files[] = {\n")
        for at in range(0, len(data), 32):
            out.write(",".join(map(str, data[at : at + 32])) + ",\n")
        out.write(f"}};\nconst size_t reflection_files_len = {len(data)};\n")


main(*sys.argv[1:])
