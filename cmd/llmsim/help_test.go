package main

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

// Ensure that every help fits a terminal.
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

// Ensure that the flags of every example are there and can be read.
func TestTheExamplesOfHelpParse(t *testing.T) {
	examples := 0
	for _, from := range command().Commands() {
		text := strings.ReplaceAll(from.Example, "\\\n", " ")
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

func TestProgressElsewhereThanOnATerminal(t *testing.T) {
	var often, never strings.Builder
	tell, quiet := said(&often, "runs", 0), said(&never, "runs", time.Hour)
	for _, f := range []func(int, int){tell, quiet} {
		f(1, 3)
		f(2, 4)
		f(4, 4)
	}
	require.Equal(t, "1 of 3 runs so far\n2 of 4 runs so far\n", often.String())
	require.Empty(t, never.String())
}

// Ensure that a bar goes on when all that was asked for is done and more is asked for.
func TestABarThatWasFullGoesOn(t *testing.T) {
	var b strings.Builder
	tell, stop := drawn(&b, "runs", 0)
	tell(1, 1)
	tell(2, 4)
	require.Contains(t, b.String(), "2 of 4 runs")
	require.Contains(t, b.String(), "40%")
	stop()
}
