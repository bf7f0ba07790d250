package view

import (
	"fmt"
	"slices"
)

// A Scene is what the page shows at once: one recording, or two recordings side by side.
type Scene struct {
	Name       string // name in the page's address, if a page has several scenes
	Title      string
	Note       string       // description for the reader, a sentence or two
	Recordings []*Recording // if there are two, their frames with the same index have the same time
}

// Alone returns the scene of one recording.
func Alone(r *Recording) *Scene {
	return &Scene{Title: r.Title, Note: r.Note, Recordings: []*Recording{r}}
}

// Paired reports whether two recordings are side by side.
func (s *Scene) Paired() bool { return len(s.Recordings) > 1 }

func (s *Scene) check() error {
	if n := len(s.Recordings); n < 1 || n > 2 {
		return fmt.Errorf("%w: scene %q has %d recordings: want 1 or 2", ErrRecording, s.Title, n)
	}
	for _, r := range s.Recordings {
		if err := r.checkPool(); err != nil {
			return err
		}
		if n := len(s.Recordings[0].Frames); n == 0 || len(r.Frames) != n {
			return fmt.Errorf("%w: scene %q: %d frames beside %d", ErrRecording, s.Title, len(r.Frames), n)
		}
	}
	return nil
}

// A clocked is a recording with the time of each frame, in ascending order.
type clocked struct {
	*Recording
	times []int
}

// alignTimes gives all recordings the same times. Each gets a frame for every time at which any of them has a frame. If
// nothing happens in a recording at such a time, the new frame repeats the state before, or the first state if there is
// none before.
func alignTimes(all ...clocked) []*Recording {
	var times []int
	for _, c := range all {
		times = append(times, c.times...)
	}
	slices.Sort(times)
	times = slices.Compact(times)
	var list []*Recording
	for _, c := range all {
		r := *c.Recording
		r.Frames = nil
		next := 0
		for _, now := range times {
			if next < len(c.times) && c.times[next] == now {
				r.Frames = append(r.Frames, c.Frames[next])
				next++
				continue
			}
			r.Frames = append(r.Frames, withoutEvents(c.Frames[max(0, next-1)]))
		}
		list = append(list, &r)
	}
	return list
}

func withoutEvents(f Frame) Frame {
	f.Call, f.Said, f.Refused = "", nil, false
	f.SwapOut, f.SwapIn, f.Copies, f.Hits = nil, nil, nil, nil
	return f
}
