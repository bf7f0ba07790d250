package openai

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// trusted refuses what a web page from elsewhere makes a browser send: a request to another origin
// than the page's and, of a server that only this machine can reach and that asks for no key, one
// whose host is a name that was made to resolve to this machine (DNS rebinding).
func (s *Server) trusted(r *http.Request) error {
	if s.origin.Check(r) != nil {
		return failure(http.StatusForbidden, "invalid_request_error", "cross_origin",
			"A web page of another origin may not use this server.")
	}
	if s.config.Local && len(s.keys) == 0 && !thisMachine(r.Host) {
		return failure(http.StatusForbidden, "invalid_request_error", "unknown_host",
			fmt.Sprintf("This server is not %q: call it localhost or by its address, or start it with an API key.", r.Host))
	}
	return nil
}

// thisMachine reports whether a Host is an address, or a name that always means this machine.
func thisMachine(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil || host == "" || host == "localhost" || strings.HasSuffix(host, ".localhost") // RFC 6761
}
