package openai

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// Origins are the origins whose web pages may use the server. Pages of the server's own origin always may.
type Origins struct {
	all   bool
	names []string
	check http.CrossOriginProtection
}

// ParseOrigins reads origins such as https://app.example or http://localhost:3000. "*" allows all origins.
func ParseOrigins(names []string) (*Origins, error) {
	o := &Origins{all: slices.Contains(names, "*")}
	for _, name := range names {
		if name == "*" {
			continue
		}
		name = strings.ToLower(name) // as browsers send it
		if err := o.check.AddTrustedOrigin(name); err != nil {
			return nil, fmt.Errorf("%q is not an origin; give one as browsers send it, such as https://app.example or "+
				"http://localhost:3000, or *", name)
		}
		o.names = append(o.names, name)
	}
	return o, nil
}

// allow reports whether pages of the origin may use the server. If so, it writes the headers that let a browser give
// the answer to the page.
func (o *Origins) allow(h http.Header, origin string) bool {
	if o.all || len(o.names) > 0 {
		h.Add("Vary", "Origin")
	}
	if origin == "" || !o.all && !slices.Contains(o.names, origin) {
		return false
	}
	h.Set("Access-Control-Allow-Origin", origin)
	h.Set("Access-Control-Expose-Headers", exposed)
	return true
}

// exposed names the headers of an answer that a browser shows to a page of another origin.
const exposed = "Retry-After, X-Ratelimit-Limit-Requests, X-Ratelimit-Remaining-Requests, X-Ratelimit-Reset-Requests, " +
	"X-Ratelimit-Limit-Tokens, X-Ratelimit-Remaining-Tokens, X-Ratelimit-Reset-Tokens"

// preflight answers a browser that asks whether a page may send a request.
func preflight(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Access-Control-Allow-Methods", "GET, POST")
	if asked := r.Header.Get("Access-Control-Request-Headers"); asked != "" { // clients send many of their own
		h.Set("Access-Control-Allow-Headers", asked)
	}
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
}

// trusted returns an error if a web page of another origin made the browser send r, unless allowed is true. If the
// server is local and has no keys, the Host of r must also be a name of this machine. This prevents DNS rebinding, in
// which a web page reaches the server under the page's own host name.
func (s *Server) trusted(r *http.Request, allowed bool) error {
	if !allowed && (isPreflight(r) || s.config.Origins.check.Check(r) != nil) {
		return refused(http.StatusForbidden, "cross_origin",
			"A web page of another origin may not use this server (--allowed-origins).")
	}
	if s.config.Local && len(s.keys) == 0 && !thisMachine(r.Host) {
		return refused(http.StatusForbidden, "unknown_host",
			"This server is not %q: call it localhost or by its address, or start it with an API key.", r.Host)
	}
	return nil
}

func isPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != ""
}

// thisMachine reports whether a Host header is an IP address, or a name that always means this machine.
func thisMachine(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil || host == "" || host == "localhost" || strings.HasSuffix(host, ".localhost") // RFC 6761
}
