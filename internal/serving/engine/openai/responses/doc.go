// Package responses serves OpenAI's interface POST /v1/responses, without stored state. It translates a
// request to a chat of package openai. It translates the answer to the items of the output or, if the client
// wants a stream, to the events of a response.
//
// Requests for what a chat cannot express are refused, and the error names it: stored responses and
// conversations, images, files, and other items and tools than functions.
package responses
