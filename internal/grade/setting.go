package grade

import (
	"bufio"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"llmmemory/internal/grade/sandbox"
)

// A Setting is what a result may depend on but for the submission: the same file
// and seed in the same setting give the same score.
type Setting struct {
	GCC, Linker, Libc, Valgrind string // what they say of their versions; empty if they are missing
	Sandbox                     string // what shuts the submission in
}

// ErrTools is wrapped when a program that grading needs is not installed.
var ErrTools = errors.New("not installed")

// CheckTools looks for the programs that grading needs, before anything is graded. A
// replay, and the traces that Grader.Only names, need no Memcheck.
func CheckTools(memcheck bool) error {
	needed := []string{"gcc", "as", "ld", "objcopy", "objdump"}
	if memcheck {
		needed = append(needed, "valgrind")
	}
	for _, program := range needed {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("%s is %w, and grading needs it; on Debian and Ubuntu: apt install gcc valgrind", program, ErrTools)
		}
	}
	return nil
}

func newSetting() (Setting, error) {
	layers, err := sandbox.Active()
	return Setting{
		GCC:      firstLine("gcc", "--version"),
		Linker:   firstLine("ld", "--version"), // which gcc calls
		Libc:     firstLine("ldd", "--version"),
		Valgrind: firstLine("valgrind", "--version"),
		Sandbox:  layers.String(),
	}, err
}

func firstLine(program string, args ...string) string {
	out, err := exec.Command(program, args...).Output()
	if err != nil {
		return ""
	}
	s := bufio.NewScanner(strings.NewReader(string(out)))
	s.Scan()
	return s.Text()
}
