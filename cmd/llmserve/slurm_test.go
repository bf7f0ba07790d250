//go:build mpi

package main

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// slurmConf configures a cluster of two nodes, n1 and n2, on this host.
const slurmConf = `ClusterName=test
SlurmctldHost=@HOST@(127.0.0.1)
SlurmctldPort=16817
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=DIR/munge.sock
CredType=cred/munge
StateSaveLocation=DIR/state
SlurmdSpoolDir=DIR/spool-%n
SlurmctldPidFile=DIR/slurmctld.pid
SlurmdPidFile=DIR/slurmd-%n.pid
SlurmctldLogFile=DIR/slurmctld.log
SlurmdLogFile=DIR/slurmd-%n.log
TmpFS=DIR/tmp-%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
MpiDefault=pmix
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
NodeName=n1 NodeHostname=@HOST@ NodeAddr=127.0.0.1 Port=16818 CPUs=@CPUS@
NodeName=n2 NodeHostname=@HOST@ NodeAddr=127.0.0.1 Port=16819 CPUs=@CPUS@
PartitionName=all Nodes=n1,n2 Default=YES State=UP
`

// startSlurm starts Slurm with two nodes. It returns a function that makes commands for it.
func startSlurm(t *testing.T) func(...string) *exec.Cmd {
	dir, err := os.MkdirTemp("", "slurm") // a short path: it has a socket
	require.NoError(t, err)
	t.Cleanup(func() {
		if logs, _ := filepath.Glob(filepath.Join(dir, "*.log")); t.Failed() {
			for _, name := range logs {
				text, err := os.ReadFile(name)
				require.NoError(t, err)
				t.Logf("%s:\n%s", name, text)
			}
		}
		require.NoError(t, os.RemoveAll(dir))
	})
	host, err := os.Hostname()
	require.NoError(t, err)
	host, _, _ = strings.Cut(host, ".")
	nproc, err := exec.Command("nproc").Output()
	require.NoError(t, err)
	conf := strings.NewReplacer("@HOST@", host, "DIR", dir, "@CPUS@", strings.TrimSpace(string(nproc))).Replace(slurmConf)
	require.NoError(t, os.Chmod(dir, 0o755)) // as munged wants that of its socket
	key := make([]byte, 1024)
	_, err = rand.Read(key)
	require.NoError(t, err)
	at := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, os.WriteFile(at("slurm.conf"), []byte(conf), 0o644))
	require.NoError(t, os.WriteFile(at("munge.key"), key, 0o600))
	for _, name := range []string{"state", "tmp-n1", "tmp-n2"} {
		require.NoError(t, os.Mkdir(at(name), 0o755))
	}
	command := func(words ...string) *exec.Cmd {
		c := exec.Command(words[0], words[1:]...)
		c.Env = append(os.Environ(), "SLURM_CONF="+at("slurm.conf"), asCommand+"=1", "OMPI_MCA_btl_tcp_if_include=lo")
		return c
	}
	daemon := func(words ...string) {
		c := command(words...)
		require.NoError(t, c.Start())
		t.Cleanup(func() {
			_ = c.Process.Signal(syscall.SIGTERM) // it may have ended
			_ = c.Wait()
		})
	}
	daemon("munged", "--foreground", "--force", "--socket", at("munge.sock"), "--key-file", at("munge.key"),
		"--pid-file", at("munged.pid"), "--log-file", at("munged.log"), "--seed-file", at("munged.seed"))
	require.Eventually(t, func() bool { _, err := os.Stat(at("munge.sock")); return err == nil }, time.Minute, 10*time.Millisecond)
	daemon("slurmctld", "-D", "-i", "-f", at("slurm.conf"))
	daemon("slurmd", "-D", "-N", "n1", "-f", at("slurm.conf"))
	daemon("slurmd", "-D", "-N", "n2", "-f", at("slurm.conf"))
	require.Eventually(t, func() bool {
		out, err := command("sinfo", "-h", "-t", "idle", "-o", "%D").Output()
		return err == nil && strings.TrimSpace(string(out)) == "2"
	}, time.Minute, 100*time.Millisecond)
	return command
}

// Ensure that the loss of a rank on either node ends the job.
func TestRanksUnderSlurm(t *testing.T) {
	slurm := startSlurm(t)
	path := randomModel(t, "F16")
	run := []string{"run", path, "hello", "--temperature", "0", "--max-tokens", "20", "--threads", "1", "--kv-cache-gb", "0.1"}
	want, err := llmserve(run...).Output()
	require.NoError(t, err)
	srun := []string{"srun", "--mpi=pmix", "-N2", "-n2", "--label"}
	got, err := slurm(append(append(srun, os.Args[0]), run...)...).Output()
	require.NoError(t, err)
	require.Equal(t, string(want), strings.ReplaceAll(strings.TrimPrefix(string(got), "0:"), "\n0:", "\n")[1:])
	for lost := range 2 {
		for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP} {
			t.Run(fmt.Sprintf("%v of rank %d", signal, lost), func(t *testing.T) {
				c := slurm(append(append(srun, "--kill-on-bad-exit=0"), os.Args[0], path, "--port", "0", "--kv-cache-gb", "0.1",
					"--threads", "1", "--iteration-timeout", "4s")...)
				var errors bytes.Buffer
				c.Stderr = &errors
				out, err := c.StdoutPipe()
				require.NoError(t, err)
				require.NoError(t, c.Start())
				buffer := make([]byte, 4096)
				for text := ""; !strings.Contains(text, "serving"); {
					n, err := out.Read(buffer)
					require.NoError(t, err, &errors)
					text += string(buffer[:n])
				}
				require.NoError(t, syscall.Kill(rankWith(t, fmt.Sprintf("PMIX_RANK=%d\x00", lost), path), signal))
				require.Error(t, c.Wait())
				require.Regexp(t, fmt.Sprintf(`llmserve: rank \d on \S+: rank %d is lost: no answer for 4s\n`, lost), errors.String())
			})
		}
	}
}

// rankWith returns the number of the process that has the given texts in its environment and in its
// arguments.
func rankWith(t *testing.T, environment, argument string) int {
	all, err := filepath.Glob("/proc/[0-9]*/environ")
	require.NoError(t, err)
	for _, name := range all {
		text, _ := os.ReadFile(name) // it may have ended, or be the kernel's
		words, _ := os.ReadFile(filepath.Join(filepath.Dir(name), "cmdline"))
		ranked, err := regexp.Match("(^|\x00)"+environment, text)
		require.NoError(t, err)
		if ranked && bytes.Contains(words, []byte(argument)) && bytes.HasPrefix(words, []byte(os.Args[0])) {
			var pid int
			_, err := fmt.Sscanf(name, "/proc/%d/", &pid)
			require.NoError(t, err)
			return pid
		}
	}
	require.Fail(t, "no such rank", environment)
	return 0
}
