package openai

import (
	"cmp"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path"
	"strings"
	"time"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/model/chat"
	"llmmemory/internal/serving/toolparser"
)

// Config describes a server.
type Config struct {
	Engine *engine.Engine
	ModelConfig
	Access
	Bounds
	Version string // of the program
	Metrics *Metrics

	Interfaces []Interface // besides OpenAI's completions and chats

	Record func(Record) // gets the record of each request, unless nil

	// Pages are handlers for browsers, by pattern of http.ServeMux. A browser may send one of APIKeys as the password of
	// HTTP's basic authentication.
	Pages map[string]func(http.ResponseWriter, *http.Request) error
}

// ModelConfig describes the model as clients see it.
type ModelConfig struct {
	Name          string            // of the model, in answers
	Aliases       []string          // further names of the model in requests
	AnyName       bool              // requests may have any name
	Adapters      []Adapter         // in the order of the engine's
	Template      *chat.Template    // nil if the model cannot chat
	TemplateError error             // why the model's chat template cannot be used, or nil
	Format        toolparser.Format // how the model writes reasoning and calls; without Tools, only calls that must come are found
	Pooling       *Pooling          // nil if the server makes no vectors of hidden states
	CompactJSON   bool              // JSON that must have a form has no more white space than json.dumps writes
	DefaultKwargs json.RawMessage   // variables of the chat template that requests may change; empty means none
	OmitImages    bool              // models see ImageLeftOut instead of images, which are refused otherwise
	ParseSpecial  bool              // special tokens in the messages of a chat are tokens, not text
}

// Access says who may use the server, and how much.
type Access struct {
	APIKeys []string // each request needs one of them, unless there are none
	Limits  Limits   // of each key
	Local   bool     // only this machine can reach the server
	Origins *Origins // whose web pages may use the server; nil means only its own
}

// Bounds limit a request and its answer.
type Bounds struct {
	MaxBody          int64         // bytes of a request; 0 means 8 MiB
	MaxTexts         int           // prompts in a request; 0 means 128
	KeepAlive        time.Duration // how long a stream may be silent before it gets a comment; 0 means 15 s
	WriteTimeout     time.Duration // how long a client may take to accept a piece of an answer; 0 means WriteTimeout
	IterationTimeout time.Duration // how long a step may take before GET /health is 503; 0 means a minute
}

// A Server handles the requests of all paths.
type Server struct {
	config  Config
	started int64
	keys    [][sha256.Size]byte
	allowed []*allowance // of each key; if there are no keys, one for all requests
	mux     *http.ServeMux
	slots   slots
	bodies  *bodyMemory

	vectorMemory vectorMemory

	constraints *constraints
	shown       []int32 // special tokens that are in the texts of chats
}

// New makes a server.
func New(c Config) *Server {
	c.MaxBody, c.MaxTexts = cmp.Or(c.MaxBody, 8<<20), cmp.Or(c.MaxTexts, 128)
	c.KeepAlive = cmp.Or(c.KeepAlive, 15*time.Second) // HTML's standard advises it against proxies that end silent connections
	c.Origins = cmp.Or(c.Origins, &Origins{})
	c.WriteTimeout, c.IterationTimeout = cmp.Or(c.WriteTimeout, WriteTimeout), cmp.Or(c.IterationTimeout, time.Minute)
	s := &Server{config: c, started: time.Now().Unix(), mux: http.NewServeMux(), slots: newSlots(), bodies: newBodyMemory(c.MaxBody),
		vectorMemory: vectorMemory{byClient: map[string]int{}},
		constraints:  newConstraints(c.Engine.Config()), shown: shownTokens(&c)}
	for _, key := range c.APIKeys {
		s.keys = append(s.keys, sha256.Sum256([]byte(key)))
	}
	for range max(1, len(s.keys)) {
		s.allowed = append(s.allowed, newAllowance(c.Limits))
	}
	for _, p := range append(s.paths(), s.controls()...) {
		s.route(p.method, p.path, nil, p.answer)
	}
	for _, other := range c.Interfaces {
		for _, p := range other.Paths {
			s.route("POST", p.Name, other.Error, func(w http.ResponseWriter, r *http.Request) error { return p.Answer(s, w, r) })
		}
	}
	s.mux.HandleFunc("GET /v1/models/{model...}", s.guarded(s.model))
	s.mux.HandleFunc("GET /health", s.health)
	s.mux.Handle("GET /metrics", c.Metrics.handler())
	for pattern, page := range c.Pages {
		s.mux.HandleFunc(pattern, s.page(page))
	}
	s.mux.HandleFunc("/", s.guarded(func(_ http.ResponseWriter, r *http.Request) error {
		return refused(http.StatusNotFound, "", "There is no %s %s here. %s", r.Method, r.URL.Path, s.served())
	}))
	return s
}

