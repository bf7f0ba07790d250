// A board shows one run; a page has one board, or two side by side on one clock.

function newBoard(run, n, of) {
  const b = { run, n, cells: [[], []], fitted: false, painted: new WeakMap(), shown: new Map(), order: 'number' }
  b.element = $('board').content.firstElementChild.cloneNode(true)
  b.parts = {}
  for (const e of b.element.querySelectorAll('[id]')) {
    b.parts[e.id] = e
    if (n) e.id += '-' + (n + 1)
  }
  b.grids = [b.parts.gpu, b.parts.cpu]
  b.element.classList.toggle('paired', of > 1)
  b.element.setAttribute('aria-label', run.system)
  b.parts.system.textContent = run.system
  b.parts['system-note'].textContent = run.note
  b.parts.system.parentElement.hidden = of === 1
  b.parts['cpu-part'].hidden = run.cpu === 0
  const large = Math.max(run.cpu, ...run.frames.map(f => f.blocks)) > 64
  b.parts.grouping.hidden = !large
  if (large && live) b.order = b.parts.order.value = 'request'
  b.parts.order.onchange = () => { b.order = b.parts.order.value; b.fitted = false; show(b, now); arrows(b, now); light() }
  listen(b)
  let width
  new ResizeObserver(() => { if (b.parts.pools.clientWidth !== width) { width = b.parts.pools.clientWidth; refit([b]) } }).observe(b.parts.pools)
  return b
}

// refit draws boards again whose place has changed.
function refit(list) {
  for (const b of list) if (boards.includes(b)) { b.fitted = false; paint(b, now); arrows(b, now) }
  light()
}

// show draws a frame on its board.
function show(b, i) {
  const f = b.run.frames[i], { parts } = b
  const pool = paint(b, i)
  parts.call.textContent = f.call
  parts['said-part'].classList.toggle('refused', f.refused)
  const lines = f.said.slice(0, mostSaid).map(line => make('p', '', line))
  if (f.said.length > mostSaid) lines.push(make('p', 'more', `and ${f.said.length - mostSaid} more`))
  if (!f.said.length && !f.call) lines.push(make('p', 'more', 'Nothing happens here in this step.'))
  parts.said.replaceChildren(...lines)
  counters(b, i, pool)
  queues(b, i)
  tables(b, i, pool)
  details(b)
}
const mostSaid = 6

// listen looks at what the pointer and the focus are on.
function listen(b) {
  const { parts } = b
  for (const area of [parts.pools, parts.tables]) {
    area.addEventListener('mouseover', e => look(b, place(e)))
    area.addEventListener('mouseleave', () => look(b, undefined))
    area.addEventListener('focusin', e => look(b, place(e)))
    area.addEventListener('focusout', () => look(b, undefined))
    area.addEventListener('click', e => { if (place(e)) pin(b, e.target.closest('.cell, .entry')) })
  }
  for (const area of [parts.tables, parts['queue-list']]) {
    area.addEventListener('mouseover', e => point(named(e)))
    area.addEventListener('mouseleave', () => point(undefined))
    area.addEventListener('focusin', e => point(named(e)))
    area.addEventListener('focusout', () => point(undefined))
    area.addEventListener('click', e => { if (e.target.closest('h3, .tag')) keep(named(e)) })
  }
}

// ---- A block that is pointed at: looked, or kept until Esc: pinned; [device, block] each.

const place = e => {
  const at = e.target.closest && e.target.closest('.cell, .entry')
  return at && Number(at.dataset.block) >= 0 ? [Number(at.dataset.device), Number(at.dataset.block)] : undefined
}
const look = (b, at) => { if (String(at) !== String(b.looked)) { b.looked = at; details(b) } }
function pin(b, element) {
  const at = [Number(element.dataset.device), Number(element.dataset.block)]
  b.pinned = at[1] < 0 || String(b.pinned) === String(at) ? undefined : at
  b.looked = at[1] < 0 ? undefined : at
  details(b)
}

const ranges = (from, to) => from === to ? String(from) : `${from}–${to}`
function details(b) {
  const { run, cells } = b, at = b.pinned || b.looked, box = b.parts.details
  b.element.querySelectorAll('.hi').forEach(e => e.classList.remove('hi'))
  b.element.querySelectorAll('.cell[aria-selected]').forEach(e => e.removeAttribute('aria-selected'))
  const block = at && derived(run, now)[at[0]][at[1]]
  box.classList.toggle('idle', !block)
  if (!block) {
    box.replaceChildren(make('h2', '', 'Details'), make('p', 'hint', `Point at a block, or go there with Tab and the arrow keys, to see who names it. Point at a ${owner(run)} to see its blocks.`))
    return
  }
  const [device, id] = at
  b.element.querySelectorAll(`[data-block="${id}"][data-device="${device}"]`).forEach(e => e.classList.add('hi'))
  if (b.pinned) cells[device][id].setAttribute('aria-selected', 'true')
  box.replaceChildren(make('h2', '', `Block ${id}` + (run.cpu ? ` of the ${devices[device]}` : '') + ` – ${states[block.state]}`), ...facts(run, device, id, block))
  if (b.pinned) box.append(make('p', 'hint', 'Kept. Enter, click or Esc lets go.'))
}

// facts describe a block.
function facts(run, device, id, block) {
  const past = pastOf(run, now), step = past[device].since[id], first = run.frames[step].before < 0
  const when = first ? 'since the beginning of the recording' : `since step ${step}` + (run.course ? '' : ` (${seconds(run.frames[step].time)})`)
  const used = block.owners.length > 0
  const list = [make('p', '', `${capital(block.count ? 'in use' : 'free')} ${when}; ${plural(block.count, 'reference', 'references')}` + (used ? `; ${block.filled} of ${run.size} slots filled.` : '.'))]
  const ul = make('ul')
  for (const [s, k] of block.owners.slice(0, 12)) {
    const from = k * run.size, to = Math.min(s.tokens, from + run.size) - 1
    ul.append(make('li', '', `${capital(title(run, s))}, logical block ${k}: ` + (to < from ? 'reserved, nothing written yet' : `${tokenWord(run)}s ${ranges(from, to)} in slots ${ranges(0, to - from)}`)))
  }
  if (block.owners.length > 12) ul.append(make('li', '', `and ${block.owners.length - 12} more`))
  if (used) list.push(ul)
  for (const [from, to, name] of remains(run, device, id, block, past)) {
    const slots = to - from < run.size ? (to - from > 1 ? `slots ${ranges(from, to - 1)} still hold` : `slot ${from} still holds`) : 'it still holds'
    list.push(make('p', 'remains', `${capital(slots)} what ${owner(run)} ${labelOf(run, name)} wrote.`))
  }
  if (block.state === 'held') list.push(make('p', '', run.held ? `It is ${run.held}.` : 'No block table shown names it: it stands for what is outside a window, or was lost.'))
  if (block.state === 'cached') list.push(make('p', '', 'It holds a finished prefix, until somebody else needs the block.'))
  const mark = marksOf(run, now)[device].get(id)
  if (mark) list.push(make('p', 'changed', `In this step: ${mark[3]}.`))
  return list
}
