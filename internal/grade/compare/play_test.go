package compare_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/course/trace"
	"llmmemory/internal/grade/build"
	"llmmemory/internal/grade/compare"
	"llmmemory/internal/testkit/corpus"
	"llmmemory/internal/testkit/level"
)

// A large pool is compared at its ends, and a write to the rest ends the process. So does a
// write behind the bytes that are compared around a small pool.
func TestAWriteAnywhereIsSeen(t *testing.T) {
	level.SkipQuick(t)
	kit, err := build.NewKit()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, kit.Close()) })
	const (
		store = "    records[offset] = kv_data;\n"
		small = "init e0 640\ncreate e0 1 1\nappend e0 1 7\n"
		large = "init e0 64 3072\ncreate e0 1 20\nappend e0 1 7\nplace e0 1 2 50331648\ncount e0 1 40\nappend e0 1 8\n"
	)
	for _, c := range []struct {
		name, ops, more string
		channel         compare.Channel // empty: nothing differs
	}{
		{"right", large, "", ""},
		{"it writes into the middle", large, "    ((int *)engine->pool_base_ptr)[1 << 28] = 1;\n", compare.Death},
		{"it writes beside its record", large, "    records[offset - 2] = 1;\n", compare.Pool},
		{"it writes far behind a small pool", small, "    records[5000] = 1;\n", compare.Death},
	} {
		t.Run(c.name, func(t *testing.T) {
			program, err := kit.Build(c.name, []byte(corpus.Changed(t, store, store+c.more)))
			require.NoError(t, err)
			ops, err := trace.Parse(c.ops)
			require.NoError(t, err)
			r, err := compare.Play(program.Native(), ops)
			require.NoError(t, err)
			if c.channel == "" {
				require.Nil(t, r.First())
				return
			}
			require.NotNil(t, r.First())
			require.Equal(t, c.channel, r.First().Channel)
			require.Equal(t, 2, r.First().Step)
		})
	}
}
