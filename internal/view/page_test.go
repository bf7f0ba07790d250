package view_test

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/view"
)

func written(t testing.TB, r *view.Recording) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, view.Write(&b, view.Alone(r)))
	return b.String()
}

func TestPagesAreSmall(t *testing.T) {
	r := &view.Recording{BlockSize: 16, NumGPUBlocks: 983, NumCPUBlocks: 1638}
	drive(t, sosp(t, 983, 1638), r, view.Limits{From: 10, Frames: 300}, load{256, 161, 337, 1, 0})
	require.Len(t, r.Frames, 300)
	page := written(t, r)
	t.Logf("%d bytes for %d frames with %d blocks", len(page), len(r.Frames), r.NumGPUBlocks)
	require.Less(t, len(page), 2<<20)
}

func TestPagesAskForNothing(t *testing.T) {
	page := written(t, story(t, "copy-on-write"))
	require.Regexp(t, `Content-Security-Policy" content="default-src &#39;none&#39;; style-src &#39;sha256-|Content-Security-Policy" content="default-src 'none'; style-src 'sha256-`, page)
	require.NotRegexp(t, regexp.MustCompile(`(?i)<link|<img|<iframe|\ssrc=|@import|url\(["']?[^#"')]`), page)
	require.NotContains(t, strings.ReplaceAll(page, "http://www.w3.org/2000/svg", ""), "://")
	require.Equal(t, page, written(t, story(t, "copy-on-write")), "the same twice")
}

func TestBadRecordingsAreRefused(t *testing.T) {
	for says, spoil := range map[string]func(r *view.Recording){
		"0 frames beside 0": func(r *view.Recording) { r.Frames = nil },
		"65536 blocks on the GPU and 1 on the CPU, a page shows 65536": func(r *view.Recording) { r.NumGPUBlocks = 1 << 16 },
		"a page holds 24: record fewer":                                func(r *view.Recording) { r.Frames[0].Said = []string{strings.Repeat("x", 25<<20)} },
	} {
		r := &view.Recording{BlockSize: 4, NumGPUBlocks: 4, NumCPUBlocks: 1, Frames: []view.Frame{{Blocks: 4}}}
		spoil(r)
		var b bytes.Buffer
		err := view.Write(&b, view.Alone(r))
		require.ErrorIs(t, err, view.ErrRecording, says)
		require.ErrorContains(t, err, says)
		require.Zero(t, b.Len())
	}
}
