package build

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"llmmemory/internal/grade/limitedbuffer"
)

// What a tool may use, which reads hostile files: 10 s of CPU, 1 GiB of memory,
// files of 64 MiB (sh counts KiB, and blocks of 512 bytes). A correct submission
// takes a hundredth.
const (
	limits = `ulimit -c 0; ulimit -t 10; ulimit -v 1048576; ulimit -f 131072; exec "$@"`
	cpu    = 10 * time.Second
)

// patience is how long a tool may take by the clock: many times its processor
// time, so that it is over only where the machine is too busy, which is never
// the submission's fault.
const patience = 10 * time.Minute

// What is kept of what a tool says.
const (
	mostOutput = 64 << 20
	mostLines  = 50
	mostLine   = 300
	mostSaid   = 64 << 10
)

// errSlow: the machine is too busy to compile.
var errSlow = errors.New("did not finish")

// A complaint is what a tool says of a file it does not like.
type complaint struct{ text string }

func (c *complaint) Error() string { return c.text }

func (k *Kit) gcc(args ...string) error { return k.run("gcc", args...) }

func (k *Kit) run(tool string, args ...string) error {
	_, err := k.output(tool, args...)
	return err
}

// output is what a tool prints. A *complaint is about the file; any other error
// is trouble of our own.
func (k *Kit) output(tool string, args ...string) ([]byte, error) {
	program, err := exec.LookPath(tool)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), k.patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/bin/sh", append([]string{"-c", limits, "sh", program}, args...)...)
	cmd.Dir = k.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TMPDIR=" + k.dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	out, said := &limitedbuffer.Buffer{Most: mostOutput}, &limitedbuffer.Buffer{Most: mostSaid}
	cmd.Stdout, cmd.Stderr = out, said
	err = cmd.Run()
	if err == nil {
		return out.Bytes(), nil
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%s %w within %v: is the machine busy?", tool, errSlow, k.patience)
	}
	exit := (*exec.ExitError)(nil)
	if !errors.As(err, &exit) {
		return nil, fmt.Errorf("%s: %w", tool, err)
	}
	return nil, &complaint{explain(tool, exit.ProcessState, readable(said.Bytes()), err)}
}

// explain puts in front why a tool gave up, where that is not what it says.
func explain(tool string, state *os.ProcessState, said string, err error) string {
	switch {
	case state.UserTime()+state.SystemTime() > cpu*9/10:
		return fmt.Sprintf("%s needs more than %v for it: is there a macro that grows without end?", tool, cpu)
	case strings.Contains(said, "out of memory") || strings.Contains(said, "memory exhausted"):
		return fmt.Sprintf("%s needs more than 1 GiB of memory for it:\n%s", tool, said)
	case strings.Contains(said, "internal compiler error") || strings.Contains(said, "signal terminated program"):
		return fmt.Sprintf("%s gives up on it, which it does on code that is too long or too deep:\n%s", tool, said)
	case said == "":
		return fmt.Sprintf("%s: %v", tool, err)
	}
	return said
}

// readable cuts what a tool says to what a student can read, and takes out what a
// terminal would obey.
func readable(said []byte) string {
	var b strings.Builder
	lines := bytes.Split(bytes.TrimSpace(said), []byte("\n"))
	for i, line := range lines {
		if i == mostLines {
			fmt.Fprintf(&b, "(and %d lines more)\n", len(lines)-i)
			break
		}
		b.WriteString(strings.Map(func(r rune) rune {
			if r == utf8.RuneError || r < ' ' && r != '\t' || r == 0x7f || r >= 0x80 && r < 0xa0 {
				return '?'
			}
			return r
		}, string(line[:min(len(line), mostLine)])))
		if len(line) > mostLine {
			b.WriteString("...")
		}
		b.WriteByte('\n')
	}
	return strings.TrimSpace(b.String())
}
