package view_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/view"
)

// said returns all sentences of a recording.
func said(r *view.Recording) string {
	var all []string
	for _, f := range r.Frames {
		all = append(all, f.Said...)
	}
	return strings.Join(all, "\n")
}

// Ensure that the recordings of a story have the same time in each frame, that something happens in at least
// one of them, and that the others repeat their state.
func TestBoardsOfAStoryAreOnOneClock(t *testing.T) {
	for _, name := range paired {
		t.Run(name, func(t *testing.T) {
			s := scene(t, name)
			require.Len(t, s.Recordings, 2)
			a, b := s.Recordings[0].Frames, s.Recordings[1].Frames
			require.Len(t, b, len(a))
			for i := range a {
				require.True(t, len(a[i].Said) > 0 || len(b[i].Said) > 0, "step %d", i)
				for _, frames := range [][]view.Frame{a, b} {
					if i > 0 && len(frames[i].Said) == 0 {
						require.Equal(t, frames[i-1].Sequences, frames[i].Sequences, "step %d", i)
						require.Equal(t, frames[i-1].Cached, frames[i].Cached, "step %d", i)
						require.Empty(t, [4]int{len(frames[i].Hits), len(frames[i].Copies), len(frames[i].SwapIn), len(frames[i].SwapOut)}, "step %d", i)
					}
				}
				if !s.Recordings[1].Course && len(a[i].Said) > 0 && len(b[i].Said) > 0 {
					require.InDelta(t, a[i].Now, b[i].Now, 1e-9, "step %d", i)
				}
			}
			for _, r := range s.Recordings {
				require.GreaterOrEqual(t, r.NumGPUBlocks, 12)
				require.LessOrEqual(t, r.NumGPUBlocks, 13)
			}
		})
	}
}

func TestABlockTableGrowsInItsStory(t *testing.T) {
	for _, r := range scene(t, "block-table-grows").Recordings {
		lengths := map[int]bool{}
		for _, f := range r.Frames {
			for _, s := range f.Sequences {
				if s.Request == 1 {
					lengths[len(s.Table)] = true
				}
			}
		}
		require.Equal(t, map[int]bool{2: true, 3: true, 4: !r.Course}, map[int]bool{2: lengths[2], 3: lengths[3], 4: lengths[4]}, r.System)
	}
}

func TestAPrefixIsSharedAndEvictedInItsStory(t *testing.T) {
	recordings := scene(t, "prefix-cache").Recordings
	var hits []int // blocks
	for _, f := range recordings[0].Frames {
		if len(f.Hits) > 0 {
			hits = append(hits, len(f.Hits))
		}
	}
	for _, r := range recordings {
		shared := false
		for _, f := range r.Frames {
			tables := map[int32]int{}
			for _, s := range f.Sequences {
				for _, b := range s.Table {
					tables[b]++
					shared = shared || tables[b] > 1
				}
			}
		}
		require.True(t, shared, "two tables of %s name a block", r.System)
	}
	require.Equal(t, []int{2, 1}, hits, "the second request finds both blocks, the fourth what the third has left")
}

func TestARequestIsPreemptedAndResumedInItsStory(t *testing.T) {
	recordings := scene(t, "preemption").Recordings
	require.Contains(t, said(recordings[0]), "Preempts request 3 (recompute)")
	require.Contains(t, said(recordings[0]), "Admits request 3 again", "it comes back")
	last := recordings[0].Frames[len(recordings[0].Frames)-1]
	require.Empty(t, last.Running)
	require.Empty(t, last.Waiting, "all are answered")
	refused := 0
	for _, f := range recordings[1].Frames {
		if f.Refused {
			refused++
		}
	}
	require.Equal(t, 1, refused, "the homework's engine says no")
}

func TestBeamsPartInTheirStory(t *testing.T) {
	recordings := scene(t, "beams").Recordings
	require.Equal(t, 3, strings.Count(said(recordings[0]), "becomes a copy of beam"))
	for _, r := range recordings {
		copies := 0
		for _, f := range r.Frames {
			copies += len(f.Copies)
		}
		require.Positive(t, copies, "%s: a shared last block is copied before it is written", r.System)
	}
}

func TestOrcaServesFewerAtOnceThanPaging(t *testing.T) {
	var most, ends [2]int
	for k, r := range scene(t, "orca-beside-paged").Recordings {
		for i, f := range r.Frames {
			owners := map[int]bool{}
			for _, s := range f.Sequences {
				owners[s.Request] = true
			}
			most[k] = max(most[k], len(owners))
			if len(owners) > 0 {
				ends[k] = i
			}
		}
	}
	require.Equal(t, [2]int{3, 5}, most)
	require.Less(t, ends[1], ends[0])
}
