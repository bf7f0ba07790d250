package level

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// compiler is the shell script that CheapCompiler installs under the name gcc. CheapCompiler writes the values of the
// script's variables before it.
const compiler = `
case "$*" in
*' -c runner.c -o runner.o' | *' -c watched.c -o watched.o' | *'/launch.c -o '*) # the grader's own programs
    for made; do :; done
    kept=$dir/${made##*/}
    cp "$kept" "$made" 2>/dev/null && exit
    "$gcc" "$@" && { ln "$made" "$kept" 2>/dev/null || :; }
    exit
    ;;
*' -O2 -ggdb -fno-var-tracking '*) # a submission with the course's flags
    for word; do
        shift
        [ "$word" != -O2 ] || word=$level
        set -- "$@" "$word"
    done
    ;;
esac
exec "$gcc" "$@"
`

// CheapCompiler makes the graders of this process and of its child processes compile submissions faster. They call gcc
// with the option in the parameter optimization, for example -O0, in place of the course's -O2. They also compile the
// graders' own programs only once. If a grader has flags of its own (grade.NewGrader), CheapCompiler does not change
// how it compiles submissions. It does nothing in make exhaustive or without gcc. TestMain calls CheapCompiler; the
// function that it returns removes its files.
func CheapCompiler(optimization string) (remove func()) {
	gcc, err := exec.LookPath("gcc")
	if Long() || err != nil { // tests that need gcc report that it is missing
		return func() {}
	}
	quoted := func(path string) string { return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'" }
	dir, err := os.MkdirTemp("", "gcc-")
	if err == nil {
		script := fmt.Sprintf("#!/bin/sh\ndir=%s gcc=%s level=%s\n%s", quoted(dir), quoted(gcc), optimization, compiler)
		err = errors.Join(
			os.WriteFile(filepath.Join(dir, "gcc"), []byte(script), 0o755),
			os.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH")),
		)
	}
	if err != nil {
		panic(err)
	}
	return func() { _ = os.RemoveAll(dir) }
}