// route answers requests to a path that have the given method, and refuses requests with other methods. Errors have the
// given form.
func (s *Server) route(method, path string, errors ErrorForm, answer handler) {
	handle := func(pattern string, h http.HandlerFunc) {
		s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if res, ok := w.(*response); ok {
				res.errors = errors
			}
			h(w, r)
		})
	}
	handle(method+" "+path, s.guarded(answer))
	handle(path, s.guarded(func(w http.ResponseWriter, r *http.Request) error {
		w.Header().Set("Allow", method)
		return refused(http.StatusMethodNotAllowed, "method_not_supported", "%s takes %s, not %s.", path, method, r.Method)
	}))
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.respond(w, r, func(w http.ResponseWriter, r *http.Request) {
		allowed := s.config.Origins.allow(w.Header(), r.Header.Get("Origin"))
		if err := s.trusted(r, allowed); err != nil {
			writeError(w, err)
			return
		}
		if isPreflight(r) {
			preflight(w, r)
			return
		}
		s.mux.ServeHTTP(w, clean(r))
	})
}

// clean returns the request with a path without double and trailing slashes, which some clients add. Otherwise the mux
// would redirect such a request, and many clients do not follow redirects.
func clean(r *http.Request) *http.Request {
	target := path.Clean("/" + r.URL.Path)
	if target == r.URL.Path {
		return r
	}
	u := *r.URL
	u.Path = target
	if u.RawPath != "" {
		u.RawPath = path.Clean("/" + u.RawPath)
	}
	cleaned := r.Clone(r.Context())
	cleaned.URL = &u
	return cleaned
}

// A servedPath is a path with its method and handler.
type servedPath struct {
	method, path string
	answer       handler
}

// paths returns the paths that need a key, except those of a single model, of pages, of controls and of other interfaces.
func (s *Server) paths() []servedPath {
	return []servedPath{{"POST", "/v1/completions", s.completions}, {"POST", "/v1/chat/completions", s.chat},
		{"POST", "/v1/embeddings", s.embeddings}, {"POST", "/v1/rerank", s.rerank}, {"POST", "/rerank", s.rerank},
		{"POST", "/v2/rerank", s.rerank}, {"POST", "/infill", s.infill}, {"POST", "/tokenize", s.tokenize},
		{"POST", "/detokenize", s.detokenize}, {"GET", "/v1/models", s.models}, {"GET", "/version", s.version}}
}

// served lists the server's paths.
func (s *Server) served() string {
	names := map[string][]string{}
	for _, p := range append(s.paths(), s.controls()...) {
		names[p.method] = append(names[p.method], p.path)
	}
	for _, other := range s.config.Interfaces {
		for _, p := range other.Paths {
			names["POST"] = append(names["POST"], p.Name)
		}
	}
	return "This server has POST " + strings.Join(names["POST"], ", ") + ", and GET " + strings.Join(names["GET"], ", ") +
		", /metrics, /health and /memory."
}

// A handler answers a request. If it returns an error, it has written nothing.
type handler = func(http.ResponseWriter, *http.Request) error

// guarded returns a handler that checks the API key and then calls h. If either returns an error, the handler answers
// with this error.
func (s *Server) guarded(h handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		err := s.authorize(r)
		if err == nil {
			r = s.withReservation(r)
			defer free(r)
			err = h(w, r)
		}
		switch {
		case err == nil:
		case translate(err).status == http.StatusRequestEntityTooLarge, errors.Is(err, errBodies):
			refuseBody(w, r, err)
		default:
			writeError(w, err)
		}
	}
}

// page is like guarded, but if the key is missing, it makes a browser ask its user for the key.
func (s *Server) page(h handler) http.HandlerFunc {
	ask := s.guarded(h)
	return func(w http.ResponseWriter, r *http.Request) {
		if _, password, ok := r.BasicAuth(); ok {
			r.Header.Set("Authorization", "Bearer "+password)
		}
		if s.authorize(r) != nil {
			w.Header().Set("WWW-Authenticate", `Basic realm="the API key is the password"`)
		}
		ask(w, r)
	}
}

// key returns the index of the request's key in s.keys. If s.keys does not contain the key, it returns -1. It
// compares digests in constant time.
func (s *Server) key(r *http.Request) int {
	key := r.Header.Get("X-Api-Key") // sent by Anthropic's and Azure's clients, and by proxies
	if scheme, bearer, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "Bearer") {
		key = bearer // RFC 9110, section 11.1
	}
	sum, found := sha256.Sum256([]byte(key)), -1
	for i := range s.keys {
		found = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(sum[:], s.keys[i][:]), i, found)
	}
	return found
}

func (s *Server) authorize(r *http.Request) error {
	if len(s.keys) > 0 && s.key(r) < 0 {
		return failure(http.StatusUnauthorized, "authentication_error", "invalid_api_key",
			"The API key is missing or wrong; it goes into the header Authorization: Bearer KEY, or X-Api-Key: KEY.")
	}
	return nil
}

// health answers GET /health. It returns an error if the device has failed, or if the engine has work and has not
// finished a step for IterationTimeout.
func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	if err := s.config.Engine.Failure(); err != nil {
		writeError(w, err)
		return
	}
	if since := s.config.Engine.SinceStep(); since > s.config.IterationTimeout {
		writeError(w, failure(http.StatusServiceUnavailable, "server_error", stalled,
			fmt.Sprintf("The engine has not finished a step for %v (--iteration-timeout).", since.Round(time.Second))))
		return
	}
	switch asleep, loading := s.config.Engine.Asleep(); {
	case loading:
		writeJSON(w, http.StatusOK, map[string]string{"status": "loading"})
	case asleep:
		writeJSON(w, http.StatusOK, map[string]string{"status": "sleeping"})
	default:
		w.WriteHeader(http.StatusOK)
	}
}
