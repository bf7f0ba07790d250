// Command llmgrade grades submissions of the homework: a file, or a folder with
// one file or one folder per student.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"llmmemory/internal/homework/grade/judging/rules"
	"llmmemory/internal/terminal"
)

// Exit statuses.
const (
	fullMarks = iota
	less
	trouble
)

func main() {
	rules.Serve()
	signal.Ignore(syscall.SIGPIPE) // an error of the write says it, and what is temporary is removed
	status := fullMarks
	c := command(&status)
	terminal.RefuseUnknownNames(c)
	if err := c.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "llmgrade:", terminal.Visible(err.Error()))
		status = trouble
	}
	os.Exit(status)
}
