package publish

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"time"
)

// bound reports whether the publisher listens at the endpoint instead of connecting to it. The rule is vLLM's.
func bound(endpoint string) bool {
	return strings.Contains(endpoint, "*") || strings.Contains(endpoint, "::") || strings.HasPrefix(endpoint, "ipc://")
}

var wildcards = strings.NewReplacer("//*", "//0.0.0.0", ":*", ":0")

func split(endpoint string) (network, address string, err error) {
	switch scheme, address, _ := strings.Cut(endpoint, "://"); {
	case scheme == "tcp" && address != "":
		return "tcp", address, nil
	case scheme == "ipc" && address != "":
		return "unix", address, nil
	}
	return "", "", errors.New("want tcp://HOST:PORT or ipc://PATH")
}

// A service serves a connection until the peer ends it or the publisher is closed.
type service func(net.Conn)

func (p *Publisher) listen(endpoint string, serve service) (net.Listener, error) {
	network, address, err := split(wildcards.Replace(endpoint))
	if err != nil {
		return nil, fmt.Errorf("socket %s for events: %w", endpoint, err)
	}
	l, err := net.Listen(network, address)
	if network == "unix" && errors.Is(err, syscall.EADDRINUSE) && abandoned(address) {
		os.Remove(address)
		l, err = net.Listen(network, address)
	}
	if err != nil {
		return nil, fmt.Errorf("socket %s for events: %w", endpoint, err)
	}
	p.running.Go(func() {
		for {
			c, err := l.Accept()
			switch {
			case err == nil:
				p.running.Go(func() { p.run(c, serve) })
			case errors.Is(err, net.ErrClosed):
				return
			default: // for example, too many open files
				sleep(p.ctx, retryAccept)
			}
		}
	})
	return l, nil
}

// abandoned reports whether no process listens on the socket file path.
func abandoned(path string) bool {
	c, err := net.Dial("unix", path)
	if err == nil {
		c.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

const (
	retryAccept  = 100 * time.Millisecond
	retryConnect = 250 * time.Millisecond
	firstConnect = 3 * time.Second // New fails if it cannot connect for this long
	dialTimeout  = 30 * time.Second
)

// connect connects to the endpoint and serves the connection. When the connection ends, connect connects again.
func (p *Publisher) connect(endpoint string, serve service) error {
	network, address, err := split(endpoint)
	if err != nil {
		return fmt.Errorf("socket %s for events: %w", endpoint, err)
	}
	ctx, cancel := context.WithTimeout(p.ctx, firstConnect)
	defer cancel()
	c, err := dial(ctx, network, address)
	if err != nil {
		return fmt.Errorf("socket %s for events: %w", endpoint, err)
	}
	p.running.Go(func() {
		for err == nil {
			p.run(c, serve)
			sleep(p.ctx, retryConnect)
			c, err = dial(p.ctx, network, address)
		}
	})
	return nil
}

// dial tries to connect until ctx ends.
func dial(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: dialTimeout}
	for {
		c, err := dialer.DialContext(ctx, network, address)
		if err == nil || !sleep(ctx, retryConnect) {
			return c, err
		}
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

func (p *Publisher) run(c net.Conn, serve service) {
	defer func() {
		c.Close()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.conns, c)
	}()
	if p.setBusy(c, false) {
		serve(c)
	}
}

// setBusy sets whether Close must wait until connection c has ended. It returns false if the publisher is closed.
func (p *Publisher) setBusy(c net.Conn, busy bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[c] = busy
	return !p.closed
}
