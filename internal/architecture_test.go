// Package internal_test holds the rules of the whole repository: which package may
// import which, and that what comments cite is there to be read.
package internal_test

import (
	"maps"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "llmmemory/"

// allowedImports are the rows of the table in README.md, and which others each may import. A package
// belongs to the longest that its path begins with, and may import what is in its own.
// internal/README.md draws them.
var allowedImports = map[string][]string{
	// Without rules of the system.
	"grader":              {},
	"internal/assembly":   {},
	"internal/chart":      {"internal/jobs"},
	"internal/ctree":      {},
	"internal/half":       {},
	"internal/invariants": {},
	"internal/jobs":       {},
	"internal/parallel":   {},
	"internal/reqtable":   {},
	"internal/terminal":   {},

	// Memory managers and schedulers.
	"internal/block":          {"internal/invariants"},
	"internal/course":         {"internal/block", "internal/invariants"},
	"internal/vllm/device":    {"internal/block"},
	"internal/vllm/blockhash": {},
	"internal/serve":          {"internal/vllm/device"}, // the face of a scheduler
	"internal/vllm":           {"internal/block", "internal/invariants", "internal/reqtable", "internal/serve", "internal/vllm/blockhash", "internal/vllm/device"},
	"internal/paper":          {"internal/block", "internal/invariants", "internal/reqtable", "internal/serve", "internal/vllm/device"},

	// Serving.
	"internal/attention": {"internal/assembly", "internal/half", "internal/invariants", "internal/parallel"},
	"internal/kvstore":   {"internal/attention", "internal/block", "internal/invariants", "internal/parallel", "internal/vllm"},
	"internal/kvoffload": {"internal/vllm/blockhash"},
	"internal/model":     {"internal/assembly", "internal/attention", "internal/half", "internal/kvstore", "internal/parallel"},
	"internal/engine": {"internal/attention", "internal/invariants", "internal/kvoffload", "internal/kvstore", "internal/model", "internal/parallel", "internal/serve", "internal/vllm",
		"internal/vllm/blockhash", "internal/vllm/device"},

	// What is measured and shown.
	"internal/replay": {"internal/paper", "internal/serve", "internal/vllm", "internal/vllm/blockhash", "internal/vllm/device"},
	"internal/view": {"internal/block", "internal/course", "internal/paper", "internal/serve", "internal/vllm", "internal/vllm/blockhash",
		"internal/vllm/device"},
	"internal/sim": {"internal/chart", "internal/jobs", "internal/paper", "internal/parallel", "internal/reqtable", "internal/serve",
		"internal/terminal", "internal/vllm", "internal/vllm/blockhash", "internal/vllm/device"},

	// The grader of submissions.
	"internal/grade": {"grader", "internal/course", "internal/ctree", "internal/jobs", "internal/terminal"},

	// What users start.
	"capi": {"internal/course"},
	"capi/cache": {"internal/attention", "internal/block", "internal/kvstore", "internal/parallel", "internal/vllm", "internal/vllm/blockhash",
		"internal/vllm/device"},
	"cmd": {"internal/*"},

	// Only tests import these.
	"capi/guest":       {},
	"internal/testkit": {"internal/serve", "internal/vllm/device"},
}

// goList prints a line for each package.
func goList(t *testing.T, arguments ...string) []string {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list"}, arguments...)...)
	cmd.Dir = ".."
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err)
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

// rowOf is the longest row that a path begins with.
func rowOf(t *testing.T, pkg string) string {
	t.Helper()
	for at := strings.TrimPrefix(pkg, module); at != "."; at = path.Dir(at) {
		if _, ok := allowedImports[at]; ok {
			return at
		}
	}
	require.Failf(t, "no row", "%s is in no row: put one into allowedImports, and into internal/README.md", pkg)
	return ""
}

// Ensure that packages import only what their row may, and that each row that is
// named has packages.
func TestPackagesImportOnlyWhatTheirRowMay(t *testing.T) {
	seen := map[string]bool{}
	for _, line := range goList(t, "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./...") {
		pkg, imports, _ := strings.Cut(line, " ")
		if pkg == strings.TrimSuffix(module, "/")+"/internal" { // this test
			continue
		}
		from := rowOf(t, pkg)
		seen[from] = true
		for imported := range strings.FieldsSeq(imports) {
			if !strings.HasPrefix(imported, module) {
				continue
			}
			to := rowOf(t, imported)
			everything := slices.Contains(allowedImports[from], "internal/*") && strings.HasPrefix(to, "internal/") && to != "internal/testkit"
			if to != from && !everything && !slices.Contains(allowedImports[from], to) {
				t.Errorf("%s imports %s, but %s may import only %v", pkg, imported, from, allowedImports[from])
			}
		}
	}
	require.ElementsMatch(t, slices.Collect(maps.Keys(allowedImports)), slices.Collect(maps.Keys(seen)), "rows, and rows with packages")
}

// tableOfPackages returns the first column of the table of packages in README.md, from the
// top row to the bottom row.
func tableOfPackages(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(text), "## Packages")
	require.True(t, found, "README.md has no section Packages")
	section, _, _ = strings.Cut(section, "\n## ")
	var table []string
	for line := range strings.Lines(section) {
		if folder, _, ok := strings.Cut(strings.TrimPrefix(line, "| `"), "` |"); ok && strings.HasPrefix(line, "| `") {
			table = append(table, folder)
		}
	}
	return table
}

// Ensure that README.md lists each row once, and that a row may import only
// rows below its own, so that no import goes upwards.
func TestImportsGoDownTheTableInTheReadme(t *testing.T) {
	table := tableOfPackages(t)
	require.ElementsMatch(t, slices.Collect(maps.Keys(allowedImports)), table, "allowedImports, and the table in README.md")
	for row, folder := range table {
		for _, imported := range allowedImports[folder] {
			if imported != "internal/*" {
				require.Greater(t, slices.Index(table, imported), row, "%s may import %s, which must be in a lower row", folder, imported)
			}
		}
	}
}

// Ensure what holds through any number of imports, of the programs as they are linked.
func TestProgramsLinkOnlyWhatTheyMay(t *testing.T) {
	for _, c := range []struct {
		name, packages string
		only, never    []string // beginnings of paths; only: of those with a dot or of this module
	}{
		{"libllm_memory has no third party", "./capi", []string{"capi", "internal/course", "internal/block", "internal/invariants"}, nil},
		{"the course's rules know nothing else", "./internal/course", []string{"internal/course", "internal/block", "internal/invariants"}, nil},
		{"the simulator has no grader", "./internal/sim/...", nil, []string{"internal/grade", "grader", "internal/course"}},
		{"the server has no grader and no simulator", "./cmd/llmserve", nil, []string{"internal/grade", "internal/sim", "internal/testkit"}},
		{"the grader has no serving", "./cmd/llmgrade", nil, []string{"internal/vllm", "internal/engine", "internal/model", "internal/testkit"}},
		{"llmsim has no grader", "./cmd/llmsim", nil, []string{"internal/grade", "internal/testkit"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, pkg := range goList(t, "-deps", c.packages) {
				ours := strings.HasPrefix(pkg, module)
				standard := !ours && !strings.Contains(strings.Split(pkg, "/")[0], ".")
				in := func(beginning string) bool {
					return pkg == module+beginning || strings.HasPrefix(pkg, module+beginning+"/")
				}
				if c.only != nil && !standard && !slices.ContainsFunc(c.only, in) {
					t.Errorf("%s is linked", pkg)
				}
				if slices.ContainsFunc(c.never, in) {
					t.Errorf("%s is linked", pkg)
				}
			}
		})
	}
}
