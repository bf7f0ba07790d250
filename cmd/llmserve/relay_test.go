//go:build mpi

package main

import (
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A network is what a relay makes of two network namespaces: a delay in each direction, and a rate in bits a second.
type network struct {
	delay time.Duration
	rate  int64
}

// A packet is delivered at a time of the monotonic clock, in nanoseconds.
type packet struct {
	data []byte
	at   int64
}

// mtu is the largest packet. A relay that moves large ones keeps up with 10 Gb/s.
const mtu = 65000

// relay moves packets between two namespaces, in each of which it makes a TUN device, until the test ends. It stands
// for netem, which not every kernel has.
func relay(t *testing.T, names, addresses [2]string, n network) {
	var ends [2]*os.File
	for i := range ends {
		fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		require.NoError(t, err)
		device, err := unix.NewIfreq("tun" + names[i])
		require.NoError(t, err)
		device.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		require.NoError(t, unix.IoctlIfreq(fd, unix.TUNSETIFF, device))
		ip(t, "link", "set", device.Name(), "netns", names[i])
		ip(t, "-n", names[i], "addr", "add", addresses[i], "dev", device.Name())
		ip(t, "-n", names[i], "link", "set", device.Name(), "up", "mtu", "65000")
		ends[i] = os.NewFile(uintptr(fd), device.Name())
		t.Cleanup(func() { require.NoError(t, ends[i].Close()) }) // the device ends with it
	}
	for i := range ends {
		queue := make(chan packet, 4096)
		go n.read(ends[i], queue)
		go deliver(ends[1-i], queue)
	}
}

func ip(t *testing.T, words ...string) {
	out, err := exec.Command("ip", words...).CombinedOutput()
	require.NoError(t, err, "ip %q: %s", words, out)
}

// read says of each packet when it arrives at the other end: the wire takes one after the other.
func (n network) read(from *os.File, queue chan<- packet) {
	defer close(queue)
	for wire := int64(0); ; {
		data := make([]byte, mtu)
		size, err := from.Read(data)
		if err != nil {
			return // the test has ended
		}
		wire = max(wire, now())
		if n.rate > 0 {
			wire += int64(size) * 8 * int64(time.Second) / n.rate
		}
		queue <- packet{data[:size], wire + n.delay.Nanoseconds()}
	}
}

// deliver writes packets when they arrive. Its thread sleeps without the slack of 50 µs that Linux adds.
func deliver(to *os.File, queue <-chan packet) {
	runtime.LockOSThread()
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0) // it is late then, no more
	for p := range queue {
		if left := p.at - now(); left > 0 {
			span := unix.NsecToTimespec(left)
			_ = unix.Nanosleep(&span, nil) // a signal only shortens it
		}
		if _, err := to.Write(p.data); err != nil {
			return // the test has ended
		}
	}
}

func now() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // it exists
	return ts.Nano()
}
