package grade

import (
	"bufio"
	"os/exec"
	"strings"
)

// A Setting is what a result may depend on but for the submission: the same file
// and seed in the same setting give the same score.
type Setting struct {
	GCC, Libc, Valgrind string // what they say of their versions; empty if they are missing
}

func newSetting() Setting {
	return Setting{
		GCC:      firstLine("gcc", "--version"),
		Libc:     firstLine("ldd", "--version"),
		Valgrind: firstLine("valgrind", "--version"),
	}
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
