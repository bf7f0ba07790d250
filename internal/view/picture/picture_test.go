package picture

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden picture anew")

var golden = filepath.Join("..", "..", "..", "capi", "cache", "blocks.svg")

func TestTheCommittedPictureIsWhatTheCodeDraws(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, Draw(&out))
	if *update {
		require.NoError(t, os.WriteFile(golden, out.Bytes(), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), out.String(), "go test ./internal/view/picture -update writes it anew")
	for d := xml.NewDecoder(&out); ; {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
	}
}

// What the picture is to show is in the state: a prefix that all share, a copy
// on write, a partly filled block, and a free block that can still be hit.
func TestTheSceneShowsSharingCopyOnWriteAndTheQueue(t *testing.T) {
	s, err := play()
	require.NoError(t, err)
	a, child, b := s.tables[0].ids, s.tables[1].ids, s.tables[2].ids
	require.Equal(t, a[:2], b[:2])
	require.Equal(t, a[:2], child[:2])
	for _, id := range a[:2] {
		require.EqualValues(t, 3, s.counts[id])
	}
	require.NotEqual(t, a[2:], child[2:])
	require.Len(t, s.copies, 1)
	require.ElementsMatch(t, []int32{a[2], child[2]}, []int32{s.copies[0].Src, s.copies[0].Dst})
	cached := 0
	for _, id := range s.queue {
		require.Zero(t, s.counts[id])
		if s.cached[id] {
			cached++
		}
	}
	require.Positive(t, cached)
	for _, table := range s.tables {
		for p := range table.tokens {
			require.NotEmpty(t, s.memory[int(table.ids[p/blockSize])*blockSize+p%blockSize])
		}
	}
}
