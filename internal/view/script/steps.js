// Going from step to step, with keys, pointer and address.

let boards = [], now = 0, end = 0, timer, connection = '' // with the server of a live page
const seconds = t => t.toLocaleString('en', { minimumFractionDigits: 3, maximumFractionDigits: 3 }) + ' s'

function go(to, quiet) {
  now = Math.max(0, Math.min(end, to))
  for (const b of boards) show(b, now)
  const times = boards.filter(b => !b.run.course).map(b => b.run.frames[now].time)
  $('slider').value = now
  $('slider').setAttribute('aria-valuetext', `step ${now} of ${end}: ${told(now)}`)
  $('where').textContent = `step ${now} of ${end}`
  $('time').textContent = times.length ? ' · ' + seconds(Math.max(...times)) + connection : ''
  for (const id of ['first', 'back']) $(id).disabled = now === 0
  for (const id of ['next', 'last']) $(id).disabled = now === end
  $('event').disabled = nextEvent(1) === undefined
  for (const b of boards) arrows(b, now)
  light()
  events()
  document.documentElement.dataset.step = now
  if (!quiet) remember()
}

// told describes a step in a few words.
const told = i => boards.map(({ run }) => run.frames[i].call || run.frames[i].said[0]).filter(Boolean).join(' | ')

// ---- Events: the steps in which something happens besides writing tokens.

const isEvent = i => boards.some(b => eventful(b.run, i))
function nextEvent(by) {
  for (let i = now + by; i >= 0 && i <= end; i += by) if (isEvent(i)) return i
}
function events() {
  const list = $('event-list')
  if (!$('events').open) return
  const all = $('every').checked
  if (live || list.children.length === 0) {
    list.replaceChildren(...boards[0].run.frames.map((_, i) => i).filter(i => all || i === 0 || isEvent(i)).map(i => {
      const li = make('li'), button = make('button')
      button.type = 'button'
      button.value = i
      button.append(make('span', 'number', i), make('span', '', told(i) || '–'))
      li.append(button)
      return li
    }))
  }
  list.querySelectorAll('[aria-current]').forEach(e => e.removeAttribute('aria-current'))
  const current = [...list.querySelectorAll('button')].filter(e => Number(e.value) <= now).pop()
  current.setAttribute('aria-current', Number(current.value) === now ? 'step' : 'false')
  list.scrollTop = current.parentElement.offsetTop - list.clientHeight / 2
}

// ---- The address names the story, the step, and the one board that is shown.

// remember puts the step into the address, once there is a moment's rest: a
// browser refuses to do that many times a second.
let resting
function remember() {
  clearTimeout(resting)
  resting = setTimeout(() => {
    const hash = live && now === end ? '' : address()
    if (location.hash !== hash) history.replaceState(null, '', hash || location.pathname)
  }, 250)
}
const address = () => '#' + (scenes.length > 1 ? `story=${scenes[scene].name}&` : '') + ($('which').value ? `show=${$('which').value}&` : '') + 'step=' + now
function fromHash() {
  const said = new URLSearchParams(location.hash.slice(1)), number = parseInt(said.get('step')), story = said.get('story')
  $('no-story').hidden = story === null || scenes.some(s => s.name === story)
  $('no-story').textContent = `This page has no story “${story}”. It has ${scenes.map(s => s.name).join(', ')}.`
  return { scene: Math.max(0, scenes.findIndex(s => s.name === story)), step: number >= 0 ? number : live ? end : 0, which: said.get('show') || '' }
}
function follow() {
  const to = fromHash()
  if (to.scene !== scene) enter(to.scene)
  if (to.which !== $('which').value) only(to.which)
  go(fromHash().step, true)
}

// ---- Playing.

function pause() {
  clearInterval(timer)
  timer = undefined
  $('play').textContent = '▶ Play'
  aloud('polite')
}
const aloud = how => { for (const b of boards) b.parts.said.setAttribute('aria-live', how) }
function start() {
  clearInterval(timer)
  if (now === end) go(0)
  $('play').textContent = '❚❚ Pause'
  aloud('off')
  timer = setInterval(() => { go(now + 1); if (now === end) pause() }, 1000 / Number($('speed').value))
}
const toggle = () => timer === undefined ? start() : pause()
const step = by => { pause(); go(now + by) }
const jump = by => { pause(); const to = nextEvent(by); if (to !== undefined) go(to) }

