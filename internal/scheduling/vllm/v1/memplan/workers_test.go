package memplan

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The cases and their values are those of vLLM's test_get_kv_cache_configs_multiple_workers. Layers are numbered from
// 0.
func TestPlansForWorkersAreThoseOfVLLMsTests(t *testing.T) {
	ten := page * 2 * 10
	f, w := full(2), window(2)
	for _, tc := range []struct {
		name    string
		layers  []Layer
		workers []Worker
		blocks  int
		want    int       // blocks of all
		groups  [][][]int // by worker
		tensors []int     // by worker
	}{
		{"all equal", times(2, f), []Worker{{ten, []int{0, 1}}, {ten, []int{0, 1}}}, 0,
			10, [][][]int{{{0, 1}}, {{0, 1}}}, []int{2, 2}},
		{"different memory: tensor parallel", times(2, f), []Worker{{ten, []int{0, 1}}, {2 * ten, []int{0, 1}}}, 0,
			10, [][][]int{{{0, 1}}, {{0, 1}}}, []int{2, 2}},
		{"different layers: pipeline parallel", times(3, f), []Worker{{ten, []int{0}}, {ten, []int{1, 2}}}, 0,
			10, [][][]int{{{0}}, {{1, 2}}}, []int{1, 2}},
		{"both", times(3, f), []Worker{{ten, []int{0, 1}}, {ten, []int{0, 1}}, {ten, []int{2}}, {ten, []int{2}}}, 0,
			10, [][][]int{{{0, 1}}, {{0, 1}}, {{2}}, {{2}}}, []int{2, 2, 1, 1}},
		{"a kind of attention on each", list(times(2, f), times(2, w)), []Worker{{ten, []int{0, 1}}, {ten, []int{2, 3}}}, 0,
			10, [][][]int{{{0, 1}, nil}, {nil, {2, 3}}}, []int{2, 2}},
		{"several groups on each", list(times(1, f), times(2, w), times(1, f), times(2, w)), []Worker{{page * 10, []int{0, 1, 2}}, {page * 10, []int{3, 4, 5}}}, 0,
			10, [][][]int{{{0}, {1}, {2}}, {{3}, {4}, {5}}}, []int{1, 1}},
		{"an override", times(2, f), []Worker{{ten, []int{0}}, {0, []int{1}}}, 7,
			7, [][][]int{{{0}}, {{1}}}, []int{1, 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			plans, err := Make(tc.layers, tc.workers, Options{Blocks: tc.blocks})
			require.NoError(t, err)
			require.Len(t, plans, len(tc.workers))
			for i, p := range plans {
				require.Equal(t, tc.want, p.NumGPUBlocks)
				var groups [][]int
				for _, g := range p.Groups {
					groups = append(groups, g.Layers)
				}
				require.Equal(t, tc.groups[i], groups)
				require.Len(t, p.Tensors, tc.tensors[i])
				for _, tensor := range p.Tensors {
					require.Equal(t, page*tc.want, tensor.Bytes)
				}
			}
		})
	}
}

func TestBadWorkersAreRefused(t *testing.T) {
	for _, tc := range []struct {
		name, wantErr string
		workers       []Worker
	}{
		{"none", "no workers", nil},
		{"one without layers", "worker 1 has no layers", []Worker{{100, []int{0}}, {100, nil}}},
		{"a layer that there is not", "layer 2 of 2", []Worker{{100, []int{0, 2}}}},
		{"layers out of order", "layer 0 after 1", []Worker{{100, []int{1, 0}}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Make(times(2, full(2)), tc.workers, Options{})
			require.ErrorIs(t, err, ErrLayers)
			require.ErrorContains(t, err, tc.wantErr)
		})
	}
}
