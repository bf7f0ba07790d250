package openai

import (
	"context"
	"net/http"
	"reflect"
	"strings"
)

// tokenizeRequest is the body of /tokenize (vLLM's TokenizeCompletionRequest and TokenizeChatRequest).
type tokenizeRequest struct {
	chatFields
	Model            string  `json:"model"`
	Prompt           *string `json:"prompt"`
	AddSpecialTokens *bool   `json:"add_special_tokens"`
	ReturnTokenStrs  bool    `json:"return_token_strs"`
	Truncate         *int    `json:"truncate_prompt_tokens"`
}

type tokenized struct {
	Count       int      `json:"count"`
	MaxModelLen int      `json:"max_model_len"`
	Tokens      []int32  `json:"tokens"`
	TokenStrs   []string `json:"token_strs"` // null unless requested
}

// tokenize answers /tokenize with the tokens of a text, or of the prompt that the template makes from messages.
func (s *Server) tokenize(w http.ResponseWriter, r *http.Request) error {
	var body tokenizeRequest
	// Fields of completions and chats are ignored, so that a client can send the same body here and learn
	// how many tokens its prompt has.
	err := s.Decode(w, r, &body, Fields{types: []reflect.Type{reflect.TypeFor[completionRequest](), reflect.TypeFor[chatRequest]()}})
	if err != nil {
		return err
	}
	if err := s.checkModel(body.Model); err != nil {
		return err
	}
	limit := s.countable()
	if body.Truncate != nil {
		if limit, err = s.limit(body.Truncate, 0); err != nil {
			return err
		}
	}
	src, err := s.tokenizeSource(&body, limit)
	if err != nil {
		return err
	}
	prompts, err := s.prompts(r, src)
	if err != nil {
		return err
	}
	answer := tokenized{Count: len(prompts[0].tokens), MaxModelLen: s.config.Engine.Config().MaxModelLen,
		Tokens: append([]int32{}, prompts[0].tokens...)}
	if body.ReturnTokenStrs {
		answer.TokenStrs = []string{}
		for _, id := range answer.Tokens {
			answer.TokenStrs = append(answer.TokenStrs, strings.ToValidUTF8(s.name(id), "\uFFFD"))
		}
	}
	free(r)
	writeJSON(w, http.StatusOK, answer)
	return nil
}

// tokenizeSource returns the source of the prompt of a request to /tokenize.
func (s *Server) tokenizeSource(body *tokenizeRequest, limit limit) (source, error) {
	switch {
	case body.Prompt != nil && body.Messages != nil:
		return source{}, invalid("messages", "The body has both prompt and messages; give one of them.")
	case body.Prompt != nil && len(body.Tools) > 0:
		return source{}, invalid("tools", "tools are only shown to the model in a chat; give messages.")
	case body.Prompt != nil:
		special := body.AddSpecialTokens == nil || *body.AddSpecialTokens
		return source{1, func(ctx context.Context) ([]prompt, error) {
			tokens, err := s.encode(ctx, *body.Prompt, special, limit)
			return []prompt{{tokens: tokens}}, err
		}}, nil
	case body.Messages != nil:
		c, err := body.chat()
		if err != nil {
			return source{}, err
		}
		c.special = body.AddSpecialTokens != nil && *body.AddSpecialTokens
		return s.chatSource(c, limit)
	}
	return source{}, invalid("prompt", "prompt is missing; give a string, or messages.")
}

// detokenize answers /detokenize.
func (s *Server) detokenize(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		Model  string  `json:"model"`
		Tokens []int32 `json:"tokens"`
	}
	if err := s.Decode(w, r, &body, Fields{}); err != nil {
		return err
	}
	if err := s.checkModel(body.Model); err != nil {
		return err
	}
	if body.Tokens == nil {
		return invalid("tokens", "tokens is missing; a list of integers is expected.")
	}
	if limit := s.countable(); len(body.Tokens) > limit.tokens {
		return invalid("tokens", "There are %d tokens; at most %d are possible.", len(body.Tokens), limit.tokens)
	}
	c := s.config.Engine.Config()
	for _, id := range body.Tokens {
		if id < 0 || int(id) >= c.Model.VocabSize {
			return invalid("tokens", "tokens contains %d; the vocabulary has the tokens 0 to %d.", id, c.Model.VocabSize-1)
		}
	}
	text := c.Tokenizer.Decode(body.Tokens)
	free(r)
	writeJSON(w, http.StatusOK, map[string]string{"prompt": text})
	return nil
}

func (s *Server) version(w http.ResponseWriter, _ *http.Request) error {
	writeJSON(w, http.StatusOK, map[string]string{"version": s.config.Version})
	return nil
}
