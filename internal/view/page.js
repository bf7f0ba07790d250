(() => {
'use strict'

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

// ---- Names and colours.

const several = new Set(), hues = new Map()
function dress([request, number]) {
  if (number > 0) several.add(request)
  if (!hues.has(request)) hues.set(request, hues.size % 8)
}
named.forEach(dress)
const letter = n => n < 26 ? String.fromCharCode(97 + n) : letter(Math.floor(n / 26) - 1) + letter(n % 26)
const label = s => {
  const [request, number] = named[s.name]
  return request + (several.has(request) ? letter(number) : '')
}
const title = s => (course ? 'sequence ' : 'request ') + label(s)
const hue = request => hues.has(request) ? `var(--c${hues.get(request)})` : 'var(--raised)'
const colour = s => hue(named[s.name][0])
const capital = s => s[0].toUpperCase() + s.slice(1)

// ---- The grids.

const grids = [$('gpu'), $('cpu')]
const cells = [[], []]

function build(device, n) {
  const grid = grids[device]
  grid.replaceChildren()
  cells[device] = []
  for (let id = 0; id < n; id++) {
    const cell = make('div', 'cell')
    cell.setAttribute('role', 'option')
    cell.dataset.block = id
    cell.dataset.device = device
    cell.tabIndex = id ? -1 : 0
    cell.append(make('span', 'id', id), make('span', 'who'), make('span', 'count'), make('span', 'word'), make('span', 'sign'))
    if (course && n <= 64) {
      const all = make('span', 'records')
      for (let k = 0; k < size; k++) all.append(make('i'))
      cell.append(all)
    }
    grid.append(cell)
    cells[device].push(cell)
  }
}

// spread chooses the columns of a few large blocks: large cells, full rows.
const largest = 148
function spread(n, width, tall, gap) {
  let best = [-Infinity, 1, 76]
  for (let across = 1; across <= n; across++) {
    const side = Math.min(largest, Math.floor((width + gap) / across) - gap), rows = Math.ceil(n / across)
    if (side < 76) break
    const score = side - 6 * (rows * across - n) / rows - (rows * (side + gap) > Math.max(tall, 330) ? 100 : 0)
    if (score >= best[0]) best = [score, across, side]
  }
  return best.slice(1)
}

// fit sizes the cells, where something has changed since.
let columns = [1, 1], fitted = ''
function fit() {
  const key = [$('pools').clientWidth, innerHeight, cells[0].length, cells[1].length].join()
  if (key === fitted) return
  fitted = key
  const tall = [Math.max(300, innerHeight - 340), 220]
  for (const device of [0, 1]) {
    const grid = grids[device], n = cells[device].length
    if (!n) continue
    const width = grid.clientWidth, gap = n > 1500 ? 2 : 3
    let side = Math.floor(Math.sqrt(width * tall[device] / n)) - gap
    while (side > 12 && Math.ceil(n / Math.floor((width + gap) / (side + gap))) * (side + gap) > tall[device]) side--
    side = Math.max(device ? 9 : 11, Math.min(largest, side))
    let across = Math.max(1, Math.floor((width + gap) / (side + gap)))
    if (side >= 76) [across, side] = spread(n, width, tall[device], gap)
    columns[device] = across
    grid.style.gridTemplateColumns = `repeat(${across}, ${side}px)`
    grid.style.setProperty('--gap', gap + 'px')
    grid.style.setProperty('--font', (side >= 76 ? 15 : Math.max(8, Math.min(15, Math.floor(side / 2.3)))) + 'px')
    grid.style.setProperty('--stripe', Math.max(3, Math.min(10, side / 6)) + 'px')
    grid.style.setProperty('--slot', (side / size < 4 ? 2 * side : side / size) + 'px')
    grid.classList.toggle('big', side >= 76)
    grid.classList.toggle('slots', side >= 104 && course && size === 16)
    grid.classList.toggle('tiny', side < 17)
  }
}

const owners = b => [...new Set(b.owners.map(([s]) => label(s)))]
function who(b, big) {
  if (b.state === 'held') return 'held'
  if (b.state === 'cached') return big ? 'cached' : ''
  if (b.state === 'free') return big ? 'free' : ''
  const names = owners(b)
  if (!big) return b.count > 1 ? '×' + b.count : names[0]
  return (course ? 'seq ' : 'req ') + (names.length > 1 ? grouped(b) : names[0])
}

// grouped names the owners of a shared block in short: 12abc, 13.
function grouped(b) {
  const by = new Map()
  for (const [s] of b.owners) {
    const [request, number] = named[s.name]
    by.set(request, (by.get(request) || '') + (several.has(request) ? letter(number) : ''))
  }
  const all = [...by].map(([request, letters]) => request + (letters.length > 4 ? letters.slice(0, 3) + '…' : letters))
  return all.length > 3 ? all.slice(0, 2).join(',\u2009') + '\u2009…' : all.join(',\u2009')
}

// slots shows the records of a block. What nobody appended is a dot: a pool is
// not cleared.
function slots(part, f, before, id, b) {
  const copy = f.copies.find(c => c[1] === id)
  const from = before === undefined || before.blocks !== f.blocks ? undefined : copy ? copy[0] : id
  for (let k = 0; k < size; k++) {
    const slot = part.children[k], value = f.records.get(id * size + k)
    text(slot, k >= b.filled || !b.owners.length ? '' : value === undefined ? '·' : String(value))
    slot.classList.toggle('set', k < b.filled && b.owners.length > 0)
    slot.classList.toggle('just', from !== undefined && before.records.get(from * size + k) !== value)
    slot.classList.toggle('copied', copy !== undefined && k < b.filled)
  }
}

const states = { own: 'in use', shared: 'shared', held: 'held, named by no table here', cached: 'free, cached', free: 'free' }
const set = (e, key, value) => {
  if (value === undefined || value === false) { if (key in e.dataset) delete e.dataset[key] } else if (e.dataset[key] !== String(value)) e.dataset[key] = value
}
const text = (e, value) => { if (e.textContent !== value) e.textContent = value }

const painted = new WeakMap() // what a cell shows
function paint(i) {
  const f = frames[i], pool = derived(i), marks = marksOf(i)
  for (const device of [0, 1]) {
    if (cells[device].length !== pool[device].length) build(device, pool[device].length)
  }
  $('gpu').hidden = f.blocks === 0
  $('none').hidden = f.blocks > 0
  fit()
  for (const device of [0, 1]) {
    const big = grids[device].classList.contains('big')
    pool[device].forEach((b, id) => {
      const cell = cells[device][id], mark = marks[device].get(id)
      const names = owners(b), used = b.owners.length > 0
      if (cell.lastChild.className === 'records') slots(cell.lastChild, f, f.before < 0 ? undefined : frames[f.before], id, b)
      const key = [b.state, b.count, b.filled, b.owners.map(([s]) => s.name), mark, big, b.state === 'free' && formerOf(i) && formerOf(i).get(id)].join('|')
      if (painted.get(cell) === key) return
      painted.set(cell, key)
      set(cell, 'state', b.state)
      set(cell, 'count', b.count)
      set(cell, 'filled', used ? b.filled : 0)
      set(cell, 'owners', names.join(' '))
      set(cell, 'mark', mark && mark[0])
      set(cell, 'full', used && b.filled === size)
      set(cell, 'reserved', used && b.filled === 0)
      cell.style.setProperty('--fill', used ? 100 * b.filled / size : 0)
      if (used) {
        const first = b.owners[0][0], other = b.owners.find(([s]) => named[s.name][0] !== named[first.name][0])
        cell.style.setProperty('--c', colour(first))
        cell.style.setProperty('--d', other ? colour(other[0]) : 'color-mix(in srgb, ' + colour(first) + ' 55%, var(--ground))')
      }
      const [, whoPart, countPart, wordPart, signPart] = cell.children
      const former = big && b.state === 'free' && formerOf(i) && device === 0 ? formerOf(i).get(id) : undefined
      text(whoPart, former ? 'was ' + former : who(b, big))
      cell.classList.toggle('was', !!former)
      text(countPart, b.count > 1 || b.state === 'held' ? '×' + b.count : '')
      text(wordPart, mark ? mark[2] : '')
      text(signPart, mark ? mark[1] : '')
      const says = `Block ${id}: ${states[b.state]}` + (names.length ? ` by ${names.slice(0, 6).join(', ')}` : '') +
        (b.count > 1 ? `, ${b.count} references` : '') + (used ? `, ${b.filled} of ${size} slots` : '') + (mark ? `, ${mark[3]} in this step` : '')
      if (cell.getAttribute('aria-label') !== says) cell.setAttribute('aria-label', says)
    })
  }
  $('gpu-title').textContent = course ? `Pool: ${plural(f.blocks, 'block', 'blocks')} of ${size} records` + (usesEngines ? ` (engine e${f.engine})` : '')
    : `${recording.live ? 'Memory' : 'GPU'}: ${plural(f.blocks, 'block', 'blocks')} of ${plural(size, 'slot', 'slots')}`
  $('cpu-title').textContent = `CPU: ${plural(recording.cpu, 'block', 'blocks')} for what is swapped out`
  return pool
}
const usesEngines = frames.some(f => f.engine > 0)

const element = (name, attributes, parent) => {
  const e = document.createElementNS('http://www.w3.org/2000/svg', name)
  for (const k in attributes) e.setAttribute(k, attributes[k])
  if (parent) parent.append(e)
  return e
}

// drawing is an empty one over the pools, with a head for its arrows.
function drawing(id) {
  const svg = element('svg', { id, class: 'over', 'aria-hidden': 'true' })
  const marker = element('marker', { id: id + '-head', viewBox: '0 0 10 10', refX: 8, refY: 5, markerWidth: 4.5, markerHeight: 4.5, orient: 'auto' }, svg)
  element('path', { d: 'M0 0L10 5L0 10z' }, marker)
  return svg
}

// arrows are drawn from each copied block to its copy, within what can be told
// apart.
function arrows(i) {
  const f = frames[i], list = [...f.copies.map(([a, b]) => [0, a, 0, b]), ...f.out.map(([a, b]) => [0, a, 1, b]), ...f.in.map(([a, b]) => [1, a, 0, b])]
  const old = $('arrows')
  if (old) old.remove()
  if (!list.length || list.length > 24) return
  const svg = drawing('arrows')
  const origin = $('pools').getBoundingClientRect()
  for (const [d1, a, d2, b] of list) {
    if (!cells[d1][a] || !cells[d2][b]) continue
    const p = cells[d1][a].getBoundingClientRect(), q = cells[d2][b].getBoundingClientRect()
    // From edge to edge, so that no label is covered: over the top within a row.
    const row = Math.abs(q.top - p.top) < 2, down = q.top > p.top
    const x1 = p.left + p.width / 2 - origin.left, x2 = q.left + q.width / 2 - origin.left
    const y1 = (row || !down ? p.top : p.bottom) - origin.top, y2 = (row || down ? q.top : q.bottom) - origin.top
    const bend = row ? Math.min(40, 14 + Math.abs(x2 - x1) / 9) : 0, side = row ? 0 : Math.min(40, Math.abs(y2 - y1) / 4)
    const path = row ? `M${x1} ${y1}C${x1} ${y1 - bend} ${x2} ${y2 - bend} ${x2} ${y2}` : `M${x1} ${y1}Q${(x1 + x2) / 2 + side} ${(y1 + y2) / 2} ${x2} ${y2}`
    element('path', { d: path, class: 'halo' }, svg)
    element('path', { d: path, 'marker-end': 'url(#arrows-head)' }, svg)
  }
  $('pools').append(svg)
}

// ---- Beside the grids.

function counters(i, pool) {
  const f = frames[i], gpu = pool[0]
  let used = 0, shared = 0, cached = 0, filled = 0, held = 0, logical = 0
  for (const b of gpu) {
    if (b.count > 0) used++
    if (b.state === 'shared') shared++
    if (b.state === 'cached') cached++
    if (b.state === 'held') held++
    filled += b.owners.length ? b.filled : 0
    logical += b.owners.length
  }
  const slots = (used - held) * size, empty = slots - filled
  const percent = (a, b) => b ? Math.round(1000 * a / b) / 10 + ' %' : '–'
  const list = [
    ['', 'used', `${used.toLocaleString('en')} of ${plural(gpu.length, 'block', 'blocks')}`],
    ['filled', 'filled slots', filled.toLocaleString('en')],
    ['empty', 'empty slots in used blocks', `${empty.toLocaleString('en')} (waste ${percent(empty, slots)})`],
    ['', 'free', (gpu.length - used).toLocaleString('en')],
    ['', 'shared', shared.toLocaleString('en')],
    ['', 'saved by sharing', plural(Math.max(0, logical - (used - held)), 'block', 'blocks')],
  ]
  if (cached || frames.some(f => f.cached.length)) list.push(['cached', 'free and cached', cached.toLocaleString('en')])
  if (recording.cpu) list.push(['', 'on the CPU', `${pool[1].filter(b => b.count > 0).length} of ${recording.cpu}`])
  $('counters').replaceChildren(...list.map(([kind, name, value]) => {
    const div = make('div')
    div.append(make('dt', kind || 'plain', name), make('dd', '', value))
    div.dataset.counter = name
    return div
  }))
  const parts = [['filled', filled], ['empty', empty], ['cached', cached * size]]
  $('meter').replaceChildren(...parts.map(([kind, n]) => {
    const part = make('i', kind)
    part.style.width = 100 * n / Math.max(1, gpu.length * size) + '%'
    return part
  }))
  $('meter').setAttribute('aria-label', `Of all slots, ${percent(filled, gpu.length * size)} are filled and ${percent(empty, gpu.length * size)} are empty in used blocks`)
  $('meter').hidden = $('counters').hidden = f.blocks === 0
}

const mostTags = 80
function queues(i) {
  const f = frames[i]
  $('queues').hidden = course
  if (course) return
  $('queue-list').replaceChildren(...[['waiting', f.waiting], ['running', f.running], ['swapped', f.swapped]].filter(([name, list]) => list.length || name !== 'swapped' || recording.cpu).map(([name, list]) => {
    const row = make('div'), dd = make('dd')
    row.dataset.queue = name
    row.dataset.requests = list.join(' ')
    for (const id of list.slice(0, mostTags)) {
      const tag = make('span', 'tag', id)
      tag.style.setProperty('--c', hue(id))
      dd.append(tag)
    }
    if (!list.length) dd.append(make('span', 'none', '–'))
    if (list.length > mostTags) dd.append(make('span', '', `and ${list.length - mostTags} more`))
    row.append(make('dt', '', `${name} (${list.length})`), dd)
    return row
  }))
}

// tables keeps the element of a sequence as long as its table stays the same.
let shown = new Map()
function tables(i, pool) {
  const f = frames[i], before = f.before < 0 ? undefined : frames[f.before].live
  const next = new Map(), short = f.sequences.reduce((n, s) => n + s.table.length, 0) > 160
  const list = f.sequences.map(s => {
    const was = before && before.get(s.name)
    const changed = at => before && (!was || was.device !== s.device || was.table[at] !== s.table[at])
    const key = JSON.stringify([s.table, s.device, s.table.map((id, at) => changed(at) ? at : -1).filter(at => at >= 0), s.table.map(id => id < 0 ? '' : pool[s.device][id].state[0]).join(''), Math.ceil(s.tokens / size)])
    let item = shown.get(s.name)
    if (!item || item.key !== key) item = { key, element: tableOf(s, pool, changed) }
    next.set(s.name, item)
    text(item.element.querySelector('small'), `${plural(s.tokens, token, token + 's')}, ${plural(s.table.filter(id => id >= 0).length, 'block', 'blocks')}${s.device ? ' of the CPU' : ''}`)
    item.element.dataset.tokens = s.tokens
    return item.element
  })
  shown = next
  $('tables').classList.toggle('short', short)
  const now = $('tables').children
  if (list.length !== now.length || list.some((e, k) => e !== now[k])) $('tables').replaceChildren(...list)
  if (!list.length) $('tables').replaceChildren(make('p', 'none', 'No sequence has blocks.'))
  $('tables-note').textContent = short ? 'physical blocks, in logical order' : 'logical above, physical below'
  const first = $('tables').querySelector('.entry')
  if (first) first.tabIndex = 0
}

function tableOf(s, pool, changed) {
  const element = make('div', 'table'), heading = make('h3', '', capital(title(s)))
  element.style.setProperty('--c', colour(s))
  element.dataset.sequence = label(s)
  element.dataset.device = s.device
  element.dataset.table = s.table.join(' ')
  heading.append(make('small'))
  heading.tabIndex = 0
  heading.setAttribute('role', 'button')
  heading.setAttribute('aria-pressed', 'false')
  heading.title = 'Show its blocks'
  element.append(heading)
  const entries = (from, to) => {
    const row = make('div', 'entries')
    for (let at = from; at < to; at++) {
      const id = s.table[at], entry = make('span', 'entry')
      entry.dataset.block = id
      entry.dataset.device = s.device
      entry.tabIndex = -1
      if (id >= 0) {
        entry.dataset.state = pool[s.device][id].state
        if (s.tokens <= at * size) entry.dataset.reserved = ''
      }
      if (changed(at)) entry.classList.add('changed')
      entry.append(make('i', '', at), make('b', '', id < 0 ? '–' : id))
      entry.setAttribute('aria-label', `logical block ${at}: ${id < 0 ? 'unmapped' : 'physical block ' + id}`)
      entry.setAttribute('role', 'img')
      row.append(entry)
    }
    element.append(row)
  }
  if (course) {
    for (let at = 0; at < s.table.length; at += 16) {
      element.append(make('h4', '', `block_table[${at / 16}] → L2 table`))
      entries(at, Math.min(s.table.length, at + 16))
    }
  } else {
    entries(0, s.table.length)
  }
  return element
}

// ---- A request that is pointed at: its blocks, and arrows from its table to them.

let kept, pointed // names of sequences, as in data-sequence
function light() {
  const name = kept || pointed, old = $('names')
  if (old) old.remove()
  document.querySelectorAll('.lit').forEach(e => e.classList.remove('lit'))
  document.querySelectorAll('.table h3[aria-pressed]').forEach(e => e.setAttribute('aria-pressed', kept !== undefined && e.parentElement.dataset.sequence === kept))
  const table = name !== undefined && [...document.querySelectorAll('.table')].find(e => e.dataset.sequence === name)
  $('pools').classList.toggle('dimmed', !!table)
  if (!table) return
  table.classList.add('lit')
  const entries = [...table.querySelectorAll('.entry')].filter(e => Number(e.dataset.block) >= 0)
  for (const e of entries) cells[e.dataset.device][e.dataset.block].classList.add('lit')
  if (entries.length > 24) return
  const svg = drawing('names'), origin = $('pools').getBoundingClientRect()
  for (const e of entries) {
    const p = e.getBoundingClientRect(), q = cells[e.dataset.device][e.dataset.block].getBoundingClientRect()
    const beside = p.left > q.right, above = q.bottom < p.top
    const x1 = (beside ? p.left : p.left + p.width / 2) - origin.left, y1 = (beside ? p.top + p.height / 2 : above ? p.top : p.bottom) - origin.top
    const x2 = (beside ? q.right : q.left + q.width / 2) - origin.left, y2 = (beside ? q.top + q.height / 2 : above ? q.bottom : q.top) - origin.top
    element('path', { d: `M${x1} ${y1}L${x2} ${y2}`, 'marker-end': 'url(#names-head)' }, svg)
  }
  $('pools').append(svg)
}
const tableAt = e => { const at = e.target.closest && e.target.closest('.table'); return at ? at.dataset.sequence : undefined }
const point = name => { if (name !== pointed) { pointed = name; light() } }
function keep(name) {
  kept = kept === name ? undefined : name
  light()
}

// ---- All events, to go to.

function events() {
  const list = $('event-list')
  if (!$('events').open) return
  if (recording.live || list.children.length !== frames.length) {
    list.replaceChildren(...frames.map((f, i) => {
      const li = make('li'), button = make('button', '', f.call || f.said[0] || '–')
      button.type = 'button'
      button.value = i
      li.append(button)
      return li
    }))
  }
  list.querySelectorAll('[aria-current]').forEach(e => e.removeAttribute('aria-current'))
  const current = list.children[now].firstChild
  current.setAttribute('aria-current', 'step')
  list.scrollTop = current.parentElement.offsetTop - list.clientHeight / 2
}

// formers are who had each free block last, of a pool that is small enough to show it.
const formers = []
function formerOf(i) {
  if (recording.live || frames[i].blocks > 64) return undefined
  for (let k = formers.length; k <= i; k++) {
    const before = frames[k].before
    if (before < 0) {
      formers[k] = new Map()
      continue
    }
    formers[k] = new Map(formers[before])
    blocksOf(frames[before])[0].forEach((b, id) => { if (b.owners.length) formers[k].set(id, b.owners.map(([s]) => label(s)).join(' ')) })
  }
  return formers[i]
}

const ranges = (from, to) => from === to ? String(from) : `${from}–${to}`
let pinned, looked // [device, block]
function details() {
  const at = pinned || looked, box = $('details')
  document.querySelectorAll('.hi').forEach(e => e.classList.remove('hi'))
  document.querySelectorAll('.cell[aria-selected]').forEach(e => e.removeAttribute('aria-selected'))
  const b = at && derived(now)[at[0]][at[1]]
  box.classList.toggle('idle', !b)
  if (!b) {
    box.replaceChildren(make('h2', '', 'Details'), make('p', 'hint', 'Point at a block, or go there with Tab and the arrow keys, to see who names it.'))
    return
  }
  const [device, id] = at, f = frames[now], mark = marksOf(now)[device].get(id)
  document.querySelectorAll(`[data-block="${id}"][data-device="${device}"]`).forEach(e => e.classList.add('hi'))
  if (pinned) cells[device][id].setAttribute('aria-selected', 'true')
  box.replaceChildren(make('h2', '', `Block ${id}` + (recording.cpu ? ` of the ${devices[device]}` : '') + ` – ${states[b.state]}`))
  const step = since(now, device, id), when = step === 0 || frames[step].before < 0 ? 'since the beginning of the recording' : `since step ${step}` + (course ? '' : ` (${seconds(frames[step].time)})`)
  box.append(make('p', '', `${capital(b.count ? 'in use' : 'free')} ${when}; ${plural(b.count, 'reference', 'references')}` + (b.owners.length ? `; ${b.filled} of ${size} slots filled.` : '.')))
  const ul = make('ul')
  for (const [s, k] of b.owners.slice(0, 12)) {
    const from = k * size, to = Math.min(s.tokens, from + size) - 1
    ul.append(make('li', '', `${capital(title(s))}, logical block ${k}: ` + (to < from ? 'reserved, nothing written yet' : `${token}s ${ranges(from, to)} in slots ${ranges(0, to - from)}`)))
  }
  if (b.owners.length > 12) ul.append(make('li', '', `and ${b.owners.length - 12} more`))
  if (b.owners.length) box.append(ul)
  if (b.state === 'held') box.append(make('p', '', 'No block table shown names it: it stands for what is outside a window, or was lost.'))
  if (b.state === 'cached') box.append(make('p', '', 'It holds a finished prefix, until somebody else needs the block.'))
  if (mark) box.append(make('p', 'changed', `In this step: ${mark[3]}.`))
  if (pinned) box.append(make('p', 'hint', 'Kept. Enter, click or Esc lets go.'))
}

// ---- Going from step to step.

let now = 0, timer, connection = '' // with the server of a live page
const seconds = t => t.toLocaleString('en', { minimumFractionDigits: 3, maximumFractionDigits: 3 }) + ' s'
const mostSaid = 6

function go(to, quiet) {
  now = Math.max(0, Math.min(end, to))
  const f = frames[now]
  const pool = paint(now)
  $('slider').value = now
  $('slider').setAttribute('aria-valuetext', `step ${now} of ${end}: ${f.call || f.said[0] || ''}`)
  $('where').textContent = `step ${now} of ${end}`
  $('time').textContent = course ? '' : ' · ' + seconds(f.time) + connection
  $('call').textContent = f.call
  document.querySelector('.said').classList.toggle('refused', f.refused)
  const lines = f.said.slice(0, mostSaid).map(line => make('p', '', line))
  if (f.said.length > mostSaid) lines.push(make('p', 'more', `and ${f.said.length - mostSaid} more`))
  $('said').replaceChildren(...lines)
  counters(now, pool)
  queues(now)
  tables(now, pool)
  for (const id of ['first', 'back']) $(id).disabled = now === 0
  for (const id of ['next', 'last']) $(id).disabled = now === end
  details()
  arrows(now)
  light()
  events()
  document.documentElement.dataset.step = now
  if (!quiet) remember()
}

// remember puts the step into the address, once there is a moment's rest: a
// browser refuses to do that many times a second.
let resting
function remember() {
  clearTimeout(resting)
  resting = setTimeout(() => {
    const hash = recording.live && now === end ? '' : '#step=' + now
    if (location.hash !== hash) history.replaceState(null, '', hash || location.pathname)
  }, 250)
}

function pause() {
  clearInterval(timer)
  timer = undefined
  $('play').textContent = '▶ Play'
  $('said').setAttribute('aria-live', 'polite')
}
function start() {
  clearInterval(timer)
  if (now === end) go(0)
  $('play').textContent = '❚❚ Pause'
  $('said').setAttribute('aria-live', 'off')
  timer = setInterval(() => { go(now + 1); if (now === end) pause() }, 1000 / Number($('speed').value))
}
const toggle = () => timer === undefined ? start() : pause()
const step = by => { pause(); go(now + by) }

$('first').onclick = () => step(-end)
$('last').onclick = () => step(end)
$('back').onclick = () => step(-1)
$('next').onclick = () => step(1)
$('play').onclick = toggle
$('speed').onchange = () => { if (timer !== undefined) start() }
$('slider').oninput = () => { pause(); go(Number($('slider').value)) }
$('keys').onclick = () => $('help').showModal()

const fromHash = () => { const m = /step=(\d+)/.exec(location.hash); return m ? Number(m[1]) : recording.live ? end : 0 }
addEventListener('hashchange', () => { clearTimeout(resting); if (fromHash() !== now) { pause(); go(fromHash(), true) } })
let size0
addEventListener('resize', () => { cancelAnimationFrame(size0); size0 = requestAnimationFrame(() => { paint(now); arrows(now); light() }) })

// move goes to another block of a grid, or another entry of a table.
function move(from, key) {
  const device = from.closest('.pool') ? Number(from.dataset.device) : -1
  const list = device < 0 ? [...$('tables').querySelectorAll('.entry')] : cells[device]
  const at = list.indexOf(from)
  let to = at + { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -(device < 0 ? 0 : columns[device]), ArrowDown: device < 0 ? 0 : columns[device] }[key]
  if (device < 0 && (key === 'ArrowUp' || key === 'ArrowDown')) {
    const rows = [...$('tables').children], row = rows[rows.indexOf(from.closest('.table')) + (key === 'ArrowUp' ? -1 : 1)]
    to = row && row.querySelector('.entry') ? list.indexOf(row.querySelector('.entry')) : at
  }
  if (to < 0 || to >= list.length) return
  from.tabIndex = -1
  list[to].tabIndex = 0
  list[to].focus()
}

addEventListener('keydown', e => {
  if (e.ctrlKey || e.altKey || e.metaKey || $('help').open) return
  const at = e.target, inBlocks = at.closest && at.closest('.cell, .entry'), onControl = at.closest && at.closest('button, select')
  const keys = {
    ArrowLeft: () => step(-1), ArrowRight: () => step(1), ',': () => step(-1), '.': () => step(1), PageUp: () => step(-10), PageDown: () => step(10),
    Home: () => step(-end), End: () => step(end), ' ': toggle, '?': () => $('help').showModal(), '/': () => $('help').showModal(),
  }
  const heading = at.closest && at.closest('.table h3')
  if (heading && (e.key === 'Enter' || e.key === ' ')) keep(tableAt(e))
  else if (inBlocks && e.key.startsWith('Arrow')) move(inBlocks, e.key)
  else if (inBlocks && e.key === 'Enter') pin(inBlocks)
  else if (e.key === 'Escape') { pinned = kept = pointed = undefined; details(); light(); return }
  else if (!keys[e.key] || at === $('speed') || onControl && e.key === ' ') return
  else keys[e.key]()
  e.preventDefault()
})

const place = e => { const at = e.target.closest && e.target.closest('.cell, .entry'); return at && Number(at.dataset.block) >= 0 && at.closest('main') && !at.closest('#legend') ? [Number(at.dataset.device), Number(at.dataset.block)] : undefined }
const look = at => { if (String(at) !== String(looked)) { looked = at; details() } }
function pin(element) {
  const at = [Number(element.dataset.device), Number(element.dataset.block)]
  pinned = at[1] < 0 || String(pinned) === String(at) ? undefined : at
  looked = at[1] < 0 ? undefined : at
  details()
}
for (const area of [$('pools'), $('tables')]) {
  area.addEventListener('mouseover', e => look(place(e)))
  area.addEventListener('mouseleave', () => look(undefined))
  area.addEventListener('focusin', e => look(place(e)))
  area.addEventListener('focusout', () => look(undefined))
  area.addEventListener('click', e => { if (place(e)) pin(e.target.closest('.cell, .entry')) })
}

$('tables').addEventListener('mouseover', e => point(tableAt(e)))
$('tables').addEventListener('mouseleave', () => point(undefined))
$('tables').addEventListener('focusin', e => point(tableAt(e)))
$('tables').addEventListener('focusout', () => point(undefined))
$('tables').addEventListener('click', e => { if (e.target.closest('h3')) keep(tableAt(e)) })
$('events').addEventListener('toggle', events)
$('event-list').addEventListener('click', e => { const b = e.target.closest('button'); if (b) { pause(); go(Number(b.value)) } })

// ---- The legend shows what occurs.

function legend() {
  const item = (state, mark, says, sign, who, more) => {
    const li = make('li'), cell = make('div', 'cell')
    cell.setAttribute('aria-hidden', 'true')
    if (state) cell.dataset.state = state
    if (mark) cell.dataset.mark = mark
    Object.assign(cell.dataset, more)
    cell.style.setProperty('--c', 'var(--c0)')
    cell.style.setProperty('--d', 'var(--c1)')
    if (more && more.fill) cell.style.setProperty('--fill', more.fill)
    cell.append(make('span', 'who', who), make('span', 'sign', sign))
    li.append(cell, make('span', '', says))
    return li
  }
  const any = f => frames.some(f), owner = course ? 'sequence' : 'request'
  const list = [
    item('own', '', `in use by ${owner} 2, half filled`, '', '2', { fill: 50 }),
    item('shared', '', 'shared, with two references', '', '×2', { full: '' }),
    item('free', '', 'free', '', ''),
  ]
  if (any(f => f.sequences.some(s => s.table.length * size >= s.tokens + size))) list.push(item('own', '', 'reserved, nothing written', '', '2', { reserved: '', fill: 0 }))
  if (any(f => f.cached.length)) list.push(item('cached', '', 'free, but a prefix hit can find it', '', ''))
  if (any(f => f.counts.length)) list.push(item('held', '', 'held, but in no table here', '', ''))
  list.push(item('own', 'new', 'taken in this step', '+', '2', { full: '' }), item('free', 'freed', 'freed', '−', ''), item('shared', 'count', 'count changed', '±', '×2', { full: '' }))
  if (any(f => f.copies.length)) list.push(item('own', 'copy', 'copied to', 'C', '2', { full: '' }))
  if (any(f => f.hits.length)) list.push(item('own', 'hit', 'prefix hit', 'H', '2', { full: '' }))
  if (any(f => f.in.length || f.out.length)) list.push(item('own', 'in', 'swapped in (⇤) or out (⇥)', '⇤', '2', { full: '' }))
  $('legend').replaceChildren(...list)
}

// ---- A live page asks for what comes, and stays at the last step if it is there.

const mostFrames = 2000
const rest = ms => new Promise(done => setTimeout(done, ms))
async function follow() {
  const places = new Map(named.map((key, n) => [key.join(), n]))
  const place = key => {
    if (!places.has(key.join())) {
      places.set(key.join(), named.length)
      named.push(key)
      dress(key)
    }
    return places.get(key.join())
  }
  let next = recording.live.first + frames.length
  for (;;) {
    const following = now === end && timer === undefined
    if (frames.length >= mostFrames) {
      if (following) return location.reload()
      await rest(1000)
      continue
    }
    try {
      const answer = await fetch(recording.live.source + next, { cache: 'no-store' })
      if (!answer.ok) throw new Error(answer.statusText)
      connection = ' · live'
      if (answer.status === 204) continue
      const more = await answer.json(), local = more.names.map(place)
      unpack(more, n => local[n], more.live.first === next)
      next = more.live.first + more.frames.length
    } catch {
      connection = ' · the server does not answer'
      await rest(1000)
    }
    const stay = now !== end || timer !== undefined
    end = frames.length - 1
    $('slider').max = end
    legend()
    go(stay ? now : end, true)
  }
}

$('app').hidden = false
$('cpu-part').hidden = recording.cpu === 0
legend()
go(fromHash(), true)
if (recording.live) follow()
})()
