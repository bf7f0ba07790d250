package gbnf

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/meter"
)

// heap returns the bytes that are in use and those that have been allocated so far.
func heap() (used, allocated int) {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return int(stats.HeapAlloc), int(stats.TotalAlloc)
}

// A price is what one part of a grammar costs at least, in units of work.
type price struct{ parse, measure, build int }

// Ensure that each part of a grammar is charged: units of work for it, and about the bytes that it takes.
func TestEachPartIsCharged(t *testing.T) {
	const n = 16_000
	numbered := func(format string, first, step int) string {
		var text strings.Builder
		for i := range n {
			fmt.Fprintf(&text, format, first+step*i)
		}
		return text.String()
	}
	for name, test := range map[string]struct {
		text string
		price
	}{
		"rules":                  {"root ::= \"x\"\n" + numbered("r%05d ::= \"a\"\n", 0, 1), price{2, 1, 0}},
		"references":             {"root ::= " + strings.Repeat("a ", n) + "\na ::= \"x\" a?", price{1, 1, 2}},
		"repeats of one literal": {`root ::= "a"` + strings.Repeat("*", n), price{1, 0, 0}},
		"ranges of a class":      {"root ::= [" + numbered("%c", 0x4e00, 2) + "]", price{1, 0, 0}},
		"bytes of a literal":     {`root ::= "` + strings.Repeat(strings.Repeat("a", 16), n) + `"`, price{1, 0, 0}},
		"copies of a part":       {fmt.Sprintf(`root ::= ("x" root?){%d}`, n), price{0, 0, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			m := meter.New(context.Background(), meter.Limits{Work: math.MaxInt, Bytes: math.MaxInt})
			before, _ := heap()
			p, err := parse(test.text, m)
			require.NoError(t, err)
			after, allocated := heap()
			require.GreaterOrEqual(t, m.Spent(), test.parse*n, "parse")
			require.LessOrEqual(t, after-before, m.Kept()*5/4+10_000, "parse")
			work, bytes := m.Spent(), m.Kept()
			require.NoError(t, p.measure())
			_, measured := heap()
			require.GreaterOrEqual(t, m.Spent()-work, test.measure*n, "measure")
			require.LessOrEqual(t, measured-allocated, (m.Kept()-bytes)*5/4+10_000, "measure")
			work, bytes = m.Spent(), m.Kept()
			runtime.KeepAlive(p)

			m = meter.New(context.Background(), meter.Limits{Work: math.MaxInt, Bytes: math.MaxInt})
			before, _ = heap()
			g, err := Compile(test.text, m)
			require.NoError(t, err)
			after, _ = heap()
			require.GreaterOrEqual(t, m.Spent()-work, test.build*n, "build")
			require.LessOrEqual(t, after-before, (m.Kept()-bytes)*5/4+10_000+3*len(test.text), "build: a lexeme also has copies of the text")
			runtime.KeepAlive(g)
		})
	}
}
