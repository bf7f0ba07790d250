// Command llmgrade grades submissions of the homework: a file, or a folder with
// one file or one folder per student.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"llmmemory/internal/grade/rules"
)

// Exit statuses.
const (
	fullMarks = iota
	less
	trouble
)

func main() {
	rules.Serve()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second one ends the process at once
	status := fullMarks
	if err := command(&status).ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "llmgrade:", err)
		status = trouble
	}
	os.Exit(status)
}
