package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
)

// listenOptions say where the server listens. A socket of systemd comes before all of them.
type listenOptions struct {
	host string
	port int
	uds  string
	tls  tlsOptions
}

func (o *listenOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&o.host, "host", "127.0.0.1", "address to listen on; 0.0.0.0 is all of them")
	f.IntVar(&o.port, "port", 8000, "port to listen on; 0 is any free one")
	f.StringVar(&o.uds, "uds", "", "Unix socket to listen on instead of --host and --port; the user and the group of this process may use it")
	o.tls.flags(f)
}

// check tries to listen and to read the certificate.
func (o *listenOptions) check() error {
	if _, err := o.tls.open(); err != nil {
		return err
	}
	listener, err := o.listen()
	if err != nil {
		return err
	}
	return listener.Close()
}

// listen opens the server's socket, or takes the one that systemd has opened.
func (o *listenOptions) listen() (net.Listener, error) {
	if l, err := systemdSocket(); l != nil || err != nil {
		return l, err
	}
	if o.uds != "" {
		return listenUnix(o.uds)
	}
	if strings.HasSuffix(o.host, ".sock") { // a Unix socket for llama-server
		return nil, fmt.Errorf("--host is %s; use --uds for a Unix socket", o.host)
	}
	if o.port < 0 || o.port > 65535 {
		return nil, fmt.Errorf("--port is %d; it must be from 0 to 65535", o.port)
	}
	host := strings.TrimSuffix(strings.TrimPrefix(o.host, "["), "]") // an IPv6 address as in URLs
	l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(o.port)))
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("%w; give another --port, or 0 for any free one", err)
	case errors.Is(err, syscall.EACCES):
		return nil, fmt.Errorf("%w; give a --port above 1023", err)
	case err != nil:
		return nil, fmt.Errorf("--host %s: %w", o.host, err)
	}
	return l, nil
}

// maxSocketPath is the largest length of a Unix socket's path in bytes, by the size of sun_path (unix(7)).
const maxSocketPath = 107

// listenUnix listens on a Unix socket with mode 0660. It removes a socket on which nobody listens, and never another
// file. While it does so, it holds a lock on the folder, so that of two servers that start at the same time neither
// removes the other's socket.
func listenUnix(path string) (net.Listener, error) {
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("--uds has %d bytes; the path of a socket has at most %d", len(path), maxSocketPath)
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("--uds: %w", err)
	}
	defer dir.Close() // and gives the lock back
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
		return nil, fmt.Errorf("--uds: lock of %s: %w", dir.Name(), err)
	}
	if info, err := os.Lstat(path); err == nil {
		if info.Mode()&os.ModeSocket == 0 {
			return nil, fmt.Errorf("--uds: %s exists and is no socket; give another path", path)
		}
		c, err := net.Dial("unix", path)
		switch {
		case err == nil:
			_ = c.Close() // nothing was sent
			return nil, fmt.Errorf("--uds: another process listens on %s; stop it, or give another path", path)
		case !errors.Is(err, syscall.ECONNREFUSED): // such as a process that is too busy to accept
			return nil, fmt.Errorf("--uds: %w", err)
		}
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("--uds: %w", err)
		}
	}
	before := unix.Umask(0o117)
	l, err := net.Listen("unix", path)
	unix.Umask(before)
	if err != nil {
		return nil, fmt.Errorf("--uds: %w", err)
	}
	return l, nil
}

// An address is how clients reach a listener.
type address struct {
	net.Addr
	tls bool
}

// base returns the beginning of a URL for curl on this machine. For a Unix socket the name localhost stands for it.
func (a address) base() string {
	scheme, host := "http", reachable(a.Addr)
	if a.tls {
		scheme = "https"
	}
	if a.socket() != "" {
		host = "localhost"
	}
	return scheme + "://" + host
}

// socket returns the path of a Unix socket, or "".
func (a address) socket() string {
	if a.Network() == "unix" {
		return a.String()
	}
	return ""
}

// reachable returns an address at which this machine can reach a listener.
func reachable(a net.Addr) string {
	if tcp, ok := a.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
		return net.JoinHostPort("127.0.0.1", strconv.Itoa(tcp.Port))
	}
	return a.String()
}

// loopback reports whether only this machine can reach an address over IP. A browser cannot reach a Unix socket.
func loopback(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}
