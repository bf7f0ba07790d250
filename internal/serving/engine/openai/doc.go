// Package openai serves an engine over OpenAI's HTTP interface: completions, chat completions and models, with streams of
// server-sent events and OpenAI's errors. It also serves /metrics under vLLM's names, /tokenize, /detokenize, /version
// and /health.
//
// It checks each field of a request before it submits the request to the engine.
package openai
