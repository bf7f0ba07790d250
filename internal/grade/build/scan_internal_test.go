package build

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What gcc takes for a directive the scanner takes for one, whatever stands around
// it: #error shows where gcc sees one. (Once run with 40,000 texts.)
func TestTheScannerSeesWhatGccSees(t *testing.T) {
	const texts = 200
	pieces := []string{"#error MARK", "#err\\\nor MARK", "#include \"x", "#define A \"", "/*", "*/", "//", "\"", "'", "\\", "\\ ", "\n", "\r\n",
		"??/", "??=error MARK", "?", "/", "*", " ", "x", "<", ">", "1e+", "L", "R\"(", ")\"", "#", "\t", "\f", "\xe9", "#if 0\n", "#endif\n",
		"%:error MARK", "#include <a\"\\>", "8'", ".5e-", "$"}
	r := rand.New(rand.NewPCG(1, 2))
	file := filepath.Join(t.TempDir(), "x.c")
	seen := 0
	for range texts {
		var b strings.Builder
		for range 3 + r.IntN(14) {
			b.WriteString(pieces[r.IntN(len(pieces))])
			if r.IntN(3) == 0 {
				b.WriteString("\n")
			}
		}
		require.NoError(t, os.WriteFile(file, []byte(b.String()), 0o644))
		said, _ := exec.Command("gcc", "-std=c11", "-E", file, "-o", os.DevNull).CombinedOutput()
		n := strings.Count(string(said), " error: #error MARK")
		seen += n
		require.LessOrEqual(t, n, errorDirectives(b.String()), "%q\n%s", b.String(), said)
	}
	require.Greater(t, seen, texts/5)
}

// errorDirectives counts what the scanner sees. Behind a line that is refused
// nothing matters.
func errorDirectives(source string) int {
	g := &textGate{text: text{words: map[string]int{}}, verdicts: &verdicts{}}
	n := 0
	var line []token
	for s := newScanner([]byte(source)); ; {
		t, more := s.next()
		if more && t.kind != newline {
			line = append(line, t)
			continue
		}
		if len(line) > 1 && strings.Contains("# %:", line[0].text) && line[1].text == "error" {
			n++
		}
		if len(line) > 0 && g.line(line) != nil {
			return 1 << 30
		}
		if !more {
			return n
		}
		line = nil
	}
}
