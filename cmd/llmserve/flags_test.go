package main

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestAFlagWhoseValueCannotBeMeantIsRefusedByName(t *testing.T) {
	for _, test := range []struct {
		name string
		args []string
		want string
	}{
		{"an empty key", []string{"--api-key", ""}, "--api-key is empty"},
		{"a blank key", []string{"--api-key", " "}, "--api-key is empty"},
		{"a port that there is not", nil, "--port is 99999; it must be from 0 to 65535"},
		{"an address that no machine has", []string{"--port", "0", "--host", "192.0.2.1"}, "--host 192.0.2.1: "},
		{"blocks of too many tokens", []string{"--block-size", "1000000"},
			"--block-size is 1000000; it must be at most 65536"},
		{"blocks of no token", []string{"--block-size", "0"}, "--block-size is 0; it must be at least 1"},
		{"no sequence", []string{"--max-num-seqs", "0"}, "--max-num-seqs is 0"},
		{"steps of no token", []string{"--max-num-batched-tokens", "0"}, "--max-num-batched-tokens is 0"},
		{"no place in the queue", []string{"--max-waiting", "0"}, "--max-waiting is 0"},
		{"bodies of no byte", []string{"--max-body", "0"}, "--max-body is 0"},
		{"a negative time", []string{"--drain", "-1s"}, "--drain is -1s"},
		{"more threads than a process can have", []string{"--threads", "100000"}, "--threads is 100000; at most 1024"},
		{"a processor that is not there", []string{"--cpus", "60000", "--port", "0"}, "processor 60000"},
		{"more memory than there is", []string{"--kv-cache-gb", "1e9"}, "of memory are available"},
		{"a near miss of a flag", []string{"--prot", "1"}, "unknown flag: --prot; did you mean --port?"},
		{"no memory", []string{"--kv-cache-gb", "0"}, "--kv-cache-gb is 0; it must be above 0"},
	} {
		t.Run(test.name, func(t *testing.T) {
			line, _ := refused(t, append([]string{"demo", "--port", "99999"}, test.args...)...)
			require.Contains(t, line, test.want)
		})
	}
}

func TestTheVersionIsSaid(t *testing.T) {
	out, err := llmserve("--version").Output()
	require.NoError(t, err)
	require.Contains(t, string(out), "llmserve version ")
}

func TestAnEmptyKeyOfTheEnvironmentIsRefused(t *testing.T) {
	for _, key := range []string{"", " "} {
		t.Setenv("LLMSERVE_API_KEY", key)
		line, _ := refused(t, "demo", "--port", "99999")
		require.Contains(t, line, "LLMSERVE_API_KEY is empty")
	}
}

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
		t.Run(flag, func(t *testing.T) {
			c := llmserve("bench", "demo", "--num-prompts", "1", "--input-len", "4", "--output-len", "2", flag, missing)
			out, err := c.Output()
			require.Error(t, err)
			require.Empty(t, out, "nothing was measured")
		})
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
