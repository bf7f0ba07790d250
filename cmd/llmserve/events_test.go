package main

import (
	"bytes"
	"fmt"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/libzmq"
)

// Ensure that a subscriber gets events with the tokens of stored blocks. The test sends new prompts until the
// subscription is active.
func TestSubscribersHearWhatThePrefixCacheStores(t *testing.T) {
	address := "ipc://" + filepath.Join(t.TempDir(), "kv")
	s := serveDemo(t, "--kv-events", address, "--kv-events-topic", "kv@pod@demo", "--kv-events-arrays")
	sub := libzmq.New(t, "SUB")
	sub.Set("SUBSCRIBE", "kv@")
	sub.Connect(address)
	for i := 0; ; i++ {
		prompt := fmt.Sprintf("%06d ABCDEFGHI and more", i)
		text(t, s.post(t, "/completions", fmt.Sprintf(`{"model": "demo", "prompt": %q, "max_tokens": 1}`, prompt)))
		if m := sub.Receive(10 * time.Millisecond); m != nil {
			require.Len(t, m, 3)
			require.Equal(t, "kv@pod@demo", string(m[0]))
			// The message is an array with the time, the events and the rank; the first event is BlockStored.
			require.Contains(t, string(m[2]), "\xabBlockStored")
			require.NotContains(t, string(m[2]), "block_hashes")
			require.Contains(t, string(m[2]), "full_attention")
			// The demo's tokens are the bytes of the text, which MessagePack writes as single bytes.
			require.True(t, bytes.Contains(m[2], []byte(" ABCDEFGH")), "%q", m[2])
			require.NoError(t, s.cmd.Process.Signal(syscall.SIGTERM))
			require.NoError(t, s.cmd.Wait())
			return
		}
	}
}
