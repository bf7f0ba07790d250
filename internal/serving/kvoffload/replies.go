package kvoffload

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strconv"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// replies is a connection to a Redis server. It checks replies before the client reads them, because the client
// allocates as much memory as a reply announces, without a limit.
type replies struct {
	net.Conn
	line []byte // the bytes read of an incomplete line
	skip int    // remaining bytes of a string and its line end
	open []int  // remaining elements of each array that is not complete
	err  error
}

const (
	dialTimeout = 5 * time.Second

	maxReplyLine     = 1 << 16
	maxReplyString   = 512 << 20 // Redis's own limit, proto-max-bulk-len
	maxReplyElements = 1 << 16
	maxReplyDepth    = 8
)

var errTooLarge = errors.New("the reply is larger than any reply of a Redis server")

func dialer(options *redis.Options) func(ctx context.Context, network, address string) (net.Conn, error) {
	d := &net.Dialer{Timeout: cmp.Or(options.DialTimeout, dialTimeout)}
	dial := d.DialContext
	if options.TLSConfig != nil {
		dial = (&tls.Dialer{NetDialer: d, Config: options.TLSConfig}).DialContext
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		r := &replies{Conn: c}
		if raw, ok := c.(syscall.Conn); ok { // the client uses it to check idle connections
			return struct {
				*replies
				syscall.Conn
			}{r, raw}, nil
		}
		return r, nil
	}
}

// Read implements net.Conn.
func (r *replies) Read(p []byte) (int, error) {
	if r.err != nil {
		return 0, r.err
	}
	n, err := r.Conn.Read(p)
	if r.err = r.follow(p[:n]); r.err != nil {
		return 0, r.err
	}
	return n, err
}

func (r *replies) follow(text []byte) error {
	for len(text) > 0 {
		if r.skip > 0 {
			n := min(r.skip, len(text))
			r.skip -= n
			text = text[n:]
			continue
		}
		n := bytes.IndexByte(text, '\n') + 1
		whole := n > 0
		if !whole {
			n = len(text)
		}
		if len(r.line)+n > maxReplyLine {
			return errTooLarge
		}
		r.line, text = append(r.line, text[:n]...), text[n:]
		if whole {
			if err := r.begin(r.line); err != nil {
				return err
			}
			r.line = r.line[:0]
		}
	}
	return nil
}

// begin checks the first line of a reply, or of an element of a reply. It accepts a line of an unknown type, because
// go-redis, the client that reads the reply next, refuses such a line itself and closes the connection.
func (r *replies) begin(line []byte) error {
	n, err := strconv.Atoi(string(bytes.TrimSpace(line[1:])))
	if err != nil {
		n = -1
	}
	elements := 0
	switch line[0] {
	case '$', '=', '!':
		if n > maxReplyString {
			return errTooLarge
		}
		if n >= 0 {
			r.skip = n + len("\r\n")
		}
	case '*', '~', '>':
		elements = n
	case '%':
		elements = 2 * min(n, maxReplyElements)
	case '|': // attributes, which the reply itself follows
		elements = 2*min(n, maxReplyElements) + 1
	}
	if elements <= 0 {
		r.end()
		return nil
	}
	r.open = append(r.open, elements)
	if elements > maxReplyElements || len(r.open) > maxReplyDepth {
		return errTooLarge
	}
	return nil
}

// end records that an element of a reply is complete. It also closes the arrays whose last element this was.
func (r *replies) end() {
	for last := len(r.open) - 1; last >= 0; last-- {
		if r.open[last]--; r.open[last] > 0 {
			return
		}
		r.open = r.open[:last]
	}
}
