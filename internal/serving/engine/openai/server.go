package openai

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"path"
	"strings"
	"time"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/model/chat"
)

// Config configures a server.
type Config struct {
	Engine        *engine.Engine
	Name          string         // of the model
	Template      *chat.Template // nil: the model cannot chat
	TemplateError error          // why its chat template cannot be used; nil: it has none
	ParseSpecial  bool           // special tokens in the messages of a chat are tokens, not text
	Version       string         // of the program
	Metrics       *Metrics
	APIKeys       []string      // each request needs one of them; none: no key is needed
	MaxBody       int64         // bytes; 0: 8 MB
	MaxTexts      int           // prompts in one request; 0: 128
	Limits        Limits        // of each key
	Local         bool          // only this machine can reach the server
	KeepAlive     time.Duration // how long a stream is silent before it gets a comment; 0: 15 s

	WriteTimeout time.Duration // how long a client may take to accept a piece of an answer; 0: WriteTimeout

	Origins *Origins     // whose web pages may use the server; nil: only its own
	Record  func(Record) // gets a record of each request; nil: nobody

	// IterationTimeout is how long a step may take before GET /health is 503; 0: a minute.
	IterationTimeout time.Duration

	// Pages are handlers for browsers, by pattern of http.ServeMux. A browser may send
	// the key as the password of HTTP's basic authentication.
	Pages map[string]func(http.ResponseWriter, *http.Request) error
}

// A Server is the handler of all paths.
type Server struct {
	config  Config
	started int64
	keys    [][sha256.Size]byte
	allowed []*allowance // of each key; without keys, of all requests
	mux     *http.ServeMux
	turns   turns
	bodies  *bodyMemory
}

// New makes a server.
func New(c Config) *Server {
	if c.MaxBody == 0 {
		c.MaxBody = 8 << 20
	}
	if c.MaxTexts == 0 {
		c.MaxTexts = 128
	}
	if c.KeepAlive == 0 {
		c.KeepAlive = 15 * time.Second // what HTML's standard advises against proxies that end silent connections
	}
	if c.Origins == nil {
		c.Origins = &Origins{}
	}
	if c.WriteTimeout == 0 {
		c.WriteTimeout = WriteTimeout
	}
	if c.IterationTimeout == 0 {
		c.IterationTimeout = time.Minute
	}
	s := &Server{config: c, started: time.Now().Unix(), mux: http.NewServeMux(), turns: newTurns(), bodies: newBodyMemory(c.MaxBody)}
	for _, key := range c.APIKeys {
		s.keys = append(s.keys, sha256.Sum256([]byte(key)))
	}
	for range max(1, len(s.keys)) {
		s.allowed = append(s.allowed, newAllowance(c.Limits))
	}
	s.mux.HandleFunc("POST /v1/completions", s.guarded(s.completions))
	s.mux.HandleFunc("POST /v1/chat/completions", s.guarded(s.chat))
	s.mux.HandleFunc("GET /v1/models", s.guarded(s.models))
	s.mux.HandleFunc("GET /v1/models/{model...}", s.guarded(s.model))
	s.mux.HandleFunc("POST /tokenize", s.guarded(s.tokenize))
	s.mux.HandleFunc("POST /detokenize", s.guarded(s.detokenize))
	s.mux.HandleFunc("GET /version", s.guarded(s.version))
	s.mux.HandleFunc("GET /health", s.health)
	s.mux.Handle("GET /metrics", c.Metrics.handler())
	for pattern, page := range c.Pages {
		s.mux.HandleFunc(pattern, s.page(page))
	}
	for at, method := range map[string]string{"/v1/completions": "POST", "/v1/chat/completions": "POST",
		"/v1/models": "GET", "/tokenize": "POST", "/detokenize": "POST", "/version": "GET"} {
		s.mux.HandleFunc(at, s.guarded(func(w http.ResponseWriter, r *http.Request) error {
			w.Header().Set("Allow", method)
			return refused(http.StatusMethodNotAllowed, "method_not_supported", "%s takes %s, not %s.", at, method, r.Method)
		}))
	}
	s.mux.HandleFunc("/", s.guarded(func(_ http.ResponseWriter, r *http.Request) error {
		return refused(http.StatusNotFound, "", "There is no %s %s here. %s", r.Method, r.URL.Path, served)
	}))
	return s
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.recorded(s.deadlined(w), r, func(w http.ResponseWriter, r *http.Request) {
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

// clean is a request whose path has no slash at its end and not two in a row, which some clients add. The mux would
// redirect it, which many clients do not follow.
func clean(r *http.Request) *http.Request {
	to := path.Clean("/" + r.URL.Path)
	if to == r.URL.Path {
		return r
	}
	u := *r.URL
	u.Path = to
	if u.RawPath != "" {
		u.RawPath = path.Clean("/" + u.RawPath)
	}
	cleaned := r.Clone(r.Context())
	cleaned.URL = &u
	return cleaned
}

// served lists the server's paths.
const served = "This server has POST /v1/completions, /v1/chat/completions, /tokenize and /detokenize, and GET " +
	"/v1/models, /metrics, /version, /health and /memory."

// guarded asks for a key, and writes the error of a handler that has not written
// anything.
func (s *Server) guarded(h func(http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		err := s.authorize(r)
		if err == nil {
			err = s.held(w, r, h)
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

// held calls a handler, which has its body until it ends, if not shorter.
func (s *Server) held(w http.ResponseWriter, r *http.Request, h func(http.ResponseWriter, *http.Request) error) error {
	r = s.holding(r)
	defer free(r)
	return h(w, r)
}

// page is guarded, and a browser asks the user for the key.
func (s *Server) page(h func(http.ResponseWriter, *http.Request) error) http.HandlerFunc {
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

// key is the place of a request's key among the server's, -1 if it has none of
// them. It compares digests, which takes the same time whatever the key.
func (s *Server) key(r *http.Request) int {
	key := r.Header.Get("X-Api-Key") // Anthropic's and Azure's clients, and proxies
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

// health answers GET /health: with an error if the engine has work and has not finished a step for too long.
func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	if since := s.config.Engine.SinceStep(); since > s.config.IterationTimeout {
		writeError(w, failure(http.StatusServiceUnavailable, "server_error", "engine_stalled",
			fmt.Sprintf("The engine has not finished a step for %v (--iteration-timeout).", since.Round(time.Second))))
		return
	}
	w.WriteHeader(http.StatusOK)
}

// A modelCard describes the model.
type modelCard struct {
	ID          string `json:"id"`
	Object      string `json:"object"`
	Created     int64  `json:"created"`
	OwnedBy     string `json:"owned_by"`
	MaxModelLen int    `json:"max_model_len"`
}

func (s *Server) card() modelCard {
	return modelCard{s.config.Name, "model", s.started, "llmserve", s.config.Engine.Config().MaxModelLen}
}

func (s *Server) models(w http.ResponseWriter, _ *http.Request) error {
	writeJSON(w, http.StatusOK, struct {
		Object string      `json:"object"`
		Data   []modelCard `json:"data"`
	}{"list", []modelCard{s.card()}})
	return nil
}

func (s *Server) model(w http.ResponseWriter, r *http.Request) error {
	if err := s.checkModel(r.PathValue("model")); err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, s.card())
	return nil
}

func (s *Server) checkModel(name string) error {
	if name == s.config.Name {
		return nil
	}
	code := "model_not_found"
	e := invalid("model", "The model %q does not exist; this server has %q.", name, s.config.Name)
	e.status, e.Code = http.StatusNotFound, &code
	return e
}
