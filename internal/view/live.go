package view

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sync"

	"llmmemory/internal/scheduling/serve"
)

// A Live is a recording that continues: its page shows the frames so far and asks for new ones.
// It is safe for concurrent use.
type Live struct {
	mu      sync.Mutex
	head    Recording // has no frames
	frames  []Frame   // the last frames
	first   int       // number of the first frame
	most    int
	changed chan struct{} // closed when a frame is added
}

// NewLive returns a recording that keeps at most the given number of frames, the last ones. The
// error wraps ErrRecording.
func NewLive(head Recording, most int) (*Live, error) {
	if err := head.checkPool(); err != nil {
		return nil, err
	}
	if most < 2 {
		return nil, fmt.Errorf("%w: %d frames: want at least 2", ErrRecording, most)
	}
	return &Live{head: head, most: most, changed: make(chan struct{})}, nil
}

// Add adds a frame, which must not change afterwards.
func (l *Live) Add(f Frame) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.frames = append(l.frames, f)
	if n := len(l.frames) - l.most; n > 0 {
		clear(l.frames[:n])
		l.frames, l.first = l.frames[n:], l.first+n
	}
	close(l.changed)
	l.changed = make(chan struct{})
}

// Restart drops all frames, for a time in which steps were not recorded.
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

// Write writes the page. For new frames the page asks source followed by a frame's number. There
// must be a frame.
func (l *Live) Write(w io.Writer, source string) error {
	l.mu.Lock()
	r, first := l.head, l.first
	r.Frames = l.frames[:len(l.frames):len(l.frames)]
	l.mu.Unlock()
	return write(w, []*Scene{Alone(&r)}, &liveness{Source: source, First: first})
}

// A liveness has the values that the script of a live page needs besides the recording.
type liveness struct {
	Source string `json:"source"`
	First  int    `json:"first"` // number of the first frame
}

// Since waits for a frame with this number or a higher one, and returns the frames from there
// on, encoded for the page's script. It returns nil if ctx ends before.
func (l *Live) Since(ctx context.Context, number int) ([]byte, error) {
	for {
		l.mu.Lock()
		r, first, changed := l.head, l.first, l.changed
		// A page with a higher number is from an earlier run.
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

// Describe says in sentences what happened between two frames: what the scheduler did, and which
// requests left. again has the requests that had lost their blocks before.
func (r *Recording) Describe(was, is *Frame, it *serve.Iteration, left []int, again map[int]bool) []string {
	w := words{was: byRequest(was.Sequences), is: byRequest(is.Sequences), block: r.BlockSize, again: again}
	if !it.Idle() || len(left) == 0 {
		w.iteration(it)
	}
	return slices.Concat(w.finished(left), evictions(was.Cached, is), arrivals(was, is))
}
