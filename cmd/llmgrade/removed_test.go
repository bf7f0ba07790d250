package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhatWasRemovedSaysWhatTakesItsPlace(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, args, says string }{
		{"a command", "similar --html grades class/", "similar was removed: run JPlag or MOSS on the folder of the class"},
		{"a flag", "--exhaustive llm_memory.c", "--exhaustive was removed: the directed and random traces decide the points"},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, _, said := run(t, strings.Fields(c.args)...)
			require.Equal(t, 2, status)
			require.Contains(t, said, c.says)
		})
	}
	_, out, _ := run(t, "--help")
	require.NotContains(t, out, "similar")
}
