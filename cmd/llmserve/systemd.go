package main

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"syscall"
)

// firstFD is the file descriptor of the first socket that systemd passes (sd_listen_fds(3)).
const firstFD = 3

// systemdSocket returns the socket that systemd has opened for this process, or nil if there is none. It may be called
// again after the result was closed.
func systemdSocket() (net.Listener, error) {
	if os.Getenv("LISTEN_PID") != strconv.Itoa(os.Getpid()) {
		return nil, nil
	}
	if n := os.Getenv("LISTEN_FDS"); n != "1" {
		return nil, fmt.Errorf("systemd passes %q sockets (LISTEN_FDS), and one is needed: give the .socket unit one ListenStream=", n)
	}
	syscall.CloseOnExec(firstFD)
	fd, err := syscall.Dup(firstFD) // the copy is closed with f
	if err != nil {
		return nil, fmt.Errorf("the socket of systemd (LISTEN_FDS): %w", err)
	}
	syscall.CloseOnExec(fd)
	f := os.NewFile(uintptr(fd), "systemd's socket")
	defer f.Close()
	l, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("the socket of systemd (LISTEN_FDS): %w; use ListenStream= and Accept=no", err)
	}
	return l, nil
}

// notify tells systemd the state of the process (sd_notify(3)), such as READY=1, if the unit has Type=notify. Otherwise
// it does nothing.
func notify(state string) error {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return nil
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("NOTIFY_SOCKET: %w", err)
	}
	defer c.Close()
	if _, err := c.Write([]byte(state)); err != nil {
		return fmt.Errorf("NOTIFY_SOCKET: %w", err)
	}
	return nil
}
