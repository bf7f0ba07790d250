package structured

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Ensure that concurrent matchers give the same masks as a matcher alone. The matchers share a constraint, or a
// vocabulary.
func TestMatchersRunAtOnce(t *testing.T) {
	cases := readCases(t, filepath.Join("testdata", "sample.jsonl"))[:4]
	v := smallVocabulary(t, []byte(cases[0].Schema))
	masks := func(c *Constraint, data []byte) []string {
		m := c.NewMatcher()
		var out []string
		mask := make([]uint64, v.Words())
		for _, token := range v.tokenize(spaced(data)) {
			m.Mask(mask)
			out = append(out, fmt.Sprint(mask, m.Clone().Done()))
			if m.Accept(token) != nil {
				break
			}
		}
		return out
	}
	var group sync.WaitGroup
	for _, c := range cases {
		shared := compiled(t, v, Form{JSONSchema: c.Schema})
		for _, test := range c.Tests {
			want := masks(compiled(t, v, Form{JSONSchema: c.Schema}), test.Data)
			for range 4 {
				group.Go(func() {
					got := masks(shared, test.Data)
					if len(got) != len(want) {
						t.Errorf("%s: %d masks, alone %d", c.Name, len(got), len(want))
						return
					}
					for i := range got {
						if got[i] != want[i] {
							t.Errorf("%s: mask %d differs", c.Name, i)
						}
					}
				})
			}
		}
	}
	group.Wait()
}

// Ensure that a constraint keeps at most a limited number of masks, and always the last one. Masks stay correct after it
// has dropped some.
func TestKeptMasksHaveALimit(t *testing.T) {
	v := smallVocabulary(t, []byte("abc"))
	c := compiled(t, v, Form{JSONSchema: json.RawMessage(`{"type":"array","items":{"type":"string","maxLength":3000}}`)})
	m := c.NewMatcher()
	a := v.tokenize([]byte("a"))[0]
	for _, token := range v.tokenize([]byte(`["`)) {
		require.NoError(t, m.Accept(token))
	}
	mask, fresh := make([]uint64, v.Words()), make([]uint64, v.Words())
	for i := range 3000 {
		require.NoError(t, m.Mask(mask))
		last := m.current().Memo
		require.NoError(t, m.Mask(mask))
		require.Same(t, last, m.current().Memo, i)
		require.LessOrEqual(t, c.masks, v.maxMasks())
		require.LessOrEqual(t, len(c.cache), v.maxMasks())
		if i < 2900 { // the same, as the end is far
			if i == 0 {
				copy(fresh, mask)
			}
			require.Equal(t, fresh, mask, i)
		}
		require.NoError(t, m.Accept(a))
	}
	require.Error(t, m.Accept(a), "a character too many")
	require.NoError(t, m.Rollback(3000))
	m.Mask(mask)
	require.Equal(t, fresh, mask)
}
