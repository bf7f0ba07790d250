// A run: the frames of one recording, and what follows from them.

const $ = id => document.getElementById(id)
const make = (tag, className, text) => {
  const e = document.createElement(tag)
  if (className) e.className = className
  if (text !== undefined) e.textContent = text
  return e
}
const plural = (n, one, more) => n === 1 ? '1 ' + one : n.toLocaleString('en') + ' ' + more
const capital = s => s[0].toUpperCase() + s.slice(1)
const devices = ['GPU', 'CPU']

// newRun reads what Go wrote: see encode.go. hues are the colours by request; runs side
// by side have the same.
function newRun(recording, hues) {
  const run = {
    size: recording.block, course: recording.course === true, cpu: recording.cpu, system: recording.system, note: recording.note || '', held: recording.held,
    frames: [], named: recording.names, several: new Set(), hues, memory: new Map(), past: undefined,
  }
  run.named.forEach(key => dress(run, key))
  unpack(run, recording, n => n, false)
  run.usesEngines = run.frames.some(f => f.engine > 0)
  return run
}

// ---- Frames: each is whole here; lists that did not change are shared.

const spliced = (was, s) => s ? [...was.slice(0, s[0]), ...s.slice(2), ...was.slice(was.length - s[1])] : was
const pairs = list => {
  const all = []
  for (let i = 0; list && i < list.length; i += 2) all.push([list[i], list[i + 1]])
  return all
}
const unwritten = -(2 ** 31) // as in course.go
const compare = (a, b) => a[0] - b[0] || a[1] - b[1]

// unpack adds frames. joined says that they follow the last one without a gap.
function unpack(run, recording, nameOf, joined) {
  const { frames, named } = run
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
      for (const [at, value] of pairs(d.m)) if (value === unwritten) records.delete(at); else records.set(at, value)
    }
    waiting = spliced(waiting, d.qw); running = spliced(running, d.qr); swapped = spliced(swapped, d.qs); cached = spliced(cached, d.ca)
    const engine = d.e || 0, counts = []
    for (let i = 0; d.k && i < d.k.length; i += 3) counts.push(d.k.slice(i, i + 3))
    let sequences = [...live.values()]
    if (!run.course) sequences.sort((a, b) => compare(named[a.name], named[b.name]))
    frames.push({
      index: frames.length, time: d.t || 0, call: d.x || '', said: d.s || [], refused: d.no === 1, engine, blocks, sequences, live,
      waiting, running, swapped, cached, counts, records, out: pairs(d.so), in: pairs(d.si), copies: pairs(d.cp), hits: d.h || [],
      before: last.has(engine) ? last.get(engine) : -1,
    })
    last.set(engine, frames.length - 1)
  }
}

// ---- Names and colours.

function dress(run, [request, number]) {
  if (number > 0) run.several.add(request)
  if (!run.hues.has(request)) run.hues.set(request, run.hues.size % 8)
}
const letter = n => n < 26 ? String.fromCharCode(97 + n) : letter(Math.floor(n / 26) - 1) + letter(n % 26)
const labelOf = (run, name) => {
  const [request, number] = run.named[name]
  return request + (run.several.has(request) ? letter(number) : '')
}
const label = (run, s) => labelOf(run, s.name)
const owner = run => run.course ? 'sequence' : 'request'
const title = (run, s) => `${owner(run)} ${label(run, s)}`
const hue = (run, request) => run.hues.has(request) ? `var(--c${run.hues.get(request)})` : 'var(--raised)'
const colour = (run, name) => hue(run, run.named[name][0])

// ---- Blocks: who names them, how often, how full they are.

function blocksOf(run, frame) {
  const make = n => Array.from({ length: n }, () => ({ owners: [], count: 0, filled: 0 }))
  const pool = [make(frame.blocks), make(run.cpu)]
  for (const s of frame.sequences) {
    s.table.forEach((id, at) => {
      if (id < 0) return
      const b = pool[s.device][id]
      b.owners.push([s, at])
      b.count++
      b.filled = Math.max(b.filled, Math.min(run.size, s.tokens - at * run.size), 0)
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

// derived keeps the blocks of a few frames.
function derived(run, i) {
  const memory = run.memory
  if (!memory.has(i)) {
    if (memory.size > 8) memory.delete(memory.keys().next().value)
    memory.set(i, blocksOf(run, run.frames[i]))
  }
  return memory.get(i)
}

// marksOf says what a step did to each block it touched.
function marksOf(run, i) {
  const marks = [new Map(), new Map()], f = run.frames[i]
  if (f.before < 0) return marks
  const was = derived(run, f.before), is = derived(run, i)
  const old = run.frames[f.before].live
  for (const s of f.sequences) {
    const before = old.get(s.name)
    if (!before || before.device !== s.device) continue
    for (let t = before.tokens; t < s.tokens; t++) {
      const id = s.table[Math.floor(t / run.size)]
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
