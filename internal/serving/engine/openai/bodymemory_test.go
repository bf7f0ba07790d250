package openai

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A sentBody is the body of a request whose client has sent some of its pieces.
type sentBody struct {
	share
	deadline time.Time // its deadline
}

// sent takes pieces.
func (m *bodyMemory) sent(t *testing.T, client string, pieces int) *sentBody {
	b := &sentBody{share: share{client: client, maxTime: time.Hour}}
	b.setDeadline = func(deadline time.Time) { b.deadline = deadline }
	for range pieces {
		require.NoError(t, m.take(t.Context(), &b.share))
	}
	return b
}

// next takes a piece in the background.
func (m *bodyMemory) next(ctx context.Context, b *sentBody) <-chan error {
	done := make(chan error, 1)
	go func() { done <- m.take(ctx, &b.share) }()
	return done
}

// outcome describes the state of a call of bodyMemory.take. The channel done gets the result of this call; it comes
// from bodyMemory.next. outcome returns the text of the call's error, or "a piece" if the call has succeeded, or
// "waits" if the call has not returned yet.
func outcome(done <-chan error) string {
	synctest.Wait()
	select {
	case err := <-done:
		if err != nil {
			return err.Error()
		}
		return "a piece"
	default:
		return "waits"
	}
}

const tested = 2 * shortBody // the limit is 14 pieces, of which one client may have 7; one body may exceed it until it is complete

// Ensure that the bodies of one client take at most half of the memory, so that they do not delay the bodies of other
// clients. One body at a time, of any client, may take more than that.
func TestAClientHasHalfOfTheMemoryOfBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newBodyMemory(tested)
		first, second := m.sent(t, "a", 4), m.sent(t, "a", 3)
		more := m.sent(t, "a", 2)
		require.NoError(t, m.take(t.Context(), &more.share), "as much as it needs")
		waits := m.next(t.Context(), second)
		require.Equal(t, "waits", outcome(waits))
		other := m.sent(t, "b", 7)
		m.complete(&more.share)
		require.Equal(t, "waits", outcome(waits), "a complete body has its memory until it is decoded")
		m.giveBack(&more.share)
		require.Equal(t, "a piece", outcome(waits), "now it is the one that may have more")
		waits = m.next(t.Context(), first)
		require.Equal(t, "waits", outcome(waits))
		m.giveBack(&second.share)
		require.Equal(t, "a piece", outcome(waits))
		for _, b := range []*sentBody{first, other} {
			m.giveBack(&b.share)
		}
		require.Zero(t, m.used)
		require.Empty(t, m.clients)
		require.Empty(t, m.arriving)
		require.Nil(t, m.exempt)
	})
}

// Ensure that the server stops a slow body if another body waits for memory. The server stops the body that took its
// last piece of memory the longest time ago. If the client of the waiting body already has half of the memory, the
// server stops only a body of this client, or the body that exceeds the limit.
func TestSlowBodiesAreEndedIfOthersWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newBodyMemory(tested)
		other := m.sent(t, "b", 2)
		slow := m.sent(t, "a", 2)
		time.Sleep(time.Second)
		slower := m.sent(t, "a", 7)
		fast := m.sent(t, "a", 0)
		require.True(t, slow.deadline.After(time.Now().Add(30*time.Minute)), "it may be slow if nobody waits")
		waits := m.next(t.Context(), fast)
		time.Sleep(pieceTime - time.Second/2)
		require.True(t, slow.slow)
		require.False(t, slow.deadline.After(time.Now()))
		require.False(t, slower.slow, "it is slow for less time")
		require.False(t, other.slow)
		require.ErrorIs(t, m.take(t.Context(), &slow.share), errSlow, "also if a piece comes just then")
		require.True(t, m.complete(&slow.share))
		m.giveBack(&slow.share)
		require.Equal(t, "a piece", outcome(waits))
		time.Sleep(time.Hour)
		require.False(t, slower.slow, "nobody waits")

		m.sent(t, "b", 5)
		third := m.sent(t, "c", 1)
		waits = m.next(t.Context(), third)
		time.Sleep(pieceTime)
		require.True(t, other.slow, "a client that has less than half gets the memory of all")
		m.giveBack(&other.share)
		require.Equal(t, "a piece", outcome(waits))
	})
}

// Ensure that a body waits for memory only for a limited time. This time does not count against its deadline.
func TestABodyWaitsForMemoryForALimitedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newBodyMemory(tested)
		complete := m.sent(t, "a", 9)
		m.complete(&complete.share)
		b := m.sent(t, "a", 0)
		begin := time.Now()
		waits := m.next(t.Context(), b)
		time.Sleep(bodyWait - time.Second)
		require.Equal(t, "waits", outcome(waits))
		m.giveBack(&complete.share)
		require.Equal(t, "a piece", outcome(waits))
		require.Equal(t, begin.Add(time.Hour+bodyWait-time.Second), b.deadline)

		complete = m.sent(t, "a", 9)
		m.complete(&complete.share)
		waits = m.next(t.Context(), b)
		time.Sleep(time.Second)
		require.Equal(t, errBodies.Message, outcome(waits))
		gone, leave := context.WithCancel(t.Context())
		waits = m.next(gone, m.sent(t, "a", 0))
		leave()
		require.Equal(t, errGone.Message, outcome(waits))
	})
}

// Ensure that if a body is stopped because it is slow, its client gets an error with the reason. The server must then
// read the other body, which waited for memory.
func TestAClientWhoseBodyIsSlowIsToldWhy(t *testing.T) {
	s := &Server{config: Config{
		Bounds: Bounds{MaxBody: tested},
	}, bodies: newBodyMemory(tested), slots: newSlots()}
	read := make(chan error, 1)
	server := httptest.NewServer(s.guarded(func(w http.ResponseWriter, r *http.Request) error {
		_, err := s.read(w, r)
		read <- err
		return err
	}))
	t.Cleanup(server.Close)
	dial := func() net.Conn {
		c, err := net.Dial("tcp", server.Listener.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		_, err = fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n", shortBody+1)
		require.NoError(t, err)
		_, err = io.WriteString(c, strings.Repeat(" ", shortBody))
		require.NoError(t, err)
		return c
	}
	complete := s.bodies.sent(t, "127.0.0.1", 7)
	s.bodies.complete(&complete.share)
	slow := dial()
	require.Eventually(t, func() bool {
		s.bodies.mu.Lock()
		defer s.bodies.mu.Unlock()
		for h := range s.bodies.arriving {
			h.lastPiece = h.lastPiece.Add(-pieceTime)
		}
		return len(s.bodies.arriving) == 1
	}, 10*time.Minute, time.Millisecond)
	waits := dial()
	_, err := io.WriteString(waits, " ")
	require.NoError(t, err)
	require.ErrorIs(t, <-read, errSlow)
	answer, err := http.ReadResponse(bufio.NewReader(slow), nil)
	require.NoError(t, err)
	require.Equal(t, 408, answer.StatusCode)
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.Contains(t, string(text), "The body arrived too slowly while other requests waited for memory; try again later.")
	require.NoError(t, <-read)
}

func TestAClientIsAnAddressOrANetworkOfIPv6(t *testing.T) {
	for at, want := range map[string]string{
		"10.0.0.1:5":               "10.0.0.1",
		"[::ffff:10.0.0.1]:5":      "10.0.0.1",
		"[2001:db8:1:2:3:4:5:6]:5": "2001:db8:1:2::/64",
		"[fe80::1%eth0]:5":         "fe80::/64",
		"@":                        "unknown",
	} {
		require.Equal(t, want, clientOf(&http.Request{RemoteAddr: at}))
	}
}
