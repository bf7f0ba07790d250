// Package openai serves an engine over OpenAI's HTTP interface: completions, chat completions, embeddings and models,
// with streams of server-sent events and OpenAI's errors. It also serves /v1/rerank in Jina's and Cohere's form, /infill
// in llama.cpp's, /metrics under vLLM's names, and vLLM's /tokenize, /detokenize, /version, /health, /sleep, /wake_up and
// /is_sleeping.
//
// It checks each field of a request before it submits the request to the engine.
//
// # Chats
//
// Packages anthropic and responses are each an [Interface]: their handlers translate a body to a [Chat], and a [Reply]
// translates the events of the answer. The handler of /v1/chat/completions also makes a Chat. A Chat does not depend on
// the JSON of an interface. But the definition of a tool that a template gets is always in OpenAI's form, because chat
// templates expect it.
//
// Server.chatJob makes a job from a Chat, and Server.submit starts it. The answer consists of parts (job.go). The
// events of a part are reasoning, content and calls (package toolparser). Server.answers returns the whole answers;
// Server.stream passes the parts to an eventWriter.
package openai
