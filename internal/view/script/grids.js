// The grids of blocks, and the arrows between them.

function build(b, device, n) {
  const grid = b.grids[device], { run } = b
  grid.replaceChildren()
  b.cells[device] = []
  for (let id = 0; id < n; id++) {
    const cell = make('div', 'cell')
    cell.setAttribute('role', 'option')
    cell.dataset.block = id
    cell.dataset.device = device
    cell.tabIndex = id ? -1 : 0
    cell.append(make('span', 'old'), make('span', 'id', id), make('span', 'who'), make('span', 'count'), make('span', 'word'), make('span', 'sign'))
    if (run.course && n <= 64) {
      const all = make('span', 'records')
      for (let k = 0; k < run.size; k++) all.append(make('i'))
      cell.append(all)
    }
    grid.append(cell)
    b.cells[device].push(cell)
  }
}

// spread chooses the columns of a few large blocks: large cells, full rows.
const largest = [148, 124] // of one board, of two
function spread(n, width, tall, gap, largest) {
  let best = [-Infinity, 1, 76]
  for (let across = 1; across <= n; across++) {
    const side = Math.min(largest, Math.floor((width + gap) / across) - gap), rows = Math.ceil(n / across)
    if (side < 76) break
    const score = side - 6 * (rows * across - n) / rows - 6 * rows - (rows * (side + gap) > Math.max(tall, 330) ? 100 : 0)
    if (score >= best[0]) best = [score, across, side]
  }
  return best.slice(1)
}

// fit sizes the cells, where something has changed since: to ask for a width costs a layout.
function fit(b) {
  const { run, cells } = b
  if (b.fitted) return
  b.fitted = true
  const most = largest[b.element.parentElement.classList.contains('pair') ? 1 : 0], tall = [Math.max(300, innerHeight - 340), 220]
  for (const device of [0, 1]) {
    const grid = b.grids[device], n = cells[device].length
    if (!n) continue
    const width = grid.clientWidth, gap = n > 1500 ? 2 : 3
    let side = Math.floor(Math.sqrt(width * tall[device] / n)) - gap
    while (side > 12 && Math.ceil(n / Math.floor((width + gap) / (side + gap))) * (side + gap) > tall[device]) side--
    side = Math.max(device ? 9 : 11, Math.min(most, side))
    let across = Math.max(1, Math.floor((width + gap) / (side + gap)))
    if (side >= 76) [across, side] = spread(n, width, tall[device], gap, most)
    grid.style.setProperty('--across', across)
    grid.style.setProperty('--side', side + 'px')
    grid.style.setProperty('--gap', gap + 'px')
    grid.style.setProperty('--font', (side >= 76 ? 15 : Math.max(8, Math.min(15, Math.floor(side / 2.3)))) + 'px')
    grid.style.setProperty('--stripe', Math.max(3, Math.min(10, side / 6)) + 'px')
    grid.style.setProperty('--slot', (side / run.size < 4 ? 2 * side : side / run.size) + 'px')
    grid.classList.toggle('big', side >= 76)
    grid.classList.toggle('slots', side >= 104 && run.course && run.size === 16)
    grid.classList.toggle('tiny', side < 17)
  }
}

const owners = (run, block) => [...new Set(block.owners.map(([s]) => label(run, s)))]
function who(run, block, big) {
  if (block.state === 'held') return run.held ? 'null' : 'held'
  if (block.state === 'cached') return big ? 'cached' : ''
  if (block.state === 'free') return big ? 'free' : ''
  const names = owners(run, block)
  if (!big) return block.count > 1 ? '×' + block.count : names[0]
  return short(run) + (names.length > 1 ? grouped(run, block) : names[0])
}
const short = run => run.course ? 'seq ' : 'req '

// grouped names the owners of a shared block in short: 12abc, 13.
function grouped(run, block) {
  const by = new Map()
  for (const [s] of block.owners) {
    const [request, number] = run.named[s.name]
    by.set(request, (by.get(request) || '') + (run.several.has(request) ? letter(number) : ''))
  }
  const all = [...by].map(([request, letters]) => request + (letters.length > 4 ? letters.slice(0, 3) + '…' : letters))
  return all.length > 3 ? all.slice(0, 2).join(',\u2009') + '\u2009…' : all.join(',\u2009')
}

