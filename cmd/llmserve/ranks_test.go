package main

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRanksRefuseWhatDiffers(t *testing.T) {
	model := func(content string) []fact {
		return []fact{{"the content of the weights", content}, {"--block-size", "16"}}
	}
	for _, test := range []struct {
		name    string
		reports []report
		want    string
	}{
		{"the same", []report{{Host: "a", Facts: model("x")}, {Host: "b", Facts: model("x")}}, ""},
		{"one does not know yet", []report{{Host: "a"}, {Host: "b", Facts: model("x")}}, ""},
		{"another model", []report{{Host: "a", Facts: model("x")}, {Host: "b", Facts: model("y")}},
			"the content of the weights is y on rank 1 (b), and x on rank 0 (a); all ranks need the same"},
		{"rank 0 refuses", []report{{Host: "a", Refused: "no"}, {Host: "b", Refused: "nor this"}},
			"rank 0 on a: no"},
		{"another one refuses", []report{{Host: "a"}, {Host: "b", Refused: "no memory"}}, "rank 1 on b: no memory"},
	} {
		t.Run(test.name, func(t *testing.T) { require.Equal(t, test.want, refusal(test.reports)) })
	}
}

type table struct {
	world
	rank int
	seat [2]chan []byte
}

func (w table) Rank() int              { return w.rank }
func (w table) Size() int              { return 2 }
func (w table) Host() string           { return "host" }
func (w table) SetLimit(time.Duration) {}

func (w table) Exchange(message []byte) ([][]byte, error) {
	w.seat[1-w.rank] <- message
	all := [][]byte{message, message}
	all[1-w.rank] = <-w.seat[w.rank]
	return all, nil
}

func TestRanksWaitForEachOther(t *testing.T) {
	seat := [2]chan []byte{make(chan []byte, 1), make(chan []byte, 1)}
	first, second := newProcesses(table{rank: 0, seat: seat}), newProcesses(table{rank: 1, seat: seat})
	var wait sync.WaitGroup
	wait.Go(first.exchange)
	wait.Go(second.exchange)
	for _, s := range []stage{knowsModel, loadedWeights} {
		passed := make(chan bool)
		go func() {
			first.reach(s)
			close(passed)
		}()
		first.mu.Lock()
		require.Less(t, first.all, s)
		first.mu.Unlock()
		second.reach(s)
		<-passed
	}
	wait.Wait()
}
