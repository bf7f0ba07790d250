package terminal

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"
)

// Progress shows on standard error how much of a command's work is done. On a terminal it rewrites one line;
// elsewhere it writes a new line every ten seconds. It is not safe for concurrent use.
type Progress struct {
	w       io.Writer
	units   string
	rewrite bool          // one line, which is rewritten
	period  time.Duration // minimum time between two lines
	last    time.Time
}

// NewProgress returns the progress of work that is counted in the given units. Their name is in the plural.
func NewProgress(units string) *Progress {
	if StderrIsTerminal() {
		return &Progress{w: os.Stderr, units: units, rewrite: true, period: 100 * time.Millisecond}
	}
	return &Progress{w: os.Stderr, units: units, period: 10 * time.Second, last: time.Now()}
}

// StderrIsTerminal reports whether standard error is a terminal.
func StderrIsTerminal() bool { return term.IsTerminal(int(os.Stderr.Fd())) }

// Show shows how many of total units are done. It does nothing if the last line was written too short a time ago. The
// total may grow from one call to the next.
func (p *Progress) Show(done, total int) {
	if time.Since(p.last) < p.period {
		return
	}
	if p.rewrite {
		fmt.Fprintf(p.w, "\r\x1b[K%d of %d %s (%d%%)", done, total, p.units, 100*done/max(total, 1))
	} else if done < total {
		fmt.Fprintf(p.w, "%d of %d %s so far\n", done, total, p.units)
	} else {
		return
	}
	p.last = time.Now()
}

// Clear removes the line from a terminal. Call it before other output and at the end.
func (p *Progress) Clear() {
	if p.rewrite && !p.last.IsZero() {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.last = time.Time{}
	}
}
