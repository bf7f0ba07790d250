package grade

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"llmmemory/internal/homework/grade/isolation/sandbox"
)

// A Setting has the versions that a score depends on. With the same Setting, the same file and seed give the same
// score.
type Setting struct {
	GCC, Linker, Libc, Valgrind string // as they print their versions; empty if missing
	Sandbox                     string // the parts of the sandbox that are active
}

// ErrTools means that a program that grading needs is not installed.
var ErrTools = errors.New("not installed")

// CheckTools returns an error if a program that grading needs is not installed. memcheck says whether the run needs
// Memcheck. Most runs do; a replay and a run with Grader.Only do not.
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
	line, _, _ := strings.Cut(string(out), "\n")
	return line
}
