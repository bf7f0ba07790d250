//go:build long

package openai_test

import (
	"encoding/json"
	"testing"

	client "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/shared"
	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/engine/openai"
	"llmmemory/internal/serving/engine/pooling"
)

// The tests in official*_test.go use OpenAI's own client. The other tests of this package read the JSON fields
// themselves.

func (s *served) official() client.Client {
	return client.NewClient(option.WithBaseURL(s.url+"/v1"), option.WithAPIKey("secret"), option.WithMaxRetries(0))
}

func officialCompletion(prompt string, maxTokens int64) client.CompletionNewParams {
	return client.CompletionNewParams{
		Model: "demo", Prompt: client.CompletionNewParamsPromptUnion{OfString: client.String(prompt)},
		MaxTokens: client.Int(maxTokens), Temperature: client.Float(0),
	}
}

func officialMessage(text string) client.ChatCompletionNewParams {
	return client.ChatCompletionNewParams{
		Model: "demo", Messages: []client.ChatCompletionMessageParamUnion{client.UserMessage(text)},
		Temperature: client.Float(0),
	}
}

func TestOfficialClientCompletes(t *testing.T) {
	s := start(t, nil)
	c := s.official()
	p := officialCompletion(story+"The code of the vault", 10)
	p.Echo, p.N, p.Logprobs = client.Bool(true), client.Int(2), client.Int(2)
	got, err := c.Completions.New(t.Context(), p)
	require.NoError(t, err)
	require.Len(t, got.Choices, 2)
	for i, a := range got.Choices {
		require.EqualValues(t, i, a.Index)
		require.Equal(t, story+"The code of the vault is 7Kx-31", a.Text)
		require.EqualValues(t, "length", a.FinishReason)
		n := len(a.Text) + 1 // with the token that begins the text
		require.Len(t, a.Logprobs.Tokens, n)
		require.Len(t, a.Logprobs.TokenLogprobs, n)
		require.Less(t, a.Logprobs.TokenLogprobs[n-1], 0.0)
		require.Greater(t, a.Logprobs.TokenLogprobs[n-1], -0.1)
		require.Len(t, a.Logprobs.TopLogprobs[n-1], 2)
	}
	require.EqualValues(t, 20, got.Usage.CompletionTokens)
	require.EqualValues(t, got.Usage.PromptTokens+20, got.Usage.TotalTokens)
}

func TestOfficialClientStreamsCompletions(t *testing.T) {
	s := start(t, nil)
	c := s.official()
	p := officialCompletion(story+"The code of the vault", 10)
	p.N, p.StreamOptions = client.Int(2), client.ChatCompletionStreamOptionsParam{IncludeUsage: client.Bool(true)}
	stream := c.Completions.NewStreaming(t.Context(), p)
	texts, ends := [2]string{}, 0
	var used int64
	for stream.Next() {
		chunk := stream.Current()
		for _, c := range chunk.Choices {
			texts[c.Index] += c.Text
			if c.FinishReason != "" {
				ends++
			}
		}
		used += chunk.Usage.CompletionTokens
	}
	require.NoError(t, stream.Err())
	require.Equal(t, [2]string{" is 7Kx-31", " is 7Kx-31"}, texts)
	require.Equal(t, 2, ends)
	require.EqualValues(t, 20, used)
}

func TestOfficialClientChats(t *testing.T) {
	s := start(t, nil)
	c := s.official()
	p := officialMessage("Größe: 20 €")
	p.Logprobs, p.TopLogprobs = client.Bool(true), client.Int(1)
	got, err := c.Chat.Completions.New(t.Context(), p)
	require.NoError(t, err)
	answer := got.Choices[0]
	require.Equal(t, "Größe: 20 €", answer.Message.Content)
	require.EqualValues(t, "assistant", answer.Message.Role)
	require.Equal(t, "stop", answer.FinishReason)
	require.Len(t, answer.Logprobs.Content, len("Größe: 20 €")+1)
	require.Len(t, answer.Logprobs.Content[0].TopLogprobs, 1)
}

