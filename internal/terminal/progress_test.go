package terminal

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestProgressWritesLinesWhereThereIsNoTerminal(t *testing.T) {
	var all, none strings.Builder
	for _, p := range []*Progress{{w: &all, units: "runs"}, {w: &none, units: "runs", period: time.Hour, last: time.Now()}} {
		p.Show(1, 3)
		p.Show(2, 4)
		p.Show(4, 4)
		p.Clear()
	}
	require.Equal(t, "1 of 3 runs so far\n2 of 4 runs so far\n", all.String())
	require.Empty(t, none.String())
}

func TestProgressRewritesOneLineOfATerminal(t *testing.T) {
	var b strings.Builder
	p := &Progress{w: &b, units: "runs", rewrite: true}
	p.Clear()
	require.Empty(t, b.String(), "nothing to clear")
	p.Show(1, 1)
	p.Show(2, 4)
	p.Clear()
	require.Equal(t, "\r\x1b[K1 of 1 runs (100%)\r\x1b[K2 of 4 runs (50%)\r\x1b[K", b.String())
}
