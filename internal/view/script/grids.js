// The grids of blocks, and the arrows between them.

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
