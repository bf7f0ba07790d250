package model

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/model/matrix"
)

func TestTheLargestLogitIsTheSameHoweverTheHeadIsCut(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 1))
	odd := []float32{float32(math.NaN()), float32(math.Inf(-1)), -1, 2, 2, float32(math.Inf(1))}
	var l largest
	for range 2000 {
		rows, vocab, tasks, kinds := 1+rnd.IntN(3), 1+rnd.IntN(40), 1+rnd.IntN(6), 1+rnd.IntN(len(odd))
		logits := make([][]float32, rows)
		for r := range logits {
			for range vocab {
				logits[r] = append(logits[r], odd[rnd.IntN(kinds)])
			}
		}
		l.reset(tasks, rows)
		for _, task := range rnd.Perm(tasks) {
			for start, end := vocab*task/tasks, vocab*(task+1)/tasks; start < end; start += 3 {
				for r, x := range logits {
					l.compare(task, r, x[start:min(start+3, end)], start)
				}
			}
		}
		l.merge()
		for r, x := range logits {
			want, value := matrix.ArgMax(x)
			if math.IsNaN(float64(value)) || math.IsInf(float64(value), 0) {
				want = -1
			}
			require.EqualValues(t, want, l.tokens[r], "%v in %d tasks", x, tasks)
		}
	}
}
