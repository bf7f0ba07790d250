package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"llmmemory/internal/serving/engine/openai"
	"llmmemory/internal/terminal"
)

// An accessLog writes a line for each request, or only for requests that get an error or a new warning. It limits the
// number of lines about errors and warnings, so that clients cannot fill the disk, and writes how many lines about errors
// it has left out.
type accessLog struct {
	w   io.Writer
	all bool // --log-requests

	mu      sync.Mutex
	errors  *rate.Limiter
	omitted int
	warned  map[string]bool // the warnings that were written, at most maxWarned
}

const (
	errorBurst   = 20          // lines about errors that are written at once
	errorRate    = 1           // lines about errors in a second after that
	maxWarned    = 50          // warnings that are written
	omittedAfter = time.Minute // time from the first line that is left out to the line with their number
)

func newAccessLog(w io.Writer, all bool) *accessLog {
	return &accessLog{w: w, all: all, errors: rate.NewLimiter(errorRate, errorBurst), warned: map[string]bool{}}
}

func (l *accessLog) note(r openai.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	refused := r.Refused() && r.Path != "/health" // a probe asks for this error
	switch {
	case refused && !l.errors.AllowN(r.Begin.Add(r.Elapsed), 1):
		if l.omitted++; l.omitted == 1 {
			time.AfterFunc(omittedAfter, l.flush)
		}
	case refused || l.all || l.isNew(r.Warning):
		fmt.Fprintln(l.w, accessLine(&r)) // an error cannot be reported anywhere
	}
}

// isNew reports whether a warning is written for the first time. Agents cause the same warning in each request.
func (l *accessLog) isNew(warning string) bool {
	if warning == "" || l.warned[warning] || len(l.warned) == maxWarned {
		return false
	}
	l.warned[warning] = true
	return true
}

func (l *accessLog) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.omitted > 0 {
		fmt.Fprintf(l.w, "%s %d more requests got errors; their lines were left out\n", stamp(time.Now()), l.omitted)
	}
	l.omitted = 0
}

// accessLine returns a line without control characters and of at most a few hundred bytes.
func accessLine(r *openai.Record) string {
	line := fmt.Sprintf("%s %s %s %s %d in=%d out=%d %.3fs", stamp(r.Begin), r.Client, shortened(r.Method, 16),
		shortened(r.Path, 100), r.Status, r.PromptTokens, r.GenerationTokens, r.Elapsed.Seconds())
	if r.Reason != "" {
		line += " " + shortened(r.Reason, 200)
	}
	if r.Warning != "" {
		line += " warning: " + shortened(r.Warning, 200)
	}
	return line
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// shortened returns a client's text on one line. Of a text with more than maxBytes bytes, it keeps only the
// first maxBytes.
func shortened(text string, maxBytes int) string {
	if len(text) > maxBytes {
		text = strings.ToValidUTF8(text[:maxBytes], "") + "..."
	}
	return terminal.VisibleName(text)
}
