package openai

import (
	"errors"
	"net/http"
	"os"
	"time"
)

// A Record is about a request that was answered. What is in it came from the client.
type Record struct {
	Begin                          time.Time
	Elapsed                        time.Duration
	Client, Method, Path           string
	Status                         int
	PromptTokens, GenerationTokens int
	Reason                         string // why it was refused or failed; "" if it was not
}

// Refused reports whether the client got an error.
func (r *Record) Refused() bool { return r.Status >= 400 || r.Reason != "" }

// A recorder is a response that fills in a record.
type recorder struct {
	http.ResponseWriter
	record Record
}

func (r *recorder) WriteHeader(status int) {
	if r.record.Status == 0 {
		r.record.Status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Write(data []byte) (int, error) {
	n, err := r.ResponseWriter.Write(data)
	return n, r.written(err)
}

// FlushError implements what http.ResponseController calls.
func (r *recorder) FlushError() error {
	return r.written(http.NewResponseController(r.ResponseWriter).Flush())
}

// written records the error of writing to the client.
func (r *recorder) written(err error) error {
	switch {
	case err == nil, errors.Is(err, http.ErrNotSupported):
	case errors.Is(err, os.ErrDeadlineExceeded):
		recordError(r, errUnread)
	default:
		recordError(r, errGone)
	}
	return err
}

// Unwrap returns the writer below, as http.ResponseController asks.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// recorded answers a request, and passes its record on.
func (s *Server) recorded(w http.ResponseWriter, r *http.Request, answer http.HandlerFunc) {
	if s.config.Record == nil {
		answer(w, r)
		return
	}
	rec := &recorder{w, Record{Begin: time.Now(), Client: r.RemoteAddr, Method: r.Method, Path: r.URL.EscapedPath()}}
	defer func() {
		if rec.record.Status == 0 {
			rec.record.Status = http.StatusOK // nothing was written, or no status
		}
		rec.record.Elapsed = time.Since(rec.record.Begin)
		s.config.Record(rec.record)
	}()
	answer(rec, r)
}

// recordError records why a request is refused or fails: the first reason.
func recordError(w http.ResponseWriter, e *apiError) {
	if rec, ok := w.(*recorder); ok && rec.record.Reason == "" {
		rec.record.Reason = e.Message
	}
}

// recordUsage records the tokens of an answer.
func recordUsage(w http.ResponseWriter, u *usage) {
	if rec, ok := w.(*recorder); ok {
		rec.record.PromptTokens, rec.record.GenerationTokens = u.PromptTokens, u.CompletionTokens
	}
}
