// Package internal_test checks rules of the whole repository: which package may import which, and whether what
// comments cite exists.
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

// wings has a row for each wing: a folder of packages that has a row in the table of README.md. The key is the folder.
// The value lists what these packages may import from outside the wing: other wings, or packages of other wings.
var wings = map[string][]string{
	"internal/block":      {"internal/invariants"},
	"internal/homework":   {"grader", "internal/block", "internal/invariants", "internal/jobs", "internal/machine", "internal/terminal"},
	"internal/scheduling": {"internal/block", "internal/invariants"},
	"internal/serving":    {"internal/block", "internal/invariants", "internal/machine", "internal/scheduling"},
	"internal/simulation": {"internal/jobs", "internal/scheduling", "internal/terminal"},
	"internal/view":       {"internal/block", "internal/homework/course", "internal/scheduling"},
	"internal/bench":      {"internal/scheduling/paper", "internal/scheduling/serve", "internal/serving", "internal/simulation/workload"},

	"capi": {"internal/block", "internal/homework/course", "internal/scheduling", "internal/serving/attention", "internal/serving/kvstore",
		"internal/serving/parallel", "internal/serving/cuda"},
	"cmd": {"internal/homework", "internal/jobs", "internal/machine", "internal/scheduling", "internal/serving", "internal/simulation", "internal/terminal",
		"internal/view", "internal/block"},

	"grader":              {},
	"internal/invariants": {},
	"internal/jobs":       {},
	"internal/machine":    {},
	"internal/terminal":   {},
	"internal/testkit":    {"internal/scheduling"},
}

