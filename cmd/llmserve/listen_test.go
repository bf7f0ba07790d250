package main

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// starts starts a command that serves the demo, and returns what it prints up to the line with curl.
func starts(t *testing.T, c *exec.Cmd) string {
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	c.Stderr = os.Stderr
	require.NoError(t, c.Start())
	t.Cleanup(func() {
		_ = c.Process.Kill() // it may have ended
		_ = c.Wait()
	})
	lines, said := bufio.NewReader(out), ""
	for !strings.Contains(said, "curl") {
		line, err := lines.ReadString('\n')
		require.NoError(t, err, said)
		said += line
	}
	go func() { _, _ = io.Copy(io.Discard, lines) }()
	return said
}

func unixClient(socket string) *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
}

// answers requires that the demo answers a request to base.
func answers(t *testing.T, client *http.Client, base string) {
	t.Helper()
	r, err := client.Post(base+"/v1/completions", "application/json", strings.NewReader(question))
	require.NoError(t, err)
	require.Contains(t, text(t, r), `"text":" three"`)
}

// Ensure that a server listens on a Unix socket that only its user and group may use, that it replaces the socket of a
// server that has crashed but not of one that runs, and that it removes the socket when it ends.
func TestAServerListensOnAUnixSocket(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	crashed, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	require.NoError(t, err)
	crashed.SetUnlinkOnClose(false)
	require.NoError(t, crashed.Close())
	c := llmserve("demo", "--uds", socket)
	said := starts(t, c)
	require.Contains(t, said, "curl --unix-socket "+socket+" http://localhost/v1/completions")
	info, err := os.Stat(socket)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o660), info.Mode().Perm())
	answers(t, unixClient(socket), "http://proxy.example") // the Host of a proxy
	require.Contains(t, refusedHere(t, "demo", "--uds", socket), "another process listens on "+socket)
	answers(t, unixClient(socket), "http://localhost")
	require.NoError(t, c.Process.Signal(syscall.SIGTERM))
	require.NoError(t, c.Wait())
	require.NoFileExists(t, socket)
}

// Ensure that a server takes the socket that systemd has opened, and tells systemd when requests can be answered and
// when it begins to stop.
func TestAServerIsStartedBySystemd(t *testing.T) {
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(t, err)
	defer l.Close()
	file, err := l.File()
	require.NoError(t, err)
	defer file.Close()
	notices := filepath.Join(t.TempDir(), "notify")
	systemd, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: notices, Net: "unixgram"})
	require.NoError(t, err)
	defer systemd.Close()
	started := func(sockets string, args ...string) *exec.Cmd {
		c := llmserve(args...)
		c.Path, c.Args = "/bin/sh", append([]string{"sh", "-c", `LISTEN_PID=$$ exec "$0" "$@"`}, c.Args...)
		c.Env = append(c.Env, "LISTEN_FDS="+sockets, "NOTIFY_SOCKET="+notices)
		c.ExtraFiles = []*os.File{file}
		return c
	}
	out, err := started("2", "demo").CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), `systemd passes "2" sockets (LISTEN_FDS), and one is needed`)

	c := started("1", "demo", "--port", "1")
	said := starts(t, c)
	require.Contains(t, said, "http://"+l.Addr().String()+"/v1", "not --port")
	next := func() string {
		b := make([]byte, 100)
		n, err := systemd.Read(b)
		require.NoError(t, err)
		return string(b[:n])
	}
	require.Equal(t, "READY=1", next())
	answers(t, http.DefaultClient, "http://"+l.Addr().String())
	require.NoError(t, c.Process.Signal(syscall.SIGTERM))
	require.Equal(t, "STOPPING=1", next())
	require.NoError(t, c.Wait())
}

// writeCertificate writes a certificate of 127.0.0.1 with the given serial number to two files, which get the
// given modification time, and returns the certificate.
func writeCertificate(t *testing.T, cert, key string, serial int64, modified time.Time) *x509.Certificate {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(240 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	require.NoError(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	for name, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: secret}} {
		require.NoError(t, os.WriteFile(name, pem.EncodeToMemory(block), 0o600))
		require.NoError(t, os.Chtimes(name, modified, modified))
	}
	parsed, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return parsed
}

// Ensure that a server answers over TLS, that a replaced certificate is used for new connections, and that the former one
// stays while the files do not fit together.
func TestAServerAnswersOverTLS(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	first := writeCertificate(t, cert, key, 1, now)
	c := llmserve("demo", "--port", "0", "--ssl-certfile", cert, "--ssl-keyfile", key)
	c.Env = append(c.Env, "GODEBUG=")
	said := starts(t, c)
	var base string
	for _, word := range strings.Fields(said) {
		if strings.HasPrefix(word, "https://127.0.0.1:") && strings.HasSuffix(word, "/v1,") {
			base = strings.TrimSuffix(word, "/v1,")
		}
	}
	require.NotEmpty(t, base, said)
	serial := func(trusted ...*x509.Certificate) int64 {
		pool := x509.NewCertPool()
		for _, c := range trusted {
			pool.AddCert(c)
		}
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, DisableKeepAlives: true}}
		answers(t, client, base)
		r, err := client.Get(base + "/health")
		require.NoError(t, err)
		require.NoError(t, r.Body.Close())
		require.Equal(t, 1, r.ProtoMajor)
		return r.TLS.PeerCertificates[0].SerialNumber.Int64()
	}
	require.EqualValues(t, 1, serial(first))

	other := filepath.Join(dir, "other.pem")
	second := writeCertificate(t, cert, other, 2, now.Add(time.Hour))
	require.EqualValues(t, 1, serial(first), "the key is still the former one")
	require.NoError(t, os.Rename(other, key))
	require.EqualValues(t, 2, serial(second))
	require.NoError(t, os.Remove(key))
	require.EqualValues(t, 2, serial(second))

	r, err := http.Get("http" + strings.TrimPrefix(base, "https") + "/health")
	require.NoError(t, err)
	require.Equal(t, 400, r.StatusCode, fmt.Sprint("without TLS: ", text(t, r)))
}

// Ensure that a certificate is read again after its key was missing for a while.
func TestACertificateIsReadAgainAfterItsKeyWasMissing(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	cert, key, away := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), filepath.Join(dir, "away.pem")
	newCert, newKey := filepath.Join(dir, "new cert.pem"), filepath.Join(dir, "new key.pem")
	writeCertificate(t, cert, key, 1, now)
	writeCertificate(t, newCert, newKey, 2, now.Add(time.Hour))
	c, err := (&tlsOptions{cert, key}).open()
	require.NoError(t, err)
	serial := func() int64 {
		pair, err := c.get(nil)
		require.NoError(t, err)
		parsed, err := x509.ParseCertificate(pair.Certificate[0])
		require.NoError(t, err)
		return parsed.SerialNumber.Int64()
	}
	require.NoError(t, os.Rename(newKey, key))
	require.EqualValues(t, 1, serial(), "the certificate is still the former one")
	require.NoError(t, os.Rename(key, away))
	require.NoError(t, os.Rename(newCert, cert))
	require.EqualValues(t, 1, serial(), "the key is missing")
	require.NoError(t, os.Rename(away, key))
	require.EqualValues(t, 2, serial())
	require.Empty(t, c.said, "the next error is written, also if it is the same")
}
