// Going from step to step, with keys, pointer and address.

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
