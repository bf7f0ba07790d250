package openai

import (
	"context"
	"errors"
	"net/http"
	"sync"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/engine/pooling"
	"llmmemory/internal/serving/model/chat"
)

// Pooling says what a server makes of the hidden states of prompts, for /v1/embeddings and /v1/rerank.
type Pooling struct {
	Type pooling.Type
	Raw  bool // vectors are not normalized unless the request asks for it
	Only bool // the model makes no answers

	// Classifier is the last matrix of a reranker, nil for other models. Template then makes the prompt of a message
	// whose role is query and a message whose role is document.
	Classifier pooling.Classifier
	Template   *chat.Template
}

// maxInputs is the largest number of inputs or documents of a request, as OpenAI's.
const maxInputs = 2048

// Vectors of the requests to /v1/embeddings that are answered at a time. They are the limit of the memory for their answers.
const (
	maxVectors          = 8192
	maxVectorsForClient = maxVectors / 2
)

// vectorMemory counts the vectors of requests to /v1/embeddings from when they are accepted until they are answered.
type vectorMemory struct {
	mu       sync.Mutex
	used     int
	byClient map[string]int
}

// take takes n vectors. It returns an error if the server or the client has too many.
func (m *vectorMemory) take(client string, n int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.used+n > maxVectors || m.byClient[client]+n > maxVectorsForClient {
		return engine.ErrBusy
	}
	m.used += n
	m.byClient[client] += n
	return nil
}

func (m *vectorMemory) giveBack(client string, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used -= n
	if m.byClient[client] -= n; m.byClient[client] == 0 {
		delete(m.byClient, client)
	}
}

// pooledJob returns the job of a request for vectors.
func pooledJob(src source, field string) *job {
	return &job{source: src, promptField: field, n: 1, bestOf: 1}
}

// vectors computes the vector of each prompt of a job, passes it to take, and records the usage. At most MaxNumSeqs
// prompts are in the engine at a time, so a request does not fill the queue.
func (s *Server) vectors(
	w http.ResponseWriter, r *http.Request, j *job, request engine.Request, take func(prompt int, vector []float32) error,
) (*usage, error) {
	giveBack, err := s.admit(w, r, j, request)
	if err != nil {
		return nil, err
	}
	series, err := s.config.Engine.Series()
	if err != nil {
		giveBack()
		return nil, err
	}
	for _, p := range j.prompts {
		j.keeps += 4 * len(p.tokens)
	}
	s.shrink(r, j)
	defer series.End()
	defer j.cancel()
	for i, next := 0, 0; i < len(j.prompts); i++ {
		for ; next < min(len(j.prompts), i+s.config.Engine.Config().MaxNumSeqs); next++ {
			request.Prompt = j.prompts[next].tokens
			stream, err := series.Submit(request)
			if err != nil {
				return nil, err
			}
			j.streams = append(j.streams, stream)
		}
		vector, err := vectorOf(r.Context(), j.streams[i])
		if err != nil {
			return nil, err
		}
		if err := take(i, vector); err != nil {
			return nil, err
		}
	}
	u := j.usage(0, 0)
	recordUsage(w, u)
	return u, nil
}

// vectorOf waits for the vector of a stream.
func vectorOf(ctx context.Context, s *engine.Stream) ([]float32, error) {
	events, err := s.Next(ctx)
	switch {
	case err != nil:
		return nil, errGone
	case events[0].Err != nil:
		return nil, events[0].Err
	case events[0].Pooled == nil:
		return nil, errors.New("a request with Pooling has no vector")
	}
	return events[0].Pooled, nil
}

// pooledRequest returns the engine's request for vectors of the model or adapter with a name. It returns an error if
// there is none, or if the server makes no vectors.
func (s *Server) pooledRequest(model string, salt *string) (r engine.Request, err error) {
	if err := s.checkModel(model); err != nil {
		return r, err
	}
	p := s.config.Pooling
	if p == nil {
		return r, refused(http.StatusBadRequest, "not_supported", "The model %q is served for answers only; start llmserve with "+
			"--runner pooling to also get vectors of its hidden states.", s.config.Name)
	}
	r.Pooling, r.Adapter = p.Type, s.adapter(model)
	if salt != nil && *salt == "" {
		return r, invalid("cache_salt", "cache_salt is empty; give a text, or leave the field out.")
	}
	setIfGiven(&r.CacheSalt, salt)
	return r, nil
}
