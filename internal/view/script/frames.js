// The recording: its frames, and what follows from them.

// What Go wrote: see encode.go.
const recording = JSON.parse(document.getElementById('recording').textContent)
const size = recording.block, course = recording.course === true
const $ = id => document.getElementById(id)
const make = (tag, className, text) => {
  const e = document.createElement(tag)
  if (className) e.className = className
  if (text !== undefined) e.textContent = text
  return e
}
const plural = (n, one, more) => n === 1 ? '1 ' + one : n.toLocaleString('en') + ' ' + more
const token = course ? 'record' : 'token', devices = ['GPU', 'CPU']

// ---- Frames: each is whole here; lists that did not change are shared.

const spliced = (was, s) => s ? [...was.slice(0, s[0]), ...s.slice(2), ...was.slice(was.length - s[1])] : was
const pairs = list => {
  const all = []
  for (let i = 0; list && i < list.length; i += 2) all.push([list[i], list[i + 1]])
  return all
}

const frames = []
// unpack adds frames. joined says that they follow the last one without a gap.
function unpack(recording, nameOf, joined) {
  let records = new Map()
  let live = new Map(), blocks = 0, waiting = [], running = [], swapped = [], cached = []
  const last = new Map(joined ? [[0, frames.length - 1]] : []) // the frame before, by engine
  for (const d of recording.frames) {
    live = new Map(live)
    for (const n of d.d || []) live.delete(nameOf(n))
    for (const n of (d.g || []).map(nameOf)) live.set(n, { ...live.get(n), tokens: live.get(n).tokens + 1 })
    for (const [local, tokens, device, ...rest] of d.c || []) {
      const n = nameOf(local), old = live.get(n)
      live.set(n, { name: n, tokens, device, table: spliced(old ? old.table : [], rest) })
    }
    if (d.n !== undefined) { blocks = d.n; records = new Map() }
    if (d.m) {
      records = new Map(records)
      for (const [at, value] of pairs(d.m)) if (Math.abs(value) < 1e6) records.set(at, value); else records.delete(at)
    }
    waiting = spliced(waiting, d.qw); running = spliced(running, d.qr); swapped = spliced(swapped, d.qs); cached = spliced(cached, d.ca)
    const engine = d.e || 0, counts = []
    for (let i = 0; d.k && i < d.k.length; i += 3) counts.push(d.k.slice(i, i + 3))
    let sequences = [...live.values()]
    if (!course) sequences.sort((a, b) => compare(named[a.name], named[b.name]))
    frames.push({
      index: frames.length, time: d.t || 0, call: d.x || '', said: d.s || [], refused: d.no === 1, engine, blocks, sequences, live,
      waiting, running, swapped, cached, counts, records, out: pairs(d.so), in: pairs(d.si), copies: pairs(d.cp), hits: d.h || [],
      before: last.has(engine) ? last.get(engine) : -1,
    })
    last.set(engine, frames.length - 1)
  }
}
const compare = (a, b) => a[0] - b[0] || a[1] - b[1]
const named = recording.names
unpack(recording, n => n, false)
let end = frames.length - 1

// ---- Blocks: who names them, how often, how full they are.

function blocksOf(frame) {
  const make = n => Array.from({ length: n }, () => ({ owners: [], count: 0, filled: 0 }))
  const pool = [make(frame.blocks), make(recording.cpu)]
  for (const s of frame.sequences) {
    s.table.forEach((id, at) => {
      if (id < 0) return
      const b = pool[s.device][id]
      b.owners.push([s, at])
      b.count++
      b.filled = Math.max(b.filled, Math.min(size, s.tokens - at * size), 0)
    })
  }
  for (const [device, id, count] of frame.counts) pool[device][id].count = count
  for (const id of frame.cached) pool[0][id].cached = true
  for (const list of pool) for (const b of list) b.state = stateOf(b)
  return pool
}

function stateOf(b) {
  if (b.count > 1 && b.owners.length) return 'shared'
  if (b.owners.length) return 'own'
  if (b.count > 0) return 'held'
  return b.cached ? 'cached' : 'free'
}

const memory = new Map() // a few frames, derived
function derived(i) {
  if (!memory.has(i)) {
    if (memory.size > 8) memory.delete(memory.keys().next().value)
    memory.set(i, blocksOf(frames[i]))
  }
  return memory.get(i)
}

// since is the step in which a block came to be in use, or free.
function since(i, device, id) {
  const used = k => { const b = blockAt(k, device, id); return b !== undefined && b.count > 0 }
  const now = used(i)
  let at = i
  while (frames[at].before >= 0 && used(frames[at].before) === now) at = frames[at].before
  return at
}
// blockAt is one block, without the rest of its frame where that is not derived.
function blockAt(i, device, id) {
  if (memory.has(i)) return memory.get(i)[device][id]
  const f = frames[i]
  if (id >= (device ? recording.cpu : f.blocks)) return undefined
  const said = f.counts.find(c => c[0] === device && c[1] === id)
  let count = 0
  for (const s of f.sequences) if (s.device === device) for (const b of s.table) if (b === id) count++
  return { count: said ? said[2] : count }
}

// marksOf says what a step did to each block it touched.
function marksOf(i) {
  const marks = [new Map(), new Map()], f = frames[i]
  if (f.before < 0) return marks
  const was = derived(f.before), is = derived(i)
  const old = frames[f.before].live
  for (const s of f.sequences) {
    const before = old.get(s.name)
    if (!before || before.device !== s.device) continue
    for (let t = before.tokens; t < s.tokens; t++) {
      const id = s.table[Math.floor(t / size)]
      if (id >= 0) marks[s.device].set(id, ['write', '', 'write', 'written to'])
    }
  }
  for (const device of [0, 1]) {
    is[device].forEach((b, id) => {
      const a = was[device][id] || { count: 0 }
      if (a.count === b.count) return
      if (!a.count) marks[device].set(id, ['new', '+', 'new', 'taken'])
      else if (!b.count) marks[device].set(id, ['freed', '−', 'freed', 'freed'])
      else marks[device].set(id, ['count', '±', `×${a.count} → ×${b.count}`, `the count went from ${a.count} to ${b.count}`])
    })
  }
  for (const id of f.hits) marks[0].set(id, ['hit', 'H', 'hit', 'found by a prefix hit'])
  for (const [from, to] of f.in) marks[0].set(to, ['in', '⇤', 'in', `swapped in from block ${from} of the CPU`])
  for (const [from, to] of f.out) marks[1].set(to, ['out', '⇥', 'out', `swapped out from block ${from} of the GPU`])
  for (const [from, to] of f.copies) marks[0].set(to, ['copy', 'C', `copy of ${from}`, `a copy of block ${from}`])
  return marks
}
