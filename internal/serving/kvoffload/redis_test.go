package kvoffload_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/kvoffload"
)

func newRedis(t *testing.T, c kvoffload.RedisConfig) *kvoffload.Redis {
	t.Helper()
	r, err := kvoffload.NewRedis(t.Context(), c, space)
	require.NoError(t, err)
	t.Cleanup(func() { _ = r.Close() })
	return r
}

func TestARedisConfigurationThatCannotWorkIsRefused(t *testing.T) {
	pem := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(pem, []byte("no certificate"), 0o600))
	for _, c := range []struct {
		config kvoffload.RedisConfig
		says   string
	}{
		{kvoffload.RedisConfig{URL: "http://host"}, `"http:"`},
		{kvoffload.RedisConfig{URL: "host:6379"}, `"host:"`},
		{kvoffload.RedisConfig{URL: "redis://"}, "no host"},
		{kvoffload.RedisConfig{URL: "redis://:6379"}, "no host"},
		{kvoffload.RedisConfig{URL: "redis://user:secret@host"}, "password"},
		{kvoffload.RedisConfig{URL: "redis://host:port"}, "redis://HOST:PORT"},
		{kvoffload.RedisConfig{URL: "redis://host/a"}, "database"},
		{kvoffload.RedisConfig{URL: "redis://host", CAFile: pem}, "rediss://"},
		{kvoffload.RedisConfig{URL: "rediss://host", CAFile: pem}, "no certificate"},
		{kvoffload.RedisConfig{URL: "rediss://host", CAFile: pem + "x"}, "no such file"},
		{kvoffload.RedisConfig{URL: "redis://host", TTL: -1}, "must not be negative"},
	} {
		err := c.config.Check()
		require.ErrorIs(t, err, kvoffload.ErrRedis, c.config.URL)
		require.ErrorContains(t, err, c.says)
		require.NotContains(t, err.Error(), "secret")
	}
	require.NoError(t, (&kvoffload.RedisConfig{URL: "rediss://host:1/2"}).Check())
}

func serve(t *testing.T, answer func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				answer(c)
			}()
		}
	}()
	return l.Addr().String()
}

func TestAServerThatIsNotRedisIsRefused(t *testing.T) {
	for name, answer := range map[string]func(net.Conn){
		"HTTP":    func(c net.Conn) { _, _ = c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")) },
		"silence": func(c net.Conn) { _, _ = c.Read(make([]byte, 1<<16)); time.Sleep(time.Second) },
		"nothing": func(net.Conn) {},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			_, err := kvoffload.NewRedis(ctx, kvoffload.RedisConfig{URL: "redis://" + serve(t, answer)}, space)
			require.ErrorIs(t, err, kvoffload.ErrRedis)
		})
	}
}

// Ensure that a reply is an error if it announces or sends too many bytes. It must not exhaust the memory.
func TestRepliesThatAreTooLargeAreErrors(t *testing.T) {
	for _, reply := range []string{
		"$9223372036854775000\r\n", "$99999999999999\r\n", "=99999999999999\r\n", "!99999999999999\r\n",
		"*99999999999999\r\n", "~99999999999999\r\n", "%99999999999999\r\n", ">99999999999999\r\n",
		"*1\r\n$99999999999999\r\n", "*2\r\n$1\r\na\r\n$99999999999999\r\n",
		strings.Repeat("*1\r\n", 1000), "+" + strings.Repeat("a", 1<<20),
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer l.Close()
		go rogue(l, reply)
		r := newRedis(t, kvoffload.RedisConfig{URL: "redis://" + l.Addr().String()})
		n, err := r.Count(t.Context(), named(1))
		require.Error(t, err, "%.50q", reply)
		require.Zero(t, n)
		n, err = r.Load(t.Context(), named(1), memory(1))
		require.Error(t, err, "%.50q", reply)
		require.Zero(t, n)
		require.Error(t, r.Store(t.Context(), named(1)[0], memoryOf(content(0))), "%.50q", reply)
	}
}

func rogue(l net.Listener, reply string) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			buffer := make([]byte, 1<<16)
			for {
				n, err := c.Read(buffer)
				if err != nil {
					return
				}
				answer := reply
				switch command := strings.ToLower(string(buffer[:n])); {
				case strings.Contains(command, "hello"), strings.Contains(command, "client"):
					answer = "-ERR unknown command\r\n"
				case strings.Contains(command, "ping"):
					answer = "+PONG\r\n"
				}
				if _, err := c.Write([]byte(answer)); err != nil {
					return
				}
			}
		}()
	}
}
