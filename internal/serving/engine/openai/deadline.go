package openai

import (
	"net/http"
	"time"
)

// WriteTimeout is how long a client may take to accept a piece of an answer. A client that reads nothing for that long
// is disconnected, and what it has not read is freed.
const WriteTimeout = time.Minute

// maxPiece is the most bytes that a client has WriteTimeout for.
const maxPiece = 256 << 10

// A deadlined response has a new deadline for each piece that is written.
type deadlined struct {
	http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
}

func (s *Server) deadlined(w http.ResponseWriter) *deadlined {
	return &deadlined{w, http.NewResponseController(w), s.config.WriteTimeout}
}

// extend sets the deadline. Where a connection has none, as in a test, the server's apply.
func (w *deadlined) extend() { _ = w.control.SetWriteDeadline(time.Now().Add(w.timeout)) }

func (w *deadlined) WriteHeader(status int) {
	w.extend()
	w.ResponseWriter.WriteHeader(status)
}

func (w *deadlined) Write(data []byte) (n int, err error) {
	for len(data) > 0 && err == nil {
		piece := data[:min(len(data), maxPiece)]
		data = data[len(piece):]
		w.extend()
		var written int
		written, err = w.ResponseWriter.Write(piece)
		n += written
	}
	return n, err
}

// FlushError implements what http.ResponseController calls.
func (w *deadlined) FlushError() error {
	w.extend()
	return w.control.Flush()
}

// Unwrap returns the writer below, as http.ResponseController asks.
func (w *deadlined) Unwrap() http.ResponseWriter { return w.ResponseWriter }
