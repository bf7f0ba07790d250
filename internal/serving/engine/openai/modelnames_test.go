package openai_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/engine/openai"
)

func TestAModelHasSeveralNames(t *testing.T) {
	s := start(t, func(c *openai.Config, _ *engine.Config) { c.Aliases = []string{"gpt-4o", "org/m"} })
	for name, status := range map[string]int{"demo": 200, "gpt-4o": 200, "org/m": 200, "": 200, "other": 404, "GPT-4o": 404} {
		a := s.ask(t, texts, `{"model": "`+name+`", "prompt": "x", "max_tokens": 1}`)
		require.Equal(t, status, a.Status, name)
		if status == 200 {
			require.Contains(t, a.Text, `"model":"demo"`, "as in vLLM, answers have the first name")
		} else {
			require.Equal(t, `The model "`+name+`" does not exist; this server has "demo", "gpt-4o", "org/m".`, a.Error.Message)
		}
	}
	_, a := s.roundTrip(t, "GET", "/v1/models", "")
	var list struct {
		Data []struct {
			ID          string
			MaxModelLen int `json:"max_model_len"`
			Context     int `json:"context_length"`
		}
	}
	require.NoError(t, json.Unmarshal([]byte(a.Text), &list))
	require.Len(t, list.Data, 3)
	for i, name := range []string{"demo", "gpt-4o", "org/m"} {
		require.Equal(t, name, list.Data[i].ID)
		require.Equal(t, 1024, list.Data[i].MaxModelLen)
		require.Equal(t, 1024, list.Data[i].Context)
		_, a := s.roundTrip(t, "GET", "/v1/models/"+name, "")
		require.Contains(t, a.Text, `"id":"`+name+`"`)
	}
}

func TestRequestsMayHaveAnyNameIfTheServerSaysSo(t *testing.T) {
	s := start(t, func(c *openai.Config, _ *engine.Config) { c.AnyName = true })
	for _, path := range []string{texts, chats} {
		body := `{"model": "gpt-4o-mini", "prompt": "x", "max_tokens": 1}`
		if path == chats {
			body = `{"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "x"}], "max_tokens": 1}`
		}
		a := s.ask(t, path, body)
		require.Equal(t, 200, a.Status, a.Text)
		require.Contains(t, a.Text, `"model":"demo"`)
	}
	r, a := s.roundTrip(t, "GET", "/v1/models/gpt-4o-mini", "")
	require.Equal(t, 200, r.StatusCode, a.Text)
}
