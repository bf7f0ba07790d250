package view_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/view"
)

// said are all sentences of a story.
func said(t *testing.T, name string) (*view.Recording, string) {
	t.Helper()
	r := story(t, name)
	var all []string
	for _, f := range r.Frames {
		all = append(all, f.Said...)
	}
	return r, strings.Join(all, "\n")
}

// most is how many requests have blocks at once.
func most(r *view.Recording) int {
	n := 0
	for _, f := range r.Frames {
		owners := map[int]bool{}
		for _, s := range f.Sequences {
			owners[s.Request] = true
		}
		n = max(n, len(owners))
	}
	return n
}

func TestABlockTableGrowsInItsStory(t *testing.T) {
	r, _ := said(t, "block-table-grows")
	lengths := map[int]bool{}
	for _, f := range r.Frames {
		for _, s := range f.Sequences {
			if s.Request == 0 {
				lengths[len(s.Table)] = true
			}
		}
	}
	require.Equal(t, map[int]bool{2: true, 3: true, 4: true}, lengths)
}

func TestAPrefixIsSharedAndEvictedInItsStory(t *testing.T) {
	r, _ := said(t, "prefix-cache")
	var hits []int // blocks
	shared := false
	for _, f := range r.Frames {
		if len(f.Hits) > 0 {
			hits = append(hits, len(f.Hits))
		}
		tables := map[int32]int{}
		for _, s := range f.Sequences {
			for _, b := range s.Table {
				tables[b]++
				shared = shared || tables[b] > 1
			}
		}
	}
	require.True(t, shared, "two tables name a block")
	require.Equal(t, []int{2, 1}, hits, "the second request finds both blocks, the fourth what the third has left")
}

func TestARequestIsPreemptedAndResumedInItsStory(t *testing.T) {
	r, all := said(t, "preemption")
	require.Contains(t, all, "Preempts request 2 (recompute)")
	require.Contains(t, all, "again", "it comes back")
	last := r.Frames[len(r.Frames)-1]
	require.Empty(t, last.Running)
	require.Empty(t, last.Waiting, "all are answered")
}

func TestBeamsPartInTheirStory(t *testing.T) {
	r, all := said(t, "beams")
	require.Equal(t, 3, strings.Count(all, "becomes a copy of beam"))
	copies := 0
	for _, f := range r.Frames {
		copies += len(f.Copies)
	}
	require.Positive(t, copies, "a shared last block is copied before it is written")
}

func TestOrcaServesFewerAtOnceThanPaging(t *testing.T) {
	orca, _ := said(t, "orca-reserves")
	paged, _ := said(t, "paged-requests")
	require.Equal(t, 3, most(orca))
	require.Equal(t, 5, most(paged))
	require.Less(t, len(paged.Frames), len(orca.Frames))
}
