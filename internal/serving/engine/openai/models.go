package openai

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// An Adapter is served beside the model, under a name of its own.
type Adapter struct {
	Name, Path string
	Base       string // what /v1/models calls its parent; "" means the model's name
}

// A modelCard is vLLM's and OpenAI's description of a model.
type modelCard struct {
	ID          string `json:"id"`
	Object      string `json:"object"`
	Created     int64  `json:"created"`
	OwnedBy     string `json:"owned_by"`
	MaxModelLen int    `json:"max_model_len"`
	Context     int    `json:"context_length"`   // MaxModelLen under another name
	Root        string `json:"root,omitempty"`   // of an adapter, its path
	Parent      string `json:"parent,omitempty"` // of an adapter, the name of the model
}

// cards describes the model under each of its names, as in vLLM, and its adapters.
func (s *Server) cards() (all []modelCard) {
	longest := s.config.Engine.Config().MaxModelLen
	base := modelCard{s.config.Name, "model", s.started, "llmserve", longest, longest, "", ""}
	for _, name := range s.names() {
		card := base
		card.ID = name
		all = append(all, card)
	}
	for _, a := range s.config.Adapters {
		card := base
		card.ID, card.Root, card.Parent = a.Name, a.Path, cmp.Or(a.Base, base.ID)
		all = append(all, card)
	}
	return all
}

// names returns the names of the model.
func (s *Server) names() []string { return append([]string{s.config.Name}, s.config.Aliases...) }

func (s *Server) models(w http.ResponseWriter, _ *http.Request) error {
	writeJSON(w, http.StatusOK, struct {
		Object string      `json:"object"`
		Data   []modelCard `json:"data"`
	}{"list", s.cards()})
	return nil
}

func (s *Server) model(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("model")
	if err := s.checkModel(name); err != nil {
		return err
	}
	cards := s.cards()
	found := slices.IndexFunc(cards, func(c modelCard) bool { return c.ID == name })
	if found < 0 { // with AnyName
		found, cards[0].ID = 0, name
	}
	writeJSON(w, http.StatusOK, cards[found])
	return nil
}

// checkModel returns an error for a name that is neither the model's, nor an adapter's, nor "", unless requests may have
// any name.
func (s *Server) checkModel(name string) error {
	if name == "" || s.config.AnyName || slices.Contains(s.names(), name) || s.adapter(name) > 0 {
		return nil
	}
	var quoted []string
	for _, c := range s.cards() {
		quoted = append(quoted, strconv.Quote(c.ID))
	}
	code := "model_not_found"
	e := invalid("model", "The model %q does not exist; this server has %s.", name, strings.Join(quoted, ", "))
	e.status, e.Code = http.StatusNotFound, &code
	return e
}

// adapter returns the number of the adapter with a name, from 1, or 0 if there is none.
func (s *Server) adapter(name string) int {
	return 1 + slices.IndexFunc(s.config.Adapters, func(a Adapter) bool { return a.Name == name })
}