// slots shows the records of a block and, faintly, those that it held before. A record that was never
// appended is a dot, because a pool is not cleared.
function slots(run, part, f, before, id, block, past) {
  const copy = f.copies.find(c => c[1] === id)
  const from = before === undefined || before.blocks !== f.blocks ? undefined : copy ? copy[0] : id
  for (let k = 0; k < run.size; k++) {
    const slot = part.children[k], value = f.records.get(id * run.size + k)
    const filled = k < block.filled && block.owners.length > 0, old = !filled && past[0].slots[id * run.size + k] !== undefined
    const digits = value === undefined ? '·' : String(value), long = digits.length > 6, shown = filled || old
    text(slot, !shown ? '' : long ? '…' + digits.slice(-4) : digits)
    slot.title = shown && long ? digits : ''
    slot.classList.toggle('set', filled)
    slot.classList.toggle('was', old)
    slot.classList.toggle('just', from !== undefined && before.records.get(from * run.size + k) !== value)
    slot.classList.toggle('copied', copy !== undefined && filled)
  }
}

const tokenWord = run => run.course ? 'record' : 'token'
const states = { own: 'in use', shared: 'shared', held: 'held, named by no table here', cached: 'free, cached', free: 'free' }
const set = (e, key, value) => {
  if (value === undefined || value === false) { if (key in e.dataset) delete e.dataset[key] } else if (e.dataset[key] !== String(value)) e.dataset[key] = value
}
const text = (e, value) => { if (e.textContent !== value) e.textContent = value }

// paint shows a frame's blocks.
function paint(b, i) {
  const { run, grids, cells, parts } = b
  const f = run.frames[i], pool = derived(run, i), marks = marksOf(run, i), past = pastOf(run, i)
  for (const device of [0, 1]) {
    if (cells[device].length !== pool[device].length) { build(b, device, pool[device].length); b.ordered = undefined; b.fitted = false }
  }
  parts.gpu.hidden = f.blocks === 0
  parts.none.hidden = f.blocks > 0
  fit(b)
  for (const device of [0, 1]) {
    const big = grids[device].classList.contains('big')
    pool[device].forEach((block, id) => {
      const cell = cells[device][id], mark = marks[device].get(id), old = remains(run, device, id, block, past)
      if (cell.lastChild.className === 'records') slots(run, cell.lastChild, f, f.before < 0 ? undefined : run.frames[f.before], id, block, past)
      const key = [block.state, block.count, block.filled, block.owners.map(([s]) => s.name), mark, big, old].join('|')
      if (b.painted.get(cell) === key) return
      b.painted.set(cell, key)
      dressCell(run, cell, block, mark, old)
      nameCell(run, cell, id, block, mark, big, old)
    })
  }
  arrange(b, i, pool, past)
  parts['gpu-title'].textContent = run.course ? `Pool: ${plural(f.blocks, 'block', 'blocks')} of ${run.size} records` + (run.usesEngines ? ` (engine e${f.engine})` : '')
    : `${live ? 'Memory' : 'GPU'}: ${plural(f.blocks, 'block', 'blocks')} of ${plural(run.size, 'slot', 'slots')}`
  parts['cpu-title'].textContent = `CPU: ${plural(run.cpu, 'block', 'blocks')} for what is swapped out`
  return pool
}

// dressCell sets the colours and patterns of a cell.
function dressCell(run, cell, block, mark, old) {
  const used = block.owners.length > 0
  set(cell, 'state', block.state)
  set(cell, 'count', block.count)
  set(cell, 'filled', used ? block.filled : 0)
  set(cell, 'owners', owners(run, block).join(' '))
  set(cell, 'mark', mark && mark[0])
  set(cell, 'full', used && block.filled === run.size)
  set(cell, 'reserved', used && block.filled === 0)
  set(cell, 'was', old.length ? [...new Set(old.map(([, , name]) => labelOf(run, name)))].join(', ') : undefined)
  cell.style.setProperty('--fill', used ? 100 * block.filled / run.size : 0)
  if (old.length) cell.style.setProperty('--was', colour(run, old[0][2]))
  if (used) {
    const first = block.owners[0][0], other = block.owners.find(([s]) => run.named[s.name][0] !== run.named[first.name][0])
    cell.style.setProperty('--c', colour(run, first.name))
    cell.style.setProperty('--d', other ? colour(run, other[0].name) : 'color-mix(in srgb, ' + colour(run, first.name) + ' 55%, var(--ground))')
  }
  cell.children[0].replaceChildren(...old.map(([from, to, name]) => {
    const part = make('i')
    part.style.cssText = `left: ${100 * from / run.size}%; width: ${100 * (to - from) / run.size}%; --was: ${colour(run, name)}`
    return part
  }))
}

