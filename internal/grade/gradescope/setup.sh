#!/bin/sh
# Gradescope runs this once, as root, when it builds the image: what llmgrade
# needs on Ubuntu 22.04 (and Debian 12). Fails where one thing cannot be had.
set -eu
here=$(cd "$(dirname "$0")" && pwd)

export DEBIAN_FRONTEND=noninteractive
apt-get update
apt-get install -y --no-install-recommends gcc libc6-dev valgrind libc6-dbg
apt-get clean
rm -rf /var/lib/apt/lists/*

# What is here is nobody else's to read: submissions run as another user.
chmod -R u=rwX,go= "$here"
chmod u+x "$here/run_autograder" "$here/llmgrade"

for tool in gcc objcopy objdump valgrind; do
    "$tool" --version | head -n 1
done
printf '#include <stdlib.h>\nint main(void) { free(malloc(1)); return 0; }\n' >/tmp/setup.c
gcc -static /tmp/setup.c -o /tmp/setup.static
gcc /tmp/setup.c -o /tmp/setup.dynamic
/tmp/setup.static
valgrind -q --error-exitcode=1 /tmp/setup.dynamic
rm -f /tmp/setup.c /tmp/setup.static /tmp/setup.dynamic
"$here/llmgrade" --help >/dev/null
echo "llmgrade is set up"
