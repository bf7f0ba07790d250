package view_test

import (
	"bytes"
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/block"
	"llmmemory/internal/view"
	"llmmemory/internal/vllm/device"
)

func written(t testing.TB, r *view.Recording) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, view.Write(&b, r))
	return b.String()
}

// Ensure that 300 steps of a full pool stay a small file.
func TestPagesAreSmall(t *testing.T) {
	r := &view.Recording{BlockSize: 16, NumGPUBlocks: 983, NumCPUBlocks: 1638}
	drive(t, sosp(t, 983, 1638), r, view.Limits{From: 10, Frames: 300}, load{256, 161, 337, 1, 0})
	require.Len(t, r.Frames, 300)
	page := written(t, r)
	t.Logf("%d bytes for %d frames with %d blocks", len(page), len(r.Frames), r.NumGPUBlocks)
	require.Less(t, len(page), 2<<20)
}

// Ensure that a page loads nothing from outside, and forbids it.
func TestPagesAskForNothing(t *testing.T) {
	page := written(t, story(t, "copy-on-write"))
	require.Regexp(t, `Content-Security-Policy" content="default-src &#39;none&#39;; style-src &#39;sha256-|Content-Security-Policy" content="default-src 'none'; style-src 'sha256-`, page)
	require.NotRegexp(t, regexp.MustCompile(`(?i)<link|<img|<iframe|\ssrc=|@import|url\(["']?[^#"')]`), page)
	require.NotContains(t, strings.ReplaceAll(page, "http://www.w3.org/2000/svg", ""), "://")
	require.Equal(t, page, written(t, story(t, "copy-on-write")), "the same twice")
}

func TestBadRecordingsAreRefused(t *testing.T) {
	good := func() *view.Recording {
		return &view.Recording{BlockSize: 4, NumGPUBlocks: 4, NumCPUBlocks: 1, Frames: []view.Frame{{Blocks: 4, Sequences: []view.Sequence{{Request: 1, Tokens: 5, Table: []int32{2, block.None, 0}}}}}}
	}
	require.NotEmpty(t, written(t, good()))
	for says, spoil := range map[string]func(r *view.Recording){
		"it has no frames":               func(r *view.Recording) { r.Frames = nil },
		"blocks of 0 tokens":             func(r *view.Recording) { r.BlockSize = 0 },
		"frame 0: 5 blocks on the GPU":   func(r *view.Recording) { r.Frames[0].Blocks = 5 },
		"sequence 0 of 1: block 4 of 4":  func(r *view.Recording) { r.Frames[0].Sequences[0].Table[0] = 4 },
		"sequence 0 of 1: block -2 of 4": func(r *view.Recording) { r.Frames[0].Sequences[0].Table[0] = -2 },
		"block 2 of 1 on the CPU":        func(r *view.Recording) { r.Frames[0].Sequences[0].CPU = true },
		"block 7 of 4 on the GPU":        func(r *view.Recording) { r.Frames[0].Copies = []device.Pair{{Src: 0, Dst: 7}} },
		"block 3 of 1 on the CPU":        func(r *view.Recording) { r.Frames[0].SwapOut = []device.Pair{{Src: 3, Dst: 3}} },
		"block 8 of 4 on the GPU":        func(r *view.Recording) { r.Frames[0].Hits = []int32{8} },
		"block 9 of 4 on the GPU":        func(r *view.Recording) { r.Frames[0].Cached = []int32{9} },
		"block 1 of 1 on the CPU":        func(r *view.Recording) { r.Frames[0].Counts = []view.Count{{CPU: true, Block: 1, Count: 1}} },
		"frame 0 has sequence 0 of 1 twice": func(r *view.Recording) {
			r.Frames[0].Sequences = append(r.Frames[0].Sequences, r.Frames[0].Sequences[0])
		},
		"65536 blocks on the GPU and 1 on the CPU, a page shows 65536": func(r *view.Recording) { r.NumGPUBlocks = 1 << 16 },

		"a page holds 24: record fewer": func(r *view.Recording) { r.Frames[0].Said = []string{strings.Repeat("x", 25<<20)} },
	} {
		r := good()
		spoil(r)
		var b bytes.Buffer
		err := view.Write(&b, r)
		require.ErrorIs(t, err, view.ErrRecording, says)
		require.ErrorContains(t, err, says)
		require.Zero(t, b.Len(), "nothing is written")
	}
}

type full struct{}

var errFull = errors.New("full")

func (full) Write([]byte) (int, error) { return 0, errFull }

func TestErrorsOfTheWriterAreReturned(t *testing.T) {
	require.ErrorIs(t, view.Write(full{}, story(t, "copy-on-write")), errFull)
}
