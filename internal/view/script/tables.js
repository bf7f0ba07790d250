// What stands beside the grids: counters, queues, block tables.

function counters(b, i, pool) {
  const { run, parts } = b, f = run.frames[i], gpu = pool[0]
  let used = 0, shared = 0, cached = 0, filled = 0, held = 0, logical = 0
  for (const block of gpu) {
    if (block.count > 0) used++
    if (block.state === 'shared') shared++
    if (block.state === 'cached') cached++
    if (block.state === 'held') held++
    filled += block.owners.length ? block.filled : 0
    logical += block.owners.length
  }
  const nulls = run.held ? held : 0, total = gpu.length - nulls // no request gets the null block
  const slots = (used - held) * run.size, empty = slots - filled
  const percent = (a, b) => b ? Math.round(1000 * a / b) / 10 + ' %' : '–'
  const list = [
    ['', 'used', `${(used - nulls).toLocaleString('en')} of ${plural(total, 'block', 'blocks')}`],
    ['filled', 'filled slots', filled.toLocaleString('en')],
    ['empty', 'empty slots', `${empty.toLocaleString('en')} (${percent(empty, slots)} waste)`],
    ['', 'free', (gpu.length - used).toLocaleString('en')],
    ['', 'shared', shared.toLocaleString('en')],
    ['', 'saved by sharing', plural(Math.max(0, logical - (used - held)), 'block', 'blocks')],
  ]
  if (nulls) list.push(['', 'never used', plural(nulls, 'null block', 'null blocks')])
  if (cached || run.frames.some(f => f.cached.length)) list.push(['cached', 'free and cached', cached.toLocaleString('en')])
  if (run.cpu) list.push(['', 'on the CPU', `${pool[1].filter(block => block.count > 0).length} of ${run.cpu}`])
  parts.counters.replaceChildren(...list.map(([kind, name, value]) => {
    const div = make('div')
    div.append(make('dt', kind || 'plain', name), make('dd', '', value))
    div.dataset.counter = name
    return div
  }))
  const bars = [['filled', filled], ['empty', empty], ['cached', cached * run.size]]
  parts.meter.replaceChildren(...bars.map(([kind, n]) => {
    const part = make('i', kind)
    part.style.width = 100 * n / Math.max(1, total * run.size) + '%'
    return part
  }))
  parts.meter.setAttribute('aria-label', `Of all slots, ${percent(filled, total * run.size)} are filled and ${percent(empty, total * run.size)} are empty in used blocks`)
  parts.meter.hidden = parts.counters.hidden = f.blocks === 0
}

const mostTags = 80
function queues(b, i) {
  const { run, parts } = b, f = run.frames[i]
  parts.queues.hidden = run.course
  if (run.course) return
  parts['queue-list'].replaceChildren(...[['waiting', f.waiting], ['running', f.running], ['swapped', f.swapped]].filter(([name, list]) => list.length || name !== 'swapped' || run.cpu).map(([name, list]) => {
    const row = make('div'), dd = make('dd')
    row.dataset.queue = name
    row.dataset.requests = list.join(' ')
    for (const id of list.slice(0, mostTags)) {
      const tag = make('span', 'tag', id)
      tag.dataset.request = id
      tag.style.setProperty('--c', hue(run, id))
      dd.append(tag)
    }
    if (!list.length) dd.append(make('span', 'none', '–'))
    if (list.length > mostTags) dd.append(make('span', '', `and ${list.length - mostTags} more`))
    row.append(make('dt', '', `${name} (${list.length})`), dd)
    return row
  }))
}

// tables keeps the element of a sequence as long as its table stays the same.
function tables(b, i, pool) {
  const { run, parts, shown } = b, f = run.frames[i], before = f.before < 0 ? undefined : run.frames[f.before].live
  const next = new Map(), short = f.sequences.reduce((n, s) => n + s.table.length, 0) > 160
  const list = f.sequences.map(s => {
    const was = before && before.get(s.name)
    const changed = at => before && (!was || was.device !== s.device || was.table[at] !== s.table[at])
    const key = JSON.stringify([s.table, s.device, s.table.map((id, at) => changed(at) ? at : -1).filter(at => at >= 0), s.table.map(id => id < 0 ? '' : pool[s.device][id].state[0]).join(''), Math.ceil(s.tokens / run.size)])
    let item = shown.get(s.name)
    if (!item || item.key !== key) item = { key, element: tableOf(run, s, pool, changed) }
    next.set(s.name, item)
    text(item.element.querySelector('small'), `${plural(s.tokens, tokenWord(run), tokenWord(run) + 's')}, ${plural(s.table.filter(id => id >= 0).length, 'block', 'blocks')}${s.device ? ' of the CPU' : ''}`)
    item.element.dataset.tokens = s.tokens
    return item.element
  })
  b.shown = next
  parts.tables.classList.toggle('short', short)
  const now = parts.tables.children
  if (list.length !== now.length || list.some((e, k) => e !== now[k])) parts.tables.replaceChildren(...list)
  if (!list.length) parts.tables.replaceChildren(make('p', 'none', `No ${owner(run)} has blocks.`))
  parts['tables-note'].textContent = short ? 'physical blocks, in logical order' : 'logical above, physical below'
  const first = parts.tables.querySelector('.entry')
  if (first) first.tabIndex = 0
}

function tableOf(run, s, pool, changed) {
  const element = make('div', 'table'), heading = make('h3', '', capital(title(run, s)))
  element.style.setProperty('--c', colour(run, s.name))
  element.dataset.sequence = label(run, s)
  element.dataset.request = run.named[s.name][0]
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
        if (s.tokens <= at * run.size) entry.dataset.reserved = ''
      }
      if (changed(at)) entry.classList.add('changed')
      entry.append(make('i', '', at), make('b', '', id < 0 ? '–' : id))
      entry.setAttribute('aria-label', `logical block ${at}: ${id < 0 ? 'unmapped' : 'physical block ' + id}`)
      entry.setAttribute('role', 'img')
      row.append(entry)
    }
    element.append(row)
  }
  if (run.course) {
    for (let at = 0; at < s.table.length; at += 16) {
      element.append(make('h4', '', `block_table[${at / 16}] → L2 table`))
      entries(at, Math.min(s.table.length, at + 16))
    }
  } else {
    entries(0, s.table.length)
  }
  return element
}
