package view

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"

	"llmmemory/internal/scheduling/serve"
)

// A Live is a recording to which frames are added while its page is open. The page shows the frames so far and
// requests new ones. A Live may be used by several goroutines at once.
type Live struct {
	mu      sync.Mutex
	head    Recording // has no frames
	frames  []Frame   // the last frames
	first   int       // number of the first frame
	limit   int
	changed chan struct{} // closed when a frame is added
}

// NewLive returns a recording that keeps only the last limit frames. The error wraps ErrRecording.
func NewLive(head Recording, limit int) (*Live, error) {
	if err := head.checkPool(); err != nil {
		return nil, err
	}
	if limit < 2 {
		return nil, fmt.Errorf("%w: %d frames: want at least 2", ErrRecording, limit)
	}
	return &Live{head: head, limit: limit, changed: make(chan struct{})}, nil
}

// Add adds a frame, which must not change afterwards.
func (l *Live) Add(f Frame) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.frames = append(l.frames, f)
	if n := len(l.frames) - l.limit; n > 0 {
		clear(l.frames[:n])
		l.frames, l.first = l.frames[n:], l.first+n
	}
	close(l.changed)
	l.changed = make(chan struct{})
}

// Restart removes all frames. It must be called when recording begins again after a pause, because the next frame is
// not one step after the last one.
func (l *Live) Restart() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.first, l.frames = l.first+len(l.frames), nil
}

// Last returns the last frame, or false if there is none.
func (l *Live) Last() (Frame, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.frames) == 0 {
		return Frame{}, false
	}
	return l.frames[len(l.frames)-1], true
}

// Write writes the page. To get new frames, the page requests the URL that consists of source and the number of a
// frame. The recording must have a frame.
func (l *Live) Write(w io.Writer, source string) error {
	l.mu.Lock()
	r, first := l.head, l.first
	r.Frames = l.frames[:len(l.frames):len(l.frames)]
	l.mu.Unlock()
	return write(w, []*Scene{Alone(&r)}, &liveness{Source: source, First: first})
}

// A liveness tells the script of a live page how to get new frames.
type liveness struct {
	Source string `json:"source"`
	First  int    `json:"first"` // number of the first frame
}

// Since waits until there is a frame with this number or a higher one. It returns the frames from this number on,
// encoded for the page's script, or nil if ctx is done first.
func (l *Live) Since(ctx context.Context, number int) ([]byte, error) {
	for {
		l.mu.Lock()
		r, first, changed := l.head, l.first, l.changed
		// The server may have been restarted since the page was loaded. The page then has a higher number than any
		// frame.
		if number > first+len(l.frames) {
			number = first
		}
		if number < first+len(l.frames) {
			number = max(number, first)
			r.Frames = l.frames[number-first : len(l.frames) : len(l.frames)]
		}
		l.mu.Unlock()
		if len(r.Frames) > 0 {
			p := pack(&r)
			p.Live = &liveness{First: number}
			return json.Marshal(p)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, nil
		}
	}
}

// Describe returns sentences about what happened between the frames before and after: what the scheduler did, and which
// requests came and finished. wasPreempted has the requests that iter computes again, because they had lost their
// blocks before.
func (r *Recording) Describe(before, after *Frame, iter *serve.Iteration, finished []int,
	wasPreempted map[int]bool) []string {
	w := words{before: before, after: after, block: r.BlockSize, wasPreempted: wasPreempted}
	return w.sentences(iter, finished)
}
