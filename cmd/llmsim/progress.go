package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// counted shows progress: with a bar on a terminal, otherwise with a line from time to time. It is not safe for
// concurrent use; stop ends the bar.
func counted(what string) (show func(done, total int), stop func()) {
	if !onTerminal() {
		return said(os.Stderr, what, 10*time.Second), func() {}
	}
	return drawn(os.Stderr, what, often)
}

// often is the time between two updates of a bar.
const often = 100 * time.Millisecond

func onTerminal() bool { return term.IsTerminal(int(os.Stderr.Fd())) }

// drawn returns a bar that is drawn at most once in a period. The total may grow.
func drawn(w io.Writer, what string, every time.Duration) (show func(done, total int), stop func()) {
	bar := progressbar.NewOptions(1, progressbar.OptionSetWriter(w), progressbar.OptionSetDescription(what),
		progressbar.OptionThrottle(every), progressbar.OptionClearOnFinish(), progressbar.OptionSetPredictTime(false))
	_ = bar.RenderBlank()
	return func(done, total int) {
		bar.Describe(fmt.Sprintf("%d of %d %s", done, total, what))
		bar.ChangeMax(total + 1) // a bar that is full is never drawn again, and more may be asked for
		_ = bar.Set(done)
	}, func() { _ = bar.Finish() }
}

// said writes a line if a period has passed since the last line or the start.
func said(w io.Writer, what string, every time.Duration) func(done, total int) {
	last := time.Now()
	return func(done, total int) {
		if time.Since(last) >= every && done < total {
			last = time.Now()
			fmt.Fprintf(w, "%d of %d %s so far\n", done, total, what)
		}
	}
}
