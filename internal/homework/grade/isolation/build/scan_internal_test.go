package build

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/level"
)

// Ensure that the scanner sees at least as many directives as gcc, with any text around them. The directives are
// #error, because gcc reports each of them.
func TestTheScannerSeesWhatGccSees(t *testing.T) {
	level.SkipQuick(t)
	const texts = 200
	pieces := []string{"#error MARK", "#err\\\nor MARK", "#include \"x", "#define A \"", "/*", "*/", "//", "\"", "'", "\\", "\\ ", "\n", "\r\n",
		"??/", "??=error MARK", "?", "/", "*", " ", "x", "<", ">", "1e+", "L", "R\"(", ")\"", "#", "\t", "\f", "\xe9", "#if 0\n", "#endif\n",
		"%:error MARK", "#include <a\"\\>", "8'", ".5e-", "$"}
	r := rand.New(rand.NewPCG(1, 2))
	var sources []string
	for range texts {
		var b strings.Builder
		for range 3 + r.IntN(14) {
			b.WriteString(pieces[r.IntN(len(pieces))])
			if r.IntN(3) == 0 {
				b.WriteString("\n")
			}
		}
		sources = append(sources, b.String())
	}
	seen := 0
	for i, n := range errorsOfGcc(t, sources) {
		seen += n
		require.LessOrEqual(t, n, errorDirectives(sources[i]), "%q", sources[i])
	}
	require.Greater(t, seen, texts/5)
}

var (
	marked = regexp.MustCompile(`(?m)/(\d+)\.c:\d+:\d+: error: #error MARK`)
	fatal  = regexp.MustCompile(`(?m)/(\d+)\.c:\d+:\d+: fatal error: `)
)

// errorsOfGcc returns how many #error directives gcc sees in each source. One run of gcc includes the sources one
// after the other and ends at a fatal error. The next run begins after the source with that error.
func errorsOfGcc(t *testing.T, sources []string) []int {
	t.Helper()
	dir := t.TempDir()
	counts := make([]int, len(sources))
	name := func(i int) string { return filepath.Join(dir, strconv.Itoa(i)+".c") }
	for i, text := range sources {
		require.NoError(t, os.WriteFile(name(i), []byte(text), 0o644))
	}
	for start := 0; start < len(sources); {
		var all strings.Builder
		for i := start; i < len(sources); i++ {
			fmt.Fprintf(&all, "#include \"%s\"\n", name(i))
		}
		file := filepath.Join(dir, "all.c")
		require.NoError(t, os.WriteFile(file, []byte(all.String()), 0o644))
		said, _ := exec.Command("gcc", "-std=c11", "-E", file, "-o", os.DevNull).CombinedOutput()
		for _, m := range marked.FindAllSubmatch(said, -1) {
			i, err := strconv.Atoi(string(m[1]))
			require.NoError(t, err)
			counts[i]++
		}
		start = len(sources)
		if m := fatal.FindSubmatch(said); m != nil {
			i, err := strconv.Atoi(string(m[1]))
			require.NoError(t, err)
			start = i + 1
		}
	}
	return counts
}

func errorDirectives(source string) int {
	g := &textGate{text: text{words: map[string]int{}}, verdicts: &verdicts{}}
	n := 0
	var line []token
	for s := newScanner([]byte(source)); ; {
		t, ok := s.next()
		if ok && t.kind != newline {
			line = append(line, t)
			continue
		}
		if len(line) > 1 && strings.Contains("# %:", line[0].text) && line[1].text == "error" {
			n++
		}
		if len(line) > 0 {
			g.line(line)
		}
		if g.refused != nil {
			return 1 << 30
		}
		if !ok {
			return n
		}
		line = nil
	}
}
