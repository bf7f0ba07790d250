// Command summary runs go test, given as its arguments, and prints each package as soon as it is done, with
// its processor time, the output of tests that fail, and at the end how many there were. .ci/test uses it.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	if os.Args[1] == "run" {
		os.Exit(runTests(os.Args[2:]))
	}
	os.Exit(summarize(os.Args[1:]))
}

// runTests runs the tests of a package, as go test -exec calls it. The last line of the output is the processor
// time of the tests and of all programs that they waited for.
func runTests(command []string) int {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err := cmd.Run()
	if cmd.ProcessState == nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	user, system := cmd.ProcessState.UserTime().Seconds(), cmd.ProcessState.SystemTime().Seconds()
	fmt.Printf("%s%.1f s user, %.1f s system\n", processorTime, user, system)
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return cmd.ProcessState.ExitCode()
}

const processorTime = "processor time: "

// An event is a line of go test -json.
type event struct {
	Action, Package, Test, Output string
}

// summarize returns the status of go test.
func summarize(command []string) int {
	begin := time.Now()
	self, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	at := slices.Index(command, "test") + 1
	command = slices.Insert(command, at, "-json", "-exec", "'"+self+"' run")
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	s := summary{begin: begin, output: map[event][]string{}}
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<30)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil { // go test's own, of what it could not begin
			fmt.Println(lines.Text())
			continue
		}
		s.add(e)
	}
	err = cmd.Wait()
	if lines.Err() != nil || err != nil && cmd.ProcessState.Success() {
		fmt.Fprintln(os.Stderr, lines.Err(), err)
		return 1
	}
	s.end()
	return cmd.ProcessState.ExitCode()
}

type summary struct {
	begin                    time.Time
	output                   map[event][]string // of each package and test that has not ended
	failed                   []string
	packages, tests, skipped int
}

func (s *summary) add(e event) {
	of := event{Package: e.Package, Test: e.Test}
	switch e.Action {
	case "build-output":
		fmt.Print(e.Output)
	case "output":
		s.output[of] = append(s.output[of], e.Output)
	case "run":
		s.tests++
	case "pass", "fail", "skip":
		switch {
		case e.Test == "":
			s.endPackage(e, s.output[of])
		case e.Action == "fail":
			s.failed = append(s.failed, e.Package+" "+e.Test)
			fmt.Print(strings.Join(s.output[of], ""))
		case e.Action == "skip":
			s.skipped++
		}
		delete(s.output, of)
	}
}

// endPackage prints the line of a package, and what else it printed if it failed.
func (s *summary) endPackage(e event, output []string) {
	if e.Action == "skip" { // it has no tests
		return
	}
	s.packages++
	var line, took string
	for _, text := range output {
		if strings.HasPrefix(text, "ok  \t") || strings.HasPrefix(text, "FAIL\t") {
			line = strings.TrimSpace(text)
		} else if after, ok := strings.CutPrefix(text, processorTime); ok {
			took = " (" + strings.TrimSpace(after) + ")"
		} else if e.Action == "fail" {
			fmt.Print(text)
		}
	}
	inIt := func(failed string) bool { return strings.HasPrefix(failed, e.Package+" ") }
	if e.Action == "fail" && !slices.ContainsFunc(s.failed, inIt) {
		s.failed = append(s.failed, e.Package)
	}
	fmt.Printf("%4d s  %3d  %s%s\n", int(time.Since(s.begin).Seconds()), s.packages, line, took)
}

func (s *summary) end() {
	for _, name := range s.failed {
		fmt.Println("FAIL:", name)
	}
	fmt.Printf("DONE %d tests, %d skipped, %d failed in %.1f s\n", s.tests, s.skipped, len(s.failed), time.Since(s.begin).Seconds())
}
