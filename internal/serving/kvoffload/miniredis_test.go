//go:build long

package kvoffload_test

import (
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/kvoffload"
)

func TestWhatRedisKeepsAnotherServerReads(t *testing.T) {
	server := miniredis.RunT(t)
	c := kvoffload.RedisConfig{URL: "redis://" + server.Addr()}
	blocks := named(20)
	first := newRedis(t, c)
	requireLoads(t, first, blocks, 0)
	storeAll(t, first, blocks)
	storeAll(t, first, blocks)
	requireLoads(t, newRedis(t, c), blocks, 20)

	other, err := kvoffload.NewRedis(t.Context(), c, kvoffload.NewSpace("another model"))
	require.NoError(t, err)
	requireLoads(t, other, blocks, 0)
	require.NoError(t, other.Close())

	key := server.Keys()[0]
	text, err := server.Get(key)
	require.NoError(t, err)
	for _, damaged := range []string{text[:len(text)-1], text + "a", "", strings.Repeat("rubbish", 9999), text[:len(text)-1] + "\xff"} {
		require.NoError(t, server.Set(key, damaged))
		n, err := first.Load(t.Context(), blocks, memory(20))
		require.ErrorIs(t, err, kvoffload.ErrDamaged)
		require.Less(t, n, 20)
		require.False(t, server.Exists(key))
	}
}

func TestRedisForgetsWhatIsNotUsed(t *testing.T) {
	server := miniredis.RunT(t)
	r := newRedis(t, kvoffload.RedisConfig{URL: "redis://" + server.Addr(), TTL: time.Hour})
	storeAll(t, r, named(2))
	server.FastForward(40 * time.Minute)
	require.NoError(t, r.Store(t.Context(), named(1)[0], memoryOf(content(0)))) // used
	server.FastForward(40 * time.Minute)
	requireLoads(t, r, named(2), 1)
}

func TestRedisWantsItsPassword(t *testing.T) {
	server := miniredis.RunT(t)
	server.RequireAuth("secret")
	c := kvoffload.RedisConfig{URL: "redis://" + server.Addr()}
	_, err := kvoffload.NewRedis(t.Context(), c, space)
	require.ErrorIs(t, err, kvoffload.ErrRedis)
	require.ErrorContains(t, err, "NOAUTH")
	c.Password = "secret"
	storeAll(t, newRedis(t, c), named(1))
}
