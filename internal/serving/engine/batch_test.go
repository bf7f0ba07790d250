package engine

import (
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/scheduling/vllm/v1/kvcache"
)

// Ensure that the common prefix contains only whole blocks, which all rows have. The tokens that a row computes in
// this step must come after the prefix. If the layers have a window, there is no common prefix. All tables may then
// begin with the null block although the rows share no tokens.
func TestTheCommonPrefixIsBeforeWhatEachRowComputes(t *testing.T) {
	rowAfter := func(computed int, table ...int32) row {
		return row{computed: computed, q: &sequence{tables: [][]int32{table}}}
	}
	for _, test := range []struct {
		name   string
		window int
		rows   []row
		want   int
	}{
		{"one row", 0, []row{rowAfter(12, 1, 2, 3)}, 0},
		{"equal tables", 0, []row{rowAfter(12, 1, 2, 3), rowAfter(12, 1, 2, 3)}, 12},
		{"the first row begins inside a block", 0, []row{rowAfter(11, 1, 2, 3), rowAfter(12, 1, 2, 3)}, 8},
		{"a later row begins earlier", 0, []row{rowAfter(12, 1, 2, 3), rowAfter(5, 1, 2, 3)}, 4},
		{"another block", 0, []row{rowAfter(12, 1, 2, 3), rowAfter(12, 1, 4, 3)}, 4},
		{"equal tables with a window", 8, []row{rowAfter(12, 0, 2, 3), rowAfter(12, 0, 2, 3)}, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := &Engine{config: Config{groups: []kvcache.Group{{BlockSize: 4}}}}
			if test.window > 0 {
				e.config.groups[0].Kind = kvcache.SlidingWindow
			}
			require.Equal(t, test.want, e.commonPrefix(test.rows, 0))
		})
	}
}
