package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/corpus"
)

func start(b *testing.B, args ...string) (*exec.Cmd, func() string) {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), "BE_LLMGRADE=1")
	out, err := cmd.StdoutPipe()
	require.NoError(b, err)
	require.NoError(b, cmd.Start())
	return cmd, func() string {
		buffer := make([]byte, 4096)
		n, _ := out.Read(buffer)
		return string(buffer[:n])
	}
}

func BenchmarkCorrect(b *testing.B) {
	used := time.Duration(0)
	for b.Loop() {
		cmd, _ := start(b, corpus.Path("correct/llm_memory.c"))
		require.NoError(b, cmd.Wait())
		used += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	b.ReportMetric(used.Seconds()/float64(b.N), "cpu-s/submission")
	b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "s/submission")
}

func BenchmarkFirstMessage(b *testing.B) {
	file := mutant(b, b.TempDir(), "A5")
	waited := time.Duration(0)
	for b.Loop() {
		begin := time.Now()
		cmd, first := start(b, file)
		require.Contains(b, first(), "task4")
		waited += time.Since(begin)
		_ = cmd.Wait()
	}
	b.ReportMetric(waited.Seconds()/float64(b.N), "s/first_message")
}

var peak = regexp.MustCompile(`VmHWM:\s+(\d+) kB`)

// BenchmarkClass grades a class of 24 submissions. Every third is correct; each of the others has a mistake.
func BenchmarkClass(b *testing.B) {
	dir := b.TempDir()
	ids := []string{"", "A1", "C3", "", "F6", "K5", "", "I2", "D1", "", "A14", "L1"}
	for i := range 24 {
		require.NoError(b, os.Rename(mutant(b, b.TempDir(), ids[i%len(ids)]), filepath.Join(dir, fmt.Sprintf("s%02d.c", i))))
	}
	most, used := 0, time.Duration(0)
	for b.Loop() {
		cmd, _ := start(b, "--html", filepath.Join(b.TempDir(), "grades"), dir)
		done := make(chan error)
		go func() { done <- cmd.Wait() }()
		for running := true; running; {
			select {
			case <-done:
				running = false
			case <-time.After(20 * time.Millisecond):
				text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
				if m := peak.FindSubmatch(text); m != nil {
					kb, _ := strconv.Atoi(string(m[1]))
					most = max(most, kb)
				}
			}
		}
		used += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime() // with all that it has waited for
	}
	b.ReportMetric(used.Seconds()/float64(24*b.N), "cpu-s/submission")
	b.ReportMetric(24*60/(b.Elapsed().Seconds()/float64(b.N)), "submissions/min")
	b.ReportMetric(float64(most)/1024, "MB")
}

func mutant(b *testing.B, dir, id string) string {
	text := corpus.Correct(b)
	if id != "" {
		text = corpus.Source(b, id)
	}
	return write(b, filepath.Join(dir, "llm_memory.c"), text)
}
