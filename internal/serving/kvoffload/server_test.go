package kvoffload_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/kvoffload"
)

type server struct {
	dir  string
	port int
	args []string
	cmd  *exec.Cmd
}

// startServer starts redis-server with the arguments. It skips the test if redis-server is not
// installed.
func startServer(t *testing.T, args ...string) *server {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("redis-server is not installed; make test-tiers installs it")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &server{t.TempDir(), l.Addr().(*net.TCPAddr).Port, args, nil}
	require.NoError(t, l.Close())
	s.start(t)
	return s
}

func (s *server) start(t *testing.T) {
	t.Helper()
	port := []string{"--port", fmt.Sprint(s.port)}
	if slices.Contains(s.args, "--tls-cert-file") {
		port = []string{"--port", "0", "--tls-port", fmt.Sprint(s.port)}
	}
	s.cmd = exec.Command("redis-server", append(append([]string{"--bind", "127.0.0.1", "--dir", s.dir, "--save", ""}, port...), s.args...)...)
	require.NoError(t, s.cmd.Start())
	t.Cleanup(s.kill)
	for {
		c, err := net.Dial("tcp", s.address())
		if err == nil {
			_ = c.Close()
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (s *server) kill() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

func (s *server) address() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }

func TestRedisServerKeepsBlocks(t *testing.T) {
	s := startServer(t, "--requirepass", "secret")
	c := kvoffload.RedisConfig{URL: "redis://" + s.address(), Password: "secret"}
	blocks := named(200)
	storeAll(t, newRedis(t, c), blocks)
	requireLoads(t, newRedis(t, c), blocks, 200)
	c.Password = "wrong"
	_, err := kvoffload.NewRedis(t.Context(), c, space)
	require.ErrorIs(t, err, kvoffload.ErrRedis)
}

// A full server evicts, or refuses; what is loaded is right.
func TestRedisServerThatIsFullCostsBlocksOnly(t *testing.T) {
	for policy, fails := range map[string]bool{"allkeys-lru": false, "noeviction": true} {
		t.Run(policy, func(t *testing.T) {
			s := startServer(t, "--maxmemory", "3mb", "--maxmemory-policy", policy)
			r := newRedis(t, kvoffload.RedisConfig{URL: "redis://" + s.address()})
			failed := false
			blocks := named(4000)
			for i, b := range blocks {
				failed = r.Store(t.Context(), b, memoryOf(content(i))) != nil || failed
			}
			require.Equal(t, fails, failed)
			n := 0
			for i, b := range blocks {
				to := memory(1)
				came, err := r.Load(t.Context(), blocks[i:i+1], to)
				require.NoError(t, err)
				if n += came; came == 1 {
					require.Equal(t, content(i), to[0], "%x", b)
				}
			}
			require.Positive(t, n)
			require.Less(t, n, len(blocks))
		})
	}
}

// Ensure that no request waits longer than its deadline while the server is suspended or after it was killed. When the
// server is back, blocks are found and stored again.
func TestRedisServerThatComesAndGoes(t *testing.T) {
	s := startServer(t)
	r := newRedis(t, kvoffload.RedisConfig{URL: "redis://" + s.address()})
	o := kvoffload.New(kvoffload.Config{Tier: r, BlockBytes: blockBytes, Stores: true, Loads: true})
	defer o.Close()
	blocks := named(50)
	offer(o, blocks)
	require.Eventually(t, func() bool { return o.Stats().StoredBytes == 50*blockBytes }, time.Minute, time.Millisecond)
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGSTOP))
	require.Zero(t, o.Find(blocks, 30*time.Millisecond))
	n, _ := load(o, blocks, 30*time.Millisecond)
	require.Zero(t, n)
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGCONT))
	require.Eventually(t, func() bool { return o.Find(blocks, time.Hour) == 50 }, time.Minute, time.Millisecond)
	s.kill()
	n, _ = load(o, blocks, time.Hour)
	require.Zero(t, n)
	s.start(t) // empty now
	require.Eventually(t, func() bool {
		offer(o, named(60)[50:])
		return o.Stats().StoredBytes == 60*blockBytes
	}, time.Minute, 10*time.Millisecond)
	require.Zero(t, o.Find(blocks, time.Hour))
}

func TestRedisServerWithTLS(t *testing.T) {
	dir := t.TempDir()
	cert, key := certificate(t, dir)
	s := startServer(t, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-auth-clients", "no")
	c := kvoffload.RedisConfig{URL: "rediss://" + s.address(), CAFile: cert}
	storeAll(t, newRedis(t, c), named(3))
	requireLoads(t, newRedis(t, c), named(3), 3)
	c.CAFile = ""
	_, err := kvoffload.NewRedis(t.Context(), c, space)
	require.ErrorContains(t, err, "certificate")
}

func certificate(t *testing.T, dir string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	text, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	require.NoError(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	require.NoError(t, os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: text}), 0o600))
	require.NoError(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600))
	return cert, key
}
