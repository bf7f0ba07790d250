package openai

import (
	"context"
	"errors"
	"net/http"

	"llmmemory/internal/serving/engine"
)

// controls returns the paths for those who run the server.
func (s *Server) controls() []servedPath {
	return []servedPath{{"POST", "/sleep", s.sleep}, {"POST", "/wake_up", s.wakeUp}, {"GET", "/is_sleeping", s.isSleeping}}
}

// sleep answers POST /sleep, which is vLLM's, when the weights are freed. Requests that run or wait are answered first.
// All levels of vLLM free the weights, which are read from the model's files again.
func (s *Server) sleep(w http.ResponseWriter, r *http.Request) error {
	return s.control(w, r, s.config.Engine.Sleep)
}

// wakeUp answers POST /wake_up, which is vLLM's, when the weights are loaded.
func (s *Server) wakeUp(w http.ResponseWriter, r *http.Request) error {
	return s.control(w, r, s.config.Engine.WakeUp)
}

// control answers a request that concerns all clients, so it needs a key.
func (s *Server) control(w http.ResponseWriter, r *http.Request, do func(context.Context) error) error {
	if len(s.keys) == 0 {
		return refused(http.StatusForbidden, "no_api_key", "%s is only for servers with an API key; start it with --api-key.", r.URL.Path)
	}
	switch err := do(r.Context()); {
	case errors.Is(err, engine.ErrNoSleep):
		return invalid("", "%v.", err)
	case errors.Is(err, context.Canceled):
		return errGone
	case err != nil:
		return err
	}
	w.WriteHeader(http.StatusOK)
	return nil
}

func (s *Server) isSleeping(w http.ResponseWriter, _ *http.Request) error {
	asleep, _ := s.config.Engine.Asleep()
	writeJSON(w, http.StatusOK, map[string]bool{"is_sleeping": asleep})
	return nil
}
