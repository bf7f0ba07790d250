//go:build long

package view_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"llmmemory/internal/block"
	"llmmemory/internal/testkit/browsertest"
	"llmmemory/internal/testkit/level"
	"llmmemory/internal/view"
)

var paired = []string{"block-table-grows", "prefix-cache", "preemption", "beams", "orca-beside-paged"}

// lit is JavaScript that counts the highlighted blocks, the arrows, and the arrows from a highlighted table to a
// highlighted block.
const lit = `(() => {
  const board = document.querySelectorAll('.board')[%d], near = (p, r) => p.x > r.left - 6 && p.x < r.right + 6 && p.y > r.top - 6 && p.y < r.bottom + 6
  const any = (p, selector) => [...board.querySelectorAll(selector)].some(e => near(p, e.getBoundingClientRect()))
  const svg = board.querySelector('.names')
  if (!svg) return [board.querySelectorAll('.cell.lit').length, 0, 0]
  const origin = svg.getBoundingClientRect(), at = (path, n) => { const p = path.getPointAtLength(n); return { x: p.x + origin.left, y: p.y + origin.top } }
  const paths = [...svg.querySelectorAll(':scope > path')]
  return [board.querySelectorAll('.cell.lit').length, paths.length, paths.filter(p => any(at(p, 0), '.table.lit .entry') && any(at(p, p.getTotalLength()), '.cell.lit')).length]
})()`

func litOf(f *view.Frame, request int) []int {
	ids, entries := map[int32]bool{}, 0
	for _, s := range f.Sequences {
		if s.Request == request {
			entries += len(s.Table)
			for _, id := range s.Table {
				ids[id] = true
			}
		}
	}
	return []int{len(ids), entries, entries}
}

// Ensure that a user can follow each story on a desktop and on a phone. Both recordings must be at the same step, and
// pointing at a request must highlight its blocks in both. On a phone, the first map must be above the header.
func TestStoriesCanBeFollowedAtBothWidths(t *testing.T) {
	x := newTour(t, browsertest.Look{Width: desktop}, paired...)
	for _, width := range []int64{desktop, phone} {
		l := browsertest.Look{Width: width, Dark: width == phone}
		browsertest.Change(t, x.tab, l)
		for _, name := range paired {
			t.Run(fmt.Sprintf("%s %d", name, width), func(t *testing.T) {
				s := x.scenes[name]
				step := slices.IndexFunc(s.Recordings[0].Frames, func(f view.Frame) bool { return len(f.Sequences) > 1 })
				x.visit(t, name, step)
				browsertest.RequireFits(t, x.tab, l)
				require.Equal(t, []string{s.Title, s.Note, s.Recordings[0].System, s.Recordings[1].System}, browsertest.Evaluate[[]string](t, x.tab,
					`['title', 'about', 'system', 'system-2'].map(id => document.getElementById(id).textContent)`))
				beside := browsertest.Evaluate[bool](t, x.tab, `(([a, b]) => a.left + a.width <= b.left + 1)([...document.querySelectorAll('.board')].map(e => e.getBoundingClientRect()))`)
				require.Equal(t, width == desktop, beside, "side by side on a desk, one above the other on a phone")

				click(t, x.tab, `.board .tag[data-request="1"]`)
				require.Positive(t, litOf(&s.Recordings[0].Frames[step], 1)[0])
				for k, r := range s.Recordings {
					require.Equal(t, litOf(&r.Frames[step], 1), browsertest.Evaluate[[]int](t, x.tab, fmt.Sprintf(lit, k)), r.System)
				}
				browsertest.RequireFits(t, x.tab, l)
				browsertest.Shoot(t, x.tab, fmt.Sprintf("story-%s-%d", name, width))
				press(t, x.tab, kb.Escape)
				require.Zero(t, browsertest.Evaluate[int](t, x.tab, `document.querySelectorAll('.lit, .names').length`))
				require.True(t, browsertest.Evaluate[bool](t, x.tab, isAbove("#title", "#gpu")), "the title stays")
				require.Equal(t, width == desktop, browsertest.Evaluate[bool](t, x.tab, isAbove("#about", "#gpu")),
					"on a phone the map comes next")
			})
		}
	}
}

