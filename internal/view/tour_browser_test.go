//go:build long

package view_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/browsertest"
	"llmmemory/internal/testkit/level"
	"llmmemory/internal/view"
)

// A tour is a browser tab with a page that has all its scenes, because loading a page takes longer than checking it.
type tour struct {
	tab    context.Context
	scenes map[string]*view.Scene
}

func newTour(t *testing.T, l browsertest.Look, names ...string) *tour {
	t.Helper()
	browser := browsertest.Start(t)
	x := &tour{scenes: map[string]*view.Scene{}}
	var scenes []*view.Scene
	for _, name := range names {
		s := scene(t, name)
		x.scenes[name] = s
		scenes = append(scenes, s)
	}
	x.tab = browsertest.Open(t, browser, pageOf(t, scenes...), l)
	return x
}

func (x *tour) visit(t *testing.T, scene string, step int) {
	t.Helper()
	fragment := fmt.Sprintf("#story=%s&step=%d", scene, step)
	browsertest.Evaluate[bool](t, x.tab, fmt.Sprintf(`(history.replaceState(null, '', %q), dispatchEvent(new HashChangeEvent('hashchange')))`, fragment))
	require.Equal(t, strconv.Itoa(step), stepOf(t, x.tab))
}

// A shownFrame is what the page shows of a frame: for each block its count, filled slots and owners; for each sequence
// its tokens, device and table.
type shownFrame struct {
	Said   []string
	Blocks [2][]string
	Tables []string
	Queues []string
}

const shown = `[...document.querySelectorAll('.board')].map(board => {
  const [gpu, cpu] = board.querySelectorAll('.pool'), blocks = grid => [...grid.querySelectorAll('.cell')].map(c => [c.dataset.state, c.dataset.count, c.dataset.filled, c.dataset.owners].join('/'))
  return {
    Said: [...board.querySelectorAll('.sentences p:not(.more)')].map(e => e.textContent),
    Blocks: [gpu.hidden ? [] : blocks(gpu), blocks(cpu)],
    Tables: [...board.querySelectorAll('.table')].map(e => [e.dataset.sequence, e.dataset.tokens, e.dataset.device, e.dataset.table].join('/')),
    Queues: [...board.querySelectorAll('[data-queue]')].map(e => e.dataset.queue + ':' + e.dataset.requests),
  }
})`

type shownStep struct {
	At     string
	Boards []shownFrame
}

// walk is JavaScript that reads the page, presses a key, and repeats this several times.
const walk = `(() => {
  const steps = []
  for (let n = %[3]d; n > 0; n--) {
    steps.push({ At: document.documentElement.dataset.step, Boards: %[1]s })
    for (let i = 0; i < %[4]d; i++) document.body.dispatchEvent(new KeyboardEvent('keydown', { key: '%[2]s', bubbles: true }))
  }
  return steps
})()`

// names returns the names of the sequences as the page shows them. A name has a letter if the request has several
// sequences.
func names(r *view.Recording) map[[2]int]string {
	several, all := map[int]bool{}, map[[2]int]string{}
	for _, f := range r.Frames {
		for _, s := range f.Sequences {
			several[s.Request] = several[s.Request] || s.Number > 0
		}
	}
	for _, f := range r.Frames {
		for _, s := range f.Sequences {
			name := strconv.Itoa(s.Request)
			if several[s.Request] {
				name += string(rune('a' + s.Number))
			}
			all[[2]int{s.Request, s.Number}] = name
		}
	}
	return all
}

func want(r *view.Recording, f *view.Frame, names map[[2]int]string) shownFrame {
	w := shownFrame{Said: append([]string{}, f.Said[:min(6, len(f.Said))]...), Tables: []string{}, Queues: []string{}}
	for device, n := range []int{f.Blocks, r.NumCPUBlocks} {
		w.Blocks[device] = make([]string, n)
		counts, filled, owners := make([]int, n), make([]int, n), make([][]string, n)
		for i := range f.Sequences {
			s := &f.Sequences[i]
			for l, b := range s.Table {
				if s.CPU != (device == 1) || b < 0 {
					continue
				}
				counts[b]++
				filled[b] = max(filled[b], min(r.BlockSize, s.Tokens-l*r.BlockSize))
				if name := names[[2]int{s.Request, s.Number}]; !slices.Contains(owners[b], name) {
					owners[b] = append(owners[b], name)
				}
			}
		}
		for _, c := range f.Counts {
			if c.CPU == (device == 1) {
				counts[c.Block] = int(c.Count)
			}
		}
		for id := range n {
			state := "free"
			switch {
			case counts[id] > 1 && owners[id] != nil:
				state = "shared"
			case owners[id] != nil:
				state = "own"
			case counts[id] > 0:
				state = "held"
			case device == 0 && slices.Contains(f.Cached, int32(id)):
				state = "cached"
			}
			w.Blocks[device][id] = fmt.Sprintf("%s/%d/%d/%s", state, counts[id], filled[id], strings.Join(owners[id], " "))
		}
	}
	for i := range f.Sequences {
		s := &f.Sequences[i]
		device := 0
		if s.CPU {
			device = 1
		}
		w.Tables = append(w.Tables, fmt.Sprintf("%s/%d/%d/%s", names[[2]int{s.Request, s.Number}], s.Tokens, device, strings.Trim(fmt.Sprint(s.Table), "[]")))
	}
	if !r.Course {
		queue := func(name string, ids []int) {
			if len(ids) > 0 || name != "swapped" || r.NumCPUBlocks > 0 {
				w.Queues = append(w.Queues, name+":"+strings.Trim(fmt.Sprint(ids), "[]"))
			}
		}
		queue("waiting", f.Waiting)
		queue("running", f.Running)
		queue("swapped", f.Swapped)
	}
	return w
}

func TestThePageShowsTheState(t *testing.T) {
	all := recordingNames()
	if !level.Exhaustive() { // "paged" has as many blocks
		all = slices.DeleteFunc(all, func(name string) bool { return name == "large" })
	}
	x := newTour(t, browsertest.Look{Width: desktop}, all...)
	for _, name := range all {
		t.Run(name, func(t *testing.T) {
			s := x.scenes[name]
			var called []map[[2]int]string
			for _, r := range s.Recordings {
				called = append(called, names(r))
			}
			same := func(step shownStep, i int) {
				require.Equal(t, strconv.Itoa(i), step.At)
				require.Len(t, step.Boards, len(s.Recordings))
				for k, r := range s.Recordings {
					require.Equal(t, want(r, &r.Frames[i], called[k]), step.Boards[k], "step %d, %s", i, r.System)
				}
			}
			frames := len(s.Recordings[0].Frames)
			last := frames - 1
			x.visit(t, name, 0)
			key, presses, stride, back := "ArrowRight", 1, 1, 4
			switch large := s.Recordings[0].NumGPUBlocks > 200; {
			case level.Exhaustive():
				back = last
			case large:
				key, stride, back = "PageDown", 10, 2
			default:
				stride = 1 + last/15
				presses = stride
			}
			forwards := browsertest.Evaluate[[]shownStep](t, x.tab, fmt.Sprintf(walk, shown, key, last/stride+1, presses))
			require.Len(t, forwards, last/stride+1)
			for n, step := range forwards {
				same(step, n*stride)
			}
			x.visit(t, name, last)
			for i, step := range browsertest.Evaluate[[]shownStep](t, x.tab, fmt.Sprintf(walk, shown, "ArrowLeft", min(last/7+1, back), 7)) {
				same(step, last-7*i)
			}
		})
	}
}
