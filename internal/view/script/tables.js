// What stands beside the grids: counters, queues, block tables, events, a block.

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