func isAbove(a, b string) string {
	return fmt.Sprintf(`document.querySelector(%q).getBoundingClientRect().top < document.querySelector(%q).getBoundingClientRect().top`,
		a, b)
}

// Ensure that the page shows a message if its address names an unknown story. Ensure also that the null block of V1,
// which no request ever gets, does not count as used.
func TestAnUnknownStoryIsNamedAndTheNullBlockIsNotUsed(t *testing.T) {
	x := newTour(t, browsertest.Look{Width: desktop}, "prefix-cache", "preemption")
	said := func(address string) string {
		return browsertest.Evaluate[string](t, x.tab, fmt.Sprintf(
			`(history.replaceState(null, '', %q), dispatchEvent(new HashChangeEvent('hashchange')), document.getElementById('no-story').hidden ? '' : document.getElementById('no-story').textContent)`,
			address))
	}
	require.Equal(t, "This page has no story “absent”. It has prefix-cache, preemption.", said("#story=absent&step=1"))
	require.Empty(t, said("#story=preemption&step=1"))
	counter := func(name string) string {
		return browsertest.Evaluate[string](t, x.tab, fmt.Sprintf(
			`document.querySelector('.board [data-counter="%s"] dd').textContent`, name))
	}
	require.Regexp(t, `^\d+ of 12 blocks$`, counter("used"))
	require.Equal(t, "1 null block", counter("never used"))
}

// Ensure that the table of a sequence can be selected with the keyboard. Only the blocks in this table are then
// highlighted.
func TestATableLightsItsSequence(t *testing.T) {
	x := newTour(t, browsertest.Look{Width: desktop}, "beams", "preemption")
	x.visit(t, "beams", len(x.scenes["beams"].Recordings[0].Frames)/2)
	require.True(t, browsertest.Evaluate[bool](t, x.tab, `(document.querySelector('.table[data-sequence="1b"] h3').focus(), true)`))
	require.Equal(t, "1b", browsertest.Evaluate[string](t, x.tab, `[...document.querySelectorAll('.table.lit')].map(e => e.dataset.sequence).join()`))
	require.Equal(t, "false", browsertest.Evaluate[string](t, x.tab, `document.activeElement.getAttribute('aria-pressed')`))
	press(t, x.tab, kb.Enter)
	require.Equal(t, "true", browsertest.Evaluate[string](t, x.tab, `document.activeElement.getAttribute('aria-pressed')`))
	press(t, x.tab, "n")
	require.Equal(t, "1b", browsertest.Evaluate[string](t, x.tab, `[...document.querySelectorAll('.table.lit')].map(e => e.dataset.sequence).join()`), "kept from step to step")
	want := browsertest.Evaluate[string](t, x.tab, `document.querySelector('.table.lit').dataset.table.split(' ').sort((a, b) => a - b).join(' ')`)
	require.Equal(t, want, browsertest.Evaluate[string](t, x.tab, `[...document.querySelectorAll('#gpu .cell.lit')].map(e => e.dataset.block).join(' ')`))
}

// isEvent reports whether more happens in a step than writing tokens.
func isEvent(r *view.Recording, i int) bool {
	return i == 0 || slices.ContainsFunc(r.Frames[i].Said, func(s string) bool {
		decodes := strings.HasPrefix(s, "Request") && strings.Contains(s, " a token")
		return !decodes || strings.Contains(s, "begun") && r.NumGPUBlocks <= 64
	})
}

