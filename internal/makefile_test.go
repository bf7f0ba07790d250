package internal_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Ensure that each part of a -run or -bench pattern in the Makefile matches a test.
func TestWhatTheMakefileRunsIsThere(t *testing.T) {
	text, err := os.ReadFile("../Makefile")
	require.NoError(t, err)
	lines := regexp.MustCompile(`-(?:run|bench) '?([A-Za-z0-9_|]+)'?(?: \S+)*? (\./.*)`).FindAllStringSubmatch(string(text), -1)
	before := regexp.MustCompile(`(\./\S+) -run ([A-Za-z0-9_]+)`).FindAllStringSubmatch(string(text), -1)
	for _, found := range before {
		lines = append(lines, []string{found[0], found[2], found[1]})
	}
	require.GreaterOrEqual(t, len(lines), 5, "%q", lines)
	for _, found := range lines {
		names := namesOfTests(t, regexp.MustCompile(`\./[a-z0-9_/]+`).FindAllString(found[2], -1))
		for _, part := range strings.Split(found[1], "|") {
			require.Regexp(t, `(?m)^func \w*`+part, names, found[0])
		}
	}
}

// Ensure that the packages that make test names (in .ci/test) exist.
func TestThePackagesThatMakeTestBeginsWithAreThere(t *testing.T) {
	text, err := os.ReadFile("../.ci/test")
	require.NoError(t, err)
	packages := regexp.MustCompile(`\./[a-z0-9/]+[a-z0-9]\b`).FindAllString(string(text), -1)
	require.GreaterOrEqual(t, len(packages), 10)
	for _, p := range packages {
		require.DirExists(t, filepath.Join("..", p))
	}
}

// Ensure that make test compiles no module that only tests of make test-long need: the files that import such a module
// have the build tag long.
func TestMakeTestCompilesNoModuleOfTheLongTests(t *testing.T) {
	imports, found := regexp.MustCompile(`"github.com/(openai/openai-go|mmcloughlin/avo|alicebob/miniredis)`), 0
	eachSource(t, func(name string) {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		if strings.HasSuffix(name, "_test.go") && imports.Match(text) {
			found++
			require.True(t, strings.HasPrefix(string(text), "//go:build long\n"), name)
		}
	})
	require.Positive(t, found)
}

// namesOfTests returns the first lines of the tests and benchmarks in some folders.
func namesOfTests(t *testing.T, folders []string) string {
	t.Helper()
	var names strings.Builder
	for _, folder := range folders {
		files, err := filepath.Glob(filepath.Join("..", folder, "*_test.go"))
		require.NoError(t, err)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			for _, line := range regexp.MustCompile(`(?m)^func (Test|Benchmark)\w*`).FindAllString(string(text), -1) {
				names.WriteString(line + "\n")
			}
		}
	}
	return names.String()
}