$('first').onclick = () => step(-end)
$('last').onclick = () => step(end)
$('back').onclick = () => step(-1)
$('next').onclick = () => step(1)
$('event').onclick = () => jump(1)
$('play').onclick = toggle
$('speed').onchange = () => { if (timer !== undefined) start() }
$('slider').oninput = () => { pause(); go(Number($('slider').value)) }
$('keys').onclick = () => $('help').showModal()
$('story').onchange = () => { pause(); enter(Number($('story').value)); go(0) }
$('which').onchange = () => { only($('which').value); go(now) }
$('events').addEventListener('toggle', events)
$('every').onchange = () => { $('event-list').replaceChildren(); events() }
$('event-list').addEventListener('click', e => { const at = e.target.closest('button'); if (at) { pause(); go(Number(at.value)) } })

addEventListener('hashchange', () => { clearTimeout(resting); if (location.hash !== address()) { pause(); follow() } })
let resized
addEventListener('resize', () => { cancelAnimationFrame(resized); resized = requestAnimationFrame(() => refit(boards)) })

// ---- Keys.

// move goes to another block of a grid, or another entry of a table.
function move(from, key) {
  const grid = from.closest('.pool'), by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -1, ArrowDown: 1 }[key], level = key === 'ArrowLeft' || key === 'ArrowRight'
  const list = [...(grid || from.closest('.tables')).querySelectorAll('.cell, .entry')]
  let to = list[list.indexOf(from) + by]
  if (!level && grid) to = across(list, from, by)
  if (!level && !grid) {
    const rows = [...from.closest('.tables').children], row = rows[rows.indexOf(from.closest('.table')) + by]
    to = row && row.querySelector('.entry')
  }
  if (!to) return
  from.tabIndex = -1
  to.tabIndex = 0
  to.focus()
}

// across is the cell above or below, as they are drawn.
function across(list, from, by) {
  const at = from.getBoundingClientRect(), places = list.map(e => [e, e.getBoundingClientRect()])
  const beyond = places.filter(([, r]) => by * (r.top - at.top) > 2), rows = beyond.map(([, r]) => r.top)
  const row = by > 0 ? Math.min(...rows) : Math.max(...rows)
  let best
  for (const [e, r] of beyond) if (Math.abs(r.top - row) < 2 && (!best || Math.abs(r.left - at.left) < Math.abs(best[1].left - at.left))) best = [e, r]
  return best && best[0]
}

addEventListener('keydown', e => {
  if (e.ctrlKey || e.altKey || e.metaKey || $('help').open) return
  const at = e.target, within = selector => at.closest && at.closest(selector), inBlocks = within('.cell, .entry'), onControl = within('button, select, input[type=checkbox], summary')
  const keys = {
    ArrowLeft: () => step(-1), ArrowRight: () => step(1), ',': () => step(-1), '.': () => step(1), PageUp: () => step(-10), PageDown: () => step(10),
    Home: () => step(-end), End: () => step(end), ' ': toggle, n: () => jump(1), p: () => jump(-1), '?': () => $('help').showModal(), '/': () => $('help').showModal(),
  }
  if (within('.table h3') && (e.key === 'Enter' || e.key === ' ')) keep(named(e))
  else if (inBlocks && e.key.startsWith('Arrow')) move(inBlocks, e.key)
  else if (inBlocks && e.key === 'Enter') pin(boardOf(inBlocks), inBlocks)
  else if (e.key === 'Escape') { kept = pointed = undefined; for (const b of boards) { b.pinned = undefined; details(b) } light(); return }
  else if (!keys[e.key] || within('select') || onControl && e.key === ' ') return
  else keys[e.key]()
  e.preventDefault()
})
const boardOf = e => boards.find(b => b.element.contains(e))