func TestNextEventPassesOverWhatIsAlwaysTheSame(t *testing.T) {
	all := level.Pick([]string{"paged", "orca-beside-paged"}, []string{"paged", "swapped", "orca-beside-paged"})
	x := newTour(t, browsertest.Look{Width: desktop}, all...)
	for _, name := range all {
		t.Run(name, func(t *testing.T) {
			s := x.scenes[name]
			var events []string
			for i := range s.Recordings[0].Frames {
				if slices.ContainsFunc(s.Recordings, func(r *view.Recording) bool { return isEvent(r, i) }) {
					events = append(events, strconv.Itoa(i))
				}
			}
			x.visit(t, name, 0)
			press(t, x.tab, "n")
			went := browsertest.Evaluate[[]string](t, x.tab, fmt.Sprintf(`Array.from({ length: %d }, () => {
				document.body.dispatchEvent(new KeyboardEvent('keydown', { key: 'n', bubbles: true }))
				return document.documentElement.dataset.step
			})`, len(events)-2))
			require.Equal(t, events[2:], went)
			require.True(t, browsertest.Evaluate[bool](t, x.tab, `document.getElementById('event').disabled`), "there is no other")
			press(t, x.tab, "p")
			require.Equal(t, events[len(events)-2], stepOf(t, x.tab))
			press(t, x.tab, kb.Home)
			click(t, x.tab, "#event")
			require.Equal(t, events[1], stepOf(t, x.tab))

			click(t, x.tab, "#events summary")
			listed := `[...document.querySelectorAll('#event-list button')].map(e => e.value)`
			require.Eventually(t, func() bool { return len(browsertest.Evaluate[[]string](t, x.tab, listed)) > 0 }, patience, moment)
			require.Equal(t, events, browsertest.Evaluate[[]string](t, x.tab, listed))
			click(t, x.tab, fmt.Sprintf(`#event-list button[value="%s"]`, events[len(events)-1]))
			require.Equal(t, events[len(events)-1], stepOf(t, x.tab))
			require.Equal(t, stepOf(t, x.tab), browsertest.Evaluate[string](t, x.tab, `document.querySelector('#event-list [aria-current=step]').value`))
			click(t, x.tab, "#every")
			require.Len(t, browsertest.Evaluate[[]string](t, x.tab, listed), len(s.Recordings[0].Frames))
			click(t, x.tab, "#every")
			click(t, x.tab, "#events summary")
		})
	}
}

func TestTheAddressNamesStoryBoardAndStep(t *testing.T) {
	browser := browsertest.Start(t)
	scenes := []*view.Scene{scene(t, "copy-on-write"), scene(t, "preemption"), scene(t, "orca-beside-paged")}
	x := browsertest.Open(t, browser, pageOf(t, scenes...), browsertest.Look{Width: desktop, Fragment: "story=preemption&show=2&step=7"})
	boards := `[...document.querySelectorAll('.board')].filter(e => e.checkVisibility()).map(e => e.querySelector('h2').textContent)`
	require.Equal(t, "7", stepOf(t, x))
	require.Equal(t, []string{"The homework's engine"}, browsertest.Evaluate[[]string](t, x, boards))
	choose := func(id, value string) {
		browsertest.Evaluate[bool](t, x, fmt.Sprintf(`(() => { const e = document.getElementById(%q); e.value = %q; return e.dispatchEvent(new Event('change')) })()`, id, value))
	}
	choose("which", "")
	require.Equal(t, []string{"vLLM V1", "The homework's engine"}, browsertest.Evaluate[[]string](t, x, boards))
	require.Equal(t, "7", stepOf(t, x))
	choose("story", "2")
	require.Equal(t, "0", stepOf(t, x), "a story begins at its beginning")
	require.Equal(t, []string{"Orca (Max)", "vLLM (SOSP '23)"}, browsertest.Evaluate[[]string](t, x, boards))
	require.Equal(t, "Five requests, reserved and paged – memory map", browsertest.Evaluate[string](t, x, `document.title`))
	choose("which", "1")
	press(t, x, kb.ArrowRight)
	require.Eventually(t, func() bool {
		return browsertest.Evaluate[string](t, x, `location.hash`) == "#story=orca-beside-paged&show=1&step=1"
	}, patience, moment)
	require.True(t, browsertest.Evaluate[bool](t, x, `(location.hash = '#story=copy-on-write&step=5', true)`))
	require.Eventually(t, func() bool { return stepOf(t, x) == "5" }, patience, moment)
	require.Len(t, browsertest.Evaluate[[]string](t, x, boards), 1)
}

