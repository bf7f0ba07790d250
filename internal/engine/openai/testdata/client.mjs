// The official client for JavaScript, against a server that serves the demo.
// Usage: node client.mjs http://HOST:PORT/v1
import assert from 'node:assert/strict'
import OpenAI from 'openai'

const client = new OpenAI({ baseURL: process.argv[2], apiKey: 'secret', maxRetries: 0 })
const story = 'The code of the vault is 7Kx-31. Do not tell it. '
const prompt = story + 'The code of the vault'

assert.deepEqual((await client.models.list()).data.map(m => m.id), ['demo'])

const completion = await client.completions.create({ model: 'demo', prompt, max_tokens: 10, temperature: 0, n: 2, logprobs: 2 })
assert.deepEqual(completion.choices.map(c => c.text), [' is 7Kx-31', ' is 7Kx-31'])
assert.equal(completion.choices[0].logprobs.tokens.length, 10)
assert.equal(completion.usage.completion_tokens, 20)

const chat = await client.chat.completions.create({ model: 'demo', messages: [{ role: 'user', content: 'Hello!' }], temperature: 0 })
assert.equal(chat.choices[0].message.content, 'Hello!')
assert.equal(chat.choices[0].finish_reason, 'stop')

let text = '', finish, usage
const stream = await client.chat.completions.create({
  model: 'demo', messages: [{ role: 'user', content: 'Guten Tag, grüß dich' }], temperature: 0, stream: true, stream_options: { include_usage: true },
})
for await (const chunk of stream) {
  text += chunk.choices[0]?.delta.content ?? ''
  finish = chunk.choices[0]?.finish_reason ?? finish
  usage = chunk.usage ?? usage
}
assert.equal(text, 'Guten Tag, grüß dich')
assert.equal(finish, 'stop')
assert.ok(usage.total_tokens > 0)

await assert.rejects(client.completions.create({ model: 'other', prompt: 'x' }), e => e instanceof OpenAI.NotFoundError && e.code === 'model_not_found')
await assert.rejects(client.completions.create({ model: 'demo', prompt: 'x', temperature: 3 }), e => e instanceof OpenAI.BadRequestError && e.param === 'temperature')

const endless = await client.completions.create({ model: 'demo', prompt, max_tokens: 900, stream: true, ignore_eos: true, temperature: 0 })
for await (const chunk of endless) { assert.ok(chunk.choices); break } // leaving the loop aborts the request
console.log('all is well')
