package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

func TestHelpIsNotTooWide(t *testing.T) {
	for _, c := range append(command().Commands(), command()) {
		var b strings.Builder
		c.SetOut(&b)
		c.InitDefaultHelpFlag()
		require.NoError(t, c.Help())
		require.Contains(t, b.String(), "--help")
		narrow(t, b.String())
	}
}

func TestTheExamplesOfHelpParse(t *testing.T) {
	examples := 0
	for _, sub := range command().Commands() {
		text := strings.ReplaceAll(sub.Example, "\\\n", " ")
		for line := range strings.SplitSeq(text, "\n") {
			line, _, _ = strings.Cut(strings.TrimSpace(line), " #")
			words := strings.Fields(strings.ReplaceAll(line, "'", ""))
			if len(words) == 0 || words[0] == "#" {
				continue
			}
			require.Equal(t, "llmsim", words[0], line)
			var c *cobra.Command
			c, rest, err := command().Find(words[1:])
			require.NoError(t, err, line)
			require.True(t, c.HasParent(), line)
			require.NoError(t, c.ParseFlags(rest), line)
			examples++
		}
	}
	require.Greater(t, examples, 20)
}
