package view_test

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/browsertest"
)

// servingStories are those that run under a scheduler's rules.
var servingStories = []string{"block-table-grows", "prefix-cache", "preemption", "beams", "orca-beside-paged"}

// arrowsThatReach counts the arrows that begin at an entry of the table and end at the
// edge of a block that is lit.
const arrowsThatReach = `(() => {
  const near = (p, r) => p.x > r.left - 6 && p.x < r.right + 6 && p.y > r.top - 6 && p.y < r.bottom + 6
  const any = (p, selector) => [...document.querySelectorAll(selector)].some(e => near(p, e.getBoundingClientRect()))
  const origin = document.getElementById('names').getBoundingClientRect(), at = (path, n) => { const p = path.getPointAtLength(n); return { x: p.x + origin.left, y: p.y + origin.top } }
  return [...document.querySelectorAll('#names > path')].filter(p => any(at(p, 0), '.table.lit .entry') && any(at(p, p.getTotalLength()), '#gpu .cell.lit')).length
})()`

// Ensure that each story can be followed on a desk and on a phone: pointing at a request
// lights its blocks, with an arrow from each entry of its table; and the event list goes
// to its steps.
func TestStoriesCanBeFollowedAtBothWidths(t *testing.T) {
	in := browsertest.Start(t)
	for i, name := range servingStories {
		for _, width := range []int64{desktop, phone} {
			t.Run(fmt.Sprintf("%s %d", name, width), func(t *testing.T) {
				l := browsertest.Look{Width: width, Dark: i%2 == 1, Fragment: "step=5"}
				x := open(t, in, recording(t, name), l)
				require.Equal(t, "5", at(t, x))
				browsertest.RequireFits(t, x, l)
				require.Empty(t, browsertest.Evaluate[[]string](t, x, contrast))
				entries := browsertest.Evaluate[int](t, x, `document.querySelector('.table').querySelectorAll('.entry').length`)
				require.Positive(t, entries)
				click(t, x, ".table h3")
				require.Equal(t, entries, browsertest.Evaluate[int](t, x, `document.querySelectorAll('#gpu .cell.lit').length`))
				require.Equal(t, entries, browsertest.Evaluate[int](t, x, `document.querySelectorAll('#names > path').length`))
				require.Equal(t, "true", browsertest.Evaluate[string](t, x, `document.querySelector('.table h3').getAttribute('aria-pressed')`))
				browsertest.RequireFits(t, x, l)
				require.Equal(t, entries, browsertest.Evaluate[int](t, x, arrowsThatReach), "an arrow ends at a block of the request")
				browsertest.Shoot(t, x, fmt.Sprintf("story-%s-%d", name, width))
				press(t, x, kb.Escape)
				require.Zero(t, browsertest.Evaluate[int](t, x, `document.querySelectorAll('.lit, #names').length`))

				click(t, x, "#events summary")
				click(t, x, "#event-list li:nth-child(3) button")
				require.Equal(t, "2", at(t, x))
				require.Equal(t, "2", browsertest.Evaluate[string](t, x, `document.querySelector('#event-list [aria-current]').value`))
				first := browsertest.Evaluate[bool](t, x, `document.getElementById('gpu').getBoundingClientRect().top < document.querySelector('h1').getBoundingClientRect().top`)
				require.Equal(t, width == phone, first, "the map comes first on a phone")
			})
		}
	}
}

// Ensure that a free block says who had it, until it is taken again.
func TestAFreeBlockShowsWhoHadIt(t *testing.T) {
	in := browsertest.Start(t)
	r := recording(t, "preemption")
	x := open(t, in, r, browsertest.Look{Width: desktop, Fragment: fmt.Sprintf("step=%d", len(r.Frames)-1)})
	require.Positive(t, browsertest.Evaluate[int](t, x, `[...document.querySelectorAll('#gpu .cell.was .who')].filter(e => /^was \d/.test(e.textContent)).length`))
	press(t, x, kb.Home)
	require.Zero(t, browsertest.Evaluate[int](t, x, `document.querySelectorAll('.cell.was').length`))
}
