// A request that is pointed at: its blocks light up, with arrows from its table to them.

// pointed and kept name a sequence, as in data-sequence, or if `whole` is set a request.
let kept, pointed
const same = (a, b) => a === b || !!a && !!b && a.name === b.name && a.whole === b.whole

// named is whose table or tag an event is on.
function named(e) {
  const at = e.target.closest && e.target.closest('.table, .tag')
  if (!at) return undefined
  return at.classList.contains('tag') ? { name: at.dataset.request, whole: true } : { name: at.dataset.sequence, whole: false }
}
const point = name => { if (!same(name, pointed)) { pointed = name; light() } }
function keep(name) {
  kept = same(kept, name) ? undefined : name
  light()
}

// light shows it on all boards, which have the same requests.
function light() {
  const name = kept || pointed
  document.querySelectorAll('.lit').forEach(e => e.classList.remove('lit'))
  document.querySelectorAll('.names').forEach(e => e.remove())
  document.querySelectorAll('.table h3[aria-pressed]').forEach(e => e.setAttribute('aria-pressed', !!kept && matches(e.parentElement, kept)))
  for (const b of boards) lightOn(b, name)
}
const matches = (table, name) => (name.whole ? table.dataset.request : table.dataset.sequence) === name.name

function lightOn(b, name) {
  const { parts, cells } = b, tables = name ? [...parts.tables.querySelectorAll('.table')].filter(e => matches(e, name)) : []
  parts.pools.classList.toggle('dimmed', tables.length > 0)
  if (name) parts['queue-list'].querySelectorAll(`.tag[data-request="${name.name}"]`).forEach(e => e.classList.add('lit'))
  if (!tables.length) return
  for (const table of tables) table.classList.add('lit')
  const entries = tables.flatMap(table => [...table.querySelectorAll('.entry')]).filter(e => Number(e.dataset.block) >= 0)
  for (const e of entries) cells[e.dataset.device][e.dataset.block].classList.add('lit')
  if (entries.length > 24 || b.element.hidden) return
  const svg = drawing(b, 'names'), origin = parts.pools.getBoundingClientRect()
  for (const e of entries) {
    const p = e.getBoundingClientRect(), q = cells[e.dataset.device][e.dataset.block].getBoundingClientRect()
    const beside = p.left > q.right, above = q.bottom < p.top
    const x1 = (beside ? p.left : p.left + p.width / 2) - origin.left, y1 = (beside ? p.top + p.height / 2 : above ? p.top : p.bottom) - origin.top
    const x2 = (beside ? q.right : q.left + q.width / 2) - origin.left, y2 = (beside ? q.top + q.height / 2 : above ? q.bottom : q.top) - origin.top
    element('path', { d: `M${x1} ${y1}L${x2} ${y2}`, 'marker-end': `url(#${svg.id}-head)` }, svg)
  }
  parts.pools.append(svg)
}
