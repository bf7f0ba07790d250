package build

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"llmmemory/internal/homework/grade/isolation/cputime"
	"llmmemory/internal/homework/grade/isolation/sandbox"
)

// limits is a shell script that runs a tool with limits, because the tool reads hostile files. It limits processor time
// ($0, in seconds), memory (1 GiB) and the size of files (64 MiB). sh counts memory in KiB and files in blocks of 512
// bytes.
const limits = `ulimit -c 0; ulimit -t "$0"; ulimit -v 1048576; ulimit -f 131072; exec "$@"`

// cpu is a tool's limit of processor time on a machine whose slowness is 1 (package cputime). It is generous, because
// the slowness that is measured on an emulated machine is too low for a compiler: emulation slows a compiler far more
// than the computation that is measured.
const cpu = time.Minute

// patience is a tool's limit of elapsed time. It is so much more than cpu that a tool exceeds it only on an overloaded
// machine.
const patience = time.Hour

const (
	maxOutput = 64 << 20
	maxLines  = 50
	maxLine   = 300
	maxSaid   = 64 << 10
)

// A complaint is a tool's message about an error in the file that it reads.
type complaint struct{ text string }

func (c *complaint) Error() string { return c.text }

func (k *Kit) gcc(args ...string) error { return k.run("gcc", args...) }

func (k *Kit) run(tool string, args ...string) error {
	_, err := k.output(tool, args...)
	return err
}

// output runs a tool and returns its standard output. If the error is a *complaint, the submission is wrong; any other
// error means that the grader failed.
func (k *Kit) output(tool string, args ...string) ([]byte, error) {
	for seconds := int(cpu / time.Second); ; seconds *= 2 {
		out, used, err := k.runLimited(seconds, tool, args...)
		if c := (*complaint)(nil); err != nil && !errors.As(err, &c) || used.CPU < cpu/4 {
			return out, err
		}
		slowness, slowErr := cputime.Slowness()
		if slowErr != nil {
			return nil, slowErr
		}
		all := time.Duration(float64(cpu) * slowness)
		switch {
		case err == nil && used.CPU >= all/4:
			return nil, fmt.Errorf("%s: %w: it took %v of processor time", tool, cputime.ErrSlow, used.CPU)
		case err == nil:
			return out, nil
		case used.CPU < time.Duration(seconds)*time.Second*9/10: // it did not reach the limit
			return nil, err
		case used.CPU >= all/2:
			return nil, &complaint{fmt.Sprintf("%s needs more than %v for it: is there a macro that grows without end?", tool, used.CPU.Round(time.Second))}
		}
	}
}

func (k *Kit) runLimited(seconds int, tool string, args ...string) ([]byte, cputime.Usage, error) {
	program, err := exec.LookPath(tool)
	if err != nil {
		return nil, cputime.Usage{}, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), k.patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/bin/sh", append([]string{"-c", limits, strconv.Itoa(seconds), program}, args...)...)
	cmd.Dir = k.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TMPDIR=" + k.dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	out, said := &sandbox.Head{Max: maxOutput}, &sandbox.Head{Max: maxSaid}
	cmd.Stdout, cmd.Stderr = out, said
	err = cmd.Run()
	if ctx.Err() != nil && err != nil {
		return nil, cputime.Usage{}, fmt.Errorf("%s did not finish within %v: is the machine busy?", tool, k.patience)
	}
	exit := (*exec.ExitError)(nil)
	if err != nil && !errors.As(err, &exit) {
		return nil, cputime.Usage{}, fmt.Errorf("%s: %w", tool, err)
	}
	used := cputime.Ended(cmd.ProcessState)
	if err != nil {
		return nil, used, &complaint{explain(tool, readable(said.Bytes()), err)}
	}
	return out.Bytes(), used, nil
}

// explain returns a tool's message. If the message does not say why the tool failed, explain adds the reason.
func explain(tool, said string, err error) string {
	switch {
	case strings.Contains(said, "out of memory") || strings.Contains(said, "memory exhausted"):
		return fmt.Sprintf("%s needs more than 1 GiB of memory for it:\n%s", tool, said)
	case strings.Contains(said, "internal compiler error") || strings.Contains(said, "signal terminated program"):
		return fmt.Sprintf("%s gives up on it, which it does on code that is too long or too deep:\n%s", tool, said)
	case said == "":
		return fmt.Sprintf("%s: %v", tool, err)
	}
	return said
}

func readable(said []byte) string {
	var b strings.Builder
	lines := bytes.Split(bytes.TrimSpace(said), []byte("\n"))
	for i, line := range lines {
		if i == maxLines {
			fmt.Fprintf(&b, "(and %d lines more)\n", len(lines)-i)
			break
		}
		b.WriteString(sandbox.Printable(line[:min(len(line), maxLine)]))
		if len(line) > maxLine {
			b.WriteString("...")
		}
		b.WriteByte('\n')
	}
	return strings.TrimSpace(b.String())
}
