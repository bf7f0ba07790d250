package openai

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// Ensure that clients take turns, that the requests of a client keep their order, and that a request that leaves gives
// its turn to the next one.
func TestClientsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var slot turns
		require.NoError(t, slot.take(t.Context(), "holder"))
		order := make(chan string, 10)
		gone, leave := context.WithCancel(t.Context())
		wait := func(ctx context.Context, client string, i int) {
			go func() {
				if err := slot.take(ctx, client); err != nil {
					order <- fmt.Sprint(client, i, " ", err)
					return
				}
				order <- fmt.Sprint(client, i)
				slot.end()
			}()
			synctest.Wait()
		}
		for i := range 3 {
			wait(t.Context(), "a", i)
		}
		wait(gone, "c", 0)
		wait(t.Context(), "b", 0)
		wait(t.Context(), "b", 1)
		leave()
		require.Equal(t, fmt.Sprint("c0 ", errGone), <-order)
		slot.end()
		synctest.Wait()
		close(order)
		var got []string
		for one := range order {
			got = append(got, one)
		}
		require.Equal(t, []string{"a0", "b0", "a1", "b1", "a2"}, got)
		require.False(t, slot.busy)
		require.Empty(t, slot.waiting)
		require.ErrorIs(t, slot.take(gone, "c"), errGone)
		require.False(t, slot.busy, "a client that has left takes no turn")
	})
}

// Ensure that a request whose client leaves at the moment of its turn passes the turn on.
func TestATurnIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var slot turns
		require.NoError(t, slot.take(t.Context(), "a"))
		turn := slot.join("b")
		slot.end()
		require.False(t, slot.leave("b", turn), "it is the turn of b")
		slot.end()
		require.NoError(t, slot.take(t.Context(), "c"))
	})
}
