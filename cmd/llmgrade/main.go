// Command llmgrade grades submissions of the homework: a file, or a folder with a file or a folder for each
// student.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"llmmemory/internal/homework/grade/judging/rules"
	"llmmemory/internal/terminal"
)

const (
	fullMarks = iota
	fewerPoints
	trouble
)

func main() {
	rules.Serve()
	signal.Ignore(syscall.SIGPIPE) // the write returns an error instead, and temporary files are removed
	status := fullMarks
	c := command(&status)
	terminal.RefuseUnknownNames(c)
	if err := c.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "llmgrade:", terminal.Visible(err.Error()))
		status = trouble
	}
	os.Exit(status)
}
