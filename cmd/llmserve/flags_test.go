package main

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"llmmemory/internal/serving/model"
)

func TestRunAndBenchNoticeThatTheirOutputCannotBeWritten(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	require.NoError(t, err)
	defer full.Close()
	for _, args := range [][]string{
		{"run", "demo", "abc abc", "--max-tokens", "3"},
		{"bench", "demo", "--num-prompts", "1", "--input-len", "2", "--output-len", "2"},
	} {
		c := llmserve(args...)
		c.Stdout = full
		require.Error(t, c.Run(), args[0])
	}
}

func TestBenchTriesItsFilesBeforeItMeasures(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing", "result")
	for _, flag := range []string{"--output", "--steps", "--arrivals"} {
		out, err := llmserve("bench", "demo", "--num-prompts", "1", "--input-len", "4", "--output-len", "2", flag,
			missing).Output()
		require.Error(t, err)
		require.Empty(t, out, "nothing was measured")
	}
	kept := filepath.Join(t.TempDir(), "result.json")
	require.NoError(t, os.WriteFile(kept, []byte("before"), 0o644))
	require.NoError(t, writable(kept))
	data, err := os.ReadFile(kept)
	require.NoError(t, err)
	require.Equal(t, "before", string(data))
	pipe := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, unix.Mkfifo(pipe, 0o600))
	require.NoError(t, writable(pipe), "it is not opened, which waits for a reader")
	require.NoError(t, writable(kept+".new"))
	require.NoFileExists(t, kept+".new")
}

func TestTheAddressesShownCanBeUsedAsTheyAre(t *testing.T) {
	require.Equal(t, "127.0.0.1:5", reachable(&net.TCPAddr{IP: net.IPv6unspecified, Port: 5}))
	require.Equal(t, "10.0.0.1:5", reachable(&net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 5}))
	require.True(t, loopback(&net.TCPAddr{IP: net.IPv6loopback, Port: 5}))
	require.False(t, loopback(&net.TCPAddr{IP: net.IPv6unspecified, Port: 5}))
	require.Empty(t, bearer(nil))
	require.Contains(t, bearer([]string{"secret"}), "Authorization: Bearer KEY")
}

// Ensure that --mamba-cache-mode is refused only where it has no effect.
func TestTheModeOfStatesNeedsStatesThatAreKept(t *testing.T) {
	states := &model.Config{Recurrence: &model.Recurrence{}}
	for _, test := range []struct {
		config *model.Config
		args   []string
		want   string
	}{
		{states, []string{"--mamba-cache-mode", "all"}, ""},
		{states, []string{"--no-prefix-caching"}, ""},
		{&model.Config{}, nil, ""},
		{&model.Config{}, []string{"--mamba-cache-mode", "all"}, "the model has no layers with states"},
		{states, []string{"--mamba-cache-mode", "all", "--no-prefix-caching"}, "--no-prefix-caching keeps no states; leave one of the flags out"},
	} {
		var o modelOptions
		f := pflag.NewFlagSet("", pflag.ContinueOnError)
		o.flags(f)
		require.NoError(t, f.Parse(test.args))
		c, err := o.engine(test.config)
		if test.want != "" {
			require.ErrorContains(t, err, test.want)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, len(test.args) == 2, c.AllStates)
	}
}
