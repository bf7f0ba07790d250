//go:build mpi

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Ensure that two ranks answer as one process over networks of 0, 0.1 and 1 ms and of 1 and 10 Gb/s, each
// in its own network namespace.
func TestRanksInNetworkNamespaces(t *testing.T) {
	run := func(words ...string) {
		out, err := exec.Command(words[0], words[1:]...).CombinedOutput()
		require.NoError(t, err, "%q: %s", words, out)
	}
	if err := exec.Command("ip", "netns", "add", "llmserve0").Run(); err != nil {
		t.Skip("this machine admits no network namespaces: ", err)
	}
	t.Cleanup(func() { run("ip", "netns", "del", "llmserve0") })
	run("ip", "netns", "add", "llmserve1")
	t.Cleanup(func() { run("ip", "netns", "del", "llmserve1") })
	run("ip", "link", "add", "rank0", "netns", "llmserve0", "type", "veth", "peer", "name", "rank1", "netns", "llmserve1")
	for _, n := range []string{"0", "1"} {
		run("ip", "-n", "llmserve"+n, "addr", "add", "10.77.0.1"+n+"/24", "dev", "rank"+n)
		run("ip", "-n", "llmserve"+n, "link", "set", "rank"+n, "up")
		run("ip", "-n", "llmserve"+n, "link", "set", "lo", "up")
	}
	agent := filepath.Join(t.TempDir(), "agent") // in place of ssh
	require.NoError(t, os.WriteFile(agent, []byte("#!/bin/sh\nshift\nexec ip netns exec llmserve1 sh -c \"$*\"\n"), 0o700))
	words := []string{"run", randomModel(t, "F16"), "hello", "--temperature", "0", "--max-tokens", "20", "--threads", "1", "--kv-cache-gb", "0.1"}
	want, err := llmserve(words...).Output()
	require.NoError(t, err)
	for _, network := range [][2]string{{"", ""}, {"0.1ms", "10gbit"}, {"1ms", "1gbit"}} {
		t.Run(network[0]+" "+network[1], func(t *testing.T) {
			for _, n := range []string{"0", "1"} {
				if network[0] == "" {
					continue
				}
				shape := exec.Command("ip", "netns", "exec", "llmserve"+n, "tc", "qdisc", "replace", "dev", "rank"+n, "root", "netem",
					"delay", network[0], "rate", network[1], "limit", "100000")
				if out, err := shape.CombinedOutput(); err != nil {
					t.Skipf("this kernel has no netem: %s", out)
				}
			}
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
