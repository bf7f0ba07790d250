package guest_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/level"
)

var offload = filepath.Join("..", "examples", "offload")

type offloaded struct {
	answers                            uint64
	computed, loaded, written, removed int
}

func parseOffloaded(t *testing.T, r result) (o offloaded) {
	t.Helper()
	require.Zero(t, r.status, r.stdout+r.stderr)
	_, err := fmt.Sscanf(r.stdout, "48 requests, answers %x: %d tokens computed, %d loaded; %d files written, %d removed\n",
		&o.answers, &o.computed, &o.loaded, &o.written, &o.removed)
	require.NoError(t, err, r.stdout)
	return o
}

// Offsets in a file of the example.
const (
	offloadFormat = 8
	offloadTokens = 12
)

// Ensure that a process uses the block files of an earlier process. It must not use a damaged file or the file of
// another prefix.
func TestBlocksInFilesOutliveTheProcess(t *testing.T) {
	level.SkipNormal(t)
	each(t, linked, func(t *testing.T, w way) {
		prog, folder := w.compileCache(t, offload), filepath.Join(t.TempDir(), "blocks")
		first := parseOffloaded(t, run(t, t.TempDir(), nil, prog, folder))
		whole := filesOf(t, folder)
		require.Len(t, whole, first.written)
		require.Zero(t, first.removed)

		second := parseOffloaded(t, run(t, t.TempDir(), nil, prog, folder))
		require.Equal(t, first.answers, second.answers)
		require.Greater(t, second.loaded, first.loaded+1000)
		require.Less(t, second.computed, first.computed-1000)
		require.Zero(t, second.written+second.removed)
		require.Equal(t, whole, filesOf(t, folder))

		if w == shared || level.Exhaustive() {
			foreign := damage(t, folder, whole)
			sanitized := w.compileCache(t, offload, sanitizers, "-fno-sanitize-recover=all")
			checkDamaged(t, second, run(t, t.TempDir(), nil, sanitized, folder))
			require.Equal(t, foreign, filesOf(t, folder))
		}
		if w == archive || level.Exhaustive() {
			foreign := damage(t, folder, whole)
			checkDamaged(t, second, memcheckCache(t, prog, folder))
			require.Equal(t, foreign, filesOf(t, folder))
		}
	})
}

func TestWrongNumbersInAFileAreSeen(t *testing.T) {
	level.SkipNormal(t)
	t.Parallel()
	prog, folder := shared.compileCache(t, offload), filepath.Join(t.TempDir(), "blocks")
	parseOffloaded(t, run(t, t.TempDir(), nil, prog, folder))
	whole := filesOf(t, folder)
	name := firstBlocks(whole)[0]
	content := whole[name]
	content[len(content)-1] ^= 1
	write(t, folder, name, string(withSum(content)))
	r := run(t, t.TempDir(), nil, prog, folder)
	require.Equal(t, 1, r.status)
	require.Contains(t, r.stderr, "not so: memory[")
}

// checkDamaged checks r, a run after damage. The run must give the same answers as the run before the damage. It must
// remove the four damaged files and store them again.
func checkDamaged(t *testing.T, before offloaded, r result) {
	t.Helper()
	after := parseOffloaded(t, r)
	require.Equal(t, before.answers, after.answers)
	require.Greater(t, after.computed, before.computed)
	require.Less(t, after.loaded, before.loaded)
	require.Greater(t, after.loaded, 0)
	require.Equal(t, 4, after.removed)
	require.Equal(t, 4, after.written)
}

// damage changes the file of the first block of each system prompt. The parameter whole has the undamaged contents of
// all files. damage damages four of the five files. It replaces the fifth by a copy of the first one's undamaged
// contents, which belong to another prefix. damage returns the contents that the files must have after the next run:
// that run must rewrite the damaged files and must leave the fifth as it is.
func damage(t *testing.T, folder string, whole map[string][]byte) map[string][]byte {
	t.Helper()
	first := firstBlocks(whole)
	require.Len(t, first, 5)
	longer := append(bytes.Clone(whole[first[0]]), 0)
	cut := whole[first[1]][:len(whole[first[1]])-1]
	flipped := bytes.Clone(whole[first[2]])
	flipped[len(flipped)-1] ^= 1
	format := bytes.Clone(whole[first[3]])
	format[offloadFormat] ^= 2
	after := maps.Clone(whole)
	after[first[4]] = whole[first[0]]
	for i, content := range [][]byte{longer, cut, flipped, withSum(format), after[first[4]]} {
		write(t, folder, first[i], string(content))
	}
	return after
}

func firstBlocks(files map[string][]byte) (names []string) {
	for name, content := range files {
		if binary.NativeEndian.Uint32(content[offloadTokens:]) == 16 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func withSum(content []byte) []byte {
	h := fnv.New64a()
	_, _ = h.Write(content[offloadFormat:])
	binary.NativeEndian.PutUint64(content, h.Sum64())
	return content
}

func filesOf(t *testing.T, folder string) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	entries, err := os.ReadDir(folder)
	require.NoError(t, err)
	for _, e := range entries {
		files[e.Name()], err = os.ReadFile(filepath.Join(folder, e.Name()))
		require.NoError(t, err)
	}
	return files
}
