package openai

import (
	"slices"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/model/tokenizer"
)

// fillIn changes a request with a suffix, so that the answer is the text between the prompt and the suffix. It
// returns an error if the model or another field does not allow this.
func (s *Server) fillIn(body *completionRequest, r *engine.Request) error {
	infill, err := s.infillOf("suffix")
	switch {
	case err != nil:
		return err
	case len(body.Prompt.tokens) > 0:
		return invalid("prompt", "With suffix, prompt must be a string or a list of strings.")
	case body.Echo:
		return invalid("echo", "echo is not supported with suffix; leave it out.")
	case body.Truncate != nil:
		return invalid("truncate_prompt_tokens", "truncate_prompt_tokens is not supported with suffix; give shorter texts.")
	}
	if !r.IgnoreEOS {
		r.StopTokenIDs = slices.Concat(r.StopTokenIDs, infill.Ends())
	}
	return nil
}

// infillOf returns the tokens of the model for filling in the middle of a text. The parameter field is the field of the
// request that needs them.
func (s *Server) infillOf(field string) (*tokenizer.Infill, error) {
	infill := s.config.Engine.Config().Tokenizer.Infill()
	if infill == nil {
		return nil, invalid(field, "%s is not supported by the model %q: its vocabulary has no tokens around a prefix and a "+
			"suffix, such as <|fim_prefix|>; leave it out.", field, s.config.Name)
	}
	return infill, nil
}
