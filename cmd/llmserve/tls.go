package main

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"sync"

	"github.com/spf13/pflag"
)

type tlsOptions struct{ cert, key string }

func (o *tlsOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&o.cert, "ssl-certfile", "", "file with a certificate and its chain, in PEM: clients use https; read again when it changes")
	f.StringVar(&o.key, "ssl-keyfile", "", "file with the certificate's key, in PEM (default: it is in --ssl-certfile)")
}

// open reads the certificate. It returns nil if there is none.
func (o *tlsOptions) open() (*certificate, error) {
	switch {
	case o.cert == "" && o.key == "":
		return nil, nil
	case o.cert == "":
		return nil, errors.New("--ssl-keyfile needs --ssl-certfile")
	}
	c := &certificate{names: [2]string{o.cert, cmp.Or(o.key, o.cert)}}
	if err := c.read(); err != nil {
		return nil, fmt.Errorf("--ssl-certfile: %w", err)
	}
	return c, nil
}

// A certificate is read from two files, and again when they have changed. While the files do not fit together, for
// example because only one of them has been replaced, the former certificate stays.
type certificate struct {
	names [2]string

	mu    sync.Mutex
	files [2]os.FileInfo // those of pair
	pair  tls.Certificate
	said  string // the error that was written last, if the last read failed
}

// read reads the files unless they are those of pair. After an error, the next call reads them again.
func (c *certificate) read() error {
	var files [2]os.FileInfo
	changed := false
	for i, name := range c.names {
		info, err := os.Stat(name)
		if err != nil {
			return err
		}
		old := c.files[i]
		files[i], changed = info, changed || old == nil || !os.SameFile(old, info) || !old.ModTime().Equal(info.ModTime()) || old.Size() != info.Size()
	}
	if !changed {
		return nil
	}
	pair, err := tls.LoadX509KeyPair(c.names[0], c.names[1])
	if err != nil {
		return err
	}
	c.files, c.pair = files, pair
	return nil
}

// get returns the certificate for a new connection.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	said := ""
	if err := c.read(); err != nil {
		if said = err.Error(); said != c.said {
			fmt.Fprintf(os.Stderr, "llmserve: the certificate cannot be read again, and the former one is used: %v\n", err)
		}
	}
	c.said = said
	pair := c.pair
	return &pair, nil
}

// serve serves with the certificate, or without TLS if c is nil. It serves HTTP/1.1 only, whose connections the server's
// limits are made for.
func (c *certificate) serve(server *http.Server, l net.Listener) error {
	if c == nil {
		return server.Serve(l)
	}
	server.TLSConfig = &tls.Config{GetCertificate: c.get, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	server.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){}
	server.ErrorLog = log.New(withoutHandshakes{os.Stderr}, "", log.LstdFlags)
	return server.ServeTLS(l, "", "")
}

// withoutHandshakes drops lines about connections without a TLS handshake, with which anybody could fill a disk.
type withoutHandshakes struct{ io.Writer }

func (w withoutHandshakes) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("TLS handshake error")) {
		return len(line), nil
	}
	return w.Writer.Write(line)
}
