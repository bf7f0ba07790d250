#!/bin/sh
# Gradescope runs this once, as root, when it builds the image: what llmgrade
# needs on Ubuntu 22.04 (and Debian 12). Fails where one thing cannot be had.
set -eu
here=$(cd "$(dirname "$0")" && pwd)

export DEBIAN_FRONTEND=noninteractive
apt-get update
apt-get install -y --no-install-recommends gcc libc6-dev valgrind libc6-dbg

# What is here is nobody else's to read: submissions run as another user.
chmod -R u=rwX,go= "$here"
chmod u+x "$here/run_autograder" "$here/llmgrade"

# Each of them has to work, not only to be there.
try=$(mktemp -d)
trap 'rm -rf "$try"' EXIT
printf '#include <stdlib.h>\nint main(void) { free(malloc(1)); return 0; }\n' >"$try/try.c"
gcc -static "$try/try.c" -o "$try/static"
objdump -d "$try/static" >"$try/code"
objcopy "$try/static"
"$try/static"
gcc "$try/try.c" -o "$try/dynamic"
valgrind -q --error-exitcode=1 "$try/dynamic"
"$here/llmgrade" --help >"$try/help"

gcc --version | head -n 1
valgrind --version
echo "llmgrade is set up"
