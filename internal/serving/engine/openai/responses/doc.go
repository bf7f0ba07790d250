// Package responses serves OpenAI's interface POST /v1/responses, without stored state. It translates requests to chats of
// package openai, and answers to output items and their streamed events.
//
// What a chat cannot express is refused by name: stored responses and conversations, images, files, and other items and
// tools than functions.
package responses
