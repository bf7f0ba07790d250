//go:build mpi

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Ensure that two ranks answer as one process over networks of 0, 0.1 and 1 ms and of 1 and 10 Gb/s, each
// in its own network namespace.
func TestRanksInNetworkNamespaces(t *testing.T) {
	names := [2]string{"llmserve0", "llmserve1"}
	if err := exec.Command("ip", "netns", "add", names[0]).Run(); err != nil {
		t.Skip("this machine admits no network namespaces: ", err)
	}
	t.Cleanup(func() { ip(t, "netns", "del", names[0]) })
	ip(t, "netns", "add", names[1])
	t.Cleanup(func() { ip(t, "netns", "del", names[1]) })
	for _, name := range names {
		ip(t, "-n", name, "link", "set", "lo", "up")
	}
	agent := filepath.Join(t.TempDir(), "agent") // in place of ssh
	require.NoError(t, os.WriteFile(agent, []byte("#!/bin/sh\nshift\nexec ip netns exec llmserve1 sh -c \"$*\"\n"), 0o700))
	words := []string{"run", randomModel(t, "F16"), "hello", "--temperature", "0", "--max-tokens", "20", "--threads", "1", "--kv-cache-gb", "0.1"}
	want, err := llmserve(words...).Output()
	require.NoError(t, err)
	for _, n := range []network{{}, {100 * time.Microsecond, 10e9}, {time.Millisecond, 1e9}} {
		t.Run(fmt.Sprintf("%v, %d bit/s", n.delay, n.rate), func(t *testing.T) {
			relay(t, names, [2]string{"10.77.0.10/24", "10.77.0.11/24"}, n)
			c := exec.Command("ip", append([]string{"netns", "exec", "llmserve0", "mpirun", "--host", "10.77.0.10,10.77.0.11", "-n", "2",
				"-x", asCommand, "--mca", "plm_rsh_agent", agent, "--mca", "btl", "tcp,self",
				"--mca", "btl_tcp_if_include", "10.77.0.0/24", "--mca", "oob_tcp_if_include", "10.77.0.0/24", os.Args[0]}, words...)...)
			c.Env = append(os.Environ(), asCommand+"=1", "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
			got, err := c.Output()
			require.NoError(t, err)
			require.Equal(t, string(want), string(got))
		})
	}
}
