// Package source gives sources to compilers, for tests. RequireC lets the C compiler check that a C source and Go code
// agree. Replace changes a Go source for one build, so that a test can break a rule and check that other tests then fail.
package source

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// RequireC compiles a C file, followed by declarations. It requires that the declarations agree with those in the
// file. It also requires that each constant expression in values has the given value. The compiler also looks for
// headers in the folder include.
func RequireC(t testing.TB, file, include string, values map[string]int64, declarations ...string) {
	t.Helper()
	path, err := filepath.Abs(file)
	require.NoError(t, err)
	var text strings.Builder
	fmt.Fprintf(&text, "#include %q\n#include <stddef.h>\n%s\n", path, strings.Join(declarations, "\n"))
	for expression, value := range values {
		fmt.Fprintf(&text, "_Static_assert((%s) == %d, \"%[1]s is not %[2]d\");\n", expression, value)
	}
	gcc := exec.Command("gcc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-I"+include, "-fsyntax-only", "-x", "c", "-")
	gcc.Stdin = strings.NewReader(text.String())
	out, err := gcc.CombinedOutput()
	require.NoError(t, err, "%s", out)
}
