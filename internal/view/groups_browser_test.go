//go:build long

package view_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/browsertest"
	"llmmemory/internal/view"
)

type grouped struct {
	Name   string
	Blocks []int32
}

const groups = `[...document.querySelectorAll('#gpu .group')].map(g => ({ Name: g.dataset.group, Blocks: [...g.querySelectorAll('.cell')].map(c => Number(c.dataset.block)) }))`

// byRequest returns the groups of a frame without shared blocks.
func byRequest(f *view.Frame) []grouped {
	var all []grouped
	free := make([]bool, f.Blocks)
	for i := range free {
		free[i] = true
	}
	for _, s := range f.Sequences {
		if s.CPU || len(s.Table) == 0 {
			continue
		}
		all = append(all, grouped{fmt.Sprintf("request %d", s.Request), s.Table})
		for _, id := range s.Table {
			free[id] = false
		}
	}
	return append(all, grouped{"free", indexes(free)})
}

func indexes(free []bool) []int32 {
	var ids []int32
	for id := range free {
		if free[id] {
			ids = append(ids, int32(id))
		}
	}
	return ids
}

func byAge(r *view.Recording, step int) []grouped {
	f := &r.Frames[step]
	since, used := make([]int, f.Blocks), make([]bool, f.Blocks)
	for i := range step + 1 {
		now := make([]bool, f.Blocks)
		for _, s := range r.Frames[i].Sequences {
			for _, id := range s.Table {
				now[id] = now[id] || !s.CPU
			}
		}
		for id := range now {
			if now[id] != used[id] {
				since[id] = i
			}
		}
		used = now
	}
	ids := indexes(slices.Repeat([]bool{true}, f.Blocks))
	slices.SortStableFunc(ids, func(a, b int32) int { return since[b] - since[a] })
	var all []grouped
	for _, id := range ids {
		if !used[id] {
			continue
		}
		name := "before the recording"
		switch age := step - since[id]; {
		case since[id] == 0:
		case age < 1:
			name = "taken in this step"
		case age < 10:
			name = "1 to 9 steps ago"
		case age < 100:
			name = "10 to 99 steps ago"
		}
		if len(all) == 0 || all[len(all)-1].Name != name {
			all = append(all, grouped{Name: name})
		}
		all[len(all)-1].Blocks = append(all[len(all)-1].Blocks, id)
	}
	for id := range used {
		used[id] = !used[id]
	}
	return append(all, grouped{"free", indexes(used)})
}

// Ensure that the blocks of a large pool can be grouped by request and by age. The groups must be updated when the page
// shows another step, and must fit on a phone. The arrow keys must move in the order of the blocks on the page. A small
// pool has no groups.
func TestALargePoolGroupsByRequestAndByAge(t *testing.T) {
	x := newTour(t, browsertest.Look{Width: desktop}, "paged", "preemption")
	r := x.scenes["paged"].Recordings[0]
	x.visit(t, "preemption", 0)
	require.False(t, browsertest.Evaluate[bool](t, x.tab, `document.getElementById('order').checkVisibility()`), "12 blocks need no groups")
	x.visit(t, "paged", 3)
	require.True(t, browsertest.Evaluate[bool](t, x.tab, `document.getElementById('order').checkVisibility()`))
	choose := func(order string) {
		browsertest.Evaluate[bool](t, x.tab, fmt.Sprintf(`(() => { const e = document.getElementById('order'); e.value = %q; return e.dispatchEvent(new Event('change')) })()`, order))
	}
	for _, step := range []int{3, 12} {
		x.visit(t, "paged", step)
		choose("request")
		require.Equal(t, byRequest(&r.Frames[step]), browsertest.Evaluate[[]grouped](t, x.tab, groups), "step %d", step)
		choose("age")
		require.Equal(t, byAge(r, step), browsertest.Evaluate[[]grouped](t, x.tab, groups), "step %d", step)
		press(t, x.tab, kb.ArrowRight)
		if step+1 < len(r.Frames) {
			require.Equal(t, byAge(r, step+1), browsertest.Evaluate[[]grouped](t, x.tab, groups), "step %d, from the one before", step+1)
		}
	}
	browsertest.Shoot(t, x.tab, "groups-age-1280")

	choose("request")
	l := browsertest.Look{Width: phone}
	browsertest.Change(t, x.tab, l)
	browsertest.RequireFits(t, x.tab, l)
	require.Empty(t, browsertest.Evaluate[[]string](t, x.tab, contrast+`(document.querySelector('#gpu .group'))`))
	browsertest.Shoot(t, x.tab, "groups-request-390")
	focused := func() string {
		return browsertest.Evaluate[string](t, x.tab, `document.activeElement.closest('.group').dataset.group + ' ' + document.activeElement.dataset.block`)
	}
	frame := byRequest(&r.Frames[13])
	require.True(t, browsertest.Evaluate[bool](t, x.tab, fmt.Sprintf(`(document.querySelector('#gpu [data-block="%d"]').focus(), true)`, frame[0].Blocks[0])))
	press(t, x.tab, kb.ArrowRight)
	require.Equal(t, fmt.Sprintf("%s %d", frame[0].Name, frame[0].Blocks[1]), focused())
	for range 40 {
		if press(t, x.tab, kb.ArrowDown); !strings.HasPrefix(focused(), frame[0].Name) {
			break
		}
	}
	require.True(t, strings.HasPrefix(focused(), frame[1].Name), "%s is below %s", focused(), frame[0].Name)

	choose("number")
	require.Equal(t, indexes(slices.Repeat([]bool{true}, r.NumGPUBlocks)), browsertest.Evaluate[[]int32](t, x.tab, `[...document.querySelectorAll('#gpu > .cell')].map(c => Number(c.dataset.block))`))
}
