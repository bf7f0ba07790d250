package view_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/scheduling/serve"
	"llmmemory/internal/view"
)

type asked struct {
	Live   struct{ First int }
	Frames []struct {
		Said []string `json:"s"`
	}
}

func since(t *testing.T, l *view.Live, number int) (numbers []string) {
	data, err := l.Since(t.Context(), number)
	require.NoError(t, err)
	var a asked
	require.NoError(t, json.Unmarshal(data, &a))
	for i, f := range a.Frames {
		require.Equal(t, fmt.Sprint(a.Live.First+i), f.Said[0])
		numbers = append(numbers, f.Said[0])
	}
	return numbers
}

func TestALivePageGetsWhatItDoesNotHave(t *testing.T) {
	l, err := view.NewLive(view.Recording{Title: "run", BlockSize: 16, NumGPUBlocks: 4}, 3)
	require.NoError(t, err)
	for i := range 5 {
		l.Add(view.Frame{Blocks: 4, Said: []string{fmt.Sprint(i)}})
	}
	require.Equal(t, []string{"3", "4"}, since(t, l, 3))
	require.Equal(t, []string{"2", "3", "4"}, since(t, l, 0), "0 and 1 are no longer kept")
	require.Equal(t, []string{"2", "3", "4"}, since(t, l, 70), "the page is from another run")
	var page strings.Builder
	require.NoError(t, l.Write(&page, "more?from="))
	for _, part := range []string{`"live":{"source":"more?from=","first":2}`, "connect-src &#39;self&#39;"} {
		require.True(t, strings.Contains(page.String(), part), part) // not Contains, which prints the page
	}
	l.Restart()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	data, err := l.Since(ended, 5)
	require.NoError(t, err)
	require.Nil(t, data)
	l.Add(view.Frame{Blocks: 4, Said: []string{"5"}})
	require.Equal(t, []string{"5"}, since(t, l, 5))
}

func TestDescribeTellsWhatStepsDid(t *testing.T) {
	r := view.Recording{BlockSize: 4, NumGPUBlocks: 8}
	one := view.Frame{Sequences: []view.Sequence{{Request: 1, Tokens: 4, Table: []int32{3}}}}
	tests := []struct {
		name          string
		before, after view.Frame
		iter          serve.Iteration
		left          []int
		want          string
	}{
		{"admitted", view.Frame{}, one, serve.Iteration{Prefills: []serve.Prefill{{ID: 1, Tokens: 4, Cached: 2}}}, nil,
			"Admits request 1: 4 tokens of its prompt → block 3; 2 tokens are in the cache already."},
		{"left", one, view.Frame{}, serve.Iteration{}, []int{1}, "Request 1 leaves after 4 tokens: 1 block free."},
		{"nothing", one, one, serve.Iteration{}, nil, "Nothing runs."},
		{"evicted", view.Frame{Cached: []int32{2, 3}}, one, serve.Iteration{Prefills: []serve.Prefill{{ID: 1, Tokens: 4}}}, nil,
			"Admits request 1: 4 tokens of its prompt → block 3. Evicts from the cache: block 3."},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			require.Equal(t, test.want, strings.Join(r.Describe(&test.before, &test.after, &test.iter, test.left, nil), " "))
		})
	}
}
