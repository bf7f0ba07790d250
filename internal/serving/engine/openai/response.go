package openai

import (
	"errors"
	"net/http"
	"os"
	"strings"
	"time"
)

// A Record describes an answered request. Method, Path and parts of Reason and Warning are texts from the client.
type Record struct {
	Begin                          time.Time
	Elapsed                        time.Duration
	Client, Method, Path           string
	Status                         int
	PromptTokens, GenerationTokens int
	Reason                         string // why the request was refused or failed, or ""
	Warning                        string // what of the request the answer leaves out, or ""
}

// Refused reports whether the request was refused or failed.
func (r *Record) Refused() bool { return r.Status >= 400 || r.Reason != "" }

// WriteTimeout is how long a client may take to accept a piece of an answer. The server closes the connection to a
// slower client and drops the rest of the answer.
const WriteTimeout = time.Minute

// maxPiece is the largest number of bytes that are written with one deadline.
const maxPiece = 256 << 10

// A response sets a new deadline before each write of a piece, and fills in a Record.
type response struct {
	http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
	record  Record
	errors  ErrorForm // of the path, or nil for OpenAI's
}

// respond answers a request, and passes its record on.
func (s *Server) respond(w http.ResponseWriter, r *http.Request, answer http.HandlerFunc) {
	res := &response{ResponseWriter: w, control: http.NewResponseController(w), timeout: s.config.WriteTimeout,
		record: Record{Begin: time.Now(), Client: r.RemoteAddr, Method: r.Method, Path: r.URL.EscapedPath()}}
	defer func() {
		if res.record.Status == 0 {
			res.record.Status = http.StatusOK // of net/http, if a handler writes nothing or no status
		}
		res.record.Elapsed = time.Since(res.record.Begin)
		if s.config.Record != nil {
			s.config.Record(res.record)
		}
	}()
	answer(res, r)
}

// extend sets the deadline for the next piece. Connections without deadlines, as in a test, are ignored.
func (w *response) extend() { _ = w.control.SetWriteDeadline(time.Now().Add(w.timeout)) }

func (w *response) WriteHeader(status int) {
	if w.record.Status == 0 {
		w.record.Status = status
	}
	w.extend()
	w.ResponseWriter.WriteHeader(status)
}

func (w *response) Write(data []byte) (n int, err error) {
	for len(data) > 0 && err == nil {
		piece := data[:min(len(data), maxPiece)]
		data = data[len(piece):]
		w.extend()
		var written int
		written, err = w.ResponseWriter.Write(piece)
		n += written
	}
	return n, w.checked(err)
}

// FlushError implements what http.ResponseController calls.
func (w *response) FlushError() error {
	w.extend()
	return w.checked(w.control.Flush())
}

// Unwrap returns the writer below, as http.ResponseController asks.
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// checked records an error of writing to the client.
func (w *response) checked(err error) error {
	switch {
	case err == nil, errors.Is(err, http.ErrNotSupported):
	case errors.Is(err, os.ErrDeadlineExceeded):
		recordError(w, errUnread)
	default:
		recordError(w, errGone)
	}
	return err
}

// recordError records why a request was refused or failed. Only the first reason is kept.
func recordError(w http.ResponseWriter, e *apiError) {
	if res, ok := w.(*response); ok && res.record.Reason == "" {
		res.record.Reason = e.Message
	}
}

// recordWarnings records what of the request the answer leaves out. It shortens a long text.
func recordWarnings(w http.ResponseWriter, warnings []string) {
	if res, ok := w.(*response); ok {
		res.record.Warning = shown(strings.Join(warnings, " "))
	}
}

// recordUsage records the tokens of an answer.
func recordUsage(w http.ResponseWriter, u *usage) {
	if res, ok := w.(*response); ok {
		res.record.PromptTokens, res.record.GenerationTokens = u.PromptTokens, u.CompletionTokens
	}
}