// packages has rows for the packages, or folders of packages, of some wings. The value lists the other packages of the
// same wing that these may import. The packages of a wing without rows may import each other.
var packages = map[string][]string{
	"internal/homework/course": {},
	"internal/homework/ctree":  {},

	// The layers of the grader: isolation runs a submission, judging finds its mistakes, grade computes the
	// points, reporting shows the result.
	"internal/homework/grade/isolation": {"course"},
	"internal/homework/grade/judging":   {"course", "ctree", "grade/isolation"},
	"internal/homework/grade":           {"course", "grade/isolation", "grade/judging"},
	"internal/homework/grade/reporting": {"course", "grade", "grade/isolation", "grade/judging"},

	"internal/scheduling/blockhash": {},
	"internal/scheduling/device":    {},
	"internal/scheduling/reqtable":  {},
	"internal/scheduling/serve":     {"device"},
	"internal/scheduling/vllm":      {"blockhash", "device", "reqtable", "serve"},
	"internal/scheduling/paper":     {"device", "reqtable", "serve"},

	"internal/serving/amx":        {"half"},
	"internal/serving/assembly":   {},
	"internal/serving/half":       {},
	"internal/serving/meter":      {},
	"internal/serving/cuda":       {},
	"internal/serving/parallel":   {},
	"internal/serving/attention":  {"assembly", "half", "parallel"},
	"internal/serving/kvstore":    {"attention", "parallel"},
	"internal/serving/kvoffload":  {},
	"internal/serving/model":      {"amx", "assembly", "attention", "half", "kvstore", "meter", "parallel"},
	"internal/serving/engine":     {"attention", "kvoffload", "kvstore", "meter", "model", "parallel", "structured", "toolparser"},
	"internal/serving/gpu":        {"attention", "cuda", "engine", "half", "kvstore", "model", "parallel"},
	"internal/serving/structured": {"meter"},
	"internal/serving/toolparser": {"meter"},

	"internal/simulation/chart":      {},
	"internal/simulation/workload":   {},
	"internal/simulation/cost":       {},
	"internal/simulation/runs":       {"workload"},
	"internal/simulation/sim":        {"cost", "workload"},
	"internal/simulation/calibrate":  {"cost"},
	"internal/simulation/fleet":      {"cost", "sim", "workload"},
	"internal/simulation/scenario":   {"cost", "sim", "workload"},
	"internal/simulation/capacity":   {"cost", "runs", "scenario", "sim", "workload"},
	"internal/simulation/plans":      {"capacity", "chart", "cost", "runs", "scenario", "sim"},
	"internal/simulation/experiment": {"capacity", "chart", "cost", "runs", "scenario", "sim", "workload"},

	"capi":       {},
	"capi/cache": {},
	"capi/guest": {},
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

// rowOf returns the longest key of rows that is a prefix of the package's path, or "" if there is none.
func rowOf(rows map[string][]string, pkg string) string {
	for folder := strings.TrimPrefix(pkg, module); folder != "."; folder = path.Dir(folder) {
		if _, ok := rows[folder]; ok {
			return folder
		}
	}
	return ""
}

// Ensure that each package imports only those packages of the repository that two rows allow: its row in the table
// packages, if its wing has rows there, and the row of its wing in the table wings. Each row of the two tables must be
// for a package that exists.
func TestPackagesImportOnlyWhatTheirRowMay(t *testing.T) {
	seen := map[string]bool{}
	for _, line := range goList(t, "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./...") {
		pkg, imports, _ := strings.Cut(line, " ")
		if pkg == strings.TrimSuffix(module, "/")+"/internal" { // this test
			continue
		}
		wing, pkgRow := rowOf(wings, pkg), rowOf(packages, pkg)
		require.NotEmptyf(t, wing, "%s is in no wing: put it into wings, and into internal/README.md", pkg)
		seen[wing], seen[pkgRow] = true, true
		if ownRow := strings.TrimPrefix(pkg, module) != wing || pkgRow != ""; ownRow && hasPackages(wing) {
			require.NotEmptyf(t, pkgRow, "%s is in no row of packages", pkg)
		}
		for imported := range strings.FieldsSeq(imports) {
			if !strings.HasPrefix(imported, module) {
				continue
			}
			otherWing, otherRow := rowOf(wings, imported), rowOf(packages, imported)
			switch {
			case otherWing != wing:
				if !slices.ContainsFunc(wings[wing], func(row string) bool { return belongsTo(imported, row) }) {
					t.Errorf("%s imports %s, but %s may import only %v", pkg, imported, wing, wings[wing])
				}
			case otherRow != pkgRow && !slices.Contains(packages[pkgRow], strings.TrimPrefix(otherRow, wing+"/")):
				t.Errorf("%s imports %s, but %s may import only %v of its wing", pkg, imported, pkgRow, packages[pkgRow])
			}
		}
	}
	delete(seen, "")
	rows := append(slices.Collect(maps.Keys(wings)), slices.Collect(maps.Keys(packages))...)
	slices.Sort(rows)
	require.ElementsMatch(t, slices.Compact(rows), slices.Collect(maps.Keys(seen)), "rows, and rows with packages")
}

func belongsTo(pkg, row string) bool {
	return pkg == module+row || strings.HasPrefix(pkg, module+row+"/")
}

// hasPackages reports whether the packages of a wing have their own rows.
func hasPackages(wing string) bool {
	for row := range packages {
		if strings.HasPrefix(row, wing+"/") {
			return true
		}
	}
	return false
}

// Ensure that imports have no cycle: neither among wings, nor among the packages of a wing.
func TestImportsRunOneWay(t *testing.T) {
	visitAll := func(rows map[string][]string, folder string) {
		var visit func(row string, ancestors []string)
		visit = func(row string, ancestors []string) {
			require.NotContains(t, ancestors, row, "a way from a row to itself")
			for _, next := range rows[row] {
				visit(rowOf(rows, module+folder+next), append(ancestors, row))
			}
		}
		for row := range rows {
			if strings.HasPrefix(row, folder) {
				visit(row, nil)
			}
		}
	}
	visitAll(wings, "")
	for wing := range wings {
		if hasPackages(wing) {
			visitAll(packages, wing+"/")
		}
	}
}

// Ensure that the table at the beginning of README.md has a row for each wing, and that a wing's row is above
// the rows of the wings that it imports.
func TestTheReadmeHasARowForEachWing(t *testing.T) {
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	head, _, _ := strings.Cut(string(text), "\n## ")
	var table []string
	for line := range strings.Lines(head) {
		if folder, _, ok := strings.Cut(strings.TrimPrefix(line, "| `"), "` |"); ok && strings.HasPrefix(line, "| `") {
			table = append(table, folder)
		}
	}
	require.ElementsMatch(t, slices.Collect(maps.Keys(wings)), table, "wings, and the table in README.md")
	for row, folder := range table {
		for _, imported := range wings[folder] {
			require.Greater(t, slices.Index(table, rowOf(wings, module+imported)), row, "%s may import %s, which must be in a lower row", folder, imported)
		}
	}
}

// Ensure that each program or library contains only packages that it may contain. Packages that are imported indirectly
// count, too.
func TestProgramsLinkOnlyWhatTheyMay(t *testing.T) {
	for _, c := range []struct {
		name, packages     string
		allowed, forbidden []string // prefixes of paths; allowed does not restrict Go's library
	}{
		{"libllm_memory has no third party", "./capi", []string{"capi", "internal/homework/course", "internal/block", "internal/invariants"}, nil},
		{"the course's rules know nothing else", "./internal/homework/course", []string{"internal/homework/course", "internal/block", "internal/invariants"}, nil},
		{"the simulator has no grader", "./internal/simulation/...", nil, []string{"internal/homework/grade", "grader", "internal/homework/course"}},
		{"the server has no grader and no simulator", "./cmd/llmserve", nil, []string{"internal/homework/grade", "internal/simulation", "internal/testkit"}},
		{"the grader has no serving", "./cmd/llmgrade", nil, []string{"internal/scheduling", "internal/serving", "internal/testkit"}},
		{"llmsim has no grader", "./cmd/llmsim", nil, []string{"internal/homework/grade", "internal/testkit"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, pkg := range goList(t, "-deps", c.packages) {
				ours := strings.HasPrefix(pkg, module)
				standard := !ours && !strings.Contains(strings.Split(pkg, "/")[0], ".")
				matches := func(beginning string) bool {
					return pkg == module+beginning || strings.HasPrefix(pkg, module+beginning+"/")
				}
				if c.allowed != nil && !standard && !slices.ContainsFunc(c.allowed, matches) {
					t.Errorf("%s is linked", pkg)
				}
				if slices.ContainsFunc(c.forbidden, matches) {
					t.Errorf("%s is linked", pkg)
				}
			}
		})
	}
}

// Ensure that the first list of go.mod has the modules that the product imports, and the second those that only tests
// and package testkit import. Programs that generate code or measure are part of the product here.
func TestGoModSeparatesProductAndTests(t *testing.T) {
	text, err := os.ReadFile("../go.mod")
	require.NoError(t, err)
	blocks := strings.Split(string(text), "require (\n")
	require.Len(t, blocks, 4, "lists of the product, of tests, and of indirect modules")
	modules := func(block string) (all []string) {
		for line := range strings.Lines(block) {
			if name, ok := strings.CutPrefix(line, "\t"); ok {
				all = append(all, strings.Fields(name)[0])
			}
		}
		return all
	}
	direct := append(modules(blocks[1]), modules(blocks[2])...)
	imported := map[string]bool{}
	for _, line := range goList(t, "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./...") {
		pkg, imports, _ := strings.Cut(line, " ")
		if belongsTo(pkg, "internal/testkit") {
			continue
		}
		for path := range strings.FieldsSeq(imports) {
			for _, m := range direct {
				if path == m || strings.HasPrefix(path, m+"/") {
					imported[m] = true
				}
			}
		}
	}
	require.ElementsMatch(t, slices.Collect(maps.Keys(imported)), modules(blocks[1]), "imported, and in the first list")
}