func TestOfficialClientStreamsChats(t *testing.T) {
	s := start(t, nil)
	c := s.official()
	stream := c.Chat.Completions.NewStreaming(t.Context(), officialMessage("Größe: 20 €"))
	accumulated := client.ChatCompletionAccumulator{}
	first := true
	for stream.Next() {
		chunk := stream.Current()
		if first {
			require.Equal(t, "assistant", chunk.Choices[0].Delta.Role)
		}
		first = false
		require.True(t, accumulated.AddChunk(chunk))
	}
	require.NoError(t, stream.Err())
	require.Equal(t, "Größe: 20 €", accumulated.Choices[0].Message.Content)
	require.Equal(t, "stop", accumulated.Choices[0].FinishReason)
}

func TestOfficialClientListsModels(t *testing.T) {
	s := start(t, nil)
	c := s.official()
	list, err := c.Models.List(t.Context())
	require.NoError(t, err)
	require.Equal(t, "demo", list.Data[0].ID)
	one, err := c.Models.Get(t.Context(), "demo")
	require.NoError(t, err)
	require.Equal(t, "demo", one.ID)
}

func TestOfficialClientReadsErrors(t *testing.T) {
	s := start(t, func(c *openai.Config, _ *engine.Config) { c.APIKeys = []string{"secret"} })
	var apiError *client.Error
	c := s.official()
	_, err := c.Completions.New(t.Context(), officialCompletion("x", 0))
	require.ErrorAs(t, err, &apiError)
	require.Equal(t, 400, apiError.StatusCode)
	require.Equal(t, "max_tokens", apiError.Param)
	_, err = c.Models.List(t.Context(), option.WithAPIKey("wrong"))
	require.ErrorAs(t, err, &apiError)
	require.Equal(t, 401, apiError.StatusCode)
}

func TestOfficialClientGetsJSON(t *testing.T) {
	s := start(t, nil)
	c := s.official()
	p := officialMessage("Who are you?")
	p.Seed, p.Temperature, p.MaxCompletionTokens = client.Int(4), client.Float(1), client.Int(200)
	p.LogitBias = map[string]int64{"9": -100, "10": -100, "13": -100, "32": -100}
	p.ResponseFormat.OfJSONSchema = &shared.ResponseFormatJSONSchemaParam{JSONSchema: shared.ResponseFormatJSONSchemaJSONSchemaParam{
		Name: "person", Strict: client.Bool(true), Schema: json.RawMessage(personSchema), Description: client.String("a person"),
	}}
	got, err := c.Chat.Completions.New(t.Context(), p)
	require.NoError(t, err)
	require.Equal(t, "stop", got.Choices[0].FinishReason)
	person(t, got.Choices[0].Message.Content)
	stream, accumulated := c.Chat.Completions.NewStreaming(t.Context(), p), client.ChatCompletionAccumulator{}
	for stream.Next() {
		require.True(t, accumulated.AddChunk(stream.Current()))
	}
	require.NoError(t, stream.Err())
	require.Equal(t, got.Choices[0].Message.Content, accumulated.Choices[0].Message.Content)
}

func TestOfficialClientEmbeds(t *testing.T) {
	s := startPooling(t, pooling.Last, nil)
	c := s.official()
	want, _ := s.embed(t, `["one", "two"]`, `, "dimensions": 4`)
	got, err := c.Embeddings.New(t.Context(), client.EmbeddingNewParams{
		Model: "demo", Input: client.EmbeddingNewParamsInputUnion{OfArrayOfStrings: []string{"one", "two"}}, Dimensions: client.Int(4),
	})
	require.NoError(t, err)
	require.Len(t, got.Data, 2)
	for i, e := range got.Data {
		require.EqualValues(t, i, e.Index)
		require.Len(t, e.Embedding, 4)
		for k, v := range e.Embedding {
			require.InDelta(t, want[i][k], v, 1e-7)
		}
	}
	require.EqualValues(t, 8, got.Usage.PromptTokens)
	require.EqualValues(t, 8, got.Usage.TotalTokens)
}
