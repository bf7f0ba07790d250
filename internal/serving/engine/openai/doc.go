// Package openai is OpenAI's HTTP interface to an engine: completions, chat
// completions and models, with streaming by server-sent events and OpenAI's
// errors. It also serves /metrics under vLLM's names, and /health.
//
// It checks each field of a request before the engine gets it. The engine decides
// the answer.
package openai