// nameCell writes what a cell says.
function nameCell(run, cell, id, block, mark, big, old) {
  const [, , whoPart, countPart, wordPart, signPart] = cell.children, used = block.owners.length > 0, names = owners(run, block)
  const former = !used && old.length > 0
  if (!former) text(whoPart, who(run, block, big))
  else if (!big) text(whoPart, cell.dataset.was)
  else whoPart.replaceChildren(make('span', '', who(run, block, big)), make('small', '', `was ${short(run)}${cell.dataset.was}`))
  text(countPart, block.count > 1 || block.state === 'held' ? '×' + block.count : '')
  text(wordPart, mark ? mark[2] : '')
  text(signPart, mark ? mark[1] : '')
  const says = `Block ${id}: ${states[block.state]}` + (names.length ? ` by ${names.slice(0, 6).join(', ')}` : '') +
    (block.count > 1 ? `, ${block.count} references` : '') + (used ? `, ${block.filled} of ${run.size} slots` : '') +
    (former ? `, was of ${owner(run)} ${cell.dataset.was}` : '') + (mark ? `, ${mark[3]} in this step` : '')
  if (cell.getAttribute('aria-label') !== says) cell.setAttribute('aria-label', says)
}

const element = (name, attributes, parent) => {
  const e = document.createElementNS('http://www.w3.org/2000/svg', name)
  for (const k in attributes) e.setAttribute(k, attributes[k])
  if (parent) parent.append(e)
  return e
}

// drawing is an empty one over the pools, with a head for its arrows.
function drawing(b, kind) {
  const id = kind + (b.n ? '-' + (b.n + 1) : ''), svg = element('svg', { id, class: 'over ' + kind, 'aria-hidden': 'true' })
  const marker = element('marker', { id: id + '-head', viewBox: '0 0 10 10', refX: 8, refY: 5, markerWidth: 4.5, markerHeight: 4.5, orient: 'auto' }, svg)
  element('path', { d: 'M0 0L10 5L0 10z' }, marker)
  return svg
}

// arrows are drawn from each copied block to its copy, unless there are so many that they cannot be told apart.
function arrows(b, i) {
  const f = b.run.frames[i], list = [...f.copies.map(([x, y]) => [0, x, 0, y]), ...f.out.map(([x, y]) => [0, x, 1, y]), ...f.in.map(([x, y]) => [1, x, 0, y])]
  b.parts.pools.querySelectorAll('.arrows').forEach(e => e.remove())
  if (!list.length || list.length > 24) return
  const svg = drawing(b, 'arrows'), origin = b.parts.pools.getBoundingClientRect()
  for (const [d1, x, d2, y] of list) {
    if (!b.cells[d1][x] || !b.cells[d2][y]) continue
    const p = b.cells[d1][x].getBoundingClientRect(), q = b.cells[d2][y].getBoundingClientRect()
    // From edge to edge, so that no label is covered: over the top within a row.
    const row = Math.abs(q.top - p.top) < 2, down = q.top > p.top
    const x1 = p.left + p.width / 2 - origin.left, x2 = q.left + q.width / 2 - origin.left
    const y1 = (row || !down ? p.top : p.bottom) - origin.top, y2 = (row || down ? q.top : q.bottom) - origin.top
    const bend = row ? Math.min(40, 14 + Math.abs(x2 - x1) / 9) : 0, side = row ? 0 : Math.min(40, Math.abs(y2 - y1) / 4)
    const path = row ? `M${x1} ${y1}C${x1} ${y1 - bend} ${x2} ${y2 - bend} ${x2} ${y2}` : `M${x1} ${y1}Q${(x1 + x2) / 2 + side} ${(y1 + y2) / 2} ${x2} ${y2}`
    element('path', { d: path, class: 'halo' }, svg)
    element('path', { d: path, 'marker-end': `url(#${svg.id}-head)` }, svg)
  }
  b.parts.pools.append(svg)
}
