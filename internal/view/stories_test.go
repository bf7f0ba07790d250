package view_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/view"
)

var update = flag.Bool("update", false, "write testdata/stories.golden anew")

func TestTheStoriesAreRecorded(t *testing.T) {
	var b strings.Builder
	for _, name := range view.Stories() {
		s := scene(t, name)
		fmt.Fprintf(&b, "== %s\n%s\n%s\n", s.Name, s.Title, s.Note)
		for _, r := range s.Recordings {
			fmt.Fprintf(&b, "-- %s: %s (%d blocks)\n", r.System, r.Note, r.NumGPUBlocks)
			for i, f := range r.Frames {
				fmt.Fprintf(&b, "%d %.2f s %s refused %t, queues %v %v", i, f.Now, f.Call, f.Refused, f.Waiting, f.Running)
				for _, q := range f.Sequences {
					fmt.Fprintf(&b, ", %d.%d: %d in %v", q.Request, q.Number, q.Tokens, q.Table)
				}
				fmt.Fprintf(&b, ", copies %v, hits %v, cached %v\n", f.Copies, f.Hits, f.Cached)
				for _, sentence := range f.Said {
					fmt.Fprintf(&b, "    %s\n", sentence)
				}
			}
		}
	}
	const golden = "testdata/stories.golden"
	if *update {
		require.NoError(t, os.WriteFile(golden, []byte(b.String()), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), b.String())

	_, err = view.Story("nothing")
	require.ErrorContains(t, err, `there is no story "nothing": there are copy-on-write, two-levels`)
}

func scene(t *testing.T, name string) *view.Scene {
	t.Helper()
	if runs[name] != nil {
		r := recording(t, name)
		return &view.Scene{Name: name, Title: r.Title, Note: r.Note, Recordings: []*view.Recording{r}}
	}
	s, err := view.Story(name)
	require.NoError(t, err)
	return s
}