// oldOf returns the slots of a block that still have old content, as ranges [start, end, owner]. Slots below numFilled
// are in use and have new content. writer has the last writer of each slot.
func oldOf(writer []string, numFilled int) [][3]string {
	var list [][3]string
	for slot := numFilled; slot < len(writer); slot++ {
		if writer[slot] == "" {
			continue
		}
		if n := len(list); n > 0 && list[n-1][1] == strconv.Itoa(slot) && list[n-1][2] == writer[slot] {
			list[n-1][1] = strconv.Itoa(slot + 1)
			continue
		}
		list = append(list, [3]string{strconv.Itoa(slot), strconv.Itoa(slot + 1), writer[slot]})
	}
	return list
}

func TestWhatABlockHeldBeforeIsFaintUntilItIsOverwritten(t *testing.T) {
	x := newTour(t, browsertest.Look{Width: desktop}, "preemption", "orca-beside-paged", "copy-on-write")
	const old = `[...document.querySelectorAll('#gpu .cell')].map(c => [...c.querySelectorAll('.old i')].map(i => [i.style.left, i.style.width].map(parseFloat).join(' ')).join(', '))`
	for _, name := range []string{"preemption", "orca-beside-paged"} {
		r := x.scenes[name].Recordings[0]
		called, last, partly := names(r), len(r.Frames)-1, 0
		writer := make([][]string, r.NumGPUBlocks)
		for id := range writer {
			writer[id] = make([]string, r.BlockSize)
		}
		x.visit(t, name, 0)
		for i, f := range r.Frames {
			want, filled := make([]string, r.NumGPUBlocks), make([]int, r.NumGPUBlocks)
			for _, s := range f.Sequences {
				for at := range min(s.Tokens, len(s.Table)*r.BlockSize) {
					id := s.Table[at/r.BlockSize]
					if id != block.None {
						writer[id][at%r.BlockSize] = called[[2]int{s.Request, s.Number}]
						filled[id] = max(filled[id], at%r.BlockSize+1)
					}
				}
			}
			for id := range want {
				var parts []string
				for _, o := range oldOf(writer[id], filled[id]) {
					start, _ := strconv.Atoi(o[0])
					end, _ := strconv.Atoi(o[1])
					parts = append(parts, fmt.Sprintf("%d %d", 100*start/r.BlockSize, 100*(end-start)/r.BlockSize))
					if filled[id] > 0 {
						partly++
					}
				}
				want[id] = strings.Join(parts, ", ")
			}
			require.Equal(t, want, browsertest.Evaluate[[]string](t, x.tab, old), "%s, step %d", name, i)
			press(t, x.tab, kb.ArrowRight)
		}
		require.Positive(t, partly, "a block that is partly overwritten is among them")
		require.Equal(t, strconv.Itoa(last), stepOf(t, x.tab))
		owners := browsertest.Evaluate[[]string](t, x.tab, `[...document.querySelectorAll('#gpu .cell')].map(c => c.querySelector('small') ? c.querySelector('small').textContent : '')`)
		for id := range owners {
			want := strings.Join(slices.Compact(slices.DeleteFunc(slices.Clone(writer[id]), func(s string) bool { return s == "" })), ", ")
			if want != "" {
				want = "was req " + want
			}
			require.Equal(t, want, owners[id], "%s: a free block says whose it was", name)
		}
		press(t, x.tab, kb.Home)
		require.Zero(t, browsertest.Evaluate[int](t, x.tab, `document.querySelectorAll('#gpu .cell[data-was]').length`), "nothing was there at the beginning")
	}

	// The records of a freed block must still be visible, but faint, because freeing does not erase them.
	r := x.scenes["copy-on-write"].Recordings[0]
	freed := slices.IndexFunc(r.Frames, func(f view.Frame) bool { return strings.HasPrefix(f.Call, "free_sequence") })
	x.visit(t, "copy-on-write", freed)
	require.Equal(t, []string{"101", "102"}, browsertest.Evaluate[[]string](t, x.tab, `[...document.querySelectorAll('#gpu .cell[data-mark=freed] .records i.was')].map(e => e.textContent).filter(s => /\d/.test(s))`))
}
