package sampling

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Ensure that the counts of a sequence that grows, and of another sequence after Reset, are those of all its tokens.
func TestCountsFollowASequence(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var c Counts
		tokens := rapid.SliceOfN(rapid.Int32Range(0, 9), 0, 30)
		for range 2 {
			prompt, output := tokens.Draw(t, "prompt"), tokens.Draw(t, "output")
			for n := 0; n <= len(output); n += rapid.IntRange(1, 5).Draw(t, "tokens") {
				want := map[int32]int32{}
				for _, id := range prompt {
					want[id] = 0
				}
				for _, id := range output[:n] {
					want[id]++
				}
				got := map[int32]int32{}
				list := c.Of(prompt, output[:n])
				for _, x := range list {
					got[x.Token] = x.Output
				}
				require.Equal(t, want, got)
				require.Len(t, list, len(want))
			}
			c.Reset()
		}
	})
}
