package openai

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"math"
	"net/http"
	"time"

	"llmmemory/internal/serving/engine/pooling"
)

// embeddingRequest is the body of /v1/embeddings. Its fields are OpenAI's, and from Truncate on vLLM's.
type embeddingRequest struct {
	Model            string  `json:"model"`
	Input            inputs  `json:"input"`
	EncodingFormat   *string `json:"encoding_format"`
	Dimensions       *int    `json:"dimensions"`
	User             string  `json:"user"`
	Truncate         *int    `json:"truncate_prompt_tokens"`
	AddSpecialTokens *bool   `json:"add_special_tokens"`
	Normalize        *bool   `json:"normalize"`
	CacheSalt        *string `json:"cache_salt"`
}

// inputs is the value of the field input, which has the forms of the field prompt.
type inputs struct{ prompts }

func (p *inputs) UnmarshalJSON(data []byte) error { return p.read("input", data) }

// An embedding is an element of the answer of /v1/embeddings.
type embedding struct {
	Object    string `json:"object"`
	Index     int    `json:"index"`
	Embedding any    `json:"embedding"` // a list of numbers or, for base64, bytes
}

// embeddings answers /v1/embeddings.
func (s *Server) embeddings(w http.ResponseWriter, r *http.Request) error {
	var body embeddingRequest
	if err := s.Decode(w, r, &body, Fields{}); err != nil {
		return err
	}
	request, err := s.pooledRequest(body.Model, body.CacheSalt)
	if err != nil {
		return err
	}
	if err := s.checkEmbedding(&body); err != nil {
		return err
	}
	limit, err := s.limit(body.Truncate, 0)
	if err != nil {
		return err
	}
	// The body is not needed while the request waits.
	asBytes := body.EncodingFormat != nil && *body.EncodingFormat == "base64"
	name, normalize, dimensions := s.Name(body.Model), !s.config.Pooling.Raw, 0
	setIfGiven(&normalize, body.Normalize)
	setIfGiven(&dimensions, body.Dimensions)
	n := body.Input.count()
	client := clientOf(r)
	if err := s.vectorMemory.take(client, n); err != nil {
		return err
	}
	defer s.vectorMemory.giveBack(client, n)
	vectors := make([][]float32, n)
	u, err := s.vectors(w, r, pooledJob(body.source(s, limit), "input"), request, func(i int, vector []float32) error {
		vectors[i] = pooling.Embedding(vector, dimensions, normalize)
		return nil
	})
	if err != nil {
		return err
	}
	s.writeEmbeddings(w, name, vectors, u, asBytes)
	return nil
}

// checkEmbedding checks the fields that are not those of all requests.
func (s *Server) checkEmbedding(body *embeddingRequest) error {
	hidden := s.config.Engine.Config().Model.HiddenSize
	switch format := body.EncodingFormat; {
	case s.config.Pooling.Classifier != nil:
		return refused(http.StatusBadRequest, "not_supported", "The model %q is a reranker; use /v1/rerank.", s.config.Name)
	case format != nil && *format != "float" && *format != "base64":
		return invalid("encoding_format", "encoding_format is %q; float and base64 are possible.", *format)
	case body.Dimensions != nil && (*body.Dimensions < 1 || *body.Dimensions > hidden):
		return invalid("dimensions", "dimensions is %d; it must be from 1 to %d.", *body.Dimensions, hidden)
	}
	return nil
}

// source returns the source of the inputs.
func (b *embeddingRequest) source(s *Server, limit limit) source {
	given, special := b.Input, b.AddSpecialTokens == nil || *b.AddSpecialTokens
	return source{given.count(), func(ctx context.Context) (list []prompt, err error) {
		for _, tokens := range given.tokens {
			list = append(list, prompt{tokens: limit.cut(tokens)})
		}
		for _, text := range given.texts {
			p := prompt{}
			if p.tokens, err = s.encode(ctx, text, special, limit); err != nil {
				return nil, err
			}
			list = append(list, p)
		}
		return list, nil
	}}
}

// writeEmbeddings writes the answer vector by vector, so that it need not be in memory as text.
func (s *Server) writeEmbeddings(w http.ResponseWriter, name string, vectors [][]float32, u *usage, asBytes bool) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	out := bufio.NewWriterSize(w, maxPiece)
	write := func(value any) {
		text, _ := json.Marshal(value) // finite numbers and texts
		_, _ = out.Write(text)         // the response records errors
	}
	_, _ = out.WriteString(`{"object":"list","data":[`)
	for i, v := range vectors {
		if i > 0 {
			_ = out.WriteByte(',')
		}
		e := embedding{"embedding", i, v}
		if asBytes {
			e.Embedding = littleEndian(v)
		}
		write(e)
		vectors[i] = nil
	}
	_, _ = out.WriteString(`],"model":`)
	write(name)
	_, _ = out.WriteString(`,"usage":`)
	write(u)
	_, _ = out.WriteString(`,"id":`)
	write(NewID("embd-"))
	_, _ = out.WriteString(`,"created":`)
	write(time.Now().Unix())
	_, _ = out.WriteString("}\n")
	_ = out.Flush()
}

// littleEndian returns numbers as OpenAI's base64 encodes them: float32, the lowest byte first.
func littleEndian(vector []float32) (data []byte) {
	for _, v := range vector {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
	}
	return data
}
