package openai

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"slices"

	"llmmemory/internal/serving/engine/pooling"
	"llmmemory/internal/serving/model/chat"
)

// rerankRequest is the body of /v1/rerank. Its fields are Jina's and Cohere's, and from Truncate on vLLM's.
type rerankRequest struct {
	Model           string    `json:"model"`
	Query           *string   `json:"query"`
	Documents       documents `json:"documents"`
	TopN            int       `json:"top_n"` // 0 means all
	ReturnDocuments bool      `json:"return_documents"`
	User            string    `json:"user"`
	Truncate        *int      `json:"truncate_prompt_tokens"`
	CacheSalt       *string   `json:"cache_salt"`
}

// documents is a list of texts, or of objects with a text.
type documents []string

func (d *documents) UnmarshalJSON(data []byte) error {
	tooMany := invalid("documents", "There are more than %d documents.", maxInputs)
	if string(data) == "null" {
		return nil
	}
	all, err := list[document](data, maxInputs, tooMany)
	switch {
	case errors.Is(err, tooMany):
		return tooMany
	case err != nil || data[0] != '[':
		return invalid("documents", `documents must be a list of strings, or of objects like {"text": "..."}.`)
	}
	*d = nil
	for _, one := range all {
		*d = append(*d, one.Text)
	}
	return nil
}

// A document is a text in the body or in the answer of /v1/rerank.
type document struct {
	Text string `json:"text"`
}

func (d *document) UnmarshalJSON(data []byte) error {
	if data = bytes.TrimSpace(data); data[0] == '"' {
		return json.Unmarshal(data, &d.Text)
	}
	var object struct {
		Text *string `json:"text"`
	}
	err := json.Unmarshal(data, &object)
	if err == nil && object.Text == nil {
		err = errors.New("no text")
	}
	setIfGiven(&d.Text, object.Text)
	return err
}

// A ranked document is an element of the answer of /v1/rerank.
type ranked struct {
	Index    int       `json:"index"`
	Score    float64   `json:"relevance_score"`
	Document *document `json:"document,omitempty"`
}

// rerank answers /v1/rerank. A reranker scores each document with the query. With another model, a score is the cosine
// of the angle between the vectors of the query and the document, as in vLLM.
func (s *Server) rerank(w http.ResponseWriter, r *http.Request) error {
	var body rerankRequest
	if err := s.Decode(w, r, &body, Fields{}); err != nil {
		return err
	}
	request, err := s.pooledRequest(body.Model, body.CacheSalt)
	if err != nil {
		return err
	}
	switch {
	case body.Query == nil || *body.Query == "":
		return invalid("query", "query is missing or empty; a string is expected.")
	case len(body.Documents) == 0:
		return invalid("documents", "documents is missing or empty; a list of strings is expected.")
	case body.TopN < 0:
		return invalid("top_n", "top_n is %d; it must be at least 1, or 0 for all documents.", body.TopN)
	}
	limit, err := s.limit(body.Truncate, 0)
	if err != nil {
		return err
	}
	results := make([]ranked, len(body.Documents))
	src, score := s.pairs(&body, limit), s.classify(results)
	if s.config.Pooling.Classifier == nil {
		src, score = s.separately(&body, limit), compare(results)
	}
	// Of the body, only the documents may be needed while the request waits.
	j, name, topN := pooledJob(src, "documents"), s.Name(body.Model), body.TopN
	var texts []string
	if body.ReturnDocuments {
		texts = body.Documents
		for _, text := range texts {
			j.keeps += len(text)
		}
	}
	u, err := s.vectors(w, r, j, request, score)
	if err != nil {
		return err
	}
	slices.SortStableFunc(results, func(a, b ranked) int { return cmp.Compare(b.Score, a.Score) })
	if topN > 0 {
		results = results[:min(topN, len(results))]
	}
	if texts != nil {
		for i := range results {
			results[i].Document = &document{texts[results[i].Index]}
		}
	}
	writeJSON(w, http.StatusOK, struct {
		ID      string   `json:"id"`
		Object  string   `json:"object"`
		Model   string   `json:"model"`
		Usage   *usage   `json:"usage"`
		Results []ranked `json:"results"`
	}{NewID("rerank-"), "list", name, u, results})
	return nil
}

// classify returns a function that scores documents with the reranker's classifier.
func (s *Server) classify(results []ranked) func(int, []float32) error {
	return func(i int, vector []float32) error {
		score := s.config.Pooling.Classifier.Score(vector)
		if math.IsNaN(score) {
			return errNoNumber
		}
		results[i] = ranked{Index: i, Score: score}
		return nil
	}
}

// compare returns a function that scores documents by the angle between their vectors and the first vector, which is the
// query's.
func compare(results []ranked) func(int, []float32) error {
	var query []float32
	return func(i int, vector []float32) error {
		vector = pooling.Embedding(vector, 0, true)
		if i == 0 {
			query = vector
			return nil
		}
		sum := 0.0
		for k, v := range vector {
			sum += float64(v) * float64(query[k])
		}
		results[i-1] = ranked{Index: i - 1, Score: sum}
		return nil
	}
}

// separately returns the source of the query and the documents as prompts of their own.
func (s *Server) separately(body *rerankRequest, limit limit) source {
	texts := append([]string{*body.Query}, body.Documents...)
	return source{len(texts), func(ctx context.Context) (list []prompt, err error) {
		for _, text := range texts {
			p := prompt{}
			if p.tokens, err = s.encode(ctx, text, true, limit); err != nil {
				return nil, err
			}
			list = append(list, p)
		}
		return list, nil
	}}
}

// pairs returns the source of the prompts that the reranker's template makes of the query and each document.
func (s *Server) pairs(body *rerankRequest, limit limit) source {
	query, texts := *body.Query, body.Documents
	return source{len(texts), func(ctx context.Context) (list []prompt, err error) {
		most, all := s.maxPromptTokens(), 0
		for _, text := range texts {
			p, err := s.render(ctx, &Chat{
				Messages: []chat.Message{{Role: "query", Content: query}, {Role: "document", Content: text}}, template: s.config.Pooling.Template,
			}, limit)
			if err != nil {
				return nil, err
			}
			if all += len(p.tokens); all > most {
				return nil, invalid("documents", "The query and a document make a prompt, and all prompts together have more than %d "+
					"tokens; send fewer documents at a time.", most)
			}
			list = append(list, prompt{tokens: p.tokens})
		}
		return list, nil
	}}
}
